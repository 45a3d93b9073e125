/** What {@link userTextOf} reads of a message event. */
export interface MessageContent {
  messageType: string;
  /** JSON text as the platform sends it, or the object itself. */
  content: unknown;
  mentions?: readonly Mention[] | undefined;
}

/** A mention of the event: `key` stands in the text where `name` is meant. */
export interface Mention {
  key: string;
  name?: string | undefined;
}

type JsonObject = Record<string, unknown>;

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parsedContent(content: unknown): JsonObject | undefined {
  if (typeof content !== "string") return isObject(content) ? content : undefined;
  try {
    const value: unknown = JSON.parse(content);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The text of one element of a rich text; a mention is an element of its own there. */
function elementText(element: unknown): string {
  if (!isObject(element)) return "";
  if (element["tag"] !== "at") return stringOf(element["text"]);
  const key = stringOf(element["user_id"]);
  return key.startsWith("@_") ? key : `@${stringOf(element["user_name"])}`;
}

/** Rich text: `content` (or `elements`) is a list of lines, each a list of elements. */
function postText(post: JsonObject): string {
  const lines = post["content"] ?? post["elements"];
  const pieces = Array.isArray(lines) ? lines.flat().map(elementText) : [];
  const title = stringOf(post["title"]);
  return [title === "" ? "" : `## ${title}`, ...pieces].filter((piece) => piece !== "").join("\n\n");
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
}

/** Replaces keys by `@<name>` in one pass, longest key first; `@_user_1` never matches inside `@_user_10`. */
function withNames(text: string, mentions: readonly Mention[]): string {
  const names = new Map(mentions.filter(({ key }) => key !== "").map(({ key, name }) => [key, `@${name ?? ""}`]));
  if (names.size === 0) return text;
  const keys = [...names.keys()].sort((left, right) => right.length - left.length);
  const pattern = keys.map((key) => escaped(key) + (/\d$/.test(key) ? String.raw`(?!\d)` : "")).join("|");
  return text.replaceAll(new RegExp(pattern, "g"), (key) => names.get(key) ?? key);
}

function withoutLeadingMention(text: string): string {
  return text.replace(/^@_user_\d+\s*/, "").trim();
}

function placeholder(messageType: string): string {
  return `[${messageType.replaceAll(/[^\w-]/g, "") || "unknown"}]`;
}

/**
 * The text a person meant: of text and rich-text messages with mentions as names and one unresolved
 * leading mention removed; of any other kind a neutral placeholder such as `[image]`. Content of a
 * text message that holds no text is returned as it came. A chat's own form of `content` and the
 * shape of rich text: Feishu Open Platform, "Receive message content".
 */
export function userTextOf({ messageType, content, mentions = [] }: MessageContent): string {
  const raw = typeof content === "string" ? content : "";
  if (messageType !== "text" && messageType !== "post") return placeholder(messageType);
  const parsed = parsedContent(content);
  if (parsed === undefined) return raw;
  const text = messageType === "text" ? stringOf(parsed["text"]) : postText(parsed);
  if (text !== "") return withoutLeadingMention(withNames(text, mentions));
  return messageType === "text" ? raw : placeholder(messageType);
}
