import { setTimeout as delay } from "node:timers/promises";

/** The heartbeats of workers, as far as a beating one needs them. */
export interface Beats {
  beat(id: string, ttlMs: number): Promise<void>;
  leave(id: string): Promise<void>;
  /** Those of `ids` that live. */
  alive(ids: readonly string[]): Promise<Set<string>>;
  /** Whether it has said that it ends. */
  hasLeft(id: string): Promise<boolean>;
}

export interface Heartbeat {
  /**
   * Whether a worker has died: it beats no more and has not said that it ends. Waits for a beat where Redis has been
   * away just now. Rejects while Redis takes no beats: then it cannot be told.
   */
  hasDied(owner: string): Promise<boolean>;
  /** Whether beats are taken, and have been for so long that those of all who live are there. */
  isSteady(): boolean;
  close(): Promise<void>;
}

const intervalMs = 750;
const ttlMs = 2_500;

/**
 * Says several times a second-and-a-half that this worker lives. When it dies its sessions are
 * given to others after `ttlMs`; when it only stalls they are too, and its late writes are fenced.
 */
export async function startHeartbeat(options: {
  presence: Beats;
  owner: string;
  onError: (error: unknown) => void;
}): Promise<Heartbeat> {
  const { presence, owner, onError } = options;
  let lastMs = performance.now();
  let steadySinceMs = Number.NEGATIVE_INFINITY;
  const beat = async (): Promise<void> => {
    await presence.beat(owner, ttlMs);
    const nowMs = performance.now();
    if (nowMs - lastMs > ttlMs) steadySinceMs = nowMs;
    lastMs = nowMs;
  };
  await beat();
  const timer = setInterval(() => void beat().catch(onError), intervalMs);
  const isAlive = async (other: string): Promise<boolean> => (await presence.alive([other])).has(other);
  const isTaken = (): boolean => performance.now() - lastMs <= ttlMs;
  return {
    isSteady: () => isTaken() && performance.now() - steadySinceMs > 2 * intervalMs,
    hasDied: async (other) => {
      if ((await isAlive(other)) || (await presence.hasLeft(other))) return false;
      if (!isTaken()) throw new Error("Redis takes no heartbeats: who lives cannot be told");
      // After an outage of Redis no beat is there, until every worker has beaten once more.
      if (performance.now() - steadySinceMs > 2 * ttlMs) return true;
      await delay(2 * intervalMs);
      return !(await isAlive(other));
    },
    close: async () => {
      clearInterval(timer);
      await presence.leave(owner).catch(onError);
    },
  };
}
