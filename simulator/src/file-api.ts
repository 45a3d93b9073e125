import { FileAnswer } from "./answer-body.ts";
import type { JsonObject } from "./json-fields.ts";
import { formText, uploadedFile } from "./media-form.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";
import { ownUpload } from "./resource-api.ts";

const limitBytes = 30 * 1024 * 1024;
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
    { method: "POST", path: "/open-apis/im/v1/files", handle: (call) => upload(platform, call) },
    {
      method: "GET",
      path: "/open-apis/im/v1/files/:file_key",
      handle: (call) => new FileAnswer(ownUpload(platform, call, { kind: "file", param: "file_key" })),
    },
  ];
}

function upload(platform: Platform, call: ApiCallContext): JsonObject {
  const fileType = formText(call, "file_type") ?? "";
  const mediaType = mediaTypes.get(fileType);
  if (mediaType === undefined) throw new PlatformError(234001, "Invalid request param: file_type");
  const name = formText(call, "file_name");
  if (name === undefined) throw new PlatformError(234001, "Invalid request param: file_name");
  if (!/^\d*$/.test(formText(call, "duration") ?? "")) {
    throw new PlatformError(234001, "Invalid request param: duration");
  }
  const { bytes } = uploadedFile(call, "file", limitBytes);
  const file = { bytes, name, mediaType };
  const { key } = platform.media.add({ kind: "file", file, ownerAppId: call.app.appId, fileType });
  return success({ file_key: key });
}
