import type { SimApp } from "./app.ts";
import type { SimChat, SimUser } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import type { NewMedia } from "./media-store.ts";
import { renderContent, type RenderedContent } from "./message-content.ts";
import { sampleContent } from "./message-sample.ts";
import type { SimMention } from "./message-store.ts";
import type { PersonMessage } from "./person-message.ts";
import { postContent } from "./person-post.ts";
import { mentionLookup, type Platform } from "./platform.ts";

/** Where and by whom a message is written. */
export interface Writing {
  platform: Platform;
  app: SimApp;
  chat: SimChat;
  sender: SimUser;
}

/** Content as it is received, with its message type. */
export interface WrittenContent extends RenderedContent {
  messageType: string;
}

/** The content of a message in the received form of its kind (message content guide). */
export function writtenContent(writing: Writing, written: PersonMessage): WrittenContent {
  const { platform } = writing;
  const add = (kind: NewMedia["kind"], file: NewMedia["file"]): string => platform.media.add({ kind, file }).key;
  if (written.post !== undefined) {
    return { messageType: "post", ...postContent(writing, written.post, mentionedIds(writing, written)) };
  }
  if (written.image !== undefined) return plain("image", { image_key: add("image", written.image) });
  if (written.file !== undefined) {
    return plain("file", { file_key: add("file", written.file), file_name: written.file.name });
  }
  if (written.folder !== undefined) {
    const file = { bytes: new Uint8Array(0) };
    return plain("folder", { file_key: add("file", file), file_name: written.folder.name });
  }
  if (written.audio !== undefined) {
    const file = { mediaType: "audio/ogg", ...written.audio };
    return plain("audio", { file_key: add("file", file), duration: written.audio.durationMs });
  }
  if (written.media !== undefined) return video(written.media, add);
  if (written.forward !== undefined) return plain("merge_forward", { content: "Merged and Forwarded Message" });
  if (written.content !== undefined) return rawContent(written.messageType ?? "text", written.content);
  if (written.messageType !== undefined && written.messageType !== "text") {
    return plain(written.messageType, sampleContent(writing, written.messageType));
  }
  return { messageType: "text", ...textContent(writing, written) };
}

function video(
  media: NonNullable<PersonMessage["media"]>,
  add: (kind: NewMedia["kind"], file: NewMedia["file"]) => string,
): WrittenContent {
  return plain("media", {
    file_key: add("file", { mediaType: "video/mp4", ...media }),
    image_key: add("image", media.cover ?? { bytes: new Uint8Array(0), mediaType: "image/jpeg" }),
    file_name: media.name ?? "video.mp4",
    duration: media.durationMs,
  });
}

function plain(messageType: string, content: JsonObject): WrittenContent {
  return { messageType, content: JSON.stringify(content), text: `[${messageType}]`, mentions: [] };
}

function rawContent(messageType: string, given: string | JsonObject): WrittenContent {
  const content = typeof given === "string" ? given : JSON.stringify(given);
  const parsed: unknown = JSON.parse(content);
  const text = typeof parsed === "object" && parsed !== null && "text" in parsed ? parsed.text : undefined;
  return { messageType, content, text: typeof text === "string" ? text : content, mentions: [] };
}

/** Everybody, people and bots to mention in front, in this order. */
function mentionedIds({ app }: Writing, { text = "", mention, mentions = [], mentionAll }: PersonMessage): string[] {
  const bot = mention === true && !text.includes(`<at user_id="${app.openId}"></at>`) ? [app.openId] : [];
  return [...(mentionAll === undefined ? [] : ["all"]), ...bot, ...mentions];
}

function textContent(writing: Writing, written: PersonMessage): RenderedContent {
  const { platform, chat } = writing;
  const tags = mentionedIds(writing, written).map((id) => `<at user_id="${id}"></at>`);
  const text = [...tags, written.text ?? ""].join(" ");
  const rendered = renderContent("text", JSON.stringify({ text }), mentionLookup(platform, chat));
  return { ...rendered, mentions: withAll(rendered.mentions, written) };
}

/** Mentioning everybody leaves an entry in `mentions`, or only the placeholder in the text. */
function withAll(mentions: SimMention[], { mentionAll }: PersonMessage): SimMention[] {
  return mentionAll === "mention" ? [allMention, ...mentions] : mentions;
}

const allMention: SimMention = { key: "@_all", openId: "", name: "所有人", bot: false };
