import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as wait } from "node:timers/promises";
import type { FaultAction } from "./fault-table.ts";

/** The body of an answer; a bare size stands for that many zeros, made while they are sent. */
export type AnswerBody = string | Uint8Array | { sizeBytes: number };

/** How a body is sent when a fault has a say. */
export type BodyFault = Extract<FaultAction, { kind: "trickle" | "truncate" }>;

const chunkBytes = 64 * 1024;

/** A route's answer that is a file instead of JSON. */
export class FileAnswer {
  readonly body: Exclude<AnswerBody, string>;
  readonly headers: Record<string, string>;

  constructor(file: { bytes: Exclude<AnswerBody, string>; mediaType: string; name: string }) {
    this.body = file.bytes;
    this.headers = {
      "content-type": file.mediaType,
      "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(file.name)}`,
    };
  }
}

export function bodySize(body: AnswerBody): number {
  if (typeof body === "string") return Buffer.byteLength(body);
  return body instanceof Uint8Array ? body.byteLength : body.sizeBytes;
}

/** Sends the body of a response whose head is written; a caller that goes away ends it silently. */
export async function sendBody(response: ServerResponse, body: AnswerBody, fault?: BodyFault): Promise<void> {
  if (fault?.kind === "truncate") {
    const [head = new Uint8Array(1)] = chunksOf(body, Math.max(1, fault.afterBytes));
    response.write(head, () => response.destroy());
    return;
  }
  if (fault === undefined && (typeof body === "string" || body instanceof Uint8Array)) {
    response.end(body);
    return;
  }
  const everyMs = fault?.everyMs ?? 0;
  const pieces = slowly(chunksOf(body, fault?.chunkBytes ?? chunkBytes), everyMs);
  await pipeline(Readable.from(pieces, { objectMode: false }), response).catch(() => undefined);
}

function* chunksOf(body: AnswerBody, size: number): Generator<Uint8Array> {
  const total = bodySize(body);
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  const zeros = bytes instanceof Uint8Array ? undefined : new Uint8Array(Math.min(size, total, chunkBytes));
  for (let at = 0; at < total; at += zeros?.byteLength ?? size) {
    if (bytes instanceof Uint8Array) yield bytes.subarray(at, at + size);
    else if (zeros !== undefined) yield zeros.subarray(0, total - at);
  }
}

async function* slowly(chunks: Iterable<Uint8Array>, everyMs: number): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) {
    yield chunk;
    if (everyMs > 0) await wait(everyMs, undefined, { ref: false });
  }
}
