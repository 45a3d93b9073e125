import { wellFormed } from "@larkline/protocol";
import { pause, systemClock, systemRandom, type Clock } from "@larkline/protocol/clock";
import type {
  MessageStop,
  ModelChunk,
  ModelFailure,
  ModelRetry,
} from "@larkline/protocol/model-stream";
import {
  outputLimit,
  withSchemaInWords,
  type LlmBackend,
  type ModelRequest,
  defaultTimeouts,
  timedStream,
  type StreamTimeouts,
  type HostedTool,
  type RequestExtra,
  withScaledPictures,
  withSentPictures,
  type PictureScaling,
} from "./backend.ts";
import { modelFailure } from "./failure.ts";
import type { ModelInfo } from "./model-catalog.ts";
import { plainProfile } from "./profile.ts";
import { withSentTools } from "./tool-schema.ts";

/*
 * What this process knows of one model: whether it answers at all, and how many calls wait for it in silence. Kept per
 * process and not in Redis: a call needs no round trip for it, the slots that are shared out are this process's own,
 * and a vendor may be out of reach from one machine only. The price is that each process learns by itself.
 */

/** One model with its fallbacks, seen as one reliable stream. */
export interface ModelChain {
  readonly primary: ModelInfo;
  /** Every model of the chain, the primary first; `message_stop.model` is the `id` of one of them. */
  readonly models: readonly ModelInfo[];
  /** Name of the profile that a model is asked by. */
  profileOf(id: string): string;
  /**
   * Answers, repeating and falling back as needed. Never throws. Yields exactly one `message_stop`
   * (its `model` filled) or `error`, last. Each call of a vendor begins with an `attempt`, and a `retry` says why
   * another one follows. When a broken call had delivered something, a `restart` comes before the chunks of the
   * next call: what came before it is void. An answer that grows beyond the limit is cut, with a warning. An
   * `error` with `retryInMs` asks the caller to try again after that time, and to say what became of the step by
   * then in `past`. An aborted stream ends promptly, without a terminal chunk, and the vendor call is stopped. Models
   * whose vendor keeps no answers are not asked to continue one; where none is left, that is an `api_bad_request`.
   */
  stream(request: ChainRequest, signal?: AbortSignal, past?: StepPast): AsyncIterable<ModelChunk>;
}

/** What a caller says; the chain adds the model. */
export interface ChainRequest extends Omit<
  ModelRequest,
  "model" | "capabilities" | "alive" | "extra" | "hostedTools"
> {
  /** Whose request it is: however often a model fails in one conversation, it has failed for others once. */
  conversation?: string;
  /** Absent: a picture that is too large for a model is named in a sentence. */
  scalePicture?: PictureScaling;
  /** Each model may use the tools that its vendor runs for it. */
  hosted?: boolean;
}

/** What became of a step before this stream: it may have been put off several times. */
export interface StepPast {
  /** How often it was put off. */
  rounds: number;
  /** Since its first failure. */
  elapsedMs: number;
  /** How long the vendor was waited for because it asked for that. */
  askedWaitMs: number;
}

/** A model and the backend that reaches it. */
export interface ChainModel {
  info: ModelInfo;
  backend: LlmBackend;
  /** Shared by all chains with this model; absent: the chain's own. */
  health?: ModelHealth;
  /** What goes with each of its requests. */
  extra?: RequestExtra;
  /** Tools that its vendor runs. */
  hostedTools?: readonly HostedTool[];
}

export interface ModelChainOptions {
  /** The model to use, then its fallbacks in order. At least one. */
  models: readonly ChainModel[];
  retry?: Partial<RetryPolicy>;
  timeouts?: Partial<StreamTimeouts>;
  /** Most bytes of text, thinking and tool arguments of one step. */
  maxStepBytes?: number;
  clock?: Clock;
  /** Resolves after `ms`, or when the signal aborts; it may reject then. */
  sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  /** A number from 0 to 1, for the jitter. */
  random?: () => number;
}

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

interface ChainSettings {
  models: readonly Required<ChainModel>[];
  retry: RetryPolicy;
  timeouts: StreamTimeouts;
  maxStepBytes: number;
  clock: Clock;
  sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  random: () => number;
}

const defaultStepBytes = 1_000_000;

const noPast: StepPast = { rounds: 0, elapsedMs: 0, askedWaitMs: 0 };

/** Makes a chain. Throws when no model is given. */
export function createModelChain(options: ModelChainOptions): ModelChain {
  const [first] = options.models;
  if (first === undefined) throw new Error("A model chain needs at least one model.");
  const clock = options.clock ?? systemClock;
  const settings: ChainSettings = {
    models: options.models.map((model) => ({
      health: new ModelHealth({ slots: Number.POSITIVE_INFINITY, clock }),
      extra: {},
      hostedTools: [],
      ...model,
    })),
    retry: { ...defaultRetry, ...options.retry },
    timeouts: { ...defaultTimeouts, ...options.timeouts },
    maxStepBytes: options.maxStepBytes ?? defaultStepBytes,
    clock,
    sleep: options.sleep ?? (async (ms, signal) => await pause(clock, ms, signal)),
    random: options.random ?? systemRandom.fraction,
  };
  return {
    primary: first.info,
    models: options.models.map((model) => model.info),
    profileOf: (id) => {
      const model = options.models.find(({ info }) => info.id === id) ?? first;
      return (model.backend.profileOf?.(id) ?? plainProfile).name;
    },
    stream: (request, signal, past = noPast) =>
      stream(settingsFor(request, settings), request, { signal, past }),
  };
}

/** With the models that can take a request. */
function settingsFor({ previousResponseId }: ChainRequest, settings: ChainSettings): ChainSettings {
  if (previousResponseId === undefined) return settings;
  return {
    ...settings,
    models: settings.models.filter(({ backend }) => backend.storesResponses === true),
  };
}

/** The state of a step: its current model, the number of tries on it, and the time spent in waits that vendors asked for. */
interface StepState {
  at: number;
  tries: number;
  askedWaitMs: number;
  /** An answer had no good end. */
  wasOdd: boolean;
}

async function* stream(
  settings: ChainSettings,
  request: ChainRequest,
  { signal, past }: { signal: AbortSignal | undefined; past: StepPast },
): AsyncGenerator<ModelChunk> {
  if (settings.models.length === 0) {
    return void (yield modelFailure(
      "api_bad_request",
      "No model of this agent can continue a stored response.",
    ));
  }
  const startMs = settings.clock.monotonic();
  const state: StepState = { at: 0, tries: 1, askedWaitMs: past.askedWaitMs, wasOdd: false };
  for (;;) {
    const model = settings.models[state.at];
    if (model === undefined || signal?.aborted === true) return;
    const end = yield* callModel(model, request, { settings, signal });
    const { failure, odd } = end;
    if (odd !== undefined) {
      if (!(yield* afterOddEnd({ ...end, odd }, state, { settings, model: model.info.id }))) return;
      continue;
    }
    if (failure === null) return;
    const elapsedMs = past.elapsedMs + settings.clock.monotonic() - startMs;
    const continues = yield* afterFailure({ ...end, failure }, state, {
      settings,
      signal,
      model: model.info.id,
      past: { ...past, elapsedMs, askedWaitMs: state.askedWaitMs },
    });
    if (!continues) return;
  }
}

interface CallContext {
  settings: ChainSettings;
  signal: AbortSignal | undefined;
}

/** How a call ended; `refused`: the circuit breaker did not admit it. */
interface AttemptEnd {
  failure: ModelFailure | null;
  delivered: boolean;
  refused?: { why: "open" | "crowded"; waitMs: number };
  /** It ended without text and calls, or by a word that is not known. */
  odd?: MessageStop;
}

const notAsked = {
  open: "The model has failed too often lately; it is left alone for a while.",
  crowded: "Too many calls wait for this model already.",
} as const;

/** How long a step waits whose call has given way, ms. */
const givenWayMs = 1_000;

function refusedBy(why: "open" | "crowded", waitMs: number): AttemptEnd {
  const failure = modelFailure("api_overloaded", notAsked[why], { silent: true });
  return { failure, delivered: false, refused: { why, waitMs } };
}

/** A request as this model is sent it. */
function requestTo(
  { info, extra, hostedTools }: Required<ChainModel>,
  request: Omit<ModelRequest, "model">,
  hosted: boolean,
): ModelRequest {
  const { plain = false } = request;
  const abilities = plain ? { ...info, supportsJsonSchema: false, supportsThinking: false } : info;
  const said = plain ? withoutOptions(request) : request;
  const added = { extra, ...(hosted ? { hostedTools } : {}) };
  return withSchemaInWords(
    { ...said, ...added, model: info.id, capabilities: abilities },
    abilities,
  );
}

async function* callModel(
  model: Required<ChainModel>,
  { conversation, scalePicture, hosted = false, ...request }: ChainRequest,
  { settings, signal }: CallContext,
): AsyncGenerator<ModelChunk, AttemptEnd> {
  const { info, backend } = model;
  const profile = backend.profileOf?.(info.id) ?? plainProfile;
  const limits = info.supportsVision ? profile.pictures : "none";
  // Before the call counts as one that waits for its model.
  const fitting =
    limits === "none" || scalePicture === undefined
      ? request.messages
      : await withScaledPictures(request.messages, limits, { scale: scalePicture, signal });
  const admitted = model.health.admit(conversation);
  if ("refused" in admitted) {
    return refusedBy(admitted.refused, admitted.waitMs);
  }
  const { call } = admitted;
  const { timeouts, clock, maxStepBytes } = settings;
  const maxTokens = outputLimit(request, info);
  const messages = withSentPictures(fitting, limits);
  const asked = requestTo(model, { ...request, messages, maxTokens }, hosted);
  const { request: full, warnings } = withSentTools(wellFormed(asked), profile);
  const options = {
    timeouts,
    clock,
    signal,
    onAlive: call.alive,
    onStart: (leave: () => void) => void (call.giveWay = leave),
    thinksSilently: thinksSilently(model, request),
  };
  const size = new StepSize(maxStepBytes);
  let delivered = false;
  const answer = { hasText: false, hasCalls: false };
  try {
    yield* warnings;
    yield { type: "attempt", model: info.id, maxTokens };
    for await (const chunk of timedStream(
      (stop, alive) => backend.stream({ ...full, alive }, stop),
      options,
    )) {
      if (chunk.type === "error") {
        call.ended(healthOf(chunk));
        return { failure: chunk, delivered };
      }
      if (chunk.type === "message_stop") {
        call.ended("answered");
        const stop = { ...chunk, model: info.id };
        if (isOddEnd(stop, answer)) return { failure: null, delivered, odd: stop };
        yield stop;
        return { failure: null, delivered };
      }
      const kept = size.take(chunk);
      delivered ||= isContent(kept);
      answer.hasCalls ||= kept.type === "tool_call_delta";
      answer.hasText ||= isAnswer(kept);
      yield kept;
      if (!size.isFull) continue;
      call.ended("answered");
      const message = size.hasManyPieces
        ? `The answer was cut after ${maxStepPieces} pieces: one step has no more blocks of text and thinking, and calls.`
        : `The answer was cut at ${maxStepBytes} bytes: limits.stepBytes allows no more in one step.`;
      yield { type: "warning", code: "step_too_long", message };
      yield { type: "message_stop", stopReason: "max_tokens", usage: null, model: info.id };
      return { failure: null, delivered };
    }
    return call.hasGivenWay ? refusedBy("crowded", givenWayMs) : { failure: null, delivered };
  } finally {
    call.ended("neutral"); // the caller left; every other end was reported before
  }
}

/** A request without what it can do without. */
function withoutOptions(request: Omit<ModelRequest, "model">): Omit<ModelRequest, "model"> {
  const { temperature: _t, topP: _p, effort: _e, needsThinking: _n, ...rest } = request;
  return rest;
}

/** What a tool call or a block of thinking costs besides its text: many empty ones must not be free. */
const pieceBytes = 64;

/** Most blocks of text and thinking, and calls, of one step: each becomes an event, a part of the history, a line. */
const maxStepPieces = 2_000;

/** Counts the bytes of one step (text, thinking and tool arguments, with ids and what vendors attach) and its pieces. */
class StepSize {
  #room: number;
  #pieces = 0;
  #lastPiece = "";

  constructor(maxBytes: number) {
    this.#room = maxBytes;
  }

  /** Nothing more may be taken. */
  get isFull(): boolean {
    return this.#room <= 0 || this.hasManyPieces;
  }

  get hasManyPieces(): boolean {
    return this.#pieces >= maxStepPieces;
  }

  /** The chunk, or as much of its text as there is room for. */
  take(chunk: ModelChunk): ModelChunk {
    switch (chunk.type) {
      case "text_delta":
      case "thinking_delta": {
        const { providerMetadata } = chunk;
        this.#count(chunk);
        if (providerMetadata !== undefined) {
          this.#room -= pieceBytes + JSON.stringify(providerMetadata).length;
        }
        return { ...chunk, text: this.#fitting(chunk.text) };
      }
      case "tool_call_delta":
        this.#count(chunk);
        if (chunk.id !== null || chunk.name !== null) {
          this.#room -= pieceBytes + (chunk.id ?? "").length + (chunk.name ?? "").length;
        }
        return { ...chunk, arguments: this.#fitting(chunk.arguments) };
      case "warning":
        this.#room -= pieceBytes;
        return chunk;
      default:
        return chunk;
    }
  }

  /** A piece begins where another one, or another kind, had the chunk before. */
  #count({ type, index = -1 }: { type: ModelChunk["type"]; index?: number }): void {
    const piece = `${type} ${index}`;
    if (piece === this.#lastPiece) return;
    this.#lastPiece = piece;
    this.#pieces += 1;
  }

  #fitting(text: string): string {
    const bytes = Buffer.byteLength(text);
    const { length } = text;
    if (bytes <= this.#room) {
      this.#room -= bytes;
      return text;
    }
    const room = Math.max(0, this.#room);
    this.#room = 0;
    // Cut between characters: what is left of the last one is no character.
    return length === 0
      ? ""
      : Buffer.from(text)
          .subarray(0, room)
          .toString("utf8")
          .replace(/\uFFFD+$/, "");
  }
}

/** Whether nothing arrives while the model thinks: Chat Completions sends neither thinking nor pings. */
function thinksSilently({ backend }: ChainModel, { needsThinking, effort }: ChainRequest): boolean {
  return backend.thinksSilently === true && (needsThinking === true || effort !== undefined);
}

/** What a failure says about the health of the model: a vendor that refuses a request is available. */
function healthOf({ code }: ModelFailure): "answered" | "failed" | "neutral" {
  if (code === "api_overloaded" || code === "stream_truncated") return "failed";
  return code === "api_rate_limit" ? "neutral" : "answered";
}

/** Text, or a block that only the vendor understands: it may be what was asked for. */
function isAnswer(chunk: ModelChunk): boolean {
  if (chunk.type === "text_delta") return chunk.text.trim() !== "";
  return chunk.type === "thinking_delta" && chunk.providerMetadata?.["opaque"] !== undefined;
}

/** Whether an answer has no good end: nothing was said and called, or the vendor's word for the end is not known. */
function isOddEnd(
  { stopReason, paused }: MessageStop,
  { hasText, hasCalls }: { hasText: boolean; hasCalls: boolean },
): boolean {
  if (hasCalls || paused === true || stopReason === "max_tokens" || stopReason === "refusal") {
    return false;
  }
  return stopReason === "other" || !hasText;
}

/**
 * An answer without a good end is asked for once more, then of the next model. At last it counts as it is, and the
 * caller says so. False when the stream is over.
 */
async function* afterOddEnd(
  { odd, delivered }: AttemptEnd & { odd: MessageStop },
  state: StepState,
  { settings, model }: { settings: ChainSettings; model: string },
): AsyncGenerator<ModelChunk, boolean> {
  const isLast = state.at + 1 >= settings.models.length;
  if (state.wasOdd && isLast) {
    yield odd;
    return false;
  }
  if (odd.usage !== null) yield { type: "usage_so_far", usage: odd.usage };
  const problem =
    odd.stopReason === "other"
      ? "The end of the answer has a word that is not known."
      : "The answer is empty.";
  yield {
    type: "retry",
    code: "stream_truncated",
    problem,
    model,
    waitMs: 0,
    attempt: state.tries,
  };
  if (state.wasOdd) Object.assign(state, { at: state.at + 1, tries: 1 });
  else Object.assign(state, { tries: state.tries + 1, wasOdd: true });
  const next = settings.models[state.at]?.info.id ?? model;
  if (delivered) yield { type: "restart", model: next, reason: "stream_truncated" };
  return true;
}

function isContent(chunk: ModelChunk): boolean {
  return (
    chunk.type === "text_delta" ||
    chunk.type === "thinking_delta" ||
    chunk.type === "tool_call_delta"
  );
}

/** Yields and does what follows a failed call; false when the stream is over. */
async function* afterFailure(
  end: AttemptEnd & { failure: ModelFailure },
  state: StepState,
  { settings, signal, model, past }: CallContext & { model: string; past: StepPast },
): AsyncGenerator<ModelChunk, boolean> {
  const { failure, delivered: partial, refused } = end;
  const { tries, askedWaitMs } = state;
  const decision = decide(
    end,
    { tries, hasFallback: state.at + 1 < settings.models.length, past },
    settings,
  );
  if (decision.step === "give_up") {
    yield { ...failure, partial };
    return false;
  }
  const waitMs = decision.step === "next_model" ? 0 : decision.waitMs;
  const askedMs = failure.retryAfterMs === undefined ? 0 : waitMs;
  const next =
    decision.step === "next_model" ? settings.models[state.at + 1]?.info.displayName : undefined;
  if (refused?.why !== "crowded") {
    yield {
      ...retryOf(failure),
      model,
      waitMs,
      attempt: tries,
      ...(next === undefined ? {} : { next }),
    };
  }
  if (decision.step === "put_off") {
    yield { ...failure, partial, retryInMs: waitMs, askedWaitMs: askedWaitMs + askedMs };
    return false;
  }
  if (decision.step === "next_model") Object.assign(state, { at: state.at + 1, tries: 1 });
  else {
    Object.assign(state, { tries: tries + 1, askedWaitMs: askedWaitMs + askedMs });
    if (!(await waited(settings, waitMs, signal))) return false;
  }
  if (partial) {
    yield {
      type: "restart",
      model: settings.models[state.at]?.info.id ?? model,
      reason: failure.code,
    };
  }
  return true;
}

/** Decides what follows a call that was refused locally or failed. */
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

/** Where a broken call leaves us: `attempt` counts from 1 on the current model, in this round. */
interface RetrySituation {
  failure: ModelFailure;
  attempt: number;
  hasFallback: boolean;
  past: StepPast;
  /** A number from 0 to 1, for the jitter. */
  random: number;
}

type RetryDecision =
  | { step: "again"; waitMs: number }
  | { step: "next_model" }
  /** The whole step is asked again after this time, from the first model on, without a slot meanwhile. */
  | { step: "put_off"; waitMs: number }
  | { step: "give_up" };

/**
 * What follows a broken call. What the vendor will refuse again is not repeated on the same model; every failure may
 * move on to the next model, because another vendor can judge differently. A vendor that was silent goes to the
 * fallback at once; one that asks for a wait gets it, within bounds. Short waits happen in place; for long ones, and
 * when all models have failed, the step is put off.
 */
function planRetry(situation: RetrySituation, policy: RetryPolicy): RetryDecision {
  const { failure, attempt, hasFallback, past, random } = situation;
  if (!failure.retryable) return hasFallback ? { step: "next_model" } : { step: "give_up" };
  const asked = failure.retryAfterMs;
  if (asked !== undefined) {
    const isBearable = past.askedWaitMs + asked <= policy.maxRetryAfterMs;
    if (hasFallback && !isBearable) return { step: "next_model" };
    if (asked <= policy.inPlaceMs && attempt < policy.attempts) {
      return { step: "again", waitMs: asked };
    }
    return putOff(Math.max(asked, isBearable ? 0 : putOffMs(situation, policy)), past, policy);
  }
  const isSilent = failure.silent === true;
  if (!isSilent && attempt < policy.attempts && past.rounds === 0) {
    return { step: "again", waitMs: jittered(policy.baseMs * 2 ** (attempt - 1), random) };
  }
  return hasFallback ? { step: "next_model" } : putOff(putOffMs(situation, policy), past, policy);
}

function putOff(waitMs: number, past: StepPast, policy: RetryPolicy): RetryDecision {
  return past.elapsedMs + waitMs <= policy.giveUpMs
    ? { step: "put_off", waitMs: Math.round(waitMs) }
    : { step: "give_up" };
}

/** The wait before the step is put off once more: it grows from round to round. */
function putOffMs(
  { past, random }: Pick<RetrySituation, "past" | "random">,
  policy: RetryPolicy,
): number {
  return jittered(
    Math.min(policy.longestPutOffMs, policy.firstPutOffMs * 2 ** past.rounds),
    random,
  );
}

function jittered(ceilingMs: number, random: number): number {
  return Math.round(ceilingMs * (0.5 + random / 2));
}

/** Waits; false when the caller aborted. */
async function waited(
  settings: ChainSettings,
  waitMs: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  try {
    await settings.sleep(waitMs, signal);
  } catch {
    return false;
  }
  return signal?.aborted !== true;
}

function retryOf({
  code,
  message,
  vendor,
}: ModelFailure): Pick<ModelRetry, "type" | "code" | "problem" | "requestId"> {
  const { message: problem, ...asked } = vendor ?? { message };
  return { type: "retry", code, problem, ...asked };
}

const defaultRetry: RetryPolicy = {
  attempts: 3,
  baseMs: 500,
  inPlaceMs: 3_000,
  maxRetryAfterMs: 60_000,
  firstPutOffMs: 2_000,
  longestPutOffMs: 60_000,
  giveUpMs: 300_000,
};

/** Largest share of the slots for calls of one model that are silent. */
const silentShare = 0.8;

/** An admitted call, or why it is refused: `open`, the model failed too often; `crowded`, too many calls are silent. */
export type Admission = { call: HealthCall } | { refused: "open" | "crowded"; waitMs: number };

/** One call of the model. */
export interface HealthCall {
  alive(): void;
  /** Stops the call: it is silent, and its slot is needed. The code that starts the call sets it. */
  giveWay?: () => void;
  /** Whether it was stopped so. */
  readonly hasGivenWay: boolean;
  /** `neutral` says nothing about the model: the caller left, or the vendor limits the rate. */
  ended(how: "answered" | "failed" | "neutral"): void;
}

/** A call that has received nothing for so long is silent. Vendors take a second or two to begin. */
const silentMs = 3_000;
/** How often it is looked for calls that have fallen silent, while there are many. */
const lookMs = 500;

/** How many conversations in a row open the circuit when the model fails them, and for how long: it doubles up to the longest. */
const failuresToOpen = 5;

/** How long a probe is left to conversations that the model has not failed, ms: theirs may be what it cannot answer. */
const freshProbeMs = 2_000;

/** Of how many conversations it is known that the model has failed them. */
const maxKnown = 1_000;

const longestOpenMs = 120_000;

const shortestOpenMs = 10_000;

interface StartedCall extends HealthCall {
  hasGivenWay: boolean;
  /** Whether anything was received. */
  isAlive: boolean;
  /** When something was received last, or else when it was started. */
  lastDataMs: number;
}

/**
 * The circuit breaker of one model, and its share of the slots of this process: calls that wait for it in silence get
 * four fifths of them at most. The newest ones that have received nothing give way, and others are not admitted.
 */
export class ModelHealth {
  readonly #clock: Clock;
  readonly #maxSilent: number;
  readonly #calls = new Set<StartedCall>();
  /** Conversations that it has failed since its last answer; a call without one counts by itself. */
  readonly #failed = new Set<string>();
  #unnamed = 0;
  #openUntilMs = 0;
  #openMs = 0;
  #probing = false;
  #isLooking = false;

  constructor({ slots, clock }: { slots: number; clock: Clock }) {
    this.#clock = clock;
    this.#maxSilent =
      slots === Number.POSITIVE_INFINITY ? slots : Math.max(1, Math.floor(slots * silentShare));
  }

  /** `conversation`: whose call it is. */
  admit(conversation = `unnamed ${(this.#unnamed += 1)}`): Admission {
    const nowMs = this.#clock.monotonic();
    const isOpen = this.#openMs > 0;
    // Once the time is over, one call probes whether the model answers again.
    const probeMs = this.#openUntilMs + (this.#failed.has(conversation) ? freshProbeMs : 0);
    if (isOpen && (nowMs < probeMs || this.#probing)) {
      return { refused: "open", waitMs: Math.max(1_000, probeMs - nowMs) };
    }
    const isFull = this.#calls.size >= this.#maxSilent;
    if (isFull && this.#silentCalls().length >= this.#maxSilent) {
      return { refused: "crowded", waitMs: 1_000 };
    }
    const call: StartedCall = {
      hasGivenWay: false,
      isAlive: false,
      lastDataMs: nowMs,
      alive: () => {
        call.isAlive = true;
        call.lastDataMs = this.#clock.monotonic();
      },
      ended: (how) => {
        if (this.#calls.delete(call)) this.#ended(how, { conversation, wasProbe: isOpen });
      },
    };
    this.#calls.add(call);
    this.#probing = isOpen;
    if (isFull) this.#look();
    return { call };
  }

  /** While more calls run than may be silent: has those give way that are too many. */
  #look(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#clock.after(lookMs, () => {
      this.#isLooking = false;
      const silent = this.#silentCalls();
      const newest = silent.filter(({ isAlive }) => !isAlive).toReversed();
      for (const call of newest.slice(0, Math.max(0, silent.length - this.#maxSilent))) {
        call.hasGivenWay = true;
        call.giveWay?.();
      }
      if (this.#calls.size > this.#maxSilent) this.#look();
    });
  }

  /** The oldest first. */
  #silentCalls(): StartedCall[] {
    const sinceMs = this.#clock.monotonic() - silentMs;
    return [...this.#calls].filter(({ lastDataMs }) => lastDataMs <= sinceMs);
  }

  #ended(
    how: "answered" | "failed" | "neutral",
    { conversation, wasProbe }: { conversation: string; wasProbe: boolean },
  ): void {
    if (wasProbe) this.#probing = false;
    if (how === "answered") {
      this.#failed.clear();
      this.#openMs = 0;
    }
    if (how !== "failed") return;
    if (this.#failed.size < maxKnown) this.#failed.add(conversation);
    if (!wasProbe && (this.#openMs > 0 || this.#failed.size < failuresToOpen)) return;
    this.#openMs = Math.min(longestOpenMs, Math.max(shortestOpenMs, this.#openMs * 2));
    this.#openUntilMs = this.#clock.monotonic() + this.#openMs;
  }
}
