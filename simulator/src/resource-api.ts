import { FileAnswer } from "./answer-body.ts";
import { pathMessage } from "./message-lookup.ts";
import type { MediaKind, StoredMedia } from "./media-store.ts";
import type { SimMessage } from "./message-store.ts";
import type { ApiCallContext, ApiRoute, Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

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
  if (kind !== "image" && kind !== "file") throw new PlatformError(234001, "Invalid request param: type");
  const message = resourceMessage(platform, call);
  const key = call.params.file_key ?? "";
  const media = platform.media.get(key);
  if (media === undefined || media.kind !== kind || !message.content.includes(JSON.stringify(key))) {
    throw new PlatformError(234003, "File not in msg.");
  }
  return new FileAnswer(downloadable(media));
}

/** The message, when files of its kind and chat may be downloaded. */
function resourceMessage(platform: Platform, call: ApiCallContext): SimMessage {
  const held = platform.messages.get(call.params.message_id ?? "");
  if (held?.upperMessageId !== undefined) throw unsupported();
  if (held?.hidden === true) throw new PlatformError(234040, "The message is invisible to the operator.");
  const { message, chat } = pathMessage(platform, call);
  if (message.recalled) throw new PlatformError(230110, "The message does not exist or is deleted.");
  if (closedTypes.has(message.messageType)) throw unsupported();
  if (chat.restricted) throw new PlatformError(234038, "The chat is in restricted mode.");
  return message;
}

function unsupported(): PlatformError {
  return new PlatformError(234043, "Unsupported message type.");
}

/** An image or file that the caller has uploaded; other people's are 234008. */
export function ownUpload(
  platform: Platform,
  call: ApiCallContext,
  { kind, param }: { kind: MediaKind; param: string },
): StoredMedia {
  const media = platform.media.get(call.params[param] ?? "");
  if (media === undefined || media.kind !== kind) throw new PlatformError(234001, `Invalid request param: ${param}`);
  if (media.ownerAppId !== call.app.appId) throw new PlatformError(234008, "The app is not the resource sender.");
  return downloadable(media);
}

function downloadable(media: StoredMedia): StoredMedia {
  if (media.sizeBytes > downloadLimitBytes) throw new PlatformError(234037, "Downloaded file size exceeds limit.");
  return media;
}
