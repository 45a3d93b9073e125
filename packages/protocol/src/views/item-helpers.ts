import { isKnownItem } from "../vendor-item.ts";
import type {
  EasyMessage,
  FunctionCall,
  FunctionCallOutput,
  InputItem,
  ItemUsage,
  ModelResponse,
  OutputItem,
  OutputMessage,
  RunItem,
  RunItemOf,
} from "./run-items.ts";

// Pure functions on run items that load nothing, so that they run anywhere. Items are distinguished by their `type`: one
// that was read from JSON is as good as one that was made here.

/** Something is wrong with items. */
export class AgentsError extends Error {
  override name = "AgentsError";
}

/** A model has produced what it should not have. */
export class ModelBehaviorError extends AgentsError {
  override name = "ModelBehaviorError";
}

/** The raw item for the next call of a model: a copy without absent members. What is no plain object throws. */
export function toInputItem({ rawItem }: Pick<RunItem, "rawItem">): InputItem {
  return inputCopy(rawItem);
}

/** What a model has produced, for its next call: the same items in the same order. */
export function toInputItems({ output }: Pick<ModelResponse, "output">): InputItem[] {
  return output.map(inputCopy);
}

/**
 * The input of a run and what came of it, for another run to continue from. Of what the model has produced, items that
 * make no run item are in it, too, where they were.
 */
export function continuedInput(
  input: readonly InputItem[],
  items: readonly RunItem[],
  responses: readonly Pick<ModelResponse, "output">[],
): InputItem[] {
  const produced = responses.flatMap(({ output }) =>
    output.map((raw) => ({ raw, text: JSON.stringify(raw) })),
  );
  const list: unknown[] = [...input];
  let next = 0;
  for (const { rawItem } of items) {
    const text = JSON.stringify(rawItem);
    const at = produced.findIndex((each, index) => index >= next && each.text === text);
    if (at === -1) list.push(rawItem);
    else {
      list.push(...produced.slice(next, at + 1).map(({ raw }) => raw));
      next = at + 1;
    }
  }
  return [...list, ...produced.slice(next).map(({ raw }) => raw)].map(inputCopy);
}

function inputCopy(raw: unknown): InputItem {
  if (!isPlainObject(raw)) {
    throw new AgentsError(`a raw item has to be a plain object, and is ${kindOf(raw)}`);
  }
  return withoutAbsent(raw) as unknown as InputItem; // a copy of it
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? `a ${value.constructor.name}` : `a ${typeof value}`;
}

function withoutAbsent(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutAbsent);
  if (!isPlainObject(value)) return structuredClone(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(members.map(([name, member]) => [name, withoutAbsent(member)]));
}

/** The item as it is stored and sent: JSON. A tool's value that is none becomes its string form. */
export function dumpRunItem(item: RunItem): RunItem {
  const dumped = withoutAbsent({ ...item, output: undefined }) as RunItem; // the same item, copied
  return item.type === "tool_call_output_item"
    ? ({ ...dumped, output: jsonValueOf(item.output) } as RunItem)
    : dumped;
}

function jsonValueOf(value: unknown): unknown {
  try {
    const text = JSON.stringify(value);
    return text === undefined ? String(value) : JSON.parse(text);
  } catch {
    return String(value); // recursive, or a bigint
  }
}

type Parts = OutputMessage["content"];

/** The parts of a message of a model; undefined for everything else. */
function partsOf(item: OutputItem): Parts | undefined {
  return item.type === "message" ? item.content : undefined;
}

/** The text or refusal that a message ends with; empty for other items and empty messages. */
export function extractLastContent(item: OutputItem): string {
  const last = partsOf(item)?.at(-1);
  if (last === undefined) return "";
  if (last.type === "output_text") return textOfPart(last);
  if (last.type === "refusal") return last.refusal;
  throw new ModelBehaviorError(
    `a message ends with a part of an unexpected type: ${(last as { type: string }).type}`,
  );
}

/** The text that a message ends with; null where it ends with something else, and for other items. */
export function extractLastText(item: OutputItem): string | null {
  const last = partsOf(item)?.at(-1);
  return last?.type === "output_text" ? textOfPart(last) : null;
}

function textOfPart({ text }: { text: string | null }): string {
  return text ?? "";
}

/** The input of a run as items of its own: changing them changes nothing that was given. */
export function inputToNewInputList(input: string | readonly InputItem[]): InputItem[] {
  if (typeof input !== "string") return structuredClone([...input]);
  const message: EasyMessage = { content: input, role: "user" };
  return [message];
}

/** The texts of all messages among the items, joined. */
export function textMessageOutputs(items: readonly RunItem[]): string {
  return items
    .map((item) => (item.type === "message_output_item" ? textMessageOutput(item) : ""))
    .join("");
}

/** The text of a message, joined, without refusals. */
export function textMessageOutput({ rawItem }: RunItemOf<"message_output_item">): string {
  return rawItem.content
    .map((part) => (part.type === "output_text" ? textOfPart(part) : ""))
    .join("");
}

/** The answer to a call: strings as they are, everything else as JSON. */
export function toolCallOutputItem(
  call: Pick<FunctionCall, "call_id">,
  output: unknown,
): FunctionCallOutput {
  const text = typeof output === "string" ? output : (JSON.stringify(output) ?? "");
  return { call_id: call.call_id, output: text, type: "function_call_output" };
}

/** The item of what a model has produced; undefined for types that make none, and for items without their main fields. */
export function runItemOf(
  raw: OutputItem,
  agent: string,
  isHandoff: (name: string) => boolean,
): RunItem | undefined {
  if (!isKnownItem({ ...raw })) return undefined;
  if (raw.type === "message") return { type: "message_output_item", agent, rawItem: raw };
  if (raw.type === "reasoning") return { type: "reasoning_item", agent, rawItem: raw };
  if (raw.type === "mcp_list_tools") return { type: "mcp_list_tools_item", agent, rawItem: raw };
  if (raw.type === "mcp_approval_request") {
    return { type: "mcp_approval_request_item", agent, rawItem: raw };
  }
  if (raw.type === "function_call" && isHandoff(raw.name)) {
    return { type: "handoff_call_item", agent, rawItem: raw };
  }
  return { type: "tool_call_item", agent, rawItem: raw };
}

export const noItemUsage: Readonly<ItemUsage> = {
  requests: 0,
  input_tokens: 0,
  output_tokens: 0,
  total_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
};

/** Both together, for instance of a run and the runs that work for it. */
export function addItemUsage(left: ItemUsage, right: ItemUsage): ItemUsage {
  return {
    requests: left.requests + right.requests,
    input_tokens: left.input_tokens + right.input_tokens,
    output_tokens: left.output_tokens + right.output_tokens,
    total_tokens: left.total_tokens + right.total_tokens,
    cache_read_tokens: left.cache_read_tokens + right.cache_read_tokens,
    cache_write_tokens: left.cache_write_tokens + right.cache_write_tokens,
  };
}
