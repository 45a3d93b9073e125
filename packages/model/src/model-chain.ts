import { setTimeout as delay } from "node:timers/promises";
import type { ModelChunk, ModelFailure, ModelRetry } from "@larkline/protocol";
import type { LlmBackend, ModelRequest } from "./backend.ts";
import { modelFailure } from "./failure.ts";
import { ModelHealth, type HealthCall } from "./model-health.ts";
import type { ModelInfo } from "./model-info.ts";
import { outputLimit, withSchemaInWords } from "./request-rules.ts";
import { defaultRetry, noPast, planRetry, putOffMs, type RetryPolicy, type StepPast } from "./retry-plan.ts";
import { StepSize } from "./step-size.ts";
import { defaultTimeouts, timedStream, type StreamTimeouts } from "./timed-stream.ts";

/** A model and the backend that reaches it. */
export interface ChainModel {
  info: ModelInfo;
  backend: LlmBackend;
  /** Shared by all chains with this model; absent: the chain's own. */
  health?: ModelHealth;
}

export interface ModelChainOptions {
  /** The model to use, then its fallbacks in order. At least one. */
  models: readonly ChainModel[];
  retry?: Partial<RetryPolicy>;
  timeouts?: Partial<StreamTimeouts>;
  /** Most bytes of text, thinking and tool arguments of one step. */
  maxStepBytes?: number;
  /** Milliseconds of a clock that never goes back. */
  now?: () => number;
  /** Resolves after `ms`, or rejects when the signal aborts. */
  sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  /** A number from 0 to 1, for the jitter. */
  random?: () => number;
}

/** What a caller says; the chain adds the model. */
export type ChainRequest = Omit<ModelRequest, "model" | "capabilities" | "alive">;

/** One model with its fallbacks, seen as one reliable stream. */
export interface ModelChain {
  readonly primary: ModelInfo;
  /** Every model of the chain, the primary first; `message_stop.model` is the `id` of one of them. */
  readonly models: readonly ModelInfo[];
  /**
   * Answers, repeating and falling back as needed. Never throws. Yields exactly one `message_stop`
   * (its `model` filled) or `error`, last. Each call of a vendor begins with an `attempt`, and a `retry` tells why
   * another one follows. When a broken call had delivered something, a `restart` comes before the chunks of the
   * next call: what came before it is void. An answer that grows beyond the limit is cut, with a warning. An
   * `error` with `retryInMs` asks the caller to try again after that time, and to say what became of the step by
   * then in `past`. An aborted stream ends promptly, without a terminal chunk, and the vendor call is stopped.
   */
  stream(request: ChainRequest, signal?: AbortSignal, past?: StepPast): AsyncIterable<ModelChunk>;
}

const defaultStepBytes = 1_000_000;

interface ChainSettings {
  models: readonly Required<ChainModel>[];
  retry: RetryPolicy;
  timeouts: StreamTimeouts;
  maxStepBytes: number;
  now: () => number;
  sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  random: () => number;
}

/** How a call ended; `refused`: it was not made. */
interface AttemptEnd {
  failure: ModelFailure | null;
  delivered: boolean;
  refused?: { why: "open" | "crowded"; waitMs: number };
}

function isContent(chunk: ModelChunk): boolean {
  return chunk.type === "text_delta" || chunk.type === "thinking_delta" || chunk.type === "tool_call_delta";
}

/** What a failure says about the model: a vendor that refuses a request is there. */
function healthOf({ code }: ModelFailure): "answered" | "failed" | "neutral" {
  if (code === "api_overloaded" || code === "stream_truncated") return "failed";
  return code === "api_rate_limit" ? "neutral" : "answered";
}

const notAsked = {
  open: "The model has failed too often lately; it is left alone for a while.",
  crowded: "Too many calls wait for this model already.",
} as const;

interface CallContext {
  settings: ChainSettings;
  signal: AbortSignal | undefined;
}

async function* attempt(
  model: Required<ChainModel>,
  request: ChainRequest,
  { settings, signal }: CallContext,
): AsyncGenerator<ModelChunk, AttemptEnd> {
  const admitted = model.health.admit();
  if ("refused" in admitted) {
    const { refused: why, waitMs } = admitted;
    const failure = modelFailure("api_overloaded", notAsked[why], { silent: true });
    return { failure, delivered: false, refused: { why, waitMs } };
  }
  const { call } = admitted;
  try {
    return yield* run(model, request, { settings, signal, call });
  } finally {
    call.ended("neutral"); // the caller has left: whatever else happened is told already
  }
}

/** A model that thinks without a word: Chat Completions has none for it, and sends no pings. */
function thinksSilently({ backend }: ChainModel, { needsThinking, effort }: ChainRequest): boolean {
  return backend.thinksSilently === true && (needsThinking === true || effort !== undefined);
}

async function* run(
  model: Required<ChainModel>,
  request: ChainRequest,
  { settings, signal, call }: CallContext & { call: HealthCall },
): AsyncGenerator<ModelChunk, AttemptEnd> {
  const { info, backend } = model;
  const { timeouts, now, maxStepBytes } = settings;
  const maxTokens = outputLimit(request, info);
  const full = withSchemaInWords({ ...request, model: info.id, capabilities: info, maxTokens }, info);
  const options = { timeouts, now, signal, onAlive: call.alive, thinksSilently: thinksSilently(model, request) };
  const chunks = timedStream((stop, alive) => backend.stream({ ...full, alive }, stop), options);
  const size = new StepSize(maxStepBytes);
  let delivered = false;
  yield { type: "attempt", model: info.id, maxTokens };
  for await (const chunk of chunks) {
    if (chunk.type === "error") {
      call.ended(healthOf(chunk));
      return { failure: chunk, delivered };
    }
    if (chunk.type === "message_stop") {
      call.ended("answered");
      yield { ...chunk, model: info.id };
      return { failure: null, delivered };
    }
    const kept = size.take(chunk);
    delivered ||= isContent(kept);
    yield kept;
    if (!size.isFull) continue;
    call.ended("answered");
    const message = `The answer was cut at ${maxStepBytes} bytes: limits.stepBytes allows no more in one step.`;
    yield { type: "warning", code: "step_too_long", message };
    yield { type: "message_stop", stopReason: "max_tokens", usage: null, model: info.id };
    return { failure: null, delivered };
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

/** What follows a call that was not made, or went wrong. */
function decide(
  end: AttemptEnd & { failure: ModelFailure },
  situation: { tries: number; hasFallback: boolean; past: StepPast },
  settings: ChainSettings,
) {
  const { tries: attempts, hasFallback, past } = situation;
  const { retry } = settings;
  const random = settings.random();
  const { failure, refused } = end;
  if (refused?.why === "crowded") {
    // It says nothing about the model yet: the next seconds will.
    return { step: "put_off", waitMs: Math.round(refused.waitMs * (1 + random)) } as const;
  }
  const decision = planRetry({ failure, attempt: attempts, hasFallback, past, random }, retry);
  if (decision.step !== "put_off" || refused === undefined) return decision;
  return { ...decision, waitMs: Math.max(putOffMs({ past, random }, retry), refused.waitMs) };
}

/** Where a step stands: which model it asks, how often it has, and what became of it before. */
interface StepState {
  at: number;
  tries: number;
  askedWaitMs: number;
}

async function* stream(
  settings: ChainSettings,
  request: ChainRequest,
  { signal, past }: { signal: AbortSignal | undefined; past: StepPast },
): AsyncGenerator<ModelChunk> {
  const startMs = settings.now();
  const state: StepState = { at: 0, tries: 1, askedWaitMs: past.askedWaitMs };
  for (;;) {
    const model = settings.models[state.at];
    if (model === undefined || signal?.aborted === true) return;
    const end = yield* attempt(model, request, { settings, signal });
    const { failure } = end;
    if (failure === null) return;
    const elapsedMs = past.elapsedMs + settings.now() - startMs;
    const goesOn = yield* follow({ ...end, failure }, state, {
      settings,
      signal,
      model: model.info.id,
      past: { ...past, elapsedMs, askedWaitMs: state.askedWaitMs },
    });
    if (!goesOn) return;
  }
}

/** Says and does what follows a call that went wrong; false when the stream is over. */
async function* follow(
  end: AttemptEnd & { failure: ModelFailure },
  state: StepState,
  { settings, signal, model, past }: CallContext & { model: string; past: StepPast },
): AsyncGenerator<ModelChunk, boolean> {
  const { failure, delivered: partial, refused } = end;
  const { tries, askedWaitMs } = state;
  const decision = decide(end, { tries, hasFallback: state.at + 1 < settings.models.length, past }, settings);
  if (decision.step === "give_up") {
    yield { ...failure, partial };
    return false;
  }
  const waitMs = decision.step === "next_model" ? 0 : decision.waitMs;
  const askedMs = failure.retryAfterMs === undefined ? 0 : waitMs;
  if (refused?.why !== "crowded") yield { ...retryOf(failure), model, waitMs, attempt: tries };
  if (decision.step === "put_off") {
    yield { ...failure, partial, retryInMs: waitMs, askedWaitMs: askedWaitMs + askedMs };
    return false;
  }
  if (decision.step === "next_model") Object.assign(state, { at: state.at + 1, tries: 1 });
  else {
    Object.assign(state, { tries: tries + 1, askedWaitMs: askedWaitMs + askedMs });
    if (!(await waited(settings, waitMs, signal))) return false;
  }
  if (partial) yield { type: "restart", model: settings.models[state.at]?.info.id ?? model, reason: failure.code };
  return true;
}

function retryOf({ code, message, vendor }: ModelFailure): Pick<ModelRetry, "type" | "code" | "problem" | "requestId"> {
  const { message: problem, ...asked } = vendor ?? { message };
  return { type: "retry", code, problem, ...asked };
}

/** Makes a chain. Throws when no model is given. */
export function createModelChain(options: ModelChainOptions): ModelChain {
  const [first] = options.models;
  if (first === undefined) throw new Error("A model chain needs at least one model.");
  const now = options.now ?? (() => performance.now());
  const settings: ChainSettings = {
    models: options.models.map((model) => ({
      health: new ModelHealth({ slots: Number.POSITIVE_INFINITY, now }),
      ...model,
    })),
    retry: { ...defaultRetry, ...options.retry },
    timeouts: { ...defaultTimeouts, ...options.timeouts },
    maxStepBytes: options.maxStepBytes ?? defaultStepBytes,
    now,
    sleep: options.sleep ?? ((ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal })),
    random: options.random ?? Math.random,
  };
  return {
    primary: first.info,
    models: options.models.map((model) => model.info),
    stream: (request, signal, past = noPast) => stream(settings, request, { signal, past }),
  };
}
