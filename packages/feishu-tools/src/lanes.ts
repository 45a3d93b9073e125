/**
 * One writer at a time for each object, such as a table, whose parallel writes the platform refuses. People take turns,
 * so that the import of one does not hold up the others. For calls outside of runners, which have locks that all of
 * their processes share.
 */
export class Lanes {
  readonly #lanes = new Map<string, Map<string, (() => void)[]>>();

  /** Runs the work when the object is free. Rejects with the signal's reason when that comes first. */
  async run<T>(
    object: string,
    person: string,
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T> {
    await this.#enter(object, person, signal);
    try {
      return await work();
    } finally {
      this.#leave(object);
    }
  }

  async #enter(object: string, person: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const waiting = this.#lanes.get(object);
    if (waiting === undefined) {
      this.#lanes.set(object, new Map());
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const mine = waiting.get(person) ?? [];
      const enter = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        mine.splice(mine.indexOf(enter), 1);
        if (mine.length === 0) waiting.delete(person);
        reject(
          signal.reason instanceof Error ? signal.reason : new Error("the call was cancelled"),
        );
      };
      signal.addEventListener("abort", leave, { once: true });
      mine.push(enter);
      waiting.set(person, mine);
    });
  }

  #leave(object: string): void {
    const waiting = this.#lanes.get(object);
    const [next] = waiting ?? [];
    if (waiting === undefined || next === undefined) {
      this.#lanes.delete(object);
      return;
    }
    const [person, mine] = next;
    const enter = mine.shift();
    // A person who waits with more goes behind the others.
    waiting.delete(person);
    if (mine.length > 0) waiting.set(person, mine);
    enter?.();
  }
}
