/** A number of places that callers take in the order in which they came. */
export interface Slots {
  /** Resolves with a function that gives the place back; rejects with the signal's reason on abort. */
  take(signal: AbortSignal): Promise<() => void>;
}

export function createSlots(count: number): Slots {
  let free = count;
  const waiting = new Set<() => void>();

  function release(): void {
    const [next] = waiting;
    if (next === undefined) free += 1;
    else next();
  }

  return {
    async take(signal) {
      signal.throwIfAborted();
      if (free > 0) {
        free -= 1;
        return release;
      }
      const { promise, resolve, reject } = Promise.withResolvers<() => void>();
      const enter = (): void => {
        waiting.delete(enter);
        resolve(release);
      };
      const leave = (): void => {
        waiting.delete(enter);
        reject(signal.reason);
      };
      waiting.add(enter);
      signal.addEventListener("abort", leave, { once: true });
      return await promise.finally(() => signal.removeEventListener("abort", leave));
    },
  };
}
