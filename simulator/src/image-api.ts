import { FileAnswer } from "./answer-body.ts";
import { uploadedFile, formText } from "./media-form.ts";
import { imageSize } from "./media-image.ts";
import { mediaTypeOf } from "./media-store.ts";
import { ownUpload } from "./resource-api.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";
import type { JsonObject } from "./json-fields.ts";

const limitBytes = 10 * 1024 * 1024;
const longestSide = { message: 12_000, avatar: 4096, gif: 2000 };

/** Images that a bot uploads and reads back (image create and get pages). */
export function imageRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "POST", path: "/open-apis/im/v1/images", handle: (call) => upload(platform, call) },
    {
      method: "GET",
      path: "/open-apis/im/v1/images/:image_key",
      handle: (call) => new FileAnswer(ownUpload(platform, call, { kind: "image", param: "image_key" })),
    },
  ];
}

function upload(platform: Platform, call: ApiCallContext): JsonObject {
  const use = formText(call, "image_type");
  if (use !== "message" && use !== "avatar") throw new PlatformError(234001, "Invalid request param: image_type");
  const file = uploadedFile(call, "image", limitBytes);
  checkImage(file.bytes, use);
  const { key } = platform.media.add({ kind: "image", file, ownerAppId: call.app.appId });
  return success({ image_key: key });
}

function checkImage(bytes: Uint8Array, use: "message" | "avatar"): void {
  const mediaType = mediaTypeOf(bytes);
  if (mediaType?.startsWith("image/") !== true) throw new PlatformError(234011, "Can't recognize the image format.");
  const size = imageSize(bytes, mediaType);
  const longest = mediaType === "image/gif" ? longestSide.gif : longestSide[use];
  if (size !== undefined && Math.max(size.width, size.height) > longest) {
    throw new PlatformError(234039, "The image resolution exceeds the limit.");
  }
}
