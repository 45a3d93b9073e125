/** How often the thread looks, ms. */
export const lookEveryMs = 500;

/**
 * How long an event loop has stood still, as another thread sees it by the beats of the loop. Only time in which that
 * thread ran itself counts: while the process was stopped or the machine slept neither ran, and nothing stood still.
 */
export class StallCount {
  #beats: number | undefined;
  #lookedAtMs = 0;
  #stalledMs = 0;

  /** `beats`: how often the loop has beaten; `nowMs`: by a clock that never goes back. Returns ms without a beat. */
  look(beats: number, nowMs: number): number {
    const sinceMs = nowMs - this.#lookedAtMs;
    const hasBeaten = beats !== this.#beats;
    this.#stalledMs = hasBeaten ? 0 : this.#stalledMs + Math.min(sinceMs, lookEveryMs);
    this.#beats = beats;
    this.#lookedAtMs = nowMs;
    return this.#stalledMs;
  }
}
