import type { ModelFailure } from "@larkline/protocol";

/** How broken calls are repeated. Times in ms. */
export interface RetryPolicy {
  /** Calls of one model before the next one is tried. */
  attempts: number;
  /** Upper bound of the first wait; doubles with each further one. The wait itself is random below it. */
  baseMs: number;
  maxMs: number;
  /** A vendor that asks for a longer wait than this is not waited for. */
  maxRetryAfterMs: number;
}

export const defaultRetry: RetryPolicy = { attempts: 3, baseMs: 500, maxMs: 8_000, maxRetryAfterMs: 30_000 };

/** Where a broken call leaves us: `attempt` counts from 1 on the current model. */
export interface RetrySituation {
  failure: ModelFailure;
  attempt: number;
  hasFallback: boolean;
  /** A number from 0 to 1, for the jitter. */
  random: number;
}

export type RetryDecision = { step: "again"; waitMs: number } | { step: "next_model" } | { step: "give_up" };

function waitMsOf(situation: RetrySituation, policy: RetryPolicy): number {
  const ceiling = Math.min(policy.maxMs, policy.baseMs * 2 ** (situation.attempt - 1));
  const jittered = ceiling * (0.5 + situation.random / 2);
  return Math.max(jittered, situation.failure.retryAfterMs ?? 0);
}

/**
 * What follows a broken call. What the vendor will refuse again is not repeated on the same model;
 * every failure may move on to the next model, because another vendor can judge differently.
 */
export function planRetry(situation: RetrySituation, policy: RetryPolicy): RetryDecision {
  const { failure, attempt, hasFallback } = situation;
  const worthWaiting = (failure.retryAfterMs ?? 0) <= policy.maxRetryAfterMs;
  if (failure.retryable && attempt < policy.attempts && worthWaiting) {
    return { step: "again", waitMs: waitMsOf(situation, policy) };
  }
  return hasFallback ? { step: "next_model" } : { step: "give_up" };
}
