import type { Clock } from "@larkline/protocol/clock";
import type { ImagePart, Message, TextPart } from "@larkline/protocol/content";
import type {
  MessageStop,
  ModelChunk,
  ModelFailure,
  StopReason,
  ToolCallDelta,
  Usage,
} from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import { modelFailure } from "./failure.ts";
import type { ModelInfo, ProviderType } from "./model-catalog.ts";
import type { PictureLimits, VendorProfile } from "./profile.ts";

// What the backends of all vendors share: what a request says and which ones are refused before they are sent, the
// pictures of a request, what an operator adds to it, and the time limits of its answer.

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

// Pictures: those that a vendor would refuse are made smaller, or left out.

/** Bytes at the beginning of a picture that are searched for its size. */
const headBytes = 262_144;

/** Why a picture is too much for a vendor, in words for the model; undefined when it is not, or its size is not known. */
export function pictureProblem(image: ImagePart, limits: PictureLimits): string | undefined {
  const { source } = image;
  if (source.sourceType !== "base64") return undefined;
  const bytes = Buffer.byteLength(source.data, "base64");
  if (bytes > limits.maxBytes) return `it has ${bytes} bytes, this model takes ${limits.maxBytes}`;
  const size = pictureSize(
    Buffer.from(source.data.slice(0, Math.ceil((headBytes * 4) / 3)), "base64"),
  );
  if (size === undefined) return undefined;
  const { width, height } = size;
  if (Math.max(width, height) > limits.maxSide) {
    return `it has ${width} x ${height} pixels, this model takes ${limits.maxSide} on a side`;
  }
  if (width * height <= limits.maxPixels) return undefined;
  return `it has ${width} x ${height} pixels, this model takes ${limits.maxPixels} in all`;
}

/** Makes a picture small enough; undefined: it cannot. Must not reject, except when the signal aborts. */
export type PictureScaling = (
  image: ImagePart,
  limits: PictureLimits,
  signal: AbortSignal | undefined,
) => Promise<ImagePart | undefined>;

/** The messages with smaller pictures in place of those that the vendor would refuse, as far as they can be made. */
export async function withScaledPictures(
  messages: readonly Message[],
  limits: PictureLimits,
  { scale, signal }: { scale: PictureScaling; signal: AbortSignal | undefined },
): Promise<readonly Message[]> {
  const latest = imagesOf(messages).toReversed().slice(0, limits.maxCount);
  const scaled = new Map<ImagePart, ImagePart>();
  for (const image of latest) {
    if (scaled.has(image) || pictureProblem(image, limits) === undefined) continue;
    const smaller = await scale(image, limits, signal);
    if (smaller !== undefined) scaled.set(image, smaller);
  }
  if (scaled.size === 0) return messages;
  return messages.map((message) => withPictures(message, (image) => scaled.get(image) ?? image));
}

/** The pictures that people and tools have sent, in their order. */
export function imagesOf(messages: readonly Message[]): ImagePart[] {
  const images: ImagePart[] = [];
  for (const { content } of messages) {
    for (const part of content) {
      if (part.type === "image") images.push(part);
      if (part.type !== "tool_result" || typeof part.content === "string") continue;
      for (const inner of part.content) if (inner.type === "image") images.push(inner);
    }
  }
  return images;
}

/**
 * The messages with a sentence in place of each picture that the vendor would refuse: all of them where the model takes
 * `none`. The latest pictures count.
 */
export function withSentPictures(
  messages: readonly Message[],
  limits: PictureLimits | "none",
): readonly Message[] {
  if (imagesOf(messages).length === 0) return messages;
  let left = limits === "none" ? 0 : limits.maxCount;
  const sent = (image: ImagePart): ImagePart | TextPart => {
    const problem =
      limits === "none"
        ? "this model takes text only"
        : left > 0
          ? pictureProblem(image, limits)
          : "newer ones leave no room for it";
    if (problem === undefined) {
      left -= 1;
      return image;
    }
    return {
      type: "text",
      text: `[A picture that is not shown: ${problem}. Say so, do not guess.]`,
    };
  };
  const changed = messages
    .toReversed()
    .map((message) => withPictures(message, sent))
    .toReversed();
  return isEqual(changed, messages) ? messages : changed;
}

function withPictures(message: Message, sent: (image: ImagePart) => ImagePart | TextPart): Message {
  if (message.role === "assistant") return message;
  if (message.role === "user") {
    const content = message.content
      .toReversed()
      .map((part) => (part.type === "image" ? sent(part) : part))
      .toReversed();
    return isEqual(content, message.content) ? message : { ...message, content };
  }
  const content = message.content.map((part) => {
    if (typeof part.content === "string") return part;
    const inner = part.content
      .toReversed()
      .map((one) => (one.type === "image" ? sent(one) : one))
      .toReversed();
    return isEqual(inner, part.content) ? part : { ...part, content: inner };
  });
  return isEqual(content, message.content) ? message : { ...message, content };
}

function isEqual(left: readonly unknown[], right: readonly unknown[]): boolean {
  return left.every((item, at) => item === right[at]);
}

/** Width and height in the head of a PNG, JPEG, GIF or WebP file; undefined of anything else. */
export function pictureSize(bytes: Uint8Array): { width: number; height: number } | undefined {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, headBytes));
  try {
    if (head.readUInt32BE(0) === 0x89504e47) {
      return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) };
    }
    const magic = head.toString("latin1", 0, 4);
    if (magic === "GIF8") return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) };
    if (magic === "RIFF") return webpSize(head);
    return head.readUInt16BE(0) === 0xffd8 ? jpegSize(head) : undefined;
  } catch {
    return undefined; // cut off, or no picture: the vendor judges it
  }
}

function webpSize(head: Buffer): { width: number; height: number } | undefined {
  const kind = head.toString("latin1", 12, 16);
  if (kind === "VP8X") {
    return { width: head.readUIntLE(24, 3) + 1, height: head.readUIntLE(27, 3) + 1 };
  }
  if (kind === "VP8 ") {
    return { width: head.readUInt16LE(26) & 0x3fff, height: head.readUInt16LE(28) & 0x3fff };
  }
  if (kind !== "VP8L") return undefined;
  const bits = head.readUInt32LE(21);
  return { width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 };
}

function jpegSize(head: Buffer): { width: number; height: number } | undefined {
  for (let at = 2; at + 9 < head.length;) {
    const marker = head.readUInt16BE(at);
    // The frame headers: SOF0 to SOF15 without the tables DHT, JPG and DAC.
    const isFrame =
      marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
    if (isFrame) return { width: head.readUInt16BE(at + 7), height: head.readUInt16BE(at + 5) };
    at += 2 + head.readUInt16BE(at + 2);
  }
  return undefined;
}

// What an operator adds to the requests of a vendor that Larkline has no setting for, and the tools that a vendor runs
// itself. The loop's own part of a request cannot be changed by either.

/** Fields of the body and headers that go with every request of a provider. */
export interface RequestExtra {
  /** A service tier, a router's `provider`. */
  readonly body?: Readonly<Record<string, unknown>>;
  /** Such as `anthropic-beta`. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A tool that the vendor runs, as its interface describes it. */
export type HostedTool = Readonly<Record<string, unknown>>;

/** Fields that belong to the loop, in any of the interfaces. Others that a request sets itself win over an extra one. */
const ownFields: ReadonlySet<string> = new Set(
  (
    "model messages input system instructions prompt tools functions stream stream_options background n " +
    "max_tokens max_completion_tokens max_output_tokens store previous_response_id conversation"
  ).split(" "),
);

/** Headers that say who asks, or how the message is framed. */
const ownHeaders =
  /^(?:authorization|proxy-.*|x-api-key|api-key|x-goog-api-key|cookie|host|connection|content-.*|transfer-encoding|accept|accept-encoding|te|trailer|upgrade|expect|keep-alive)$/i;

const maxBodyChars = 100_000;

/** Why this cannot go with requests, or undefined. */
export function extraProblem({ body = {}, headers = {} }: RequestExtra): string | undefined {
  const field = Object.keys(body).find((name) => ownFields.has(name));
  if (field !== undefined) return `body.${field} belongs to Larkline, which sets it itself`;
  const header = Object.keys(headers).find((name) => ownHeaders.test(name));
  if (header !== undefined) return `headers.${header} belongs to Larkline, which sets it itself`;
  const chars = jsonChars(body);
  if (chars === undefined) return "body is not JSON";
  return chars > maxBodyChars
    ? `body has ${chars} characters, ${maxBodyChars} may be sent`
    : undefined;
}

function jsonChars(value: unknown): number | undefined {
  try {
    return JSON.stringify(value).length;
  } catch {
    return undefined;
  }
}

/** The later one wins where both set the same. */
export function joinedExtra(first: RequestExtra = {}, second: RequestExtra = {}): RequestExtra {
  return {
    body: joined(first.body ?? {}, second.body ?? {}) as RequestExtra["body"] & object,
    headers: headersWith(lowerCase(second.headers), first.headers),
  };
}

/** A request's body with what is added to it: objects are joined, lists too, and of all else the request's own value stays. */
export function bodyWith<T extends object>(body: T, extra: RequestExtra | undefined): T {
  if (extra?.body === undefined) return body;
  const added = Object.entries(extra.body).filter(([name]) => !ownFields.has(name));
  if (added.length === 0) return body;
  return joined(Object.fromEntries(added), body) as T; // a superset of the body
}

/** A request's headers with what is added to them; the request's own stay. */
export function headersWith(
  headers: Record<string, string>,
  extra: Record<string, string> | undefined = {},
) {
  const added = Object.entries(lowerCase(extra)).filter(([name]) => !ownHeaders.test(name));
  return { ...Object.fromEntries(added), ...headers };
}

function lowerCase(headers: Readonly<Record<string, string>> = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}

function joined(low: unknown, high: unknown): unknown {
  if (Array.isArray(low) && Array.isArray(high)) {
    return [...high, ...low.filter((item) => !high.includes(item))];
  }
  if (!isRecord(low) || !isRecord(high)) return high;
  const names = new Set([...Object.keys(low), ...Object.keys(high)]);
  return Object.fromEntries(
    [...names].map((name) => {
      const [of, over] = [Object.hasOwn(low, name), Object.hasOwn(high, name)];
      return [name, of && over ? joined(low[name], high[name]) : over ? high[name] : low[name]];
    }),
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Tools of a vendor's interface that its client has to run: those are tools of a runner here. */
const runByClient: Readonly<Record<ProviderType, RegExp>> = {
  anthropic: /^(?:custom|bash_|text_editor_|computer_|memory_)/,
  "openai-responses": /^(?:function|custom|computer|local_shell|apply_patch)/,
  openai: /./,
};

/** Why the vendor of this interface cannot be given the tool, or undefined. */
export function hostedToolProblem(type: ProviderType, tool: HostedTool): string | undefined {
  if (type === "openai") {
    return "Chat Completions has no hosted tools; openai-responses and anthropic have";
  }
  const { type: kind } = tool;
  if (typeof kind !== "string" || kind === "") return "a hosted tool needs its `type`";
  if (runByClient[type].test(kind)) {
    return `'${kind}' is run by the client, not by the vendor: write a tool of your own`;
  }
  return jsonChars(tool) === undefined ? `'${kind}' is not JSON` : undefined;
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
