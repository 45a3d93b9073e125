import { parserOf, type Parser } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import { multipart, pathId, type ApiCaller, type CallOptions } from "../transport/api-call.ts";

/** Which file of a message to fetch. */
export interface DownloadRequest {
  messageId: string;
  /** Image or file key of that message. */
  key: string;
  /** `file` also for audio and video. */
  type: "image" | "file";
  /** More than that is not read: rejects with `too_large`. */
  maxBytes: number;
  /** Deadline of one attempt in ms, 60 s by default. */
  timeoutMs?: number;
}

/** A file that a person sent. */
export interface DownloadedFile {
  bytes: Buffer;
  /** What the platform says; `application/octet-stream` when it says nothing. */
  mediaType: string;
  fileName?: string;
}

/** Kinds of files that the platform shows differently ("Upload a file"); everything else is `stream`. */
export type UploadFileType = "opus" | "mp4" | "pdf" | "doc" | "xls" | "ppt" | "stream";

/** A file for the chat, at most 30 MB. */
export interface UploadFileRequest {
  bytes: Buffer;
  fileName: string;
  fileType: UploadFileType;
  /** Of audio and video. */
  durationMs?: number;
}

/** Files in and out. Every method rejects with a FeishuError only. */
export class FilesApi {
  readonly #caller: ApiCaller;

  constructor(caller: ApiCaller) {
    this.#caller = caller;
  }

  async download(request: DownloadRequest, options?: CallOptions): Promise<DownloadedFile> {
    const { messageId, key, type, maxBytes, timeoutMs = transferTimeoutMs } = request;
    const api = "im.messageResource.get";
    const url = `/open-apis/im/v1/messages/${pathId(api, messageId)}/resources/${pathId(api, key)}`;
    const { bytes, headers } = await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) =>
          client.request({ method: "GET", url, params: { type } }, sdkOptions),
        parse: parseFile,
        context: { maxFileBytes: maxBytes, timeoutMs },
      },
      options,
    );
    const fileName = fileNameOf(String(headers["content-disposition"] ?? ""));
    const mediaType =
      String(headers["content-type"] ?? "application/octet-stream").split(";", 1)[0] ?? "";
    return {
      bytes,
      mediaType: mediaType.trim().toLowerCase(),
      ...(fileName === undefined ? {} : { fileName }),
    };
  }

  /** Uploads an image of at most 10 MB. Resolves to the image key. */
  async uploadImage(bytes: Buffer, options?: CallOptions): Promise<string> {
    const form = new FormData();
    form.set("image_type", "message");
    form.set("image", blobOf(bytes), "image");
    const target = { api: "im.image.create", url: "/open-apis/im/v1/images", parse: parseImageKey };
    return (await this.#upload(target, form, options)).data.image_key;
  }

  /** Resolves to the file key. */
  async uploadFile(request: UploadFileRequest, options?: CallOptions): Promise<string> {
    const { bytes, fileName, fileType, durationMs } = request;
    const form = new FormData();
    form.set("file_type", fileType);
    form.set("file_name", fileName);
    if (durationMs !== undefined) form.set("duration", String(Math.round(durationMs)));
    form.set("file", blobOf(bytes), fileName);
    const target = { api: "im.file.create", url: "/open-apis/im/v1/files", parse: parseFileKey };
    return (await this.#upload(target, form, options)).data.file_key;
  }

  async #upload<T>(
    target: { api: string; url: string; parse: Parser<T> },
    form: FormData,
    options?: CallOptions,
  ) {
    const { api, url, parse } = target;
    const body = await multipart(form);
    return await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) => client.request({ method: "POST", url }, sdkOptions),
        parse,
        context: { body, timeoutMs: transferTimeoutMs },
      },
      options,
    );
  }
}

const transferTimeoutMs = 60_000;

const parseFile: Parser<{ bytes: Buffer; headers: Record<string, unknown> }> = (value) => {
  if (
    typeof value === "object" &&
    value !== null &&
    "bytes" in value &&
    Buffer.isBuffer(value.bytes)
  ) {
    const headers =
      "headers" in value && typeof value.headers === "object" ? { ...value.headers } : {};
    return { ok: true, value: { bytes: value.bytes, headers } };
  }
  return { ok: false, error: "no file" };
};
const parseImageKey = parserOf(
  Type.Object({ data: Type.Object({ image_key: Type.String({ minLength: 1 }) }) }),
);
const parseFileKey = parserOf(
  Type.Object({ data: Type.Object({ file_key: Type.String({ minLength: 1 }) }) }),
);

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The file's name in a `Content-Disposition`; the platform percent-encodes it in either form. */
export function fileNameOf(disposition: string): string | undefined {
  const extended = /filename\*=(?:UTF-8|utf-8)''([^;]+)/.exec(disposition)?.[1];
  const plain = /filename="([^"]*)"|filename=([^;]+)/.exec(disposition);
  const name = decoded((extended ?? plain?.[1] ?? plain?.[2] ?? "").trim());
  // Only the last segment: the name comes from outside and may end up in a path.
  const last =
    name
      .split(/[/\\]/)
      .at(-1)
      ?.replaceAll(/\p{Cc}/gu, "") ?? "";
  return last === "" ? undefined : last.slice(0, 255);
}

function blobOf(bytes: Buffer): Blob {
  return new Blob([new Uint8Array(bytes)]);
}
