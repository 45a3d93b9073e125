/** Remembers a value per id for a limited time. */
export class Remembered<T> {
  readonly #entries = new Map<string, { value: T; untilMs: number }>();
  readonly #ttlMs: number;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  get(id: string, nowMs: number): T | undefined {
    // Entries are in order of expiry: all live equally long.
    for (const [old, { untilMs }] of this.#entries) {
      if (untilMs > nowMs) break;
      this.#entries.delete(old);
    }
    return this.#entries.get(id)?.value;
  }

  set(id: string, value: T, nowMs: number): void {
    this.#entries.delete(id);
    this.#entries.set(id, { value, untilMs: nowMs + this.#ttlMs });
  }

  delete(id: string): void {
    this.#entries.delete(id);
  }
}
