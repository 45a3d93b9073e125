import type { Presence, Renewals } from "@larkline/store";

/**
 * Whether a worker has died: it beats no more and has not said that it ends. Waits for a beat where Redis has been
 * away just now. Rejects while Redis takes no beats: then it cannot be told.
 */
export async function hasDied(
  { presence, renewals }: { presence: Presence; renewals: Renewals },
  owner: string,
): Promise<boolean> {
  const isAlive = async (): Promise<boolean> => (await presence.alive([owner])).has(owner);
  if ((await isAlive()) || (await presence.hasLeft(owner))) return false;
  if (!renewals.isTaken()) throw new Error("Redis takes no heartbeats: who lives cannot be told");
  if (renewals.isSteady()) return true;
  // After an outage of Redis no beat is there, until every worker has beaten once more.
  await renewals.settled();
  return !(await isAlive());
}
