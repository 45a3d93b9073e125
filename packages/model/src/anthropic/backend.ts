import type Anthropic from "@anthropic-ai/sdk";
import { type Clock, systemClock } from "@larkline/protocol/clock";
import type {
  AssistantPart,
  ImagePart,
  Message,
  ProviderMetadata,
  ThinkingPart,
  ToolResultPart,
  UserPart,
} from "@larkline/protocol/content";
import type {
  MessageStop,
  ModelChunk,
  ModelFailure,
  ModelWarning,
  Usage,
  UsageSoFar,
} from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import {
  bodyWith,
  failureOfCall,
  failureOfRefusal,
  findModelInfo,
  headersWith,
  httpFetch,
  endOf,
  modelFailure,
  outputLimit,
  profileOf,
  refusalIn,
  requestIdOf,
  requestProblem,
  serverEvents,
  signerOf,
  systemBlocksOf,
  toolCallDelta,
  worthCaching,
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  type ProfileInput,
  type VendorProfile,
} from "../index.ts";
import { onceEach } from "../profile.ts";
import {
  asObject,
  countIn,
  fieldIn,
  indexIn,
  jsonTextIn,
  HeldBack,
  keptCitations,
  listIn,
  objectIn,
  partsTextIn,
  textIn,
  type JsonObject,
  jsonBody,
  type SentBody,
} from "../http.ts";

export interface AnthropicBackendOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works, with a path too. */
  baseUrl?: string;
  /** How long the vendor may take until it begins to answer. 10 minutes by default. */
  timeoutMs?: number;
  /** `httpFetch` of the model package by default. */
  fetch?: typeof fetch;
  /** What is particular about the server; by default what is known of its address and of each model. */
  profile?: ProfileInput;
  /** The machine's if absent. */
  clock?: Clock;
}

/**
 * Anthropic's Messages API through the official SDK, whose own retries are off: the chain repeats.
 * Marks the prompt for caching by itself.
 */
export function createAnthropicBackend(options: AnthropicBackendOptions): LlmBackend {
  const at = { type: "anthropic", baseUrl: options.baseUrl } as const;
  const profileFor = onceEach((model) => profileOf(at, model, options.profile));
  const signerFor = onceEach((model) => signerOf(at, model));
  const { apiKey: secret, clock = systemClock } = options;
  const called: Vendor = { client: createClient(options), secret, profileFor, signerFor, clock };
  return { profileOf: profileFor, stream: (request, signal) => streamed(called, request, signal) };
}

/** Only processes that have a model of Anthropic's load the SDK: it takes a sixth of a worker's start. */
async function createClient(options: AnthropicBackendOptions): Promise<Anthropic> {
  const { default: Client } = await import("@anthropic-ai/sdk");
  const client = new Client({
    apiKey: options.apiKey,
    ...(options.baseUrl === undefined ? {} : { baseURL: options.baseUrl }),
    ...(options.timeoutMs === undefined ? {} : { timeout: options.timeoutMs }),
    fetch: options.fetch ?? httpFetch,
    // The SDK sends a bearer token; compatible servers know only this header, and the vendor takes both.
    defaultHeaders: { "x-api-key": options.apiKey },
    maxRetries: 0,
    logLevel: "off",
  });
  reuseHeaders(client, options.fetch === undefined ? jsonBody : JSON.stringify);
  // The first headers make Node load its `Headers`: 20 ms that the first message would wait for.
  await client.buildRequest({ ...messagesCall, headers: {} });
  return client;
}

const messagesCall = { method: "post", path: "/v1/messages" } as const;

type SdkRequest = Awaited<ReturnType<Anthropic["buildRequest"]>>;

/** Calls with the same headers of their own get the same ones of the SDK, which builds them anew for each at the cost of all the rest. */
function reuseHeaders(client: Anthropic, bodyOf: (body: object) => SentBody): void {
  const build = client.buildRequest.bind(client);
  const known = new Map<string, SdkRequest>();
  client.buildRequest = async (options, context) => {
    const { method, path, headers, body, signal } = options;
    const like = JSON.stringify([method, path, headers]);
    const { req, ...target } = known.get(like) ?? (await build(options, context));
    if (known.size < maxKnownHeaders) known.set(like, { req: { headers: req.headers }, ...target });
    const own = { method, body: bodyOf(body ?? {}), ...(signal == null ? {} : { signal }) };
    return { ...target, req: { ...own, headers: req.headers } };
  };
}

/** Those that are added to requests are words of the configuration, so there are few. */
const maxKnownHeaders = 100;

async function* streamed(
  called: Vendor,
  request: ModelRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  const info = request.capabilities ?? findModelInfo("anthropic", request.model);
  const problem = requestProblem(request, info);
  if (problem !== null) return void (yield modelFailure("api_bad_request", problem));
  const profile = called.profileFor(request.model);
  const maker = { model: request.model, signer: called.signerFor(request.model) };
  const { body, headers, warnings } = requestBody(request, info, maker);
  yield* warnings;
  const { messages, max_tokens: maxTokens } = body;
  /** What the model has said in calls that only paused. */
  const said: Block[] = [];
  const received: Received = { began: false, partial: false };
  for (let calls = 1; ; calls += 1) {
    const reader = new Reader({ ...maker, ends: profile.ends }, said.length);
    if (said.length > 0) body.messages = [...messages, { role: "assistant", content: said }];
    const hasEnded = yield* oneCall(called, {
      body,
      headers,
      reader,
      received,
      signal,
      alive: request.alive,
      profile,
    });
    if (!hasEnded) return;
    const stop = reader.stop() ?? modelFailure("stream_truncated", "The model's stream broke off.");
    if (stop.type === "error") return void (yield { ...stop, partial: received.partial });
    if (!reader.hasPaused) return void (yield stop);
    if (calls > (request.maxPauses ?? usualPauses)) return void (yield { ...stop, paused: true });
    said.push(...reader.blocks());
    if (stop.usage !== null) yield { type: "usage_so_far", usage: stop.usage };
    yield { type: "attempt", model: request.model, maxTokens, continues: true };
  }
}

interface Vendor {
  client: Promise<Anthropic>;
  secret: string;
  profileFor: (model: string) => VendorProfile;
  /** Who understands what a model signs. */
  signerFor: (model: string) => string;
  clock: Clock;
}

/** What has been received of an answer: a response, content. */
interface Received {
  began: boolean;
  partial: boolean;
}

interface Call extends Omit<RequestBody, "warnings"> {
  reader: Reader;
  received: Received;
  signal: AbortSignal | undefined;
  alive: ModelRequest["alive"];
  profile: VendorProfile;
}

/** Reads one response to its end; false when the stream is over, because the call failed or was aborted. */
async function* oneCall(
  { client, secret, clock }: Vendor,
  { body, headers, reader, received, signal, alive = () => undefined, profile }: Call,
): AsyncGenerator<ModelChunk, boolean> {
  try {
    const options = { body, headers, stream: true, ...(signal === undefined ? {} : { signal }) };
    const response = await (await client).post(messagesCall.path, options).asResponse();
    received.began = true;
    const requestId = requestIdOf(response.headers);
    alive();
    for await (const { data } of serverEvents(response, alive)) {
      const event: unknown = JSON.parse(data);
      if (textIn(event, "type") === "error") {
        yield {
          ...failureOfRefusal({ ...refusalIn(event), requestId, secret, profile }),
          partial: received.partial,
        };
        return false;
      }
      for (const chunk of reader.read(event)) {
        received.partial ||= chunk.type !== "usage_so_far";
        yield chunk;
      }
    }
  } catch (error) {
    const { began, partial } = received;
    const { default: sdk } = await import("@anthropic-ai/sdk");
    const call = { began, secret, profile, nowMs: clock.now() };
    if (signal?.aborted !== true) yield { ...failureOfCall(error, sdk, call), partial };
    return false;
  }
  return signal?.aborted !== true;
}

/** How often an answer may pause (`pause_turn`) before it is taken as it is, where the caller does not say. */
const usualPauses = 20;

/** The model that makes an answer, and who understands what it signs: the model at its address. */
interface Maker {
  model: string;
  signer: string;
}

interface RequestBody {
  body: Body;
  /** Pins the last API version that takes sampling values, when there are any. */
  headers: Record<string, string>;
  warnings: ModelWarning[];
}

/** The newest API version has no sampling values any more (vendor page "Versions"); see {@link RequestBody}. */
type Body = Anthropic.Messages.MessageCreateParamsStreaming & {
  temperature?: number;
  top_p?: number;
};

/** The vendor's request. */
function requestBody(request: ModelRequest, info: Readonly<ModelInfo>, maker: Maker): RequestBody {
  const turns = vendorTurns(request.messages, maker);
  const tools = (request.tools ?? []).map(vendorTool);
  const system = systemWithMarks(request, info);
  markHistory({ system, tools, turns }, info);
  const maxTokens = outputLimit(request, info);
  const thinking = info.supportsThinking
    ? thinkingOf(request, turns, maxTokens)
    : { fields: {}, warnings: [] };
  const sampling = samplingOf(request, thinking.fields.thinking !== undefined);
  const outputConfig = { ...thinking.fields.output_config, ...formatOf(request, info) };
  const samples = Object.keys(sampling.fields).length > 0;
  // Those of the vendor's own are the operator's words, which the vendor judges.
  const offered = [
    ...tools.map(({ tool }) => tool),
    ...((request.hostedTools ?? []) as unknown as Tool[]),
  ];
  const body: Body = {
    model: request.model,
    max_tokens: maxTokens,
    stream: true,
    ...(system.length > 0 ? { system } : {}),
    messages: turns,
    ...(offered.length > 0 ? { tools: offered } : {}),
    ...thinking.fields,
    ...(Object.keys(outputConfig).length > 0 ? { output_config: outputConfig } : {}),
    ...sampling.fields,
  };
  return {
    headers: headersWith(
      samples ? { "anthropic-version": "2023-06-01" } : {},
      request.extra?.headers,
    ),
    body: bodyWith(body, request.extra),
    warnings: [...thinking.warnings, ...sampling.warnings],
  };
}

type Tool = Anthropic.Messages.Tool;

/** A tool as the vendor wants it, and the text that it adds to the prompt: made once, since every step offers the same. */
interface VendorTool {
  tool: Tool;
  text: string;
}

const vendorTools = new WeakMap<ToolSpec, VendorTool>();

function vendorTool(spec: ToolSpec): VendorTool {
  const known = vendorTools.get(spec);
  if (known !== undefined) return known;
  const { name, description, inputSchema } = spec;
  const tool: Tool = { name, description, input_schema: { ...inputSchema, type: "object" } };
  const made = { tool, text: `${name}${description}${JSON.stringify(tool.input_schema)}` };
  vendorTools.set(spec, made);
  return made;
}

type TextBlock = Anthropic.Messages.TextBlockParam;

interface VendorTurn {
  role: "user" | "assistant";
  content: Block[];
}

type Block = Anthropic.Messages.ContentBlockParam;

/**
 * Marks the end of the history, so that the next step reads it from the cache, and the end of the
 * user turn before, where the last request left its mark. Changes the turns in place.
 */
function markHistory(
  prompt: { system: TextBlock[]; tools: VendorTool[]; turns: VendorTurn[] },
  info: Readonly<ModelInfo>,
): void {
  if (!info.supportsCaching || !worthCaching(promptTexts(prompt), info)) return;
  const userTurns = prompt.turns.filter((turn) => turn.role === "user");
  for (const turn of userTurns.slice(-2)) markLast(turn);
}

/** The prompt in sending order. */
function promptTexts(prompt: {
  system: TextBlock[];
  tools: VendorTool[];
  turns: VendorTurn[];
}): string[] {
  const texts = [...prompt.tools, ...prompt.system].map(({ text }) => text);
  for (const { content } of prompt.turns) {
    for (const block of content) texts.push(textOf(block));
  }
  return texts;
}

function textOf(block: Block): string {
  if (block.type === "text") return block.text;
  if (block.type === "tool_result") return typeof block.content === "string" ? block.content : "";
  return block.type === "thinking" ? block.thinking : "";
}

const mark = { type: "ephemeral" } as const;

function markLast(turn: VendorTurn | undefined): void {
  const block = turn?.content.at(-1);
  // Thinking cannot carry a mark; it is cached with what follows.
  if (block !== undefined && block.type !== "thinking" && block.type !== "redacted_thinking") {
    Object.assign(block, { cache_control: mark });
  }
}

interface Thinking {
  fields: Partial<Body>;
  warnings: ModelWarning[];
}

/** Models that take a fixed thinking budget; later ones decide themselves (vendor guide "Adaptive thinking"). */
const fixedBudget = /^claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-\d{8}|$))/;

const thinkingBudgets = { low: 2_048, medium: 8_192, high: 16_384 };

const answerTokens = 1_024;

/** The vendor's least thinking budget, and what has to be left for the answer. */
const leastBudget = 1_024;

function thinkingOf(
  request: ModelRequest,
  turns: readonly VendorTurn[],
  maxTokens: number,
): Thinking {
  const asks = request.needsThinking === true;
  if (!fixedBudget.test(request.model)) {
    const effort =
      request.effort === undefined ? {} : { output_config: { effort: request.effort } };
    // Later models hide their thinking unless asked, and with it what they say between tool calls.
    const thinking = asks
      ? { thinking: { type: "adaptive" as const, display: "summarized" as const } }
      : {};
    return { fields: { ...thinking, ...effort }, warnings: [] };
  }
  if (!asks || !loopHasThinking(turns)) return { fields: {}, warnings: [] };
  // The budget counts towards the limit, which is the caller's word.
  const budget = Math.min(thinkingBudgets[request.effort ?? "medium"], maxTokens - answerTokens);
  if (budget >= leastBudget) {
    return { fields: { thinking: { type: "enabled", budget_tokens: budget } }, warnings: [] };
  }
  const message = `A limit of ${maxTokens} output tokens leaves no room for thinking; none is asked for.`;
  return { fields: {}, warnings: [{ type: "warning", code: "thinking_dropped", message }] };
}

/** A fixed budget needs thinking at the start of a tool loop; a loop begun by another model has none. */
function loopHasThinking(turns: readonly VendorTurn[]): boolean {
  const last = turns.findLast((turn) => turn.role === "assistant");
  const inLoop = turns.at(-1)?.content.some((block) => block.type === "tool_result") === true;
  const first = last?.content[0]?.type;
  return !inLoop || first === "thinking" || first === "redacted_thinking";
}

interface Override {
  value: number;
  warning?: ModelWarning;
}

/** The two values that thinking is known to refuse (vendor guide "Extended thinking"). */
function samplingOf(
  request: ModelRequest,
  thinks: boolean,
): { fields: Partial<Body>; warnings: ModelWarning[] } {
  const temperature = request.temperature ?? null;
  const topP = request.topP ?? null;
  const fields: Partial<Body> = {};
  const warnings: ModelWarning[] = [];
  const apply = (name: "temperature" | "top_p", override: Override) => {
    fields[name] = override.value;
    if (override.warning !== undefined) warnings.push(override.warning);
  };
  if (temperature !== null) {
    const conflict = thinks && temperature !== 1;
    apply(
      "temperature",
      conflict
        ? overridden("temperature_overridden", "temperature", temperature)
        : { value: temperature },
    );
  }
  if (topP !== null) {
    apply(
      "top_p",
      thinks && topP < 0.95 ? overridden("top_p_overridden", "topP", topP) : { value: topP },
    );
  }
  return { fields, warnings };
}

function overridden(code: string, name: string, value: number): Override {
  return {
    value: 1,
    warning: {
      type: "warning",
      code,
      message: `${name} ${value} does not go with thinking; 1.0 is sent.`,
    },
  };
}

/** The vendor binds an answer to a schema, and knows no form of "any JSON object". */
function formatOf(
  { responseFormat: format }: ModelRequest,
  info: Readonly<ModelInfo>,
): Body["output_config"] {
  if (
    format?.type !== "json_schema" ||
    format.jsonSchema === undefined ||
    !info.supportsJsonSchema
  ) {
    return {};
  }
  return { format: { type: "json_schema", schema: format.jsonSchema } };
}

/**
 * History as the vendor wants it: neighbours of one role merged (tool results are user messages and
 * stand first in theirs), blocks without text left out, thinking only for the model that made it.
 */
function vendorTurns(messages: readonly Message[], maker: Maker): VendorTurn[] {
  const turns: VendorTurn[] = [];
  for (const message of messages) {
    const role = message.role === "assistant" ? "assistant" : "user";
    const blocks = withCitations(blocksOf(message, maker));
    if (blocks.length === 0) continue;
    const last = turns.at(-1);
    if (last?.role !== role) turns.push({ role, content: blocks });
    else if (role === "assistant") last.content.push(...blocks);
    else last.content = resultsFirst([...last.content, ...blocks]);
  }
  for (const [at, turn] of turns.entries()) {
    if (turn.role === "assistant") endOpenCalls(turn, turns[at + 1]);
  }
  return turns;
}

function isCitations({ type }: { type: string }): boolean {
  return type === citationsType;
}

/** The blocks with what a text cites back in the text. */
function withCitations(blocks: Block[]): Block[] {
  if (!blocks.some(isCitations)) return blocks;
  const kept: Block[] = [];
  for (const block of blocks) {
    const last = kept.at(-1);
    if (!isCitations(block)) kept.push(block);
    else if (last?.type === "text") {
      Object.assign(last, { citations: Reflect.get(block, "citations") as unknown });
    }
  }
  return kept;
}

/**
 * Leaves out calls of the vendor's own tools that were cut off: without a result they are refused, unless the vendor
 * still waits for our results. Changes the turn in place.
 */
function endOpenCalls(turn: VendorTurn, next: VendorTurn | undefined): void {
  if (!turn.content.some(isVendorCall)) return;
  if (next?.content.some(({ type }) => type === "tool_result") === true) return;
  const answered = new Set(
    turn.content.map((block) => ("tool_use_id" in block ? block.tool_use_id : undefined)),
  );
  const isOpen = (block: Block): boolean =>
    isVendorCall(block) && "id" in block && !answered.has(String(block.id));
  const rest = turn.content.filter((block) => !isOpen(block));
  turn.content = rest.length > 0 ? rest : [{ type: "text", text: "(no answer)" }];
}

function isVendorCall({ type }: Block): boolean {
  return type === "server_tool_use" || String(type) === "mcp_tool_use";
}

function blocksOf(message: Message, maker: Maker): Block[] {
  const blocks: Block[] = [];
  for (const part of message.content) {
    const block = blockOf(part, maker);
    if (block !== null) blocks.push(block);
  }
  return blocks;
}

function blockOf(part: UserPart | AssistantPart | ToolResultPart, maker: Maker): Block | null {
  if (part.type === "thinking") return thinkingBlock(part, maker);
  if (part.type === "tool_use") {
    return { type: "tool_use", id: part.id, name: part.name, input: part.arguments };
  }
  if (part.type === "tool_result") return resultBlock(part);
  if (part.type === "image") return imageBlock(part);
  if (part.type === "file") {
    return { type: "text", text: `[file ${part.name}, ${part.mediaType}, ${part.bytes} bytes]` };
  }
  return part.text.trim() === "" ? null : { type: "text", text: part.text };
}

type ImageBlock = Anthropic.Messages.ImageBlockParam;

type MediaType = Anthropic.Messages.Base64ImageSource["media_type"];

function imageBlock(part: ImagePart): ImageBlock {
  const { source } = part;
  if (source.sourceType === "url") {
    return { type: "image", source: { type: "url", url: source.url } };
  }
  const data = source.sourceType === "base64" ? source.data : "";
  // The vendor judges the media type; its own list is narrower than ours.
  return {
    type: "image",
    source: { type: "base64", media_type: source.mediaType as MediaType, data },
  };
}

function resultBlock(part: ToolResultPart): Block {
  const { content } = part;
  const base = { type: "tool_result", tool_use_id: part.toolCallId } as const;
  const error = part.isError ? { is_error: true } : {};
  if (typeof content === "string") return { ...base, content, ...error };
  const inner = content
    .filter((item) => item.type === "image" || item.text.trim() !== "")
    .map((item) =>
      item.type === "image" ? imageBlock(item) : { type: "text" as const, text: item.text },
    );
  return { ...base, content: inner, ...error };
}

function thinkingBlock(part: ThinkingPart, self: Maker): Block | null {
  const {
    vendor = "anthropic",
    model = self.model,
    signer = self.signer,
    ...secret
  } = part.providerMetadata ?? {};
  // A thought that was stored without its signer is this model's, as far as is known.
  if (vendor !== "anthropic" || model !== self.model || signer !== self.signer) return null;
  const { signature, redacted, opaque } = secret;
  if (opaque !== undefined) return JSON.parse(opaque) as Block; // the vendor's own, returned as it came
  if (redacted !== undefined) return { type: "redacted_thinking", data: redacted };
  return signature === undefined ? null : { type: "thinking", thinking: part.text, signature };
}

function resultsFirst(blocks: readonly Block[]): Block[] {
  const isResult = (block: Block) => block.type === "tool_result";
  return [...blocks.filter(isResult), ...blocks.filter((block) => !isResult(block))];
}

/** The vendor takes four marks: two for the system prompt, two for the growing history. */
const maxSystemMarks = 2;

/**
 * The system prompt as blocks, its end marked for caching when it is long enough for this model, and
 * with it the ends of blocks that ask for it. The tools stand before it and are cached along.
 */
function systemWithMarks(request: ModelRequest, info: Readonly<ModelInfo>): TextBlock[] {
  const blocks = systemBlocksOf(request);
  const texts = blocks.map((block) => block.text);
  if (!worthCaching(texts, info)) return texts.map((text) => ({ type: "text", text }));
  const wanted = blocks.flatMap((block, at) =>
    block.cacheScope !== "" || at === blocks.length - 1 ? [at] : [],
  );
  const marked = new Set(wanted.slice(-maxSystemMarks));
  return texts.map((text, at) => ({
    type: "text",
    text,
    ...(marked.has(at) ? { cache_control: mark } : {}),
  }));
}

// From the vendor's stream to chunks. Blocks of its own tools, which are none of ours to run, are kept whole.

/** A block as the vendor sends it. */
type RawBlock = JsonObject & { type: string };

/** Reads one stream of an answer. `first`: blocks of the same answer that came in streams before. */
class Reader {
  readonly #maker: Maker & Pick<VendorProfile, "ends">;
  readonly #first: number;
  readonly #held = new HeldBack();
  /** By index, with what their deltas have added. */
  readonly #blocks = new Map<number, RawBlock>();
  /** Those that have not ended. */
  readonly #open = new Set<number>();
  /** JSON text of inputs under way. */
  readonly #inputs = new Map<number, string>();
  #lastIndex = -1;
  /** Some servers send the whole answer at once, as if it were not streamed. */
  #whole: unknown[] = [];
  /** The answer is not complete: the same model continues it. */
  hasPaused = false;
  #usage: Usage = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };
  #hasUsage = false;
  #ending = "";
  #responseId: unknown;
  #complete = false;

  constructor(maker: Maker & Pick<VendorProfile, "ends">, first = 0) {
    this.#maker = maker;
    this.#first = first;
  }

  /** The chunks of an event, which may be any JSON value: what is unknown is skipped. */
  read(event: unknown): ModelChunk[] {
    switch (textIn(event, "type")) {
      case "message_start": {
        const message = fieldIn(event, "message");
        this.#responseId = fieldIn(message, "id");
        this.#whole = listIn(message, "content");
        this.#readReason(message);
        return [this.#count(fieldIn(message, "usage"))];
      }
      case "content_block_start":
        return this.#start(
          indexIn(event, "index") ?? this.#lastIndex + 1,
          objectIn(event, "content_block"),
        );
      case "content_block_delta":
        return this.#delta(indexIn(event, "index") ?? this.#lastIndex, fieldIn(event, "delta"));
      case "content_block_stop":
        return this.#end(indexIn(event, "index") ?? this.#lastIndex);
      case "message_delta":
        this.#count(fieldIn(event, "usage"));
        this.#readReason(fieldIn(event, "delta"));
        return [];
      case "message_stop":
        this.#complete = true;
        return this.#blocks.size > 0
          ? []
          : this.#whole.flatMap((block, at) => this.#wholeBlock(at, asObject(block)));
      default:
        return []; // later kinds of events must not break a stream
    }
  }

  /** The blocks of the stream, to be sent back. */
  blocks(): Anthropic.Messages.ContentBlockParam[] {
    const inOrder = [...this.#blocks]
      .sort(([left], [right]) => left - right)
      .map(([, block]) => block);
    // The vendor's own, as it sent them; an empty text is refused when it comes back.
    return inOrder.filter(
      ({ type, text }) => type !== "text" || text !== "",
    ) as unknown as Anthropic.Messages.ContentBlockParam[];
  }

  /**
   * The end of the answer; null when it broke off. Where a server has closed the connection after the last block, without
   * saying that the answer is complete, even a plain end is one without a known word.
   */
  stop(): MessageStop | ModelFailure | null {
    const usage = this.#hasUsage ? this.#usage : null;
    const isClosed = this.#blocks.size > 0 && this.#open.size === 0;
    if (!this.#complete && !isClosed) return null;
    const word = !this.#complete && this.#ending === "end_turn" ? "" : this.#ending;
    return endOf(word, this.#maker, { usage, id: this.#responseId });
  }

  #readReason(source: unknown): void {
    const reason = textIn(source, "stop_reason");
    if (reason === "") return;
    this.hasPaused = reason === "pause_turn";
    this.#ending = reason;
  }

  /** Counts are cumulative: what an event names replaces what came before. */
  #count(counts: unknown): UsageSoFar {
    const { inputTokens, outputTokens, cacheReadTokens, cacheCreationTokens } = this.#usage;
    this.#hasUsage ||= asObject(counts) !== undefined;
    this.#usage = {
      inputTokens: countIn(counts, "input_tokens") ?? inputTokens,
      outputTokens: countIn(counts, "output_tokens") ?? outputTokens,
      cacheReadTokens: countIn(counts, "cache_read_input_tokens") ?? cacheReadTokens,
      cacheCreationTokens: countIn(counts, "cache_creation_input_tokens") ?? cacheCreationTokens,
    };
    return { type: "usage_so_far", usage: this.#usage };
  }

  #start(at: number, given: JsonObject | undefined): ModelChunk[] {
    this.#lastIndex = at;
    const type = textIn(given, "type");
    if (type === "") return [];
    const index = this.#first + at;
    const block: RawBlock = { ...given, type };
    this.#held.add(JSON.stringify(block).length);
    this.#blocks.set(at, block);
    this.#open.add(at);
    switch (type) {
      case "text": {
        const text = partsTextIn(block, "text");
        block["text"] = text;
        return text === "" ? [] : [{ type: "text_delta", text }];
      }
      case "thinking": {
        const text = partsTextIn(block, "thinking");
        block["thinking"] = text;
        return [{ type: "thinking_delta", index, text }];
      }
      case "redacted_thinking": {
        const providerMetadata = thinkingMetadata(this.#maker, { redacted: textIn(block, "data") });
        return [{ type: "thinking_delta", index, text: "", providerMetadata }];
      }
      case "tool_use":
        return [
          toolCallDelta(index, {
            id: textIn(block, "id") || null,
            name: textIn(block, "name") || null,
          }),
        ];
      default:
        return []; // reported as a whole when it ends
    }
  }

  #delta(at: number, delta: unknown): ModelChunk[] {
    const index = this.#first + at;
    const block = this.#blocks.get(at);
    switch (textIn(delta, "type")) {
      case "text_delta": {
        const text = partsTextIn(delta, "text");
        grow(block, "text", text);
        return text === "" ? [] : [{ type: "text_delta", text }];
      }
      case "thinking_delta": {
        const text = partsTextIn(delta, "thinking");
        grow(block, "thinking", text);
        return text === "" ? [] : [{ type: "thinking_delta", index, text }];
      }
      case "signature_delta":
        this.#held.add(textIn(delta, "signature").length);
        grow(block, "signature", textIn(delta, "signature"));
        return [];
      case "citations_delta": {
        const citation = objectIn(delta, "citation");
        if (block === undefined || citation === undefined) return [];
        this.#held.add(JSON.stringify(citation).length);
        const known = block["citations"];
        if (Array.isArray(known)) known.push(citation);
        else block["citations"] = [citation];
        return [];
      }
      case "input_json_delta": {
        const piece = jsonTextIn(delta, "partial_json");
        if (piece === "") return [];
        if (block?.type !== "tool_use") this.#held.add(piece.length);
        this.#inputs.set(at, (this.#inputs.get(at) ?? "") + piece);
        // Calls of the vendor's own tools are not for us to run.
        return block?.type === "tool_use" ? [toolCallDelta(index, { arguments: piece })] : [];
      }
      default:
        return [];
    }
  }

  #end(at: number): ModelChunk[] {
    const index = this.#first + at;
    const block = this.#blocks.get(at);
    const input = this.#inputs.get(at);
    this.#open.delete(at);
    if (block === undefined) return [];
    // Compatible servers send an input whole, at the start of a call.
    const whole = input === undefined ? jsonTextIn(block, "input") : "{}";
    if (input !== undefined || typeof block["input"] === "string") {
      block["input"] = parsedInput(input ?? whole);
    }
    switch (block.type) {
      case "text": {
        const citations = listIn(block, "citations");
        return citations.length === 0
          ? []
          : [this.#opaque(index, citationsOf(block), keptCitations(citations))];
      }
      case "thinking": {
        const signature = textIn(block, "signature");
        if (signature === "") return [];
        return [
          {
            type: "thinking_delta",
            index,
            text: "",
            providerMetadata: thinkingMetadata(this.#maker, { signature }),
          },
        ];
      }
      case "redacted_thinking":
        return [];
      case "tool_use":
        return whole === "{}" || whole === "" ? [] : [toolCallDelta(index, { arguments: whole })];
      default:
        return [this.#opaque(index, block)];
    }
  }

  #wholeBlock(at: number, block: JsonObject | undefined): ModelChunk[] {
    return [...this.#start(at, block), ...this.#end(at)];
  }

  #opaque(index: number, block: RawBlock, more: ProviderMetadata = {}): ModelChunk {
    const providerMetadata = thinkingMetadata(this.#maker, { opaque: JSON.stringify(block) });
    return {
      type: "thinking_delta",
      index,
      text: "",
      providerMetadata: { ...providerMetadata, ...more },
    };
  }
}

/** Adds a piece to a text of a block. */
function grow(block: RawBlock | undefined, key: string, piece: string): void {
  if (block !== undefined) block[key] = textIn(block, key) + piece;
}

/** What a text cites: kept apart from the text, which other models read, too. */
function citationsOf({ citations }: RawBlock): RawBlock {
  return { type: citationsType, citations };
}

/** What a text cites, as it is kept. No type of the vendor's. */
const citationsType = "citations_of_text";

/** An input that was cut off becomes an empty one, which the vendor judges. */
function parsedInput(text: string): JsonObject {
  try {
    return asObject(JSON.parse(text)) ?? {};
  } catch {
    return {};
  }
}

/** What marks a thinking part as ours: only the model that made it takes it back. */
function thinkingMetadata(
  { model, signer }: Maker,
  secret: { signature: string } | { redacted: string } | { opaque: string },
): ProviderMetadata {
  return { vendor: "anthropic", model, signer, ...secret };
}
