/** A number of places that callers take in the order in which they came. */
export class Gate {
  readonly #waiting = new Set<() => void>();
  #free: number;

  constructor(places: number) {
    this.#free = places;
  }

  /** Resolves with a function that gives the place back, to be called once; rejects with the signal's reason on abort. */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free === 0) await this.#turn(signal);
    else this.#free -= 1;
    return () => this.#leave();
  }

  /** The same, but does not wait: undefined when there is no place. */
  tryEnter(): (() => void) | undefined {
    if (this.#free === 0) return undefined;
    this.#free -= 1;
    return () => this.#leave();
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const enter = (): void => {
      this.#waiting.delete(enter);
      resolve();
    };
    const giveUp = (): void => {
      this.#waiting.delete(enter);
      reject(signal.reason);
    };
    this.#waiting.add(enter);
    signal.addEventListener("abort", giveUp, { once: true });
    await promise.finally(() => signal.removeEventListener("abort", giveUp));
  }

  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else next();
  }
}
