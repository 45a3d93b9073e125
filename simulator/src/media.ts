import { FileAnswer } from "./faults.ts";
import { pathMessage, type SimMessage } from "./message-store.ts";
import {
  type ApiCallContext,
  type ApiRoute,
  type JsonObject,
  newId,
  type Platform,
  PlatformError,
  success,
} from "./platform.ts";

/** A file of a person: its bytes, or a size for which zeros are made up while it is sent. */
export interface SimFile {
  bytes: Uint8Array | { sizeBytes: number };
  name?: string;
  /** Default: by the first bytes, else `application/octet-stream`. */
  mediaType?: string;
}

export type MediaKind = "image" | "file";

/** A stored image or file. */
export interface StoredMedia {
  key: string;
  kind: MediaKind;
  name: string;
  mediaType: string;
  sizeBytes: number;
  bytes: SimFile["bytes"];
  /** The app that uploaded it; absent for what people sent. */
  ownerAppId?: string;
  /** The `file_type` of an upload. */
  fileType?: string;
}

export interface NewMedia {
  kind: MediaKind;
  file: SimFile;
  ownerAppId?: string;
  fileType?: string;
}

/** Images and files of the tenant, by key. */
export interface MediaStore {
  add(media: NewMedia): StoredMedia;
  get(key: string): StoredMedia | undefined;
  /** Puts back what an earlier process has stored, under its key. */
  restore(media: StoredMedia): void;
}

export function createMediaStore(): MediaStore {
  const byKey = new Map<string, StoredMedia>();
  return {
    add({ kind, file, ...origin }) {
      const key = kind === "image" ? newId("img_v3_") : newId("file_v3_");
      const { bytes } = file;
      const media: StoredMedia = {
        key,
        kind,
        name: file.name ?? key,
        mediaType: file.mediaType ?? mediaTypeOf(bytes) ?? "application/octet-stream",
        sizeBytes: bytes instanceof Uint8Array ? bytes.byteLength : bytes.sizeBytes,
        bytes,
        ...origin,
      };
      byKey.set(key, media);
      return media;
    },
    get: (key) => byKey.get(key),
    restore: (media) => void byKey.set(media.key, media),
  };
}

const signatures: readonly { mediaType: string; at: number; bytes: string }[] = [
  { mediaType: "image/png", at: 0, bytes: "\x89PNG\r\n\x1a\n" },
  { mediaType: "image/jpeg", at: 0, bytes: "\xff\xd8\xff" },
  { mediaType: "image/gif", at: 0, bytes: "GIF8" },
  { mediaType: "image/webp", at: 8, bytes: "WEBP" },
  { mediaType: "image/bmp", at: 0, bytes: "BM" },
  { mediaType: "image/x-icon", at: 0, bytes: "\0\0\x01\0" },
  { mediaType: "image/tiff", at: 0, bytes: "II*\0" },
  { mediaType: "image/tiff", at: 0, bytes: "MM\0*" },
  { mediaType: "image/heic", at: 4, bytes: "ftyphei" },
  { mediaType: "application/pdf", at: 0, bytes: "%PDF-" },
];

/** The type that the first bytes tell: the image formats of the upload page, and PDF. */
function mediaTypeOf(bytes: SimFile["bytes"]): string | undefined {
  if (!(bytes instanceof Uint8Array)) return undefined;
  const head = Buffer.from(bytes.subarray(0, 16)).toString("latin1");
  return signatures.find((signature) => head.startsWith(signature.bytes, signature.at))?.mediaType;
}

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

/** A field of a multipart form. Whether it is a file is the reader's matter: clients send buffers without a name. */
interface FormPart {
  bytes: Buffer;
  fileName?: string;
}

export type FormParts = ReadonlyMap<string, FormPart>;

/** The fields of a `multipart/form-data` body (RFC 7578); undefined when it is cut off or has another form. */
export function parseMultipart(body: Buffer, contentType: string): FormParts | undefined {
  const boundary = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i
    .exec(contentType)
    ?.slice(1)
    .find(Boolean);
  if (boundary === undefined) return undefined;
  const parts = new Map<string, FormPart>();
  const delimiter = Buffer.from(`--${boundary}`);
  const next = Buffer.from(`\r\n--${boundary}`);
  let at = body.indexOf(delimiter);
  if (at < 0) return undefined;
  at += delimiter.length;
  while (body.toString("latin1", at, at + 2) !== "--") {
    const end = body.indexOf(next, at);
    const part = end < 0 ? undefined : parsePart(body.subarray(at, end));
    if (part === undefined) return undefined;
    parts.set(part.name, part.part);
    at = end + next.length;
  }
  return parts;
}

/** `bytes` begin with the line break after the delimiter. */
function parsePart(bytes: Buffer): { name: string; part: FormPart } | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const head = bytes.toString("utf8", 0, headEnd);
  const disposition = /^content-disposition:\s*form-data(.*)$/im.exec(head)?.[1] ?? "";
  const name = parameter(disposition, "name");
  if (name === undefined) return undefined;
  const fileName = parameter(disposition, "filename");
  const part = {
    bytes: bytes.subarray(headEnd + 4),
    ...(fileName === undefined ? {} : { fileName }),
  };
  return { name, part };
}

function parameter(disposition: string, name: string): string | undefined {
  return new RegExp(`;\\s*${name}="([^"]*)"`, "i").exec(disposition)?.[1];
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
