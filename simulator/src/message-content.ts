import { isJsonObject, parseJsonObject, type JsonObject } from "./json-fields.ts";
import type { SimMention } from "./message-store.ts";
import { PlatformError } from "./platform-error.ts";

const textLimitBytes = 150 * 1024;
const richLimitBytes = 30 * 1024;
/** Message types that can be sent, each with the content field that must be a string (create_json guide). */
const keyFields: Readonly<Record<string, string>> = {
  image: "image_key",
  file: "file_key",
  audio: "file_key",
  media: "file_key",
  sticker: "file_key",
  share_chat: "chat_id",
  share_user: "user_id",
};

/** Who a mention tag names: a person or a bot of the tenant. */
export type MentionLookup = (openId: string) => { name: string; bot: boolean } | undefined;

/** Content as stored, and as people read it. */
export interface RenderedContent {
  content: string;
  text: string;
  mentions: SimMention[];
}

/** Checks the size and shape of content to send; refuses with 230001, 230025 or 230099. */
export function renderContent(messageType: string, content: string, lookup: MentionLookup): RenderedContent {
  checkSize(messageType, content);
  const parsed = parseJsonObject(content);
  if (parsed === undefined) throw badContent("content is not a string in json format");
  if (messageType === "text") return renderText(parsed, lookup);
  if (messageType === "post") {
    return { content, text: postText(checkedPost(parsed)), mentions: postMentions(parsed, lookup) };
  }
  const field = keyFields[messageType];
  if (field === undefined) {
    throw new PlatformError(230001, `Your request contains an invalid request parameter: msg_type ${messageType}`);
  }
  if (typeof parsed[field] !== "string") throw badContent(`${field} is required`);
  return { content, text: `[${messageType}]`, mentions: [] };
}

function checkSize(messageType: string, content: string): void {
  const limit = messageType === "text" ? textLimitBytes : richLimitBytes;
  if (Buffer.byteLength(content, "utf8") > limit) {
    throw new PlatformError(230025, "The length of the message content reaches its limit.");
  }
}

function badContent(reason: string): PlatformError {
  return new PlatformError(230001, `Your request contains an invalid request parameter, ext=${reason}.`);
}

function renderText(parsed: JsonObject, lookup: MentionLookup): RenderedContent {
  if (typeof parsed.text !== "string" || parsed.text === "") throw badContent("text content is required");
  const mentions: SimMention[] = [];
  const numbered = parsed.text.replace(/<at user_id="([^"]*)">[^<]*<\/at>/g, (_tag, openId: string) => {
    if (openId === "all") return "@_all";
    const found = lookup(openId);
    if (found === undefined) throw badContent(`invalid user id in at tag: ${openId}`);
    const key = `@_user_${mentions.length + 1}`;
    mentions.push({ key, openId, name: found.name, bot: found.bot });
    return key;
  });
  return { content: JSON.stringify({ text: numbered }), text: withNames(numbered, mentions), mentions };
}

function withNames(text: string, mentions: readonly SimMention[]): string {
  return text.replace(/@_user_\d+|@_all/g, (key) => {
    if (key === "@_all") return "@所有人";
    const mention = mentions.find((candidate) => candidate.key === key);
    return mention === undefined ? key : `@${mention.name}`;
  });
}

type PostParagraphs = { title: string; paragraphs: JsonObject[][] };

/** A post is sent with a locale around it; each `md` element stands alone in its paragraph. */
function checkedPost(parsed: JsonObject): PostParagraphs {
  const post = localised(parsed);
  if (post === undefined) throw badContent("post content needs a locale such as zh_cn");
  if (!Array.isArray(post.content)) throw badContent("post content is required");
  const paragraphs = post.content.map((paragraph: unknown) => checkedParagraph(paragraph));
  return { title: typeof post.title === "string" ? post.title : "", paragraphs };
}

function localised(parsed: JsonObject): JsonObject | undefined {
  const body = Object.entries(parsed).find(([locale]) => /^[a-z]{2}_[a-z]{2}$/.test(locale))?.[1];
  return isJsonObject(body) ? body : undefined;
}

const postTags = new Set(["text", "a", "at", "img", "media", "emotion", "hr", "code_block", "md"]);

function checkedParagraph(paragraph: unknown): JsonObject[] {
  if (!Array.isArray(paragraph)) throw badContent("a post paragraph must be an array");
  const elements = paragraph.map((element: unknown) => {
    if (!isJsonObject(element)) throw badContent("a post element must be an object");
    if (!postTags.has(String(element.tag))) throw badContent(`post tag ${String(element.tag)} is unknown`);
    return element;
  });
  if (elements.length > 1 && elements.some((element) => element.tag === "md")) {
    throw badContent("an md element must be alone in its paragraph");
  }
  return elements;
}

function postText({ title, paragraphs }: PostParagraphs): string {
  const lines = paragraphs.map((paragraph) => paragraph.map(elementText).join(""));
  return (title === "" ? lines : [title, ...lines]).join("\n");
}

function elementText(element: JsonObject): string {
  if (element.tag === "at") return `@${String(element.user_name ?? element.user_id)}`;
  if (element.tag === "hr") return "---";
  if (element.tag === "img" || element.tag === "media") return `[${String(element.tag)}]`;
  return typeof element.text === "string" ? element.text : "";
}

function postMentions(parsed: JsonObject, lookup: MentionLookup): SimMention[] {
  const ids = checkedPost(parsed)
    .paragraphs.flat()
    .filter((element) => element.tag === "at" && typeof element.user_id === "string" && element.user_id !== "all")
    .map((element) => String(element.user_id));
  return ids.map((openId, index) => {
    const found = lookup(openId);
    if (found === undefined) throw badContent(`invalid user id in at tag: ${openId}`);
    return { key: `@_user_${index + 1}`, openId, name: found.name, bot: found.bot };
  });
}

/** The JSON of card content of at most 30 KB; what it says is the card modules' matter. */
export function cardContent(content: string): JsonObject {
  checkSize("interactive", content);
  const parsed = parseJsonObject(content);
  if (parsed === undefined) throw badContent("content is not a string in json format");
  return parsed;
}
