import { userTextOf, type Mention } from "@larkline/agent";
import { objectOf, parsedObject, textField, type JsonObject } from "./json-object.ts";
import { postAttachments, readKind, type ReadContent } from "./message-kinds.ts";

/** What a message says, as the event carries it. */
export interface MessageBody {
  messageId: string;
  messageType: string;
  /** JSON text. */
  content: string;
  mentions: readonly Mention[];
  /** Placeholder of the bot's own mention, if the message mentions it. */
  botKey: string | undefined;
}

/** One inline element of a post as Markdown ("Receive message content"). */
function inlineText(element: unknown): string {
  const fields = objectOf(element);
  if (fields === undefined) return "";
  const text = textField(fields, "text");
  switch (textField(fields, "tag")) {
    case "a":
      return textField(fields, "href") === "" ? text : `[${text}](${textField(fields, "href")})`;
    case "at":
      return textField(fields, "user_id").startsWith("@_")
        ? textField(fields, "user_id")
        : `@${textField(fields, "user_name")}`;
    case "code_block":
      return `\`\`\`${textField(fields, "language").toLowerCase()}\n${text.replace(/\n$/, "")}\n\`\`\``;
    case "img":
      return "[image]";
    case "media":
      return "[video]";
    case "emotion":
      return `:${textField(fields, "emoji_type")}:`;
    default:
      return text;
  }
}

/** The lines of a post, each with its inline elements put together. */
function linesOf(post: JsonObject): string[] {
  const lines = post["content"] ?? post["elements"];
  if (!Array.isArray(lines)) return [];
  return lines.map((line: unknown) => (Array.isArray(line) ? line.map(inlineText).join("") : ""));
}

/** The text without the bot's own mention in front; other mentions stay. */
function withoutOwnMention(text: string, botKey: string | undefined): string {
  const trimmed = text.trimStart();
  if (botKey === undefined || !trimmed.startsWith(botKey)) return text;
  const rest = trimmed.slice(botKey.length);
  // `@_user_1` is also the beginning of `@_user_10`.
  return /^\d/.test(rest) ? text : rest.trimStart();
}

function plainText(text: string, body: MessageBody): string {
  const rest = withoutOwnMention(text, body.botKey);
  if (rest === text) return userTextOf(body);
  return rest === "" ? "" : userTextOf({ ...body, content: JSON.stringify({ text: rest }) });
}

function postText(post: JsonObject, body: MessageBody): string {
  const title = textField(post, "title");
  const lines = linesOf(post).filter((line) => line.trim() !== "");
  const first = lines[0];
  if (title === "" && first !== undefined) lines[0] = withoutOwnMention(first, body.botKey);
  if (title === "" && lines.every((line) => line === "")) return first === undefined ? userTextOf(body) : "";
  const content = lines.map((line) => [{ tag: "text", text: line }]);
  return userTextOf({ ...body, content: JSON.stringify({ title, content }) });
}

function wordsOnly(text: string, attachments: ReadContent["attachments"] = []): ReadContent {
  return { text, attachments, forwarded: false };
}

/**
 * What a message says and carries: mentions as names, the bot's own leading mention removed, posts as
 * Markdown, other kinds in a few words. A kind that nobody listed is named, so that it can be told
 * to be unsupported.
 */
export function readContent(body: MessageBody): ReadContent {
  const content = parsedObject(body.content);
  if (content === undefined) return wordsOnly(userTextOf(body));
  if (body.messageType === "text") return wordsOnly(plainText(textField(content, "text"), body));
  if (body.messageType === "post") return wordsOnly(postText(content, body), postAttachments(content, body.messageId));
  return readKind(body.messageType, content, body.messageId) ?? wordsOnly(`[unsupported ${userTextOf(body).slice(1)}`);
}
