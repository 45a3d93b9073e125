import type { IncomingMessage, request as sendRequest, RequestOptions } from "node:http";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { ImagePart, Message } from "@larkline/protocol/content";
import type {
  MessageStop,
  ModelChunk,
  ModelFailure,
  StopReason,
  ToolCallDelta,
  Usage,
} from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import type { ModelInfo } from "./model-catalog.ts";
import type { HostedTool, RequestExtra } from "./extra.ts";
import { modelFailure } from "./failure.ts";
import { imagesOf } from "./pictures.ts";
import type { VendorProfile } from "./profile.ts";

// What the backends of all vendors share: what a request says and which ones are refused before they are sent, the HTTP
// client below the vendors' SDKs, the events of a streamed answer, and its time limits.

/** A piece of the system prompt; a non-empty scope asks for caching up to its end. */
export interface SystemBlock {
  text: string;
  cacheScope: "" | "session" | "global";
}

export type ResponseFormat =
  | { type: "json_object" }
  /** The schema goes to models that take one. `name`: letters, digits, `_` and `-`; default `response`. */
  | { type: "json_schema"; name?: string; jsonSchema?: Record<string, unknown> };

/** One model step. Values left out are not transmitted; sampling values are passed on unchecked. */
export interface ModelRequest {
  /** The vendor's model id, without provider prefix. */
  model: string;
  messages: readonly Message[];
  tools?: readonly ToolSpec[];
  system?: string;
  /** Beats `system` when not empty. */
  systemBlocks?: readonly SystemBlock[];
  maxTokens?: number;
  temperature?: number | null;
  topP?: number | null;
  needsThinking?: boolean;
  fastMode?: boolean;
  effort?: "low" | "medium" | "high";
  responseFormat?: ResponseFormat;
  /** What the operator adds to the vendor's request; it changes nothing that this request says. */
  extra?: RequestExtra;
  /** Tools that the vendor runs, as its interface describes them; a vendor without any refuses the request. */
  hostedTools?: readonly HostedTool[];
  /** The vendor keeps the answer, so that a later request may continue it. Ignored where it has no such store. */
  storeResponses?: boolean;
  /** The answer that this request continues: `messages` are what was said after it. For backends that store. */
  previousResponseId?: string;
  /** Snapshot of the model's facts; null makes the adapter use its built-in ones. Never changed. */
  capabilities?: Readonly<ModelInfo> | null;
  /** Says no more than it must, because the vendor has refused it otherwise: plain schemas, nothing that is optional. */
  plain?: boolean;
  /** How often an answer that has only paused may be continued; absent: 20 times. */
  maxPauses?: number;
  /** Called for the vendor's headers and each piece of its body, whatever is in it. Must not throw. */
  alive?: () => void;
}

/**
 * A model vendor. `stream` never throws: failures are the last chunk. Ending the iteration early
 * or aborting `signal` stops the vendor call; an aborted stream ends without a terminal chunk.
 */
export interface LlmBackend {
  /** Whether its interface sends nothing, not even pings, while a model thinks. Default: it does not. */
  readonly thinksSilently?: boolean;
  /** Whether its vendor can keep answers, and continue one by its id. Default: it cannot. */
  readonly storesResponses?: boolean;
  /** What it knows of the dialect of a model. */
  profileOf?(model: string): VendorProfile;
  stream(request: ModelRequest, signal?: AbortSignal): AsyncIterable<ModelChunk>;
}

/** A tool-call delta with the defaults of the contract: no id, no name, empty arguments. */
export function toolCallDelta(
  index: number,
  fields: Partial<Omit<ToolCallDelta, "type" | "index">> = {},
): ToolCallDelta {
  return { type: "tool_call_delta", index, id: null, name: null, arguments: "", ...fields };
}

/** A stop with the default of the contract: no usage. */
export function messageStop(
  stopReason: StopReason,
  usage: Usage | null = null,
  responseId?: unknown,
): MessageStop {
  // Vendors write it, compatible servers leave it out or send something else.
  const isId =
    typeof responseId === "string" && responseId !== "" && responseId.length <= maxResponseIdChars;
  return { type: "message_stop", stopReason, usage, ...(isId ? { responseId } : {}) };
}

/** The end of a complete stream, by the vendor's word for it: a stop, or the failure that the word names. */
export function endOf(
  word: string,
  { ends }: Pick<VendorProfile, "ends">,
  { usage, id }: { usage: Usage | null; id: unknown },
): MessageStop | ModelFailure {
  const meaning = Object.hasOwn(ends, word) ? ends[word] : undefined;
  if (meaning === "again") {
    return modelFailure("api_overloaded", `The model's server broke the answer off (${word}).`);
  }
  if (meaning === "overflow") {
    return modelFailure("context_overflow", "The conversation is too long for the model.");
  }
  return messageStop(meaning ?? "other", usage, id);
}

/** Longer than the ids of all vendors. */
const maxResponseIdChars = 256;

/**
 * About how many tokens a text has: four ASCII characters, or one other character, count as one.
 * Counting stops once the result is above `enough`, so that long prompts cost no time.
 */
export function estimateTokens(text: string, enough = Number.POSITIVE_INFINITY): number {
  const limit = enough * 4;
  const isAscii = Buffer.byteLength(text) === text.length;
  if (isAscii) return Math.ceil(Math.min(text.length, limit + 1) / 4);
  let quarters = 0;
  for (let at = 0; at < text.length && quarters <= limit; at += 1) {
    quarters += text.charCodeAt(at) < 128 ? 1 : 4;
  }
  return Math.ceil(quarters / 4);
}

/** Whether text of this prompt is worth a cache mark: the model caches, and the text is above its threshold. */
export function worthCaching(texts: Iterable<string>, info: Readonly<ModelInfo>): boolean {
  if (!info.supportsCaching || info.cachingMinTokens <= 0) return false;
  let tokens = 0;
  for (const text of texts) {
    tokens += estimateTokens(text, info.cachingMinTokens - tokens);
    if (tokens > info.cachingMinTokens) return true;
  }
  return false;
}

/** The system prompt as blocks: `systemBlocks` when not empty, else `system`. Blocks without text are left out. */
export function systemBlocksOf(
  request: Pick<ModelRequest, "system" | "systemBlocks">,
): SystemBlock[] {
  const blocks = request.systemBlocks ?? [];
  const chosen: readonly SystemBlock[] =
    blocks.length > 0 ? blocks : [{ text: request.system ?? "", cacheScope: "" as const }];
  return chosen.filter((block) => block.text.trim() !== "");
}

/** Why the number of tools is refused locally, or null: only a proven limit is enforced here. */
export function toolLimitProblem(
  tools: readonly ToolSpec[],
  info: Readonly<ModelInfo>,
): string | null {
  if (info.maxTools === 0 || !info.maxToolsExhaustive || tools.length <= info.maxTools) return null;
  return `${tools.length} tools are offered, ${info.id} takes ${info.maxTools}.`;
}

/** Why the response format is refused locally, or null. */
export function responseFormatProblem(format: ModelRequest["responseFormat"]): string | null {
  if (format?.type !== "json_schema" || format.jsonSchema !== undefined) return null;
  return "responseFormat json_schema needs a jsonSchema.";
}

/** Asks a model for JSON in words where its interface cannot bind the answer to the schema. */
export function withSchemaInWords(request: ModelRequest, info: Readonly<ModelInfo>): ModelRequest {
  const { responseFormat: format, system = "", systemBlocks = [] } = request;
  if (
    format?.type !== "json_schema" ||
    format.jsonSchema === undefined ||
    info.supportsJsonSchema
  ) {
    return request;
  }
  const schema = JSON.stringify(format.jsonSchema);
  const text = `Your final answer is one JSON value and nothing else. It fits this JSON Schema:\n${schema}`;
  if (systemBlocks.length > 0) {
    return { ...request, systemBlocks: [...systemBlocks, { text, cacheScope: "" }] };
  }
  return { ...request, system: system.trim() === "" ? text : `${system}\n\n${text}` };
}

/** Why an image cannot be sent, or null. Blob references have to be resolved to bytes before. */
export function imageProblem(image: ImagePart): string | null {
  const { source } = image;
  if (source.sourceType === "url") {
    return source.url.startsWith("https://") ? null : "An image URL must be HTTPS.";
  }
  if (source.mediaType === "") return "An image needs a media type.";
  if (source.sourceType === "blob") {
    return "An image must be resolved to its bytes before it is sent to a model.";
  }
  if (source.data.startsWith("data:")) {
    return "Image data must be plain base64, without a data-URL prefix.";
  }
  return source.data === "" ? "An image has no data." : null;
}

function imagesProblem(request: ModelRequest, info: Readonly<ModelInfo>): string | null {
  for (const image of imagesOf(request.messages)) {
    if (!info.supportsVision) return `${info.id} does not take images.`;
    const problem = imageProblem(image);
    if (problem !== null) return problem;
  }
  return null;
}

const usualOutput = 32_000;
const fastOutput = 4_096;

/** Most output tokens of a request: as it says, else what the model can write, up to a bound that an answer never needs. */
export function outputLimit(
  request: Pick<ModelRequest, "maxTokens" | "fastMode">,
  info: Readonly<ModelInfo>,
): number {
  return (
    request.maxTokens ??
    Math.min(info.maxOutputTokens, request.fastMode === true ? fastOutput : usualOutput)
  );
}

/** The first reason to refuse a request before it is sent, or null. Sampling values are the vendor's to judge. */
export function requestProblem(request: ModelRequest, info: Readonly<ModelInfo>): string | null {
  if (request.messages.length === 0) return "The request has no messages.";
  return (
    toolLimitProblem(request.tools ?? [], info) ??
    responseFormatProblem(request.responseFormat) ??
    imagesProblem(request, info)
  );
}

const maxTextBytes = 1_000_000;

/** The part of a `Response` that the vendors' SDKs use. */
class HttpResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly headers: ResponseHeaders;
  readonly url: string;
  readonly body: AsyncIterable<Uint8Array>;
  readonly #incoming: IncomingMessage;

  constructor(incoming: IncomingMessage, url: string) {
    this.status = incoming.statusCode ?? 0;
    this.ok = this.status >= 200 && this.status < 300;
    this.statusText = incoming.statusMessage ?? "";
    this.headers = new ResponseHeaders(incoming.headers);
    this.url = url;
    this.body = piecesOf(incoming);
    this.#incoming = incoming;
  }

  /** The SDKs read the bodies of refusals with it: an endless one is cut, and its connection closed. */
  async text(): Promise<string> {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of this.body) {
      pieces.push(piece);
      bytes += piece.length;
      if (bytes > maxTextBytes) break;
    }
    if (bytes > maxTextBytes) this.#incoming.destroy();
    return Buffer.concat(pieces).subarray(0, maxTextBytes).toString("utf8");
  }

  async json(): Promise<unknown> {
    return JSON.parse(await this.text());
  }
}

/** The part of `Headers` that the SDKs use: the platform's own costs more than the rest of the response's head. */
class ResponseHeaders {
  readonly #fields: IncomingMessage["headers"];

  constructor(fields: IncomingMessage["headers"]) {
    this.#fields = fields;
  }

  get(name: string): string | null {
    return textOf(this.#fields[name.toLowerCase()]) ?? null;
  }

  *entries(): Generator<[name: string, value: string]> {
    for (const [name, value] of Object.entries(this.#fields)) yield [name, textOf(value) ?? ""];
  }

  [Symbol.iterator](): Generator<[name: string, value: string]> {
    return this.entries();
  }
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}

/** A body in pieces: text, and bytes that are kept from one request to the next. */
class PiecedBody {
  readonly pieces: readonly [string, Buffer];

  constructor(...pieces: [string, Buffer]) {
    this.pieces = pieces;
  }
}

export type SentBody = NonNullable<RequestInit["body"]>;

/** Tools that were offered together, and how a request ends that offers them. By the first of them. */
const offers = new WeakMap<object, { tools: readonly unknown[]; end: Buffer }[]>();

/** So many offers that begin with the same tool are kept: agents have different ones. */
const maxOffers = 8;

/**
 * The JSON of a request, for {@link httpFetch} alone: with its tools at the end. Every step offers the same tools, which are
 * often the longest part of a request, so their bytes are kept for as long as the tools are: the objects must not change.
 */
export function jsonBody(request: object): SentBody {
  const { tools, ...others } = request as { tools?: unknown }; // any object may have one
  const first: unknown = Array.isArray(tools) ? tools[0] : undefined;
  if (!Array.isArray(tools) || typeof first !== "object" || first === null) {
    return JSON.stringify(request);
  }
  const text = JSON.stringify(others);
  if (text === "{}") return JSON.stringify(request);
  const known = offers.get(first) ?? [];
  let offer = known.find(
    (one) => one.tools.length === tools.length && one.tools.every((tool, at) => tool === tools[at]),
  );
  if (offer === undefined) {
    offer = { tools: [...tools], end: Buffer.from(`,"tools":${JSON.stringify(tools)}}`) };
    offers.set(first, [offer, ...known].slice(0, maxOffers));
  }
  return new PiecedBody(text.slice(0, -1), offer.end) as unknown as SentBody; // what `httpFetch` takes
}

/**
 * A `fetch` for the vendors' SDKs over Node's own HTTP client and its kept-alive connections: text
 * bodies and those of {@link jsonBody} only, redirects are not followed. A short streamed answer costs a quarter less processor time
 * than with the global `fetch`, whose web streams are the larger part of a call.
 */
export const httpFetch: typeof fetch = async (input, init = {}) => {
  const url = new URL(input instanceof Request ? input.url : input);
  const response = await send(url, init);
  return response as unknown as Response; // the SDKs use no more of it than HttpResponse has
};

/** One event of a `text/event-stream`. */
export interface ServerEvent {
  /** Empty when the server did not name it. */
  event: string;
  data: string;
}

class PendingEvent {
  #event = "";
  readonly #data: string[] = [];
  chars = 0;

  /** The event, when this line ends it. */
  take(given: string): ServerEvent | undefined {
    const line = given.endsWith("\r") ? given.slice(0, -1) : given;
    if (line === "") {
      return this.#data.length === 0
        ? undefined
        : { event: this.#event, data: this.#data.join("\n") };
    }
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") this.#event = value;
    if (name !== "data") return undefined;
    this.#data.push(value);
    this.chars += value.length;
    return undefined;
  }
}

/** A body as `httpFetch` or a `fetch` of the platform gives it. */
type Body = AsyncIterable<Uint8Array>;

/** Longer than any event of a vendor: the last one of a Responses stream repeats the whole answer. */
const maxEventChars = 16_000_000;

/**
 * Reads the events of a response. `alive` is called for every piece of the body, so that pings and comments, which
 * are no events, show that the vendor is alive. Throws when the body breaks off, or when one event is larger than 16
 * million characters. Comments and unknown fields are skipped.
 */
export async function* serverEvents(
  response: Response,
  alive: () => void,
): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let rest = "";
  let searched = 0;
  let next = new PendingEvent();
  for await (const piece of response.body as Body) {
    alive();
    rest += decoder.decode(piece, { stream: true });
    let start = 0;
    for (let end = rest.indexOf("\n", searched); end !== -1; end = rest.indexOf("\n", start)) {
      const complete = next.take(rest.slice(start, end));
      start = end + 1;
      if (complete === undefined) continue;
      next = new PendingEvent();
      yield complete;
    }
    rest = rest.slice(start);
    searched = rest.length;
    if (rest.length + next.chars > maxEventChars) {
      throw new RangeError("An event of the stream is too large.");
    }
  }
  // Some servers leave out the empty line behind the last event.
  next.take(rest);
  const last = next.take("");
  if (last !== undefined) yield last;
}

/** The body as it arrives. */
async function* piecesOf(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of incoming.iterator({ destroyOnReturn: false })) yield piece;
  } finally {
    drain(incoming);
  }
}

/** What may follow after the reader has left, before the connection is closed. */
const maxRestBytes = 65_536;

const maxRestMs = 1_000;

/** Reads the rest of a body away, so that the connection can be used again; an endless rest closes it. */
function drain(incoming: IncomingMessage): void {
  if (incoming.complete || incoming.destroyed) return void incoming.resume();
  let bytes = 0;
  incoming.on("data", (piece: Uint8Array) => {
    bytes += piece.length;
    if (bytes > maxRestBytes) incoming.destroy();
  });
  incoming.once(
    "close",
    systemClock.after(maxRestMs, () => incoming.destroy()),
  );
}

// Loaded with the first request: that takes a fifth of the time in which an embedded engine starts. Each import of what
// is loaded already would still cost 6 microseconds.
let http: Promise<HttpModule> | undefined;
let https: Promise<HttpModule> | undefined;

interface HttpModule {
  request: typeof sendRequest;
}

async function send(url: URL, init: RequestInit): Promise<HttpResponse> {
  const { signal } = init;
  const { request } = await (url.protocol === "https:"
    ? (https ??= import("node:https"))
    : (http ??= import("node:http")));
  signal?.throwIfAborted();
  const given: unknown = init.body;
  const [text, end] = given instanceof PiecedBody ? given.pieces : [given];
  const body = typeof text === "string" ? text : "";
  const bytes = Buffer.byteLength(body) + (end?.byteLength ?? 0);
  return await new Promise((resolve, reject) => {
    const outgoing = request(url, optionsOf(url, init, bytes));
    let incoming: IncomingMessage | undefined;
    const stop = () => {
      if (signal === undefined || signal === null) return;
      if (incoming === undefined) outgoing.destroy(reasonOf(signal));
      // After a complete answer the connection belongs to the pool, perhaps to another request.
      else if (!incoming.complete) incoming.destroy(reasonOf(signal));
    };
    signal?.addEventListener("abort", stop, { once: true });
    outgoing.on("error", reject);
    outgoing.on("response", (response) => {
      incoming = response;
      // The reader of the body sees the error; without a reader the error must not end the process.
      response.on("error", () => {});
      response.on("close", () => signal?.removeEventListener("abort", stop));
      resolve(new HttpResponse(response, url.href));
    });
    if (end === undefined) return void outgoing.end(body);
    outgoing.cork();
    outgoing.write(body);
    outgoing.end(end);
  });
}

/** Headers go as a list, which Node's client writes as it is. */
function optionsOf(url: URL, init: RequestInit, bytes: number): RequestOptions {
  const given = init.headers instanceof Headers ? init.headers : new Headers(init.headers);
  const headers = [...listOf(given), "host", url.host, "content-length", String(bytes)];
  return { method: init.method ?? "GET", headers };
}

const known = new WeakMap<Headers, readonly string[]>();

/** Names and values. Read once: who gives the same headers again must not have changed them. */
function listOf(given: Headers): readonly string[] {
  const read = known.get(given) ?? [...given].flat();
  known.set(given, read);
  return read;
}

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("The request was aborted.");
}

interface TimedStreamOptions {
  timeouts: StreamTimeouts;
  /** The interface sends nothing while the model thinks. */
  thinksSilently: boolean;
  clock: Clock;
  /** Called whenever bytes arrive. */
  onAlive: () => void;
  /** Given what ends the stream at once, as an abort does. */
  onStart?: (leave: () => void) => void;
  signal?: AbortSignal | undefined;
}

/** How long a vendor may send nothing, in ms. Every byte resets the timer, also those of pings and comments. */
export interface StreamTimeouts {
  /** From the call to its headers, and from there to the first chunk. */
  headersMs: number;
  /** The same where the interface sends nothing while the model thinks. */
  thinkingMs: number;
  /** Between two arrivals of bytes once the answer has begun. */
  gapMs: number;
  /** For the whole call. */
  callMs: number;
}

type Interruption = "aborted" | "timeout";

/** Stops a call on abort or after too long a silence, and reports which of the two it was. */
class SilenceWatch {
  readonly #options: TimedStreamOptions;
  readonly #controller = new AbortController();
  readonly #endMs: number;
  #aliveMs: number;
  #began = false;
  #interruption: Interruption | undefined;
  /** Set while the vendor is waited for. */
  #interrupt: ((reason: Interruption) => void) | undefined;
  #timer: { dueMs: number; cancel: () => void } | undefined;

  constructor(options: TimedStreamOptions) {
    this.#options = options;
    this.#aliveMs = options.clock.monotonic();
    this.#endMs = this.#aliveMs + options.timeouts.callMs;
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
    options.onStart?.(this.#onAbort);
  }

  /** Stops the vendor call. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  alive = (): void => {
    this.#aliveMs = this.#options.clock.monotonic();
    this.#options.onAlive();
  };

  /** What the vendor sends next, or why it is not waited for any more. The time counts while it is waited for only. */
  async next(
    iterator: AsyncIterator<ModelChunk>,
  ): Promise<IteratorResult<ModelChunk> | Interruption> {
    this.#aliveMs = this.#options.clock.monotonic();
    this.#watch(this.#aliveMs);
    if (this.#interruption !== undefined) return this.#interruption;
    const { promise, resolve, reject } = Promise.withResolvers<
      IteratorResult<ModelChunk> | Interruption
    >();
    this.#interrupt = resolve;
    iterator.next().then(resolve, reject);
    try {
      return await promise;
    } finally {
      this.#interrupt = undefined;
      this.#began = true;
    }
  }

  /** `stop`: the vendor call has not ended by itself. */
  close(stop: boolean): void {
    this.#timer?.cancel();
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    if (stop) this.#controller.abort();
  }

  #onAbort = (): void => this.#end("aborted");

  #end(reason: Interruption): void {
    this.#interruption ??= reason;
    this.#interrupt?.(reason);
    this.#controller.abort();
  }

  #silenceMs(): number {
    const { timeouts, thinksSilently } = this.#options;
    if (this.#began) return timeouts.gapMs;
    return thinksSilently ? timeouts.thinkingMs : timeouts.headersMs;
  }

  /** Bytes and chunks only note the time, since a timer for each of them would cost more than they do. */
  #watch(nowMs: number): void {
    const dueMs = Math.min(this.#aliveMs + this.#silenceMs(), this.#endMs);
    if (dueMs <= nowMs) return this.#end("timeout");
    if (this.#timer !== undefined && this.#timer.dueMs <= dueMs) return;
    this.#timer?.cancel();
    const cancel = this.#options.clock.after(Math.ceil(dueMs - nowMs), () => {
      this.#timer = undefined;
      // The consumer has the stream: its slowness is not the vendor's.
      if (this.#interrupt !== undefined) this.#watch(this.#options.clock.monotonic());
    });
    this.#timer = { dueMs, cancel };
  }
}

/**
 * Runs one model call under deadlines; `open` reports bytes that arrive besides its chunks. Adds what a faulty stream
 * lacks: a stream that stops without a terminal chunk ends in `stream_truncated`, a throw in `internal_error`, a
 * missed deadline in a retryable failure that is `silent`. Abort ends it at once without a terminal chunk. Leaving
 * early stops the call.
 */
export async function* timedStream(
  open: (signal: AbortSignal, alive: () => void) => AsyncIterable<ModelChunk>,
  options: TimedStreamOptions,
): AsyncGenerator<ModelChunk> {
  const aborted = () => options.signal?.aborted === true;
  if (aborted()) return;
  const watch = new SilenceWatch(options);
  let iterator: AsyncIterator<ModelChunk> | undefined;
  let ended = false;
  try {
    iterator = open(watch.signal, watch.alive)[Symbol.asyncIterator]();
    for (let started = false; !ended; started = true) {
      const next = await watch.next(iterator);
      if (next === "aborted" || aborted()) return;
      options.onAlive();
      const chunk = chunkOf(next, started);
      ended = isTerminal(chunk);
      yield chunk;
    }
  } catch (error) {
    if (!aborted()) {
      yield modelFailure(
        "internal_error",
        error instanceof Error ? error.message : "The backend failed.",
      );
    }
  } finally {
    watch.close(!ended);
    // A backend may be stuck in a wait: leaving does not wait for it.
    void iterator?.return?.()?.catch(() => {});
  }
}

/** A stream that stands still, or ends without a terminal chunk, gets one. */
function chunkOf(next: IteratorResult<ModelChunk> | "timeout", started: boolean): ModelChunk {
  if (next === "timeout") return timeoutFailure(started);
  if (next.done !== true) return next.value;
  return modelFailure(
    "stream_truncated",
    "The model's stream ended before its answer was complete.",
  );
}

function timeoutFailure(started: boolean): ModelChunk {
  return started
    ? modelFailure("stream_truncated", "The model's stream stood still for too long.", {
        silent: true,
      })
    : modelFailure("api_overloaded", "The model did not begin to answer in time.", {
        silent: true,
      });
}

function isTerminal(chunk: ModelChunk): boolean {
  return chunk.type === "message_stop" || chunk.type === "error";
}

export const defaultTimeouts: StreamTimeouts = {
  headersMs: 30_000,
  thinkingMs: 300_000,
  gapMs: 30_000,
  callMs: 1_200_000,
};
