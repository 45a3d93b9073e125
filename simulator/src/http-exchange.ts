import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { bodySize, FileAnswer, sendBody, type AnswerBody, type BodyFault } from "./answer-body.ts";
import type { JsonObject } from "./json-fields.ts";
import { parseJsonObject } from "./json-fields.ts";
import { parseMultipart, type FormParts } from "./media-multipart.ts";
import { PlatformError } from "./platform-error.ts";

const bodyLimitBytes = 1024 * 1024;
/** Room for a file beyond the largest allowed, so that the upload itself refuses it. */
const formLimitBytes = 64 * 1024 * 1024;

/** An answer of the platform, ready to send. */
export interface Answer {
  status: number;
  code: number;
  body: AnswerBody;
  headers: Record<string, string>;
}

/** What a call brought: JSON or plain form fields in `body`, or a form with files. */
export interface RequestBody {
  body: JsonObject;
  form?: FormParts;
}

/**
 * Reads a JSON or form body; nothing or something else than an object counts as `{}`. Over 1 MB, or 64 MB for forms
 * with files: refused with 413.
 */
export async function readBody(request: IncomingMessage): Promise<RequestBody> {
  const mediaType = request.headers["content-type"] ?? "";
  const withFiles = mediaType.startsWith("multipart/form-data");
  const bytes = await readBytes(request, withFiles ? formLimitBytes : bodyLimitBytes);
  if (withFiles) return { body: {}, form: formOf(bytes, mediaType) };
  const text = bytes.toString("utf8");
  const isForm = mediaType.startsWith("application/x-www-form-urlencoded");
  return { body: isForm ? Object.fromEntries(new URLSearchParams(text)) : (parseJsonObject(text) ?? {}) };
}

async function readBytes(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    if (!Buffer.isBuffer(chunk)) continue;
    size += chunk.length;
    if (size > limitBytes) throw new PlatformError(99992402, "request body is too large", { status: 413 });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function formOf(bytes: Buffer, mediaType: string): FormParts {
  const form = parseMultipart(bytes, mediaType);
  if (form === undefined) throw new PlatformError(234001, "Invalid request param: the form cannot be read.");
  return form;
}

/** The platform's log id, as in `X-Tt-Logid`. */
export function newLogId(): string {
  return randomBytes(16).toString("hex").toUpperCase();
}

export function okAnswer(body: JsonObject | FileAnswer): Answer {
  if (body instanceof FileAnswer) return { status: 200, code: 0, body: body.body, headers: body.headers };
  return { status: 200, code: typeof body.code === "number" ? body.code : 0, body: JSON.stringify(body), headers: {} };
}

/** The answer to a refusal: `{code, msg, error: {log_id, troubleshooter}}`. */
export function errorAnswer(error: PlatformError, logId: string, defaultStatus: number): Answer {
  const detail = { log_id: logId, troubleshooter: `https://open.feishu.cn/search?log_id=${logId}` };
  return {
    status: error.status ?? defaultStatus,
    code: error.code,
    body: JSON.stringify({ code: error.code, msg: error.message, error: detail }),
    headers: error.headers,
  };
}

export function sendAnswer(
  response: ServerResponse,
  answer: Answer,
  { logId, fault }: { logId: string; fault?: BodyFault | undefined },
): void {
  if (response.destroyed) return;
  response.writeHead(answer.status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": bodySize(answer.body),
    "x-tt-logid": logId,
    ...answer.headers,
  });
  void sendBody(response, answer.body, fault);
}
