import { setTimeout as delay } from "node:timers/promises";

/** The heartbeats of workers, as far as a beating one needs them. */
export interface Beats {
  beat(id: string, ttlMs: number): Promise<void>;
  leave(id: string): Promise<void>;
  /** Those of `ids` that live. */
  alive(ids: readonly string[]): Promise<Set<string>>;
}

export interface Heartbeat {
  /** Whether a worker lives, as far as its own beats tell; waits for one where Redis has been away just now. */
  isAlive(owner: string): Promise<boolean>;
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
  return {
    isAlive: async (other) => {
      if (await isAlive(other)) return true;
      // After an outage of Redis nobody's beat is there, until everybody has beaten once more.
      if (performance.now() - steadySinceMs > 2 * ttlMs) return false;
      await delay(2 * intervalMs);
      return await isAlive(other);
    },
    close: async () => {
      clearInterval(timer);
      await presence.leave(owner).catch(onError);
    },
  };
}
