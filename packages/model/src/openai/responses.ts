import type { OpenAI } from "@larkline/openai-sdk";
import { systemClock } from "@larkline/protocol/clock";
import type {
  AssistantPart,
  Message,
  ToolResultPart,
  UserPart,
  ProviderMetadata,
} from "@larkline/protocol/content";
import type {
  MessageStop,
  ModelChunk,
  ModelFailure,
  StopReason,
  Usage,
} from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import {
  isKnownItem,
  itemOfPart,
  keptCall,
  keptItem,
  keptMessage,
} from "@larkline/protocol/vendor-item";
import {
  bodyWith,
  systemBlocksOf,
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  failureOfRefusal,
  profileOf,
  signerOf,
  messageStop,
  toolCallDelta,
} from "../index.ts";
import { onceEach } from "../profile.ts";
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
  asObject,
  HeldBack,
  keptCitations,
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

/** OpenAI's Responses interface through the official SDK. The vendor keeps answers only where a request says so. */
export function createOpenAiResponsesBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const at = { type: "openai-responses", baseUrl: options.baseUrl } as const;
  const profileFor = onceEach((model) => profileOf(at, model, options.profile));
  const api: VendorApi = {
    open: async (request, info, signal) =>
      await (
        await client
      ).responses
        .create(
          bodyWith(bodyOf(request, info, signerOf(at, request.model)), request.extra),
          callOptions(request, signal),
        )
        .asResponse(),
    createReader: (model) => new ResponsesReader(signerOf(at, model)),
    profileOf: profileFor,
    hostsTools: true,
    secret: options.apiKey,
    clock: options.clock ?? systemClock,
  };
  return {
    storesResponses: true,
    profileOf: profileFor,
    stream: (request, signal) => streamed(api, request, signal),
  };
}

type Body = OpenAI.Responses.ResponseCreateParamsStreaming;

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>, signer: string): Body {
  const system = systemBlocksOf(request).map((block) => block.text);
  const { storeResponses: store = false, previousResponseId } = request;
  return {
    model: request.model,
    input: responsesInput(request.messages, signer),
    stream: true,
    store,
    ...(previousResponseId === undefined ? {} : { previous_response_id: previousResponseId }),
    ...(system.length > 0 ? { instructions: system.join("\n\n") } : {}),
    ...toolsOf(request),
    ...reasoningOf(request, info),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

type Item = OpenAI.Responses.ResponseInputItem;

/** History as input items of the Responses interface. */
function responsesInput(messages: readonly Message[], signer: string): Item[] {
  return answeredItems(messages.flatMap((message) => itemsOf(message, signer)));
}

function itemsOf(message: Message, signer: string): Item[] {
  if (message.role === "user") return userItems(message.content);
  return message.role === "tool"
    ? message.content.map(resultItem)
    : message.content.flatMap((part) => assistantItem(part, signer));
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
  return {
    ...base,
    output: [...texts, ...content.images.map((image) => imageContent(imageAddress(image)))],
  };
}

function assistantItem(part: AssistantPart, self: string): Item[] {
  const { signer = self } = part.providerMetadata ?? {};
  // The item is the vendor's own, returned as it came to the model that made it; its shape is not ours to check.
  const item = signer === self ? (itemOfPart(part) as Item | undefined) : undefined;
  if (item !== undefined) return [item];
  if (part.type === "thinking") return [];
  if (part.type === "text") {
    return part.text === "" ? [] : [{ role: "assistant", content: part.text }];
  }
  const text = JSON.stringify(part.arguments);
  return [{ type: "function_call", call_id: part.id, name: part.name, arguments: text }];
}

/** Calls of tools that the vendor would have its clients run, with what answers them: this client runs none. */
const outputTypes: ReadonlyMap<string, string> = new Map(
  ["computer_call", "local_shell_call", "shell_call", "apply_patch_call", "custom_tool_call"].map(
    (type) => [type, `${type}_output`],
  ),
);

/** Without such calls that have no output, which the vendor refuses, and without the reasoning that led to them. */
function answeredItems(items: readonly Item[]): Item[] {
  const answered = new Set(
    items.map((item) => `${item.type} ${textIn(item, "call_id") || textIn(item, "id")}`),
  );
  const isOpen = (item: Item | undefined): boolean => {
    const output = outputTypes.get(item?.type ?? "");
    const ids = [textIn(item, "call_id"), textIn(item, "id")]; // a local shell's output has the latter
    return output !== undefined && !ids.some((id) => answered.has(`${output} ${id}`));
  };
  return items.filter(
    (item, at) => !isOpen(item) && !(item.type === "reasoning" && isOpen(items[at + 1])),
  );
}

/** What of an output item has been given on. */
interface Given {
  hasBegun: boolean;
  /** Its text, or its arguments. */
  text: string;
  /** It tells what the model is about to do, and is no answer. */
  isCommentary: boolean;
  isDone: boolean;
}

/** Reads one stream of the Responses interface. */
class ResponsesReader implements Reader {
  readonly #signer: string;
  #stop: MessageStop | null = null;
  #hasCalls = false;
  #hasAnswer = false;
  #refused = false;
  readonly #held = new HeldBack();
  readonly #items = new Map<number, Given>();
  readonly #indexes = new Map<string, number>();
  #lastIndex = 0;

  constructor(signer: string) {
    this.#signer = signer;
  }

  read(event: unknown): ModelChunk[] {
    const item = objectIn(event, "item");
    switch (textIn(event, "type")) {
      case "response.output_text.delta":
        return this.#text(this.#indexOf(event), textIn(event, "delta"));
      case "response.refusal.delta":
        this.#refused = true;
        return this.#text(this.#indexOf(event), textIn(event, "delta"));
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        return this.#thinking(this.#indexOf(event), textIn(event, "delta"));
      case "response.function_call_arguments.delta":
        return this.#arguments(this.#indexOf(event), jsonTextIn(event, "delta"));
      case "response.output_item.added":
        return item === undefined ? [] : this.#added(item, this.#indexOf(event, item));
      case "response.output_item.done":
        return item === undefined ? [] : this.#done(item, this.#indexOf(event, item));
      case "response.completed":
      case "response.incomplete":
        return this.#end(fieldIn(event, "response"));
      case "response.failed":
        return [
          this.#failure(fieldIn(fieldIn(event, "response"), "error"), "The response failed."),
        ];
      case "error":
        return [this.#failure(objectIn(event, "error") ?? event)];
      default:
        return []; // many kinds of events say nothing we need
    }
  }

  /** Where the server has closed the connection after the last item, an end without a known word. */
  stop(): MessageStop | null {
    const given = [...this.#items.values()];
    const isWhole = given.length > 0 && given.every(({ isDone }) => isDone);
    return this.#stop ?? (isWhole ? messageStop("other") : null);
  }

  /** Servers that leave the index out send one item after the other. */
  #indexOf(event: unknown, item?: JsonObject): number {
    const id = textIn(item, "id");
    const next = item === undefined ? this.#lastIndex : this.#items.size;
    const index = indexIn(event, "output_index") ?? this.#indexes.get(id) ?? next;
    if (id !== "") this.#indexes.set(id, index);
    this.#lastIndex = index;
    return index;
  }

  #given(index: number): Given {
    const known = this.#items.get(index);
    if (known !== undefined) return known;
    this.#held.add(0);
    const given = { hasBegun: false, text: "", isCommentary: false, isDone: false };
    this.#items.set(index, given);
    return given;
  }

  #text(index: number, text: string): ModelChunk[] {
    if (text === "") return [];
    const given = this.#given(index);
    const isNext = given.text === "" && this.#hasAnswer;
    given.text += text;
    if (given.isCommentary) return [{ type: "thinking_delta", index, text }];
    this.#hasAnswer = true;
    // People read the messages of an answer one below the other.
    return [{ type: "text_delta", index, text: isNext ? `\n\n${text}` : text }];
  }

  #thinking(index: number, text: string): ModelChunk[] {
    if (text === "") return [];
    this.#given(index).text += text;
    return [{ type: "thinking_delta", index, text }];
  }

  #arguments(index: number, text: string): ModelChunk[] {
    if (text === "") return [];
    this.#given(index).text += text;
    return [toolCallDelta(index, { arguments: text })];
  }

  #added(item: JsonObject, index: number): ModelChunk[] {
    const given = this.#given(index);
    if (given.hasBegun) return [];
    given.hasBegun = true;
    given.isCommentary = item["type"] === "message" && item["phase"] === "commentary";
    if (item["type"] !== "function_call") return [];
    this.#hasCalls = true;
    return [
      toolCallDelta(index, {
        id: textIn(item, "call_id") || null,
        name: textIn(item, "name") || null,
      }),
    ];
  }

  /** What has not been given on of a complete item: some servers send no pieces. */
  #done(item: JsonObject, index: number): ModelChunk[] {
    const given = this.#given(index);
    const type = textIn(item, "type");
    if (given.isDone || type === "") return [];
    given.isDone = true;
    const begun = this.#added(item, index);
    if (type === "message") return this.#message(item, index, given);
    if (type === "function_call") {
      const rest = given.text === "" ? this.#arguments(index, jsonTextIn(item, "arguments")) : [];
      const kept = this.#signed(keptCall(item));
      return [...begun, ...rest, ...(kept === undefined ? [] : [toolCallDelta(index, kept)])];
    }
    // Items of the vendor's own tools are kept like reasoning: whole, and for this interface alone.
    const isOpaque = type !== "reasoning";
    const text = isOpaque || given.text !== "" ? "" : summaryOf(item);
    const kept = isOpaque ? keptItem(item, type) : isKnownItem(item) ? keptItem(item) : undefined;
    return [{ type: "thinking_delta", index, text, ...this.#signed(kept) }];
  }

  /** Notes the model that made an item: the only one that is given it back. */
  #signed(kept: ProviderMetadata | undefined): { providerMetadata: ProviderMetadata } | undefined {
    return kept === undefined ? undefined : { providerMetadata: { signer: this.#signer, ...kept } };
  }

  #message(item: JsonObject, index: number, given: Given): ModelChunk[] {
    const refusal = listIn(item, "content").map((part) => textIn(part, "refusal"));
    this.#refused ||= refusal.some((text) => text !== "");
    const rest =
      given.text === "" ? this.#text(index, partsTextIn(item, "content") + refusal.join("")) : [];
    const whole = withAnnotations(item);
    const { isCommentary, text } = given;
    const kept = isCommentary
      ? isKnownItem(whole)
        ? keptItem(whole)
        : undefined
      : keptMessage(whole, text);
    if (kept === undefined) return rest;
    if (!isCommentary) Object.assign(kept, keptCitations(annotationsIn(whole)));
    return [
      ...rest,
      {
        type: isCommentary ? "thinking_delta" : "text_delta",
        index,
        text: "",
        ...this.#signed(kept),
      },
    ];
  }

  #end(response: unknown): ModelChunk[] {
    const rest = listIn(response, "output").flatMap((item, position) => {
      const object = asObject(item);
      return object === undefined
        ? []
        : this.#done(object, this.#indexes.get(textIn(object, "id")) ?? position);
    });
    this.#stop = messageStop(
      this.#reason(response),
      usageOf(objectIn(response, "usage")),
      fieldIn(response, "id"),
    );
    return [...rest, ...this.#onlyCommentary()];
  }

  /** A model that has said nothing else has answered with it. */
  #onlyCommentary(): ModelChunk[] {
    if (this.#hasAnswer || this.#hasCalls) return [];
    const said = [...this.#items.values()].filter(({ isCommentary }) => isCommentary);
    const text = said.map((given) => given.text).join("\n\n");
    return text === "" ? [] : [{ type: "text_delta", text }];
  }

  #reason(response: unknown): StopReason {
    const cause = textIn(fieldIn(response, "incomplete_details"), "reason");
    if (cause !== "" || textIn(response, "status") === "incomplete") {
      return incompleteReasons.get(cause) ?? "other";
    }
    return this.#refused ? "refusal" : this.#hasCalls ? "tool_use" : "end_turn";
  }

  #failure(error: unknown, otherwise?: string): ModelFailure {
    return failureOfRefusal({
      kind: textIn(error, "code") || undefined,
      message: textIn(error, "message") || otherwise,
    });
  }
}

function annotationsIn(item: JsonObject): unknown[] {
  const cited = listIn(item, "content").flatMap((part) => listIn(part, "annotations"));
  return cited.filter((one) => textIn(one, "type") === "url_citation");
}

/** Compatible servers leave out the annotations of texts that have none. */
function withAnnotations(item: JsonObject): JsonObject {
  const content = listIn(item, "content").map((part) =>
    textIn(part, "type") === "output_text" ? { annotations: [], ...asObject(part) } : part,
  );
  return { ...item, content };
}

const incompleteReasons: ReadonlyMap<string, StopReason> = new Map([
  ["max_output_tokens", "max_tokens"],
  ["content_filter", "refusal"],
]);

function summaryOf(item: JsonObject): string {
  return listIn(item, "summary")
    .map((part) => textIn(part, "text"))
    .join("\n");
}

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: JsonObject | undefined): Usage | null {
  if (usage === undefined) return null;
  const details = fieldIn(usage, "input_tokens_details");
  const cacheReadTokens = countIn(details, "cached_tokens") ?? 0;
  const cacheCreationTokens = countIn(details, "cache_write_tokens") ?? 0;
  return {
    inputTokens: Math.max(
      0,
      (countIn(usage, "input_tokens") ?? 0) - cacheReadTokens - cacheCreationTokens,
    ),
    outputTokens: countIn(usage, "output_tokens") ?? 0,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

function reasoningOf(request: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (!info.supportsThinking) return {};
  const effort =
    request.effort ?? (request.needsThinking === true ? ("medium" as const) : undefined);
  const summary = request.needsThinking === true ? { summary: "auto" as const } : {};
  const reasoning = { ...(effort === undefined ? {} : { effort }), ...summary };
  const asks = Object.keys(reasoning).length > 0;
  // Its reasoning travels with us, encrypted: a request names a stored answer only where the caller asks for that.
  return { include: ["reasoning.encrypted_content"], ...(asks ? { reasoning } : {}) };
}

function formatOf(
  { responseFormat: format }: ModelRequest,
  info: Readonly<ModelInfo>,
): Partial<Body> {
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
  const tools = (request.tools ?? []).map(vendorTool);
  // Those of the vendor's own are the operator's words, which the vendor judges.
  const offered = [...tools, ...((request.hostedTools ?? []) as unknown as typeof tools)];
  return offered.length > 0 ? { tools: offered } : {};
}

type VendorTool = NonNullable<Body["tools"]>[number];

/** Made once, since every step offers the same. */
const vendorTools = new WeakMap<ToolSpec, VendorTool>();

function vendorTool(spec: ToolSpec): VendorTool {
  const { name, description, inputSchema: parameters } = spec;
  const tool = vendorTools.get(spec) ?? {
    type: "function" as const,
    name,
    description,
    parameters,
    strict: false,
  };
  vendorTools.set(spec, tool);
  return tool;
}
