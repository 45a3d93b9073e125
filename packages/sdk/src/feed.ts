/** Something that a view returns, with the position to continue after. */
export interface Emission<T> {
  value: T;
  /** Empty: the beginning. */
  id: string;
  /** Characters of it as JSON. */
  size: number;
}

/** Opens a view after a position. */
export type Source<T> = (after: string, signal: AbortSignal) => AsyncIterable<Emission<T>>;

/**
 * What one view returns, for any number of readers: each of them sees all of it, from the beginning. At most
 * `maxCharacters` are kept. When there is more, the source waits until its fastest reader comes on, and what that one
 * has read goes; a reader that begins later, or has fallen behind, gets it from the source once more.
 */
export class Feed<T> {
  readonly #open: Source<T>;
  readonly #maxCharacters: number;
  readonly #after: string;
  readonly #stopping = new AbortController();
  readonly #readers = new Set<{ at: number }>();
  /** What is kept, and how much came before it. */
  #kept: Emission<T>[] = [];
  #gone = 0;
  #size = 0;
  #waiting: (() => void)[] = [];
  #state: "unopened" | "open" | "ended" = "unopened";
  #failure: { error: unknown } | undefined;

  constructor(open: Source<T>, maxCharacters: number, after = "") {
    this.#open = open;
    this.#maxCharacters = maxCharacters;
    this.#after = after;
  }

  /** Whether the source has ended. */
  get hasEnded(): boolean {
    return this.#state === "ended";
  }

  /** Characters that are kept. */
  get size(): number {
    return this.#size;
  }

  /** Opens the source with its first reader. Throws what the source throws. */
  async *read(): AsyncGenerator<T> {
    const reader = { at: 0 };
    let last = this.#after;
    this.#readers.add(reader);
    if (this.#state === "unopened") void this.#fill();
    try {
      for (;;) {
        if (reader.at < this.#gone) break;
        const next = this.#kept[reader.at - this.#gone];
        if (next !== undefined) {
          reader.at += 1;
          last = next.id;
          this.#wake();
          yield next.value;
        } else if (this.#failure !== undefined) throw this.#failure.error;
        else if (this.#state === "ended") return;
        else await this.#change();
      }
    } finally {
      this.#readers.delete(reader);
      this.#wake();
    }
    yield* this.#again(last);
  }

  /** The rest for a reader that is behind what is kept. */
  async *#again(last: string): AsyncGenerator<T> {
    const rest = new Feed(this.#open, this.#maxCharacters, last);
    const stop = (): void => rest.stop();
    this.#stopping.signal.addEventListener("abort", stop, { once: true });
    if (this.#stopping.signal.aborted) stop();
    try {
      yield* rest.read();
    } finally {
      this.#stopping.signal.removeEventListener("abort", stop);
      stop();
    }
  }

  /** Closes the source. */
  stop(): void {
    this.#stopping.abort();
    this.#wake();
  }

  async #fill(): Promise<void> {
    this.#state = "open";
    try {
      for await (const emission of this.#open(this.#after, this.#stopping.signal)) {
        this.#kept.push(emission);
        this.#size += emission.size;
        this.#wake();
        await this.#room();
      }
    } catch (error) {
      this.#failure = { error };
    }
    this.#state = "ended";
    this.#wake();
  }

  /** Forgets what the fastest reader has read, as far as there is too much. */
  async #room(): Promise<void> {
    while (this.#size > this.#maxCharacters && !this.#stopping.signal.aborted) {
      const fastest = Math.max(0, ...[...this.#readers].map(({ at }) => at));
      const oldest = this.#gone < fastest ? this.#kept.shift() : undefined;
      if (oldest === undefined) await this.#change();
      else {
        this.#gone += 1;
        this.#size -= oldest.size;
      }
    }
  }

  async #change(): Promise<void> {
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
