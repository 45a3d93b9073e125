/** What one source tells, for any number of readers: each of them sees all of it from the beginning. */
export class Feed<T> {
  readonly #open: (signal: AbortSignal) => AsyncIterable<T>;
  readonly #told: T[] = [];
  readonly #stopping = new AbortController();
  #waiting: (() => void)[] = [];
  #state: "unopened" | "open" | "ended" = "unopened";
  #failure: { error: unknown } | undefined;

  constructor(open: (signal: AbortSignal) => AsyncIterable<T>) {
    this.#open = open;
  }

  /** Whether the source has told everything. */
  get hasEnded(): boolean {
    return this.#state === "ended";
  }

  /** Opens the source with its first reader. Throws what the source throws. */
  async *read(): AsyncGenerator<T> {
    if (this.#state === "unopened") void this.#fill();
    for (let at = 0; ; at += 1) {
      while (at >= this.#told.length) {
        if (this.#failure !== undefined) throw this.#failure.error;
        if (this.#state === "ended") return;
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
      yield this.#told[at] as T; // it is shorter than the list
    }
  }

  /** Closes the source. */
  stop(): void {
    this.#stopping.abort();
  }

  async #fill(): Promise<void> {
    this.#state = "open";
    try {
      for await (const one of this.#open(this.#stopping.signal)) {
        this.#told.push(one);
        this.#wake();
      }
    } catch (error) {
      this.#failure = { error };
    }
    this.#state = "ended";
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
