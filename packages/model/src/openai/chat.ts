import type { OpenAI } from "@larkline/openai-sdk";
import {
  type AssistantPart,
  type ImagePart,
  type Message,
  type ToolResultPart,
  type UserPart,
  type MessageStop,
  type ModelChunk,
  type StopReason,
  type Usage,
} from "@larkline/protocol";
import {
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  systemBlocksOf,
  messageStop,
  toolCallDelta,
} from "../index.ts";
import {
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
} from "../vendor-json.ts";

/** OpenAI's Chat Completions, and every server compatible with them, through the official SDK. */
export function createOpenAiChatBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const own = options.baseUrl === undefined || new URL(options.baseUrl).hostname === "api.openai.com";
  const api: VendorApi = {
    open: async (request, info, signal) =>
      await (
        await client
      ).chat.completions
        .create(bodyOf(request, info, own), signal === undefined ? {} : { signal })
        .asResponse(),
    createReader: createChatReader,
    secret: options.apiKey,
  };
  return { thinksSilently: true, stream: (request, signal) => streamed(api, request, signal) };
}

type Body = OpenAI.Chat.Completions.ChatCompletionCreateParamsStreaming;

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>, own: boolean): Body {
  return {
    model: request.model,
    messages: chatMessages(request),
    stream: true,
    stream_options: { include_usage: true },
    ...toolsOf(request),
    ...limitOf(request, own),
    ...effortOf(request, info),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

type Param = OpenAI.Chat.Completions.ChatCompletionMessageParam;

/** The system prompt and history as Chat Completions messages. */
function chatMessages(request: ModelRequest): Param[] {
  const system = systemBlocksOf(request).map((block) => block.text);
  const params = request.messages.flatMap(paramsOf);
  return system.length === 0 ? params : [{ role: "system", content: system.join("\n\n") }, ...params];
}

function paramsOf(message: Message): Param[] {
  if (message.role === "user") return userParams(message.content);
  return message.role === "assistant" ? assistantParams(message.content) : toolParams(message.content);
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

/** What marks thinking that a compatible server wants to see again in a tool loop. */
export const reasoningMetadata = { vendor: "openai-chat", field: "reasoning_content" };

function assistantParams(parts: readonly AssistantPart[]): Param[] {
  let text = "";
  let reasoning = "";
  const calls: NonNullable<AssistantParam["tool_calls"]> = [];
  for (const part of parts) {
    if (part.type === "text") text += part.text;
    else if (part.type === "tool_use") {
      const called = { name: part.name, arguments: JSON.stringify(part.arguments) };
      calls.push({ id: part.id, type: "function", function: called });
    } else if (part.providerMetadata?.["vendor"] === reasoningMetadata.vendor) reasoning += part.text;
  }
  if (text === "" && calls.length === 0) return [];
  const message: AssistantParam = { role: "assistant", content: text === "" ? null : text };
  if (calls.length > 0) message.tool_calls = calls;
  // A field of compatible servers (DeepSeek, Kimi), unknown to the SDK's types.
  return [reasoning === "" ? message : Object.assign(message, { reasoning_content: reasoning })];
}

function toolParams(parts: readonly ToolResultPart[]): Param[] {
  const results: Param[] = [];
  const images: UserContent[] = [];
  for (const part of parts) {
    const content = resultContent(part);
    if (typeof content === "string") {
      results.push({ role: "tool", tool_call_id: part.toolCallId, content });
      continue;
    }
    const texts = content.images.length > 0 ? [...content.texts, "[images follow]"] : content.texts;
    const shown = texts.map((text) => ({ type: "text" as const, text }));
    results.push({ role: "tool", tool_call_id: part.toolCallId, content: shown });
    images.push(...content.images.map(imageContent));
  }
  // Tool messages take no images: they follow in a user message.
  return images.length === 0 ? results : [...results, { role: "user", content: images }];
}

const stopReasons: ReadonlyMap<string, StopReason> = new Map([
  ["stop", "end_turn"],
  ["tool_calls", "tool_use"],
  ["function_call", "tool_use"],
  ["length", "max_tokens"],
  ["content_filter", "refusal"],
]);

class ChatReader implements Reader {
  #finish = "";
  #usage: Usage | null = null;
  #responseId: unknown;
  #refused = false;
  #calls = new Set<number>();
  #lastIndex = -1;

  read(chunk: unknown): ModelChunk[] {
    this.#responseId ??= fieldIn(chunk, "id");
    this.#usage = usageOf(objectIn(chunk, "usage")) ?? this.#usage;
    const [choice] = listIn(chunk, "choices");
    this.#finish = textIn(choice, "finish_reason") || this.#finish;
    // Some servers send the whole answer at once, as if it were not streamed.
    const delta = objectIn(choice, "delta") ?? objectIn(choice, "message");
    return delta === undefined ? [] : this.#delta(delta);
  }

  stop(): MessageStop | null {
    if (this.#finish === "") return null;
    return messageStop(this.#reason(this.#finish), this.#usage, this.#responseId);
  }

  #reason(finish: string): StopReason {
    if (this.#refused) return "refusal";
    // Compatible servers end tool calls with a plain stop.
    if (finish === "stop" && this.#calls.size > 0) return "tool_use";
    return stopReasons.get(finish) ?? "other";
  }

  #delta(delta: JsonObject): ModelChunk[] {
    const chunks: ModelChunk[] = [];
    const reasoning = thinkingIn(delta);
    if (reasoning !== "") {
      chunks.push({ type: "thinking_delta", index: 0, text: reasoning, providerMetadata: reasoningMetadata });
    }
    const text = partsTextIn(delta, "content");
    if (text !== "") chunks.push({ type: "text_delta", text });
    const refusal = textIn(delta, "refusal");
    if (refusal !== "") {
      this.#refused = true;
      chunks.push({ type: "text_delta", text: refusal });
    }
    for (const call of listIn(delta, "tool_calls")) if (asObject(call) !== undefined) chunks.push(this.#call(call));
    const old = objectIn(delta, "function_call");
    if (old !== undefined) chunks.push(this.#call({ index: 0, function: old }));
    return chunks;
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
    return toolCallDelta(index, {
      id: textIn(call, "id") || null,
      name: textIn(called, "name") || null,
      arguments: jsonTextIn(called, "arguments"),
    });
  }
}

/** A reader for one stream of Chat Completions. */
function createChatReader(): Reader {
  return new ChatReader();
}

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: JsonObject | undefined): Usage | null {
  if (usage === undefined) return null;
  const details = fieldIn(usage, "prompt_tokens_details");
  const cacheReadTokens = countIn(details, "cached_tokens") ?? 0;
  const cacheCreationTokens = countIn(details, "cache_write_tokens") ?? 0;
  return {
    inputTokens: Math.max(0, (countIn(usage, "prompt_tokens") ?? 0) - cacheReadTokens - cacheCreationTokens),
    outputTokens: countIn(usage, "completion_tokens") ?? 0,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

/** Thinking of compatible servers, in fields the SDK's types do not know. */
function thinkingIn(delta: JsonObject): string {
  return partsTextIn(delta, "reasoning_content") || partsTextIn(delta, "reasoning");
}

/** Models that refuse the old name of the output limit. */
const newLimitName = /^(?:o\d|gpt-[5-9])/;

function limitOf(request: ModelRequest, own: boolean): Partial<Body> {
  if (request.maxTokens === undefined) return {};
  return own || newLimitName.test(request.model)
    ? { max_completion_tokens: request.maxTokens }
    : { max_tokens: request.maxTokens };
}

function effortOf(request: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (!info.supportsThinking) return {};
  if (request.effort !== undefined) return { reasoning_effort: request.effort };
  return request.needsThinking === true ? { reasoning_effort: "medium" } : {};
}

function formatOf({ responseFormat: format }: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
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
  const tools = (request.tools ?? []).map((tool) => ({
    type: "function" as const,
    function: { name: tool.name, description: tool.description, parameters: tool.inputSchema },
  }));
  return tools.length > 0 ? { tools } : {};
}
