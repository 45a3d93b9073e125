/** A number of places. Callers take them in the order in which they came, except that one owner never holds them all. */
export interface Slots {
  /**
   * Resolves with a function that gives the place back; rejects with the signal's reason on abort. Of several places
   * one is always left to others than `owner`; takers without an owner are all different.
   */
  take(signal: AbortSignal, owner?: string): Promise<() => void>;
}

interface Waiter {
  owner: string | undefined;
  enter(): void;
}

export function createSlots(count: number): Slots {
  const share = Math.max(1, count - 1);
  const held = new Map<string, number>();
  const waiting = new Set<Waiter>();
  let free = count;

  function mayEnter(owner: string | undefined): boolean {
    return free > 0 && (owner === undefined || (held.get(owner) ?? 0) < share);
  }

  function enter(owner: string | undefined): () => void {
    free -= 1;
    if (owner !== undefined) held.set(owner, (held.get(owner) ?? 0) + 1);
    return () => leave(owner);
  }

  function leave(owner: string | undefined): void {
    free += 1;
    if (owner !== undefined) {
      const left = (held.get(owner) ?? 0) - 1;
      if (left > 0) held.set(owner, left);
      else held.delete(owner);
    }
    for (const waiter of waiting) if (mayEnter(waiter.owner)) waiter.enter();
  }

  return {
    async take(signal, owner) {
      signal.throwIfAborted();
      if (mayEnter(owner)) return enter(owner);
      const { promise, resolve, reject } = Promise.withResolvers<() => void>();
      const waiter: Waiter = {
        owner,
        enter: () => {
          waiting.delete(waiter);
          resolve(enter(owner));
        },
      };
      const giveUp = (): void => {
        waiting.delete(waiter);
        reject(signal.reason);
      };
      waiting.add(waiter);
      signal.addEventListener("abort", giveUp, { once: true });
      return await promise.finally(() => signal.removeEventListener("abort", giveUp));
    },
  };
}
