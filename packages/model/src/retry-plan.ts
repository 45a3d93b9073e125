import type { ModelFailure } from "@larkline/protocol";

/** How broken calls are repeated. Times in ms. */
export interface RetryPolicy {
  /** Calls of one model in a row before the next one is tried, or the step is put off. */
  attempts: number;
  /** Upper bound of the first wait between them; doubles with each further one. The wait itself is random below it. */
  baseMs: number;
  /** The longest wait that holds a slot; for a longer one the step is put off. */
  inPlaceMs: number;
  /** A vendor that asks for a longer wait is not waited for where there is a fallback. */
  maxRetryAfterMs: number;
  /** The first wait of a step that is put off, and the longest. */
  firstPutOffMs: number;
  longestPutOffMs: number;
  /** From the first failure of a step until it is given up. */
  giveUpMs: number;
}

export const defaultRetry: RetryPolicy = {
  attempts: 3,
  baseMs: 500,
  inPlaceMs: 3_000,
  maxRetryAfterMs: 60_000,
  firstPutOffMs: 2_000,
  longestPutOffMs: 60_000,
  giveUpMs: 300_000,
};

/** What became of a step before this stream: it may have been put off several times. */
export interface StepPast {
  /** How often it was put off. */
  rounds: number;
  /** Since its first failure. */
  elapsedMs: number;
  /** How long the vendor was waited for because it asked for that. */
  askedWaitMs: number;
}

export const noPast: StepPast = { rounds: 0, elapsedMs: 0, askedWaitMs: 0 };

/** Where a broken call leaves us: `attempt` counts from 1 on the current model, in this round. */
export interface RetrySituation {
  failure: ModelFailure;
  attempt: number;
  hasFallback: boolean;
  past: StepPast;
  /** A number from 0 to 1, for the jitter. */
  random: number;
}

export type RetryDecision =
  | { step: "again"; waitMs: number }
  | { step: "next_model" }
  /** The whole step is asked again after this time, from the first model on, without a slot meanwhile. */
  | { step: "put_off"; waitMs: number }
  | { step: "give_up" };

function jittered(ceilingMs: number, random: number): number {
  return Math.round(ceilingMs * (0.5 + random / 2));
}

/** The wait before the step is put off once more: it grows from round to round. */
export function putOffMs({ past, random }: Pick<RetrySituation, "past" | "random">, policy: RetryPolicy): number {
  return jittered(Math.min(policy.longestPutOffMs, policy.firstPutOffMs * 2 ** past.rounds), random);
}

function putOff(waitMs: number, past: StepPast, policy: RetryPolicy): RetryDecision {
  return past.elapsedMs + waitMs <= policy.giveUpMs
    ? { step: "put_off", waitMs: Math.round(waitMs) }
    : { step: "give_up" };
}

/**
 * What follows a broken call. What the vendor will refuse again is not repeated on the same model; every failure may
 * move on to the next model, because another vendor can judge differently. A vendor that was silent goes to the
 * fallback at once; one that asks for a wait gets it, within bounds. Short waits happen in place; for long ones, and
 * when all models have failed, the step is put off.
 */
export function planRetry(situation: RetrySituation, policy: RetryPolicy): RetryDecision {
  const { failure, attempt, hasFallback, past, random } = situation;
  if (!failure.retryable) return hasFallback ? { step: "next_model" } : { step: "give_up" };
  const asked = failure.retryAfterMs;
  if (asked !== undefined) {
    const isBearable = past.askedWaitMs + asked <= policy.maxRetryAfterMs;
    if (hasFallback && !isBearable) return { step: "next_model" };
    if (asked <= policy.inPlaceMs && attempt < policy.attempts) return { step: "again", waitMs: asked };
    return putOff(Math.max(asked, isBearable ? 0 : putOffMs(situation, policy)), past, policy);
  }
  const isSilent = failure.silent === true;
  if (!isSilent && attempt < policy.attempts && past.rounds === 0) {
    return { step: "again", waitMs: jittered(policy.baseMs * 2 ** (attempt - 1), random) };
  }
  return hasFallback ? { step: "next_model" } : putOff(putOffMs(situation, policy), past, policy);
}
