import type { Presence, Renewals } from "@larkline/store";

interface Heartbeats {
  presence: Presence;
  renewals: Renewals;
}

/**
 * Whether a worker has died: its heartbeat has expired and it has not said that it ends. Right after an outage of Redis
 * no heartbeat is there until every worker has renewed its own, so this waits for that. Rejects while Redis takes no
 * heartbeats: then it cannot be told.
 */
export async function hasDied(heartbeats: Heartbeats, owner: string): Promise<boolean> {
  const { presence, renewals } = heartbeats;
  if ((await presence.alive([owner])).has(owner) || (await presence.hasLeft(owner))) return false;
  if (!renewals.isTaken()) throw new Error("Redis takes no heartbeats: who lives cannot be told");
  return (await silentAmong(heartbeats, [owner])).has(owner);
}

/** Those of `owners` that have no heartbeat, dead or ended; none while Redis takes no heartbeats. Waits as above. */
export async function silentAmong({ presence, renewals }: Heartbeats, owners: readonly string[]): Promise<Set<string>> {
  const silent = await withoutHeartbeat(presence, owners);
  if (silent.size === 0 || renewals.isSteady()) return silent;
  // Renewals of a busy machine may be late again and again: each time it is enough to look a second time.
  if (renewals.isTaken()) await renewals.settled();
  return renewals.isTaken() ? await withoutHeartbeat(presence, [...silent]) : new Set();
}

async function withoutHeartbeat(presence: Presence, owners: readonly string[]): Promise<Set<string>> {
  const alive = await presence.alive(owners);
  return new Set(owners.filter((owner) => !alive.has(owner)));
}
