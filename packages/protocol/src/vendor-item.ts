import type { AssistantPart, ProviderMetadata } from "./content.ts";

/*
 * Items of the OpenAI Responses API, as parts of a message keep them: what the vendor made comes back to it as it was.
 * The part itself has the text or the arguments, and the kept item does not repeat them.
 */

type JsonObject = Record<string, unknown>;

const vendor = "openai-responses";

/** Keeps a whole item. `opaque`: its type, where only the vendor understands it. */
export function keptItem(item: object, opaque?: string): ProviderMetadata {
  return { vendor, item: JSON.stringify(item), ...(opaque === undefined ? {} : { opaque }) };
}

/** Keeps a message beside its text, with the length of each text in its place; undefined where `text` is another one. */
export function keptMessage(item: JsonObject, text: string): ProviderMetadata | undefined {
  const parts = partsOf(item);
  const texts = parts.map((part) => part["text"] ?? part["refusal"] ?? "").map(String);
  if (!isKnownItem(item) || text === "" || texts.join("") !== text) return undefined;
  const content = parts.map((part, at) => {
    const length = texts[at]?.length;
    return "text" in part
      ? { ...part, text: length }
      : "refusal" in part
        ? { ...part, refusal: length }
        : part;
  });
  return keptItem({ ...item, content });
}

/** Keeps a function call beside its id, name and arguments; undefined where it has no id as an item. */
export function keptCall({ call_id: _id, name: _name, arguments: _given, ...item }: JsonObject) {
  return typeof item["id"] === "string" && item["id"] !== "" ? keptItem(item) : undefined;
}

/** The item that a part was made from; undefined where that was none of this API, or its text is another one now. */
export function itemOfPart(part: AssistantPart): JsonObject | undefined {
  const { vendor: maker, item: kept } = part.providerMetadata ?? {};
  if (maker !== vendor || kept === undefined) return undefined;
  const item = JSON.parse(kept) as JsonObject; // written by the functions above
  if (part.type === "text") return withTexts(item, part.text);
  if (part.type === "thinking") return item;
  return { ...item, call_id: part.id, name: part.name, arguments: JSON.stringify(part.arguments) };
}

/** The texts stand at the end of `text`: what parts it from an earlier message comes before. */
function withTexts(item: JsonObject, text: string): JsonObject | undefined {
  const parts = partsOf(item);
  const lengths = parts.map((part) => Number(part["text"] ?? part["refusal"] ?? 0));
  let at = text.length - lengths.reduce((sum, length) => sum + length, 0);
  if (at < 0) return undefined;
  const content = parts.map((part, index) => {
    const end = at + (lengths[index] ?? 0);
    const said = text.slice(at, end);
    at = end;
    return "text" in part
      ? { ...part, text: said }
      : "refusal" in part
        ? { ...part, refusal: said }
        : part;
  });
  return { ...item, content };
}

function partsOf({ content }: JsonObject): JsonObject[] {
  return Array.isArray(content)
    ? content.filter((part) => typeof part === "object" && part !== null)
    : [];
}

/** What items of each type have at least. */
const mainFields: Readonly<Record<string, { texts: string; lists?: string }>> = {
  message: { texts: "id role status", lists: "content" },
  function_call: { texts: "call_id name arguments" },
  reasoning: { texts: "id", lists: "summary" },
  computer_call: { texts: "id call_id status", lists: "pending_safety_checks" },
  file_search_call: { texts: "id status", lists: "queries" },
  web_search_call: { texts: "id status" },
  mcp_call: { texts: "id server_label name arguments" },
  code_interpreter_call: { texts: "id container_id status" },
  image_generation_call: { texts: "id status" },
  local_shell_call: { texts: "id call_id status" },
  mcp_list_tools: { texts: "id server_label", lists: "tools" },
  mcp_approval_request: { texts: "id server_label name arguments" },
};

/** Whether an item is of a type that we know, with the fields that belong to it: vendors' servers may leave some out. */
export function isKnownItem(item: JsonObject): boolean {
  const { type } = item;
  const fields =
    typeof type === "string" && Object.hasOwn(mainFields, type) ? mainFields[type] : undefined;
  if (fields === undefined) return false;
  const hasTexts = fields.texts.split(" ").every((name) => typeof item[name] === "string");
  const hasLists = fields.lists === undefined || Array.isArray(item[fields.lists]);
  return hasTexts && hasLists && (type !== "message" || isMessageContent(item["content"]));
}

function isMessageContent(content: unknown): boolean {
  return (
    Array.isArray(content) &&
    content.every((part: JsonObject | null) => part !== null && isMessagePart(part))
  );
}

function isMessagePart({ type, text, annotations, refusal }: JsonObject): boolean {
  if (type === "output_text") return typeof text === "string" && Array.isArray(annotations);
  return type === "refusal" ? typeof refusal === "string" : typeof type === "string";
}
