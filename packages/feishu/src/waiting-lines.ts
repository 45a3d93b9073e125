import { TransportFailure } from "./http-transport.ts";

/** Lines of waiters, one per key, first come first served. */
export interface WaitingLines {
  /** Whether somebody is in the line of this key. */
  isCrowded(key: string): boolean;
  /**
   * `first`: nobody was in the line; `turn`: waited, and it is this one's turn now; `late`: the
   * deadline (`performance.now()`) came first, and this one is out of the line. Rejects when aborted.
   */
  enter(key: string, wait: { deadline: number; signals: readonly AbortSignal[] }): Promise<"first" | "turn" | "late">;
  /** The one whose turn it was lets the next one go. */
  leave(key: string): void;
}

export function createWaitingLines(): WaitingLines {
  /** Those behind the one whose turn it is. */
  const lines = new Map<string, (() => void)[]>();

  return {
    isCrowded: (key) => lines.has(key),
    enter: async (key, { deadline, signals }) => {
      if (signals.some(({ aborted }) => aborted)) throw new TransportFailure("aborted", false, "aborted");
      const line = lines.get(key);
      if (line === undefined) {
        lines.set(key, []);
        return "first";
      }
      return await new Promise((resolve, reject) => {
        const settle = (finish: () => void): void => {
          clearTimeout(timer);
          for (const signal of signals) signal.removeEventListener("abort", onAbort);
          const at = line.indexOf(onTurn);
          if (at >= 0) line.splice(at, 1);
          finish();
        };
        const onTurn = (): void => settle(() => resolve("turn"));
        const onAbort = (): void => settle(() => reject(new TransportFailure("aborted", false, "aborted")));
        const timer = setTimeout(() => settle(() => resolve("late")), Math.max(0, deadline - performance.now()));
        for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
        line.push(onTurn);
      });
    },
    leave: (key) => {
      const next = lines.get(key)?.shift();
      if (next === undefined) lines.delete(key);
      else next();
    },
  };
}
