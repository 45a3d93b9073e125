import { silentInstanceMs, type InstanceDirectory, type KnownInstance } from "./instance-directory.ts";

/** An instance directory for one process. `now` is the clock, epoch ms. */
export function createMemoryInstanceDirectory({ now = Date.now }: { now?: () => number } = {}): InstanceDirectory {
  const known = new Map<string, KnownInstance>();
  return {
    announce: async (instance, ttlMs) => {
      known.set(instance.id, structuredClone({ ...instance, expiresAtMs: now() + ttlMs }));
    },
    withdraw: async (id) => {
      known.delete(id);
    },
    instances: async () => {
      const oldestMs = now() - silentInstanceMs;
      return structuredClone([...known.values()].filter(({ expiresAtMs }) => expiresAtMs > oldestMs));
    },
  };
}
