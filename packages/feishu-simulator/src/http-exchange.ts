import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { JsonObject } from "./json-fields.ts";
import { parseJsonObject } from "./json-fields.ts";
import { PlatformError } from "./platform-error.ts";

const bodyLimitBytes = 1024 * 1024;

/** An answer of the platform, ready to send. */
export interface Answer {
  status: number;
  code: number;
  body: string;
  headers: Record<string, string>;
}

/** Reads a JSON or form body; nothing or something else than an object counts as `{}`. Over 1 MB: refused with 413. */
export async function readBody(request: IncomingMessage): Promise<JsonObject> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    if (!Buffer.isBuffer(chunk)) continue;
    size += chunk.length;
    if (size > bodyLimitBytes) throw new PlatformError(99992402, "request body is too large", { status: 413 });
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  const isForm = request.headers["content-type"]?.startsWith("application/x-www-form-urlencoded") === true;
  return isForm ? Object.fromEntries(new URLSearchParams(text)) : (parseJsonObject(text) ?? {});
}

/** The platform's log id, as in `X-Tt-Logid`. */
export function newLogId(): string {
  return randomBytes(16).toString("hex").toUpperCase();
}

export function okAnswer(body: JsonObject): Answer {
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

export function sendAnswer(response: ServerResponse, answer: Answer, logId: string): void {
  if (response.destroyed) return;
  response.writeHead(answer.status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(answer.body),
    "x-tt-logid": logId,
    ...answer.headers,
  });
  response.end(answer.body);
}
