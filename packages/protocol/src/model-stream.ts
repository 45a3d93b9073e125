import type { ProviderMetadata } from "./content.ts";

// What a model backend streams: deltas, then exactly one `message_stop` or `error`.

/** Why a model stopped. Vendor reasons are mapped onto these five. */
export const stopReasons = ["end_turn", "tool_use", "max_tokens", "refusal", "other"] as const;

export type StopReason = (typeof stopReasons)[number];

/** Raw token counts of one model answer. `inputTokens` excludes both cache counters. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheCreationTokens: number;
}

/**
 * A piece of text. Pieces with another `index` belong to another message of the same answer; `providerMetadata` may
 * come with any piece of a message and is merged.
 */
export interface TextDelta {
  type: "text_delta";
  text: string;
  index?: number;
  providerMetadata?: ProviderMetadata;
}

/**
 * A piece of thinking. Pieces with the same `index` belong to one block; `providerMetadata`
 * (for instance a signature) may come with any piece and is merged. With `opaque` in it, the piece is a whole block
 * that only the vendor understands, such as a call of one of its own tools.
 */
export interface ThinkingDelta {
  type: "thinking_delta";
  index: number;
  text: string;
  providerMetadata?: ProviderMetadata;
}

/** A piece of a tool call. Pieces with the same `index` belong to one call; `arguments` concatenate to JSON text. */
export interface ToolCallDelta {
  type: "tool_call_delta";
  index: number;
  id: string | null;
  name: string | null;
  arguments: string;
  providerMetadata?: ProviderMetadata;
}

/** The stream ended well. `model` is the id of the model that answered. */
export interface MessageStop {
  type: "message_stop";
  stopReason: StopReason;
  usage: Usage | null;
  model?: string;
  /** The id under which the vendor knows the answer. */
  responseId?: string;
  /** The answer has only paused, and may not be continued: as many requests as were allowed have been made. */
  paused?: true;
}

/** A value of the request was changed for this vendor, or something else non-fatal happened. */
export interface ModelWarning {
  type: "warning";
  code: string;
  message: string;
}

/** A vendor is called (again). Everything that follows, up to the next one, is of this call. */
interface ModelAttempt {
  type: "attempt";
  model: string;
  /** Most output tokens that the request allows. */
  maxTokens: number;
  /** The answer before it was complete and has only paused: this call continues it. */
  continues?: true;
}

/**
 * The answer begins anew (a retry or a fallback model after a broken stream): what came before
 * is void.
 */
interface ModelRestart {
  type: "restart";
  model: string;
  reason: string;
}

/** The stream failed; nothing follows. `partial` is true when deltas had already been delivered. */
export interface ModelFailure {
  type: "error";
  code: string;
  message: string;
  suggestion: string;
  retryable: boolean;
  partial: boolean;
  /** What the vendor asked us to wait, in ms. */
  retryAfterMs?: number;
  /** The vendor has said nothing for too long, or was not asked at all: another one is worth more than a repeat. */
  silent?: boolean;
  /** For operators alone: what the vendor said, and the id under which it finds the request. */
  vendor?: { message: string; requestId?: string };
  /** The vendor will refuse this request again, for what is in it: its `content`, by a filter, or anything else. */
  blames?: "content" | "request";
  /** The step is worth asking again after this time, in ms; the wait should hold no slot. */
  retryInMs?: number;
  /** With `retryInMs`: how long the vendor has been waited for by then because it asked for that, in ms. */
  askedWaitMs?: number;
}

/** A call of a vendor went wrong and another one follows: at once, or after `waitMs`. */
export interface ModelRetry {
  type: "retry";
  model: string;
  code: string;
  waitMs: number;
  /** Calls of this model in a row so far. */
  attempt: number;
  /** What people call the model that is asked next, where it is another one. */
  next?: string;
  /** For operators alone: what the vendor said, or what we found wrong. */
  problem: string;
  /** The id under which the vendor finds the request. */
  requestId?: string;
}

/** What the vendor has counted so far, before its answer is complete. */
export interface UsageSoFar {
  type: "usage_so_far";
  usage: Usage;
}

/**
 * One element of a model stream: any number of deltas, warnings and notes on its calls, then exactly one
 * `message_stop` or `error`. Model streams never throw.
 */
export type ModelChunk =
  | TextDelta
  | ThinkingDelta
  | ToolCallDelta
  | ModelWarning
  | ModelAttempt
  | ModelRetry
  | UsageSoFar
  | ModelRestart
  | MessageStop
  | ModelFailure;
