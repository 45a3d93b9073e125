/*
 * What this process knows of one model: whether it answers at all, and how many calls wait for it in silence. Kept per
 * process and not in Redis: a call needs no round trip for it, the slots that are shared out are this process's own,
 * and a vendor may be out of reach from one machine only. The price is that each process learns by itself.
 */

/** How many failures in a row open the circuit, and for how long: it doubles up to the longest. */
const failuresToOpen = 5;
const shortestOpenMs = 10_000;
const longestOpenMs = 120_000;
/** After this time without a byte a call that had begun counts as silent again. */
const quietMs = 5_000;
/** Part of the slots that calls may hold which wait for the same model without a sign of life. */
const silentShare = 0.8;

/** A call that may be made, or why not: `open`, it has failed too often lately; `crowded`, too many wait for it. */
export type Admission = { call: HealthCall } | { refused: "open" | "crowded"; waitMs: number };

/** One call of the model. */
export interface HealthCall {
  alive(): void;
  /** `neutral` says nothing about the model: the caller has left, or was told to slow down. */
  ended(how: "answered" | "failed" | "neutral"): void;
}

/** The circuit breaker of one model, and its share of the slots of this process. */
export class ModelHealth {
  readonly #now: () => number;
  readonly #maxSilent: number;
  readonly #calls = new Set<{ aliveMs: number | undefined }>();
  #failures = 0;
  #openUntilMs = 0;
  #openMs = 0;
  #probing = false;

  constructor({ slots, now }: { slots: number; now: () => number }) {
    this.#now = now;
    this.#maxSilent = slots === Number.POSITIVE_INFINITY ? slots : Math.max(1, Math.floor(slots * silentShare));
  }

  admit(): Admission {
    const nowMs = this.#now();
    const isOpen = this.#openMs > 0;
    // Once the time is over, one call finds out whether the model is back.
    if (isOpen && (nowMs < this.#openUntilMs || this.#probing)) {
      return { refused: "open", waitMs: Math.max(1_000, this.#openUntilMs - nowMs) };
    }
    if (this.#silentCalls(nowMs) >= this.#maxSilent) return { refused: "crowded", waitMs: 1_000 };
    const call: { aliveMs: number | undefined } = { aliveMs: undefined };
    this.#calls.add(call);
    this.#probing = isOpen;
    return {
      call: {
        alive: () => (call.aliveMs = this.#now()),
        ended: (how) => {
          if (this.#calls.delete(call)) this.#ended(how, isOpen);
        },
      },
    };
  }

  #silentCalls(nowMs: number): number {
    let silent = 0;
    for (const { aliveMs } of this.#calls) if (aliveMs === undefined || nowMs - aliveMs > quietMs) silent += 1;
    return silent;
  }

  #ended(how: "answered" | "failed" | "neutral", wasProbe: boolean): void {
    if (wasProbe) this.#probing = false;
    if (how === "answered") {
      this.#failures = 0;
      this.#openMs = 0;
    }
    if (how !== "failed") return;
    this.#failures += 1;
    if (!wasProbe && (this.#openMs > 0 || this.#failures < failuresToOpen)) return;
    this.#openMs = Math.min(longestOpenMs, Math.max(shortestOpenMs, this.#openMs * 2));
    this.#openUntilMs = this.#now() + this.#openMs;
  }
}
