import { setTimeout as delay } from "node:timers/promises";
import type { ModelChunk, ModelFailure } from "@larkline/protocol";
import type { LlmBackend, ModelRequest } from "./backend.ts";
import type { ModelInfo } from "./model-info.ts";
import { defaultRetry, planRetry, type RetryPolicy } from "./retry-plan.ts";
import { defaultTimeouts, timedStream, type StreamTimeouts } from "./timed-stream.ts";

/** A model and the backend that reaches it. */
export interface ChainModel {
  info: ModelInfo;
  backend: LlmBackend;
}

export interface ModelChainOptions {
  /** The model to use, then its fallbacks in order. At least one. */
  models: readonly ChainModel[];
  retry?: Partial<RetryPolicy>;
  timeouts?: Partial<StreamTimeouts>;
  /** Milliseconds of a clock that never goes back. */
  now?: () => number;
  /** Resolves after `ms`, or rejects when the signal aborts. */
  sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  /** A number from 0 to 1, for the jitter. */
  random?: () => number;
}

/** What a caller says; the chain adds the model. */
export type ChainRequest = Omit<ModelRequest, "model" | "capabilities">;

/** One model with its fallbacks, seen as one reliable stream. */
export interface ModelChain {
  readonly primary: ModelInfo;
  /** Every model of the chain, the primary first; `message_stop.model` is the `id` of one of them. */
  readonly models: readonly ModelInfo[];
  /**
   * Answers, repeating and falling back as needed. Never throws. Yields exactly one `message_stop`
   * (its `model` filled) or `error`, last. When a broken call had delivered something, a `restart`
   * comes before the chunks of the next call: what came before it is void. An aborted stream ends
   * promptly, without a terminal chunk, and the vendor call is stopped.
   */
  stream(request: ChainRequest, signal?: AbortSignal): AsyncIterable<ModelChunk>;
}

interface ChainSettings {
  models: readonly ChainModel[];
  retry: RetryPolicy;
  timeouts: StreamTimeouts;
  now: () => number;
  sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  random: () => number;
}

interface AttemptEnd {
  failure: ModelFailure | null;
  delivered: boolean;
}

function isContent(chunk: ModelChunk): boolean {
  return chunk.type === "text_delta" || chunk.type === "thinking_delta" || chunk.type === "tool_call_delta";
}

async function* attempt(
  model: ChainModel,
  request: ChainRequest,
  context: { settings: ChainSettings; signal: AbortSignal | undefined },
): AsyncGenerator<ModelChunk, AttemptEnd> {
  const full: ModelRequest = { ...request, model: model.info.id, capabilities: model.info };
  const { timeouts, now } = context.settings;
  const chunks = timedStream((signal) => model.backend.stream(full, signal), {
    timeouts,
    now,
    signal: context.signal,
  });
  let delivered = false;
  for await (const chunk of chunks) {
    if (chunk.type === "error") return { failure: chunk, delivered };
    if (chunk.type === "message_stop") {
      yield { ...chunk, model: model.info.id };
      return { failure: null, delivered };
    }
    delivered ||= isContent(chunk);
    yield chunk;
  }
  return { failure: null, delivered };
}

/** Waits; false when the caller has gone. */
async function waited(settings: ChainSettings, waitMs: number, signal: AbortSignal | undefined): Promise<boolean> {
  try {
    await settings.sleep(waitMs, signal);
  } catch {
    return false;
  }
  return signal?.aborted !== true;
}

async function* run(
  settings: ChainSettings,
  request: ChainRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  let at = 0;
  let tries = 1;
  for (;;) {
    const model = settings.models[at];
    if (model === undefined || signal?.aborted === true) return;
    const end = yield* attempt(model, request, { settings, signal });
    const { failure } = end;
    if (failure === null) return;
    const hasFallback = at + 1 < settings.models.length;
    const decision = planRetry({ failure, attempt: tries, hasFallback, random: settings.random() }, settings.retry);
    if (decision.step === "give_up") return void (yield { ...failure, partial: end.delivered });
    if (decision.step === "next_model") {
      at += 1;
      tries = 1;
    } else {
      tries += 1;
      if (!(await waited(settings, decision.waitMs, signal))) return;
    }
    if (end.delivered) {
      yield { type: "restart", model: settings.models[at]?.info.id ?? model.info.id, reason: failure.code };
    }
  }
}

/** Makes a chain. Throws when no model is given. */
export function createModelChain(options: ModelChainOptions): ModelChain {
  const [first] = options.models;
  if (first === undefined) throw new Error("A model chain needs at least one model.");
  const settings: ChainSettings = {
    models: options.models,
    retry: { ...defaultRetry, ...options.retry },
    timeouts: { ...defaultTimeouts, ...options.timeouts },
    now: options.now ?? (() => performance.now()),
    sleep: options.sleep ?? ((ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal })),
    random: options.random ?? Math.random,
  };
  return {
    primary: first.info,
    models: options.models.map((model) => model.info),
    stream: (request, signal) => run(settings, request, signal),
  };
}
