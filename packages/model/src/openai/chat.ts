import { hash } from "node:crypto";
import type { OpenAI } from "@larkline/openai-sdk";
import { systemClock } from "@larkline/protocol/clock";
import type {
  AssistantPart,
  ImagePart,
  Message,
  ToolResultPart,
  ToolUsePart,
  UserPart,
  ProviderMetadata,
} from "@larkline/protocol/content";
import type { MessageStop, ModelChunk, ModelFailure, Usage } from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import {
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  type ThoughtRequest,
  type VendorProfile,
  bodyWith,
  endOf,
  profileOf,
  signerOf,
  systemBlocksOf,
  toolCallDelta,
} from "../index.ts";
import { onceEach } from "../profile.ts";
import { TaggedThoughts } from "./tagged-thoughts.ts";
import {
  callOptions,
  createClient,
  streamed,
  type VendorApi,
  type OpenAiBackendOptions,
  fileNote,
  imageAddress,
  resultContent,
  type Reader,
} from "./client.ts";
import {
  keptCitations,
  maxCitations,
  asObject,
  countIn,
  fieldIn,
  indexIn,
  jsonTextIn,
  listIn,
  objectIn,
  partsTextIn,
  textIn,
  type JsonObject,
} from "../http.ts";

/** OpenAI's Chat Completions, and every server compatible with them, through the official SDK. */
export function createOpenAiChatBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const at = { type: "openai", baseUrl: options.baseUrl } as const;
  const dialectOf = onceEach((model): Dialect => {
    return { ...profileOf(at, model, options.profile), signer: signerOf(at, model) };
  });
  const api: VendorApi = {
    open: async (request, info, signal) =>
      await (
        await client
      ).chat.completions
        .create(
          bodyWith(bodyOf(request, info, dialectOf(request.model)), request.extra),
          callOptions(request, signal),
        )
        .asResponse(),
    createReader: (model) => new ChatReader(dialectOf(model)),
    profileOf: dialectOf,
    hostsTools: false,
    secret: options.apiKey,
    clock: options.clock ?? systemClock,
  };
  return {
    thinksSilently: true,
    profileOf: dialectOf,
    stream: (request, signal) => streamed(api, request, signal),
  };
}

/** The profile of a model, and who understands what it signs. */
interface Dialect extends VendorProfile {
  signer: string;
}

type Body = OpenAI.Chat.Completions.ChatCompletionCreateParamsStreaming;

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>, dialect: Dialect): Body {
  return {
    model: request.model,
    messages: chatMessages(request, dialect),
    stream: true,
    ...(request.plain === true ? {} : { stream_options: { include_usage: true } }),
    ...toolsOf(request),
    ...limitOf(request, dialect),
    ...effortOf(request, info, dialect),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

type Param = OpenAI.Chat.Completions.ChatCompletionMessageParam;

/** The system prompt and history as Chat Completions messages. */
function chatMessages(request: ModelRequest, dialect: Dialect): Param[] {
  const system = systemBlocksOf(request).map((block) => block.text);
  const isPlain = request.plain === true;
  // A model that does not think may refuse the field; the plainest request is the last try, with what may be missing.
  const callsNeedThoughts = dialect.callsNeedThoughts && (isPlain || isThinking(request, dialect));
  const rules: Dialect = {
    ...dialect,
    callsNeedThoughts,
    ...(isPlain ? { callIds: "nine-letters" } : {}),
  };
  const ids = sentCallIds(request.messages, isPlain ? { ...rules, signer: "" } : rules);
  const params = request.messages.flatMap((message) => paramsOf(message, { ...rules, ids }));
  return system.length === 0
    ? params
    : [{ role: "system", content: system.join("\n\n") }, ...params];
}

/** How a request is written. `ids`: of calls as they are sent. */
interface Writing extends Dialect {
  ids: ReadonlyMap<string, string>;
}

function paramsOf(message: Message, writing: Writing): Param[] {
  if (message.role === "user") return userParams(message.content);
  return message.role === "assistant"
    ? assistantParams(message.content, writing)
    : toolParams(message.content, writing.ids);
}

const plainId = /^[A-Za-z0-9_-]{1,40}$/;

/** Whether histories keep an id of a call as it came: all vendors take it. */
function isPlainId(id: string): boolean {
  return plainId.test(id);
}

/**
 * The ids of all calls as one server gets them, by the ids of the history. Its own come back as it gave them; calls of
 * others get the form that it demands. No id is sent twice.
 */
export function sentCallIds(
  messages: readonly Message[],
  dialect: Pick<VendorProfile, "callIds"> & { signer: string },
): ReadonlyMap<string, string> {
  const calls = messages.flatMap(({ role, content }) =>
    role === "assistant" ? content.filter((part) => part.type === "tool_use") : [],
  );
  const given = new Set(calls.map((call) => ownId(call, dialect.signer)));
  const sent = new Map<string, string>();
  const taken = new Set<string>();
  for (const [at, call] of calls.entries()) {
    const own = ownId(call, dialect.signer);
    let id = own === undefined || taken.has(own) ? idFor(call, at, dialect) : own;
    for (let next = at + 1; taken.has(id) || (id !== own && given.has(id)); next += 1) {
      id = idFor(call, next, dialect, next);
    }
    taken.add(id);
    sent.set(call.id, id);
  }
  return sent;
}

/** The id that this server gave to a call in a form that histories do not keep. */
function ownId(
  { providerMetadata: { vendor, signer, callId } = {} }: ToolUsePart,
  server: string,
): string | undefined {
  return vendor === "openai-chat" && signer === server ? callId : undefined;
}

/** An id in the form that a server demands. `copy` makes another one of it. */
function idFor(
  { id, name }: ToolUsePart,
  at: number,
  { callIds }: Pick<VendorProfile, "callIds">,
  copy = 0,
): string {
  if (callIds === "functions.name:index") return `functions.${name}:${at}`;
  if (callIds === "any") return copy === 0 ? id : `${id}_${copy}`;
  if (copy === 0 && /^[A-Za-z0-9]{9}$/.test(id)) return id;
  return hash("sha256", `${id} ${copy}`, "hex").slice(0, 9);
}

function userParams(parts: readonly UserPart[]): Param[] {
  const content = parts.filter((part) => part.type !== "text" || part.text !== "").map(userContent);
  if (content.length === 0) return [];
  const texts = content.flatMap((part) => (part.type === "text" ? [part.text] : []));
  return [{ role: "user", content: texts.length === content.length ? texts.join("") : content }];
}

type UserContent = OpenAI.Chat.Completions.ChatCompletionContentPart;

function userContent(part: UserPart): UserContent {
  if (part.type === "image") return imageContent(part);
  return { type: "text", text: part.type === "file" ? fileNote(part) : part.text };
}

function imageContent(part: ImagePart): UserContent {
  return { type: "image_url", image_url: { url: imageAddress(part) } };
}

type AssistantParam = OpenAI.Chat.Completions.ChatCompletionAssistantMessageParam;

/** What marks thoughts that came in a field of a message, or within its text: only the model that made them gets them. */
export function thoughtMetadata(signer: string): ProviderMetadata {
  return { vendor: "openai-chat", signer };
}

/** What is said where a server demands thoughts beside a call that another model has made. */
const noThoughts = "(none kept)";

function assistantParams(parts: readonly AssistantPart[], dialect: Writing): Param[] {
  let text = "";
  let thoughts = "";
  const calls: NonNullable<AssistantParam["tool_calls"]> = [];
  for (const part of parts) {
    if (part.type === "text") text += part.text;
    else if (part.type === "tool_use") {
      const called = { name: part.name, arguments: JSON.stringify(part.arguments) };
      calls.push({ id: dialect.ids.get(part.id) ?? part.id, type: "function", function: called });
    } else if (isOwn(part.providerMetadata, dialect)) thoughts += part.text;
  }
  if (text === "" && calls.length === 0) return [];
  const [tags] = dialect.thoughtTags;
  const inTags = dialect.thoughtsBack === "tags" && tags !== undefined && thoughts !== "";
  const content = inTags ? `${tags.open}${thoughts}${tags.close}\n${text}` : text;
  const message: AssistantParam = { role: "assistant", content: content === "" ? null : content };
  if (calls.length > 0) message.tool_calls = calls;
  const isField = dialect.thoughtsBack !== "tags" && dialect.thoughtsBack !== "none";
  const sent =
    thoughts === "" && calls.length > 0 && dialect.callsNeedThoughts ? noThoughts : thoughts;
  // A field of compatible servers, unknown to the SDK's types.
  return [
    isField && sent !== "" ? Object.assign(message, { [dialect.thoughtsBack]: sent }) : message,
  ];
}

/** Whether the model thinks in this conversation: it is asked to, or has done so. */
function isThinking({ needsThinking, effort, messages }: ModelRequest, dialect: Dialect): boolean {
  if (needsThinking === true || effort !== undefined) return true;
  return messages.some(
    ({ role, content }) =>
      role === "assistant" &&
      content.some((part) => part.type === "thinking" && isOwn(part.providerMetadata, dialect)),
  );
}

/** Thoughts without a signer were stored by a version that did not note it. */
function isOwn({ vendor, signer }: ProviderMetadata = {}, dialect: Dialect): boolean {
  return vendor === "openai-chat" && (signer ?? dialect.signer) === dialect.signer;
}

function toolParams(parts: readonly ToolResultPart[], ids: ReadonlyMap<string, string>): Param[] {
  const results: Param[] = [];
  const images: UserContent[] = [];
  for (const part of parts) {
    const content = resultContent(part);
    const id = ids.get(part.toolCallId) ?? part.toolCallId;
    if (typeof content === "string") {
      results.push({ role: "tool", tool_call_id: id, content });
      continue;
    }
    const texts = content.images.length > 0 ? [...content.texts, "[images follow]"] : content.texts;
    const shown = texts.map((text) => ({ type: "text" as const, text }));
    results.push({ role: "tool", tool_call_id: id, content: shown });
    images.push(...content.images.map(imageContent));
  }
  // Tool messages take no images: they follow in a user message.
  return images.length === 0 ? results : [...results, { role: "user", content: images }];
}

/** Reads one stream of Chat Completions. */
class ChatReader implements Reader {
  readonly #dialect: Dialect;
  readonly #metadata: ProviderMetadata;
  readonly #text: TaggedThoughts;
  #finish = "";
  #isClosed = false;
  #usage: Usage | null = null;
  #responseId: unknown;
  #refused = false;
  /** What its text cites. */
  readonly #citations: unknown[] = [];
  #calls = new Set<number>();
  #lastIndex = -1;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
    this.#metadata = thoughtMetadata(dialect.signer);
    this.#text = new TaggedThoughts(dialect.thoughtTags);
  }

  read(chunk: unknown): ModelChunk[] {
    this.#responseId ??= fieldIn(chunk, "id");
    this.#usage = usageOf(objectIn(chunk, "usage")) ?? this.#usage;
    const [choice] = listIn(chunk, "choices");
    this.#finish = textIn(choice, "finish_reason") || this.#finish;
    // Some servers send the whole answer at once, as if it were not streamed.
    const delta = objectIn(choice, "delta") ?? objectIn(choice, "message");
    return delta === undefined ? [] : this.#delta(delta);
  }

  close(): void {
    this.#isClosed = true;
  }

  rest(): ModelChunk[] {
    const chunks = this.#chunksOf(this.#text.end());
    const cited = keptCitations(this.#citations);
    if (cited["citations"] === undefined) return chunks;
    return [
      ...chunks,
      { type: "text_delta", text: "", providerMetadata: { ...this.#metadata, ...cited } },
    ];
  }

  stop(): MessageStop | ModelFailure | null {
    const finish = this.#finish;
    if (finish === "" && !this.#isClosed) return null;
    const end = endOf(finish, this.#dialect, { usage: this.#usage, id: this.#responseId });
    if (end.type === "error") return end;
    if (this.#refused) return { ...end, stopReason: "refusal" };
    // Compatible servers end tool calls with a plain stop.
    return end.stopReason === "end_turn" && this.#calls.size > 0
      ? { ...end, stopReason: "tool_use" }
      : end;
  }

  #delta(delta: JsonObject): ModelChunk[] {
    const chunks: ModelChunk[] = [];
    const thought = this.#thoughtIn(delta);
    if (thought !== "") chunks.push(this.#thought(thought));
    const text = partsTextIn(delta, "content");
    if (text !== "") chunks.push(...this.#chunksOf(this.#text.read(text)));
    for (const one of listIn(delta, "annotations")) this.#cite(one);
    const refusal = textIn(delta, "refusal");
    if (refusal !== "") {
      this.#refused = true;
      chunks.push({ type: "text_delta", text: refusal });
    }
    for (const call of listIn(delta, "tool_calls")) {
      if (asObject(call) !== undefined) chunks.push(this.#call(call));
    }
    const old = objectIn(delta, "function_call");
    if (old !== undefined) chunks.push(this.#call({ index: 0, function: old }));
    return chunks;
  }

  #cite(annotation: unknown): void {
    if (textIn(annotation, "type") !== "url_citation" || this.#citations.length >= maxCitations) {
      return;
    }
    this.#citations.push(fieldIn(annotation, "url_citation"));
  }

  /** Thoughts of compatible servers, in fields that the SDK's types do not know. */
  #thoughtIn(delta: JsonObject): string {
    for (const name of this.#dialect.thoughtFields) {
      const thought = partsTextIn(delta, name);
      if (thought !== "") return thought;
    }
    return "";
  }

  #thought(text: string): ModelChunk {
    return { type: "thinking_delta", index: 0, text, providerMetadata: this.#metadata };
  }

  #chunksOf({ thought, text }: { thought: string; text: string }): ModelChunk[] {
    const chunks: ModelChunk[] = thought === "" ? [] : [this.#thought(thought)];
    return text === "" ? chunks : [...chunks, { type: "text_delta", text }];
  }

  /** Some servers leave out the index: a new id then begins a new call. */
  #indexOf(call: unknown): number {
    const index = indexIn(call, "index");
    if (index !== undefined) return index;
    return textIn(call, "id") !== "" || this.#lastIndex < 0 ? this.#calls.size : this.#lastIndex;
  }

  #call(call: unknown): ModelChunk {
    const index = this.#indexOf(call);
    this.#lastIndex = index;
    this.#calls.add(index);
    const called = fieldIn(call, "function");
    const id = textIn(call, "id");
    return toolCallDelta(index, {
      id: id || null,
      name: textIn(called, "name") || null,
      arguments: jsonTextIn(called, "arguments"),
      ...(id === "" || isPlainId(id)
        ? {}
        : { providerMetadata: { ...this.#metadata, callId: id } }),
    });
  }
}

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: JsonObject | undefined): Usage | null {
  if (usage === undefined) return null;
  const details = fieldIn(usage, "prompt_tokens_details");
  const cacheReadTokens = countIn(details, "cached_tokens") ?? 0;
  const cacheCreationTokens = countIn(details, "cache_write_tokens") ?? 0;
  return {
    inputTokens: Math.max(
      0,
      (countIn(usage, "prompt_tokens") ?? 0) - cacheReadTokens - cacheCreationTokens,
    ),
    outputTokens: countIn(usage, "completion_tokens") ?? 0,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

/** Models that refuse the old name of the output limit. */
const newLimitName = /^(?:o\d|gpt-[5-9])/;

function limitOf({ model, maxTokens }: ModelRequest, { limitField }: Dialect): Partial<Body> {
  if (maxTokens === undefined) return {};
  return { [newLimitName.test(model) ? "max_completion_tokens" : limitField]: maxTokens };
}

/** How each kind of server is asked to think: fields that the SDK's types do not know, but for the first. */
const thoughtRequests: Record<ThoughtRequest, (effort: "low" | "medium" | "high") => object> = {
  reasoning_effort: (effort) => ({ reasoning_effort: effort }),
  thinking: () => ({ thinking: { type: "enabled" } }),
  enable_thinking: () => ({ enable_thinking: true }),
  reasoning: (effort) => ({ reasoning: { effort } }),
  chat_template_kwargs: () => ({ chat_template_kwargs: { enable_thinking: true } }),
  none: () => ({}),
};

function effortOf(
  request: ModelRequest,
  info: Readonly<ModelInfo>,
  { thoughtRequest }: Dialect,
): Partial<Body> {
  const effort = request.effort ?? (request.needsThinking === true ? "medium" : undefined);
  return info.supportsThinking && effort !== undefined
    ? thoughtRequests[thoughtRequest](effort)
    : {};
}

function formatOf(
  { responseFormat: format }: ModelRequest,
  info: Readonly<ModelInfo>,
): Partial<Body> {
  if (format?.type === "json_object") return { response_format: { type: "json_object" } };
  if (format?.jsonSchema === undefined || !info.supportsJsonSchema) return {};
  return {
    response_format: {
      type: "json_schema",
      json_schema: { name: format.name ?? "response", schema: format.jsonSchema, strict: true },
    },
  };
}

function samplingOf(request: ModelRequest): Partial<Body> {
  const { temperature, topP } = request;
  return {
    ...(temperature === undefined || temperature === null ? {} : { temperature }),
    ...(topP === undefined || topP === null ? {} : { top_p: topP }),
  };
}

function toolsOf(request: ModelRequest): Partial<Body> {
  const tools = (request.tools ?? []).map(vendorTool);
  return tools.length > 0 ? { tools } : {};
}

type VendorTool = NonNullable<Body["tools"]>[number];

/** Made once, since every step offers the same. */
const vendorTools = new WeakMap<ToolSpec, VendorTool>();

function vendorTool(spec: ToolSpec): VendorTool {
  const { name, description, inputSchema: parameters } = spec;
  const tool = vendorTools.get(spec) ?? {
    type: "function" as const,
    function: { name, description, parameters },
  };
  vendorTools.set(spec, tool);
  return tool;
}
