import { Type } from "../type.ts";
import type { AssistantPart, Message, ThinkingPart, ToolResultPart, UserPart } from "../content.ts";
import { parserOf, type ParseResult } from "../schema.ts";
import { itemOfPart, keptCall, keptItem, keptMessage } from "../vendor-item.ts";
import { runItemOf, toolCallOutputItem } from "./item-helpers.ts";
import {
  itemSchemas,
  maxItemPieces,
  OutputMessage,
  OutputRefusal,
  OutputText,
  FunctionCall,
  FunctionCallOutput,
  Reasoning,
  ToolCallRaw,
  ToolOutputRaw,
  type EasyMessage,
  type InputItem,
  type OutputItem,
  type RunItem,
} from "./run-items.ts";

// What a run is given, from items to the messages of a conversation and back.

const InputText = Type.Object({ type: Type.Literal("input_text"), text: Type.String() });
const InputImage = Type.Object({
  type: Type.Literal("input_image"),
  image_url: Type.String({
    pattern: "^(https://|data:image/[a-z.+-]+;base64,[A-Za-z0-9+/]+={0,2}$)",
  }),
});

const messageType = Type.Optional(Type.Literal("message"));

const UserMessage = Type.Object({
  type: messageType,
  role: Type.Literal("user"),
  content: Type.Union([
    Type.String(),
    Type.Array(Type.Union([InputText, InputImage]), { minItems: 1, maxItems: maxItemPieces }),
  ]),
});

const AssistantMessage = Type.Object({
  type: messageType,
  role: Type.Literal("assistant"),
  content: Type.Union([
    Type.String(),
    Type.Array(Type.Union([OutputText, OutputRefusal]), { maxItems: maxItemPieces }),
  ]),
});

const parseUser = parserOf(UserMessage);
const parseAssistant = parserOf(AssistantMessage);
const parseCall = parserOf(FunctionCall);
const parseMessage = parserOf(OutputMessage);
const parseReasoning = parserOf(Reasoning);
const parseOther = parserOf(
  Type.Union([
    ToolCallRaw,
    ToolOutputRaw,
    itemSchemas.mcp_list_tools_item.properties.rawItem,
    itemSchemas.mcp_approval_request_item.properties.rawItem,
    itemSchemas.mcp_approval_response_item.properties.rawItem,
  ]),
);
const parseOutput = parserOf(
  Type.Object({
    type: Type.Literal("function_call_output"),
    call_id: Type.String({ minLength: 1 }),
    output: Type.String(),
    status: FunctionCallOutput.properties.status,
  }),
);

/** What a run is given: a conversation so far, and what a person says now. */
export interface ParsedInput {
  history: Message[];
  /** Of the last message. */
  parts: UserPart[];
}

/**
 * Reads the input of a run: a text, or a conversation as items that ends with a message of a person. Every call in it
 * needs exactly one output, before anything else is said. An error names the item. Items that only the OpenAI Responses
 * API understands, such as calls of its own tools, are kept for it; lists of tools and approvals of ours are left out.
 */
export function parseInput(input: unknown): ParseResult<ParsedInput> {
  if (typeof input === "string") return inputOf([{ role: "user", content: input }]);
  if (!Array.isArray(input)) {
    return { ok: false, error: "input must be a string or a list of items" };
  }
  return inputOf(input);
}

function inputOf(items: readonly unknown[]): ParseResult<ParsedInput> {
  const conversation = new Conversation();
  for (const [index, item] of items.entries()) {
    const problem = conversation.add(item, index);
    if (problem !== undefined) return { ok: false, error: `input[${index}]: ${problem}` };
  }
  return conversation.end();
}

/** A conversation as it is read. */
class Conversation {
  readonly #messages: Message[] = [];
  readonly #calls = new Set<string>();
  /** Calls without an output so far, each with the index of its item. */
  readonly #open = new Map<string, number>();
  #said: AssistantPart[] = [];
  #results: ToolResultPart[] = [];

  /** Takes the next item; what is wrong with it otherwise. */
  add(item: unknown, index: number): string | undefined {
    if (typeof item !== "object" || item === null) return "an item must be an object";
    const { type, role } = item as Record<string, unknown>;
    if (type === "function_call_output") return this.#addOutput(item);
    if (type === undefined || type === "message") {
      if (role === "user") return this.#addUser(item);
      return role === "assistant" ? this.#addAssistant(item) : `role must be "user" or "assistant"`;
    }
    if (type === "function_call") return this.#addCall(item, index);
    if (type === "reasoning") return this.#addReasoning(item);
    return this.#addHosted(item, `${JSON.stringify(type)}`);
  }

  #addHosted(item: object, type: string): string | undefined {
    if (!parseOther(item).ok && !isOfLaterType(item)) {
      return `there is no item like this of type ${type}`;
    }
    if (isOfOurs(item)) return undefined;
    const unanswered = this.#results.length > 0 ? this.#endRound() : undefined;
    if (unanswered !== undefined) return unanswered;
    this.#said.push({
      type: "thinking",
      text: "",
      providerMetadata: keptItem(item, JSON.parse(type) as string),
    });
    return undefined;
  }

  end(): ParseResult<ParsedInput> {
    const last = this.#messages.at(-1);
    if (last?.role !== "user" || this.#said.length > 0) {
      return { ok: false, error: "input must end with a message of the user" };
    }
    if (last.content.every((part) => part.type === "text" && part.text.trim() === "")) {
      return { ok: false, error: "input must end with a message that says something" };
    }
    return { ok: true, value: { history: this.#messages.slice(0, -1), parts: last.content } };
  }

  #addUser(item: object): string | undefined {
    const parsed = parseUser(item);
    if (!parsed.ok) return parsed.error;
    const unanswered = this.#endRound();
    if (unanswered !== undefined) return unanswered;
    const { content } = parsed.value;
    this.#messages.push({
      role: "user",
      content: typeof content === "string" ? [textPart(content)] : content.map(userPart),
    });
    return undefined;
  }

  #addAssistant(item: object): string | undefined {
    const parsed = parseAssistant(item);
    if (!parsed.ok) return parsed.error;
    const unanswered = this.#results.length > 0 ? this.#endRound() : undefined;
    if (unanswered !== undefined) return unanswered;
    const { content } = parsed.value;
    const own = vendorsMessage(item);
    const texts =
      typeof content === "string"
        ? [content]
        : content.map((part) => ("text" in part ? (part.text ?? "") : part.refusal));
    this.#said.push(...(own === undefined ? texts.map(textPart) : [own]));
    return undefined;
  }

  #addReasoning(item: object): string | undefined {
    const parsed = parseReasoning(item);
    if (!parsed.ok) return parsed.error;
    const unanswered = this.#results.length > 0 ? this.#endRound() : undefined;
    if (unanswered !== undefined) return unanswered;
    this.#said.push(thinkingPart(parsed.value));
    return undefined;
  }

  #addCall(item: object, index: number): string | undefined {
    const parsed = parseCall(item);
    if (!parsed.ok) return parsed.error;
    const unanswered = this.#results.length > 0 ? this.#endRound() : undefined;
    if (unanswered !== undefined) return unanswered;
    const { call_id: id, name, arguments: text } = parsed.value;
    if (id === "" || this.#calls.has(id)) return "call_id must be that of this call alone";
    const given = objectIn(text);
    if (given === undefined) return "arguments must be the text of a JSON object";
    this.#calls.add(id);
    this.#open.set(id, index);
    const kept = isMadeByVendor(item) ? keptCall({ ...item }) : undefined;
    const own = kept === undefined ? {} : { providerMetadata: kept };
    this.#said.push({ type: "tool_use", id, name, arguments: given, ...own });
    return undefined;
  }

  #addOutput(item: object): string | undefined {
    const parsed = parseOutput(item);
    if (!parsed.ok) return parsed.error;
    const { call_id: id, output, status } = parsed.value;
    if (!this.#open.delete(id)) {
      return `call_id ${JSON.stringify(id)} is of no call that waits for an output`;
    }
    this.#results.push({
      type: "tool_result",
      toolCallId: id,
      content: output,
      isError: status === "incomplete",
    });
    return undefined;
  }

  /** Ends what a model has said, with the results of its calls; a call without an output is a problem. */
  #endRound(): string | undefined {
    const [open] = this.#open;
    if (open !== undefined) return `the call of input[${open[1]}] has no output before this`;
    if (this.#said.length > 0) this.#messages.push({ role: "assistant", content: this.#said });
    if (this.#results.length > 0) this.#messages.push({ role: "tool", content: this.#results });
    this.#said = [];
    this.#results = [];
    return undefined;
  }
}

function textPart(text: string): { type: "text"; text: string } {
  return { type: "text", text };
}

function userPart(
  part: { type: "input_text"; text: string } | { type: "input_image"; image_url: string },
): UserPart {
  if (part.type === "input_text") return textPart(part.text);
  const { image_url: url } = part;
  if (!url.startsWith("data:")) return { type: "image", source: { sourceType: "url", url } };
  const [mediaType = "", data = ""] = url.slice("data:".length).split(";base64,");
  return { type: "image", source: { sourceType: "base64", mediaType, data } };
}

/** Only the vendor's own item can be given back to it; other thinking is text. */
function thinkingPart(item: Reasoning): ThinkingPart {
  const text = item.summary.map((part) => part.text).join("\n");
  return isMadeByVendor(item)
    ? { type: "thinking", text, providerMetadata: keptItem(item) }
    : { type: "thinking", text };
}

/** A message as its vendor made it; undefined of those that only have its form. */
function vendorsMessage(item: object): AssistantPart | undefined {
  const parsed = parseMessage(item);
  if (!parsed.ok || !isMadeByVendor(item)) return undefined;
  const { content, phase } = parsed.value;
  const text = content
    .map((part) => (part.type === "refusal" ? part.refusal : (part.text ?? "")))
    .join("");
  if (phase === "commentary") return { type: "thinking", text, providerMetadata: keptItem(item) };
  const providerMetadata = keptMessage({ ...item }, text);
  return providerMetadata === undefined ? undefined : { type: "text", text, providerMetadata };
}

/** Ids that we make end in the number of their event or message. */
const ownId = /^[a-z]+_.+_\d+$/;

function isMadeByVendor(item: object): boolean {
  const id = "id" in item ? item.id : undefined;
  return typeof id === "string" && id !== "" && !ownId.test(id);
}

/** Lists and approvals of tools that an MCP server of ours gives: what its vendor made has ids like `mcpr_1`. */
function isOfOurs(item: object): boolean {
  const { type, id, approval_request_id: asked } = item as Record<string, unknown>; // just parsed
  if (type === "mcp_list_tools") return ownId.test(String(id));
  if (type === "mcp_approval_request") return !vendorsApproval.test(String(id));
  return type === "mcp_approval_response" && !vendorsApproval.test(String(asked));
}

const vendorsApproval = /^mcpr_/;

/** Calls of tools that this code does not know, and their outputs; no reference to what a vendor keeps of others. */
const laterTypes = /^(?:[a-z_]+_call|[a-z_]+_output|compaction|program)$/;

function isOfLaterType(item: object): boolean {
  const { type } = item as Record<string, unknown>;
  return typeof type === "string" && laterTypes.test(type) && !knownTypes.has(type);
}

const knownTypes: ReadonlySet<string> = new Set(
  [...ToolCallRaw.anyOf, ...ToolOutputRaw.anyOf].map(({ properties }) => properties.type.const),
);

function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined; // just checked
  } catch {
    return undefined;
  }
}

/** A message of a person as an item. Images that are only named, and files, are text. */
export function userItemOf(parts: readonly UserPart[]): EasyMessage {
  const [only, ...others] = parts;
  if (only?.type === "text" && others.length === 0) return { role: "user", content: only.text };
  return {
    role: "user",
    content: parts.map((part) => {
      if (part.type === "text") return { type: "input_text", text: part.text };
      const url = part.type === "image" ? imageUrlOf(part) : undefined;
      if (url !== undefined) return { type: "input_image", detail: "auto", image_url: url };
      return {
        type: "input_text",
        text: part.type === "file" ? `[file: ${part.name}]` : "[image]",
      };
    }),
  };
}

function imageUrlOf({ source }: Extract<UserPart, { type: "image" }>): string | undefined {
  if (source.sourceType === "url") return source.url;
  return source.sourceType === "base64"
    ? `data:${source.mediaType};base64,${source.data}`
    : undefined;
}

/** A conversation as run items, and messages of people as they can be given to a run. `first` is the number of the first. */
export function conversationRunItems(
  history: readonly Message[],
  { prefix, first }: { prefix: string; first: number },
): (RunItem | EasyMessage)[] {
  return history.flatMap((message, index): (RunItem | EasyMessage)[] => {
    if (message.role === "user") return [userItemOf(message.content)];
    const { agent = "default" } = message;
    if (message.role === "tool") {
      return message.content.map((part) => ({ ...resultRunItem(part), agent }));
    }
    return message.content.flatMap((part, at) => {
      const raw = saidItem(part, `${prefix}_${first + index}_${at}`);
      return runItemOf(raw, agent, () => false) ?? [];
    });
  });
}

function resultRunItem(part: ToolResultPart) {
  const rawItem = resultItem(part);
  return { type: "tool_call_output_item", rawItem, output: rawItem.output } as const;
}

/** A conversation as items. `prefix` begins the ids of items that have none of a vendor. */
export function conversationItems(history: readonly Message[], prefix: string): InputItem[] {
  return history.flatMap((message, index): InputItem[] => {
    if (message.role === "user") return [userItemOf(message.content)];
    if (message.role === "tool") return message.content.map(resultItem);
    return message.content.map((part, at) => saidItem(part, `${prefix}_${index}_${at}`));
  });
}

function resultItem({ toolCallId, content, isError }: ToolResultPart): FunctionCallOutput {
  const text =
    typeof content === "string"
      ? content
      : content.map((part) => (part.type === "text" ? part.text : "[image]")).join("\n");
  const item = toolCallOutputItem({ call_id: toolCallId }, text);
  return isError ? { ...item, status: "incomplete" } : item;
}

function saidItem(part: AssistantPart, id: string): OutputItem {
  const own = itemOfPart(part);
  if (own !== undefined) return own as unknown as OutputItem; // as it came
  if (part.type === "tool_use") {
    const { id: call_id, name, arguments: given } = part;
    return {
      type: "function_call",
      id: `fc_${id}`,
      call_id,
      name,
      arguments: JSON.stringify(given),
      status: "completed",
    };
  }
  if (part.type === "text") {
    const content = [{ type: "output_text" as const, text: part.text, annotations: [] }];
    return { type: "message", id: `msg_${id}`, role: "assistant", status: "completed", content };
  }
  return {
    type: "reasoning",
    id: `rs_${id}`,
    summary: [{ type: "summary_text", text: part.text }],
  };
}
