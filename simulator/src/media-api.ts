import { type ApiRoute, type ApiCallContext, personTalkScopes } from "./api-route.ts";
import { FileAnswer } from "./faults.ts";
import { mediaTypeOf, type MediaKind, type StoredMedia, type SimFile } from "./media.ts";
import type { SimMessage } from "./message-store.ts";
import { type JsonObject, PlatformError, success } from "./open-api.ts";
import { type Platform, pathMessage } from "./platform.ts";
import { messageOfPerson } from "./work/talk.ts";

const imageLimitBytes = 10 * 1024 * 1024;
const longestSide = { message: 12_000, avatar: 4096, gif: 2000 };

/** Images that a bot uploads and reads back (image create and get pages). */
export function imageRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/images",
      handle: (call) => uploadImage(platform, call),
    },
    {
      method: "GET",
      path: "/open-apis/im/v1/images/:image_key",
      handle: (call) =>
        new FileAnswer(ownUpload(platform, call, { kind: "image", param: "image_key" })),
    },
  ];
}

function uploadImage(platform: Platform, call: ApiCallContext): JsonObject {
  const use = formText(call, "image_type");
  if (use !== "message" && use !== "avatar") {
    throw new PlatformError(234001, "Invalid request param: image_type");
  }
  const file = uploadedFile(call, "image", imageLimitBytes);
  checkImage(file.bytes, use);
  const { key } = platform.media.add({ kind: "image", file, ownerAppId: call.app.appId });
  return success({ image_key: key });
}

function checkImage(bytes: Uint8Array, use: "message" | "avatar"): void {
  const mediaType = mediaTypeOf(bytes);
  if (mediaType?.startsWith("image/") !== true) {
    throw new PlatformError(234011, "Can't recognize the image format.");
  }
  const size = imageSize(bytes, mediaType);
  const longest = mediaType === "image/gif" ? longestSide.gif : longestSide[use];
  if (size !== undefined && Math.max(size.width, size.height) > longest) {
    throw new PlatformError(234039, "The image resolution exceeds the limit.");
  }
}

const fileLimitBytes = 30 * 1024 * 1024;

const mediaTypes: ReadonlyMap<string, string> = new Map([
  ["opus", "audio/ogg"],
  ["mp4", "video/mp4"],
  ["pdf", "application/pdf"],
  ["doc", "application/msword"],
  ["xls", "application/vnd.ms-excel"],
  ["ppt", "application/vnd.ms-powerpoint"],
  ["stream", "application/octet-stream"],
]);

/** Files that a bot uploads and reads back (file create and get pages). */
export function fileRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/files",
      handle: (call) => uploadFile(platform, call),
    },
    {
      method: "GET",
      path: "/open-apis/im/v1/files/:file_key",
      handle: (call) =>
        new FileAnswer(ownUpload(platform, call, { kind: "file", param: "file_key" })),
    },
  ];
}

function uploadFile(platform: Platform, call: ApiCallContext): JsonObject {
  const fileType = formText(call, "file_type") ?? "";
  const mediaType = mediaTypes.get(fileType);
  if (mediaType === undefined) throw new PlatformError(234001, "Invalid request param: file_type");
  const name = formText(call, "file_name");
  if (name === undefined) throw new PlatformError(234001, "Invalid request param: file_name");
  if (!/^\d*$/.test(formText(call, "duration") ?? "")) {
    throw new PlatformError(234001, "Invalid request param: duration");
  }
  const { bytes } = uploadedFile(call, "file", fileLimitBytes);
  const file = { bytes, name, mediaType };
  const { key } = platform.media.add({ kind: "file", file, ownerAppId: call.app.appId, fileType });
  return success({ file_key: key });
}

const downloadLimitBytes = 100 * 1024 * 1024;

/** Kinds whose content cannot be downloaded, although it may hold a key. */
const closedTypes = new Set(["sticker", "merge_forward", "interactive", "folder"]);

/** Files of messages (message resource page). */
export function resourceRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/im/v1/messages/:message_id/resources/:file_key",
      ...personTalkScopes.history,
      handle: (call) => download(platform, call),
    },
  ];
}

function download(platform: Platform, call: ApiCallContext): FileAnswer {
  const kind = call.query.get("type");
  if (kind !== "image" && kind !== "file") {
    throw new PlatformError(234001, "Invalid request param: type");
  }
  const message = resourceMessage(platform, call);
  const key = call.params.file_key ?? "";
  const media = platform.media.get(key);
  if (
    media === undefined ||
    media.kind !== kind ||
    !message.content.includes(JSON.stringify(key))
  ) {
    throw new PlatformError(234003, "File not in msg.");
  }
  return new FileAnswer(downloadable(media));
}

/** The message, when files of its kind and chat may be downloaded. */
function resourceMessage(platform: Platform, call: ApiCallContext): SimMessage {
  if (call.person !== undefined) {
    const message = messageOfPerson(platform, call, call.person.openId);
    if (closedTypes.has(message.messageType)) throw unsupported();
    return message;
  }
  const held = platform.messages.get(call.params.message_id ?? "");
  if (held?.upperMessageId !== undefined) throw unsupported();
  if (held?.hidden === true) {
    throw new PlatformError(234040, "The message is invisible to the operator.");
  }
  const { message, chat } = pathMessage(platform, call);
  if (message.recalled) {
    throw new PlatformError(230110, "The message does not exist or is deleted.");
  }
  if (closedTypes.has(message.messageType)) throw unsupported();
  if (chat.restricted) throw new PlatformError(234038, "The chat is in restricted mode.");
  return message;
}

function unsupported(): PlatformError {
  return new PlatformError(234043, "Unsupported message type.");
}

/** An image or file that the caller has uploaded; other people's are 234008. */
function ownUpload(
  platform: Platform,
  call: ApiCallContext,
  { kind, param }: { kind: MediaKind; param: string },
): StoredMedia {
  const media = platform.media.get(call.params[param] ?? "");
  if (media === undefined || media.kind !== kind) {
    throw new PlatformError(234001, `Invalid request param: ${param}`);
  }
  if (media.ownerAppId !== call.app.appId) {
    throw new PlatformError(234008, "The app is not the resource sender.");
  }
  return downloadable(media);
}

function downloadable(media: StoredMedia): StoredMedia {
  if (media.sizeBytes > downloadLimitBytes) {
    throw new PlatformError(234037, "Downloaded file size exceeds limit.");
  }
  return media;
}

/** A text field of an upload; undefined when it is absent or empty. */
function formText(call: ApiCallContext, field: string): string | undefined {
  return call.form?.get(field)?.bytes.toString("utf8") || undefined;
}

/** The file of an upload; refuses with 234001 (absent), 234010 (nothing in it) or 234006 (too large). */
function uploadedFile(
  call: ApiCallContext,
  field: string,
  limitBytes: number,
): SimFile & { bytes: Uint8Array } {
  const part = call.form?.get(field);
  if (part === undefined) {
    throw new PlatformError(
      234001,
      `Invalid request param: ${field} must be a file of a multipart form`,
    );
  }
  if (part.bytes.length === 0) throw new PlatformError(234010, "File's size can't be 0.");
  if (part.bytes.length > limitBytes) {
    throw new PlatformError(234006, "The file size exceed the max value.");
  }
  return {
    bytes: new Uint8Array(part.bytes),
    ...(part.fileName === undefined ? {} : { name: part.fileName }),
  };
}

/** Width and height in pixels from the header of a PNG, GIF or BMP; undefined for others. */
function imageSize(
  bytes: Uint8Array,
  mediaType: string,
): { width: number; height: number } | undefined {
  const head = Buffer.from(bytes.subarray(0, 32));
  if (head.length < 26) return undefined;
  if (mediaType === "image/png") {
    return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) };
  }
  if (mediaType === "image/gif") {
    return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) };
  }
  if (mediaType === "image/bmp") {
    return { width: head.readInt32LE(18), height: Math.abs(head.readInt32LE(22)) };
  }
  return undefined;
}
