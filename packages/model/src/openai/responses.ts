import type { OpenAI } from "@larkline/openai-sdk";
import {
  type AssistantPart,
  type Message,
  type ThinkingPart,
  type ToolResultPart,
  type UserPart,
  type MessageStop,
  type ModelChunk,
  type Usage,
} from "@larkline/protocol";
import {
  systemBlocksOf,
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  failureOfRefusal,
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

/** OpenAI's Responses interface through the official SDK; nothing is stored at the vendor. */
export function createOpenAiResponsesBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const api: VendorApi<OpenAI.Responses.ResponseStreamEvent> = {
    open: async (request, info, signal) =>
      await (await client).responses.create(bodyOf(request, info), signal === undefined ? {} : { signal }).asResponse(),
    createReader: createResponsesReader,
    secret: options.apiKey,
  };
  return { stream: (request, signal) => streamed(api, request, signal) };
}

type Body = OpenAI.Responses.ResponseCreateParamsStreaming;

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>): Body {
  const system = systemBlocksOf(request).map((block) => block.text);
  return {
    model: request.model,
    input: responsesInput(request.messages),
    stream: true,
    store: false,
    ...(system.length > 0 ? { instructions: system.join("\n\n") } : {}),
    ...toolsOf(request),
    ...reasoningOf(request, info),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

type Item = OpenAI.Responses.ResponseInputItem;

/** History as input items of the Responses interface. */
function responsesInput(messages: readonly Message[]): Item[] {
  return messages.flatMap(itemsOf);
}

function itemsOf(message: Message): Item[] {
  if (message.role === "user") return userItems(message.content);
  return message.role === "tool" ? message.content.map(resultItem) : message.content.flatMap(assistantItem);
}

type Content = OpenAI.Responses.ResponseInputText | OpenAI.Responses.ResponseInputImage;

function userItems(parts: readonly UserPart[]): Item[] {
  const content = parts.flatMap((part): Content[] => {
    if (part.type === "image") return [imageContent(imageAddress(part))];
    if (part.type === "file") return [{ type: "input_text", text: fileNote(part) }];
    return part.text === "" ? [] : [{ type: "input_text", text: part.text }];
  });
  return content.length === 0 ? [] : [{ type: "message", role: "user", content }];
}

function imageContent(address: string): Content {
  return { type: "input_image", image_url: address, detail: "auto" };
}

function resultItem(part: ToolResultPart): Item {
  const content = resultContent(part);
  const base = { type: "function_call_output", call_id: part.toolCallId } as const;
  if (typeof content === "string") return { ...base, output: content };
  const texts = content.texts.map((text): Content => ({ type: "input_text", text }));
  return { ...base, output: [...texts, ...content.images.map((image) => imageContent(imageAddress(image)))] };
}

function assistantItem(part: AssistantPart): Item[] {
  if (part.type === "thinking") return thinkingItems(part);
  if (part.type === "text") return part.text === "" ? [] : [{ role: "assistant", content: part.text }];
  const text = JSON.stringify(part.arguments);
  return [{ type: "function_call", call_id: part.id, name: part.name, arguments: text }];
}

function thinkingItems(part: ThinkingPart): Item[] {
  const { vendor, item } = part.providerMetadata ?? {};
  // The item is the vendor's own, returned as it came; its shape is not ours to check.
  return vendor === "openai-responses" && item !== undefined ? [JSON.parse(item) as Item] : [];
}

type Event = OpenAI.Responses.ResponseStreamEvent;

type OutputItem = OpenAI.Responses.ResponseOutputItem;

class ResponsesReader implements Reader<Event> {
  #stop: MessageStop | null = null;
  #calls = 0;
  #refused = false;
  /** Calls whose arguments came in pieces. */
  #pieced = new Set<number>();

  read(event: Event): ModelChunk[] {
    switch (event.type) {
      case "response.output_text.delta":
        return event.delta === "" ? [] : [{ type: "text_delta", text: event.delta }];
      case "response.refusal.delta":
        this.#refused = true;
        return event.delta === "" ? [] : [{ type: "text_delta", text: event.delta }];
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        return event.delta === "" ? [] : [{ type: "thinking_delta", index: event.output_index, text: event.delta }];
      case "response.output_item.added":
        return this.#added(event.item, event.output_index);
      case "response.function_call_arguments.delta":
        if (event.delta === "") return [];
        this.#pieced.add(event.output_index);
        return [toolCallDelta(event.output_index, { arguments: event.delta })];
      case "response.output_item.done":
        return this.#done(event.item, event.output_index);
      default:
        return this.#end(event);
    }
  }

  stop(): MessageStop | null {
    return this.#stop;
  }

  #added(item: OutputItem, index: number): ModelChunk[] {
    if (item.type !== "function_call") return [];
    this.#calls += 1;
    return [toolCallDelta(index, { id: item.call_id, name: item.name })];
  }

  #done(item: OutputItem, index: number): ModelChunk[] {
    if (item.type === "function_call" && !this.#pieced.has(index) && item.arguments !== "") {
      return [toolCallDelta(index, { arguments: item.arguments })];
    }
    if (item.type === "message" || item.type === "function_call") return [];
    const providerMetadata = reasoningMetadata(item);
    // Items of the vendor's own tools are kept like reasoning: whole, and for this interface alone.
    const opaque = item.type === "reasoning" ? {} : { opaque: item.type };
    return [{ type: "thinking_delta", index, text: "", providerMetadata: { ...providerMetadata, ...opaque } }];
  }

  #end(event: Event): ModelChunk[] {
    switch (event.type) {
      case "response.completed": {
        const reason = this.#refused ? "refusal" : this.#calls > 0 ? "tool_use" : "end_turn";
        this.#stop = messageStop(reason, usageOf(event.response.usage), event.response.id);
        return [];
      }
      case "response.incomplete": {
        const { reason } = event.response.incomplete_details ?? {};
        const stopReasons: Record<string, MessageStop["stopReason"]> = {
          max_output_tokens: "max_tokens",
          content_filter: "refusal",
        };
        const stopReason = stopReasons[reason ?? ""] ?? "other";
        this.#stop = messageStop(stopReason, usageOf(event.response.usage), event.response.id);
        return [];
      }
      case "response.failed": {
        const { code, message } = event.response.error ?? { code: "server_error", message: "The response failed." };
        return [failureOfRefusal({ kind: code, message })];
      }
      case "error":
        return [failureOfRefusal({ kind: event.code ?? undefined, message: event.message })];
      default:
        return []; // many kinds of events say nothing we need
    }
  }
}

/** A reader for one stream of the Responses interface. */
function createResponsesReader(): Reader<Event> {
  return new ResponsesReader();
}

/** What marks a thinking part as a reasoning item of this interface: the item, word for word. */
export function reasoningMetadata(item: object): Record<string, string> {
  return { vendor: "openai-responses", item: JSON.stringify(item) };
}

type Response = OpenAI.Responses.Response;

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: Response["usage"]): Usage | null {
  if (!usage) return null;
  const cacheReadTokens = usage.input_tokens_details?.cached_tokens ?? 0;
  const cacheCreationTokens = usage.input_tokens_details?.cache_write_tokens ?? 0;
  return {
    inputTokens: Math.max(0, usage.input_tokens - cacheReadTokens - cacheCreationTokens),
    outputTokens: usage.output_tokens,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

function reasoningOf(request: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (!info.supportsThinking) return {};
  const effort = request.effort ?? (request.needsThinking === true ? ("medium" as const) : undefined);
  const summary = request.needsThinking === true ? { summary: "auto" as const } : {};
  const reasoning = { ...(effort === undefined ? {} : { effort }), ...summary };
  const asks = Object.keys(reasoning).length > 0;
  // Nothing is stored at the vendor, so its reasoning travels with us, encrypted.
  return { include: ["reasoning.encrypted_content"], ...(asks ? { reasoning } : {}) };
}

function formatOf({ responseFormat: format }: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (format?.type === "json_object") return { text: { format: { type: "json_object" } } };
  if (format?.jsonSchema === undefined || !info.supportsJsonSchema) return {};
  const { name = "response", jsonSchema: schema } = format;
  return { text: { format: { type: "json_schema", name, schema, strict: true } } };
}

function samplingOf({ temperature, topP, maxTokens }: ModelRequest): Partial<Body> {
  return {
    ...(temperature === undefined || temperature === null ? {} : { temperature }),
    ...(topP === undefined || topP === null ? {} : { top_p: topP }),
    ...(maxTokens === undefined ? {} : { max_output_tokens: maxTokens }),
  };
}

function toolsOf(request: ModelRequest): Partial<Body> {
  const tools = (request.tools ?? []).map((tool) => ({
    type: "function" as const,
    name: tool.name,
    description: tool.description,
    parameters: tool.inputSchema,
    strict: false,
  }));
  return tools.length > 0 ? { tools } : {};
}
