import type { SimApp } from "./app.ts";
import type { SimChat } from "./directory.ts";
import { isJsonObject, parseJsonObject, type JsonObject } from "./json-fields.ts";
import type { MediaKind, StoredMedia } from "./media-store.ts";
import type { Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** What the platform says with the codes that a test may ask for (error codes of the message create and reply pages). */
const refusalTexts: Readonly<Record<number, string>> = {
  230006: "Bot ability is not activated.",
  230020: "This operation triggers the frequency limit.",
  230013: "Bot has NO availability to this user.",
  230018: "These operations are NOT allowed at current group settings.",
  230019: "The topic does NOT exist.",
  230022: "The content of the message contains sensitive information.",
  230027: "Lack of necessary permissions.",
  230028: "The messages do NOT pass DLP detection.",
  230029: "User has resigned.",
  230035: "Send Message Permission deny.",
  230036: "Tenant crypt key has been deleted.",
  230038: "Cross tenant p2p chat operate forbid.",
  230050: "The message is invisible to the operator.",
  230053: "The user has stopped the bot from sending messages.",
  230071: "The chat does not support reply in thread.",
  230072: "The aggregated message does NOT support reply.",
  230073: "Messages are not supported in secret chats.",
  230111: "The message is about to self-destruct.",
  232009: "Your request specifies a chat which has already been dissolved.",
};

/** Refuses what a test switched off: sends to the chat or its person, or replies to the message. */
export function checkRefusals(platform: Platform, chat: SimChat, repliedTo: string | undefined): void {
  const people = chat.type === "p2p" ? [...chat.members] : [];
  for (const target of [chat.chatId, ...people, repliedTo ?? ""]) {
    const refusal = platform.sendRefusals.get(target);
    if (refusal === undefined) continue;
    refusal.left -= 1;
    if (refusal.left <= 0) platform.sendRefusals.delete(target);
    throw new PlatformError(refusal.code, refusalTexts[refusal.code] ?? "The message is refused.");
  }
}

/** Images and files to send must be uploads of the caller, of the type that the message needs. */
export function checkMediaKeys(
  platform: Platform,
  app: SimApp,
  message: { messageType: string; content: string },
): void {
  const parsed = parseJsonObject(message.content) ?? {};
  if (message.messageType === "post") return checkPost({ platform, app }, parsed);
  if (message.messageType === "sticker") {
    if (platform.media.get(String(parsed.file_key)) === undefined) throw invalidKey("file_key");
    return;
  }
  if (message.messageType === "image") own({ platform, app }, "image", parsed);
  if (!["file", "audio", "media"].includes(message.messageType)) return;
  const { fileType } = own({ platform, app }, "file", parsed);
  if (messageTypeFor(fileType) !== message.messageType) {
    throw new PlatformError(230055, "The type of file upload does not match the type of message being sent.");
  }
  if (message.messageType === "media" && parsed.image_key !== undefined) own({ platform, app }, "image", parsed);
}

interface Sender {
  platform: Platform;
  app: SimApp;
}

function own({ platform, app }: Sender, kind: MediaKind, element: JsonObject): StoredMedia {
  const field = kind === "image" ? "image_key" : "file_key";
  const key = element[field];
  const media = typeof key === "string" ? platform.media.get(key) : undefined;
  if (media === undefined || media.kind !== kind) throw invalidKey(field);
  if (media.ownerAppId !== app.appId) throw new PlatformError(230017, "Bot is NOT the owner of the resource.");
  return media;
}

function messageTypeFor(fileType: string | undefined): string {
  if (fileType === "opus") return "audio";
  return fileType === "mp4" ? "media" : "file";
}

function checkPost(sender: Sender, post: JsonObject): void {
  for (const element of elementsOf(post)) {
    if (element.tag === "img" || element.tag === "media") own(sender, "image", element);
    if (element.tag === "media") own(sender, "file", element);
  }
}

function elementsOf(post: JsonObject): JsonObject[] {
  const bodies = Object.values(post).filter(isJsonObject);
  const paragraphs = bodies.flatMap((body): unknown[] => (Array.isArray(body.content) ? body.content : []));
  return paragraphs.flatMap((paragraph): unknown[] => (Array.isArray(paragraph) ? paragraph : [])).filter(isJsonObject);
}

function invalidKey(field: string): PlatformError {
  return new PlatformError(230001, `Your request contains an invalid request parameter, ext=invalid ${field}.`);
}
