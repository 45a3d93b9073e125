import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { pause, type Clock } from "@larkline/protocol/clock";

/** What happens to a matched call. Times are milliseconds. */
export type FaultAction =
  /** Answers at once; the call is not applied. Without a body: `{code: status, msg}`. */
  | { kind: "respond"; status: number; body?: unknown; headers?: Record<string, string> }
  /** Never answers; the call is not applied. */
  | { kind: "hang" }
  /** Applies the call, that much later. */
  | { kind: "delay"; delayMs: number }
  /** Applies the call as soon as that has settled. */
  | { kind: "hold"; until: Promise<unknown> }
  /** Applies the call, then cuts the connection instead of answering. */
  | { kind: "lose_response" }
  /** Cuts the connection; the call is not applied. */
  | { kind: "drop" }
  /** Applies the call, then sends the answer's body in small pieces with a wait after each. */
  | { kind: "trickle"; chunkBytes: number; everyMs: number }
  /** Applies the call, announces the whole length, and cuts the connection after that much of the body (at least 1). */
  | { kind: "truncate"; afterBytes: number }
  /** Answers 200 with a body of zeros and without a length; the call is not applied. Without a size it never ends. */
  | { kind: "flood"; sizeBytes?: number };

export interface Fault {
  match?: {
    method?: string;
    /** A prefix of the path, or an expression tested against it. */
    path?: string | RegExp;
  };
  /** How many calls are hit; without it, all until `clear`. */
  times?: number;
  action: FaultAction;
}

/** Faults of the open API, first match first. */
export interface FaultTable {
  /** Adds a fault; the result removes it. */
  add(fault: Fault): () => void;
  clear(): void;
  /** How many faults are armed. */
  readonly size: number;
}

export interface FaultSource extends FaultTable {
  take(method: string, path: string): FaultAction | undefined;
}

export function createFaultTable(): FaultSource {
  let faults: { fault: Fault; left: number }[] = [];
  return {
    add(fault) {
      const entry = { fault, left: fault.times ?? Number.POSITIVE_INFINITY };
      faults.push(entry);
      return () => {
        faults = faults.filter((candidate) => candidate !== entry);
      };
    },
    clear() {
      faults = [];
    },
    get size() {
      return faults.length;
    },
    take(method, path) {
      if (faults.length === 0) return undefined;
      const entry = faults.find(({ fault }) => matches(fault, method, path));
      if (entry === undefined) return undefined;
      entry.left -= 1;
      if (entry.left <= 0) faults = faults.filter((candidate) => candidate !== entry);
      return entry.fault.action;
    },
  };
}

function matches({ match }: Fault, method: string, path: string): boolean {
  if (match?.method !== undefined && match.method.toUpperCase() !== method) return false;
  if (match?.path === undefined) return true;
  return typeof match.path === "string" ? path.startsWith(match.path) : match.path.test(path);
}

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
export async function sendBody(
  clock: Clock,
  response: ServerResponse,
  body: AnswerBody,
  fault?: BodyFault,
): Promise<void> {
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
  const pieces = slowly(clock, chunksOf(body, fault?.chunkBytes ?? chunkBytes), everyMs);
  await pipeline(Readable.from(pieces, { objectMode: false }), response).catch(() => undefined);
}

function* chunksOf(body: AnswerBody, size: number): Generator<Uint8Array> {
  const total = bodySize(body);
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  const zeros =
    bytes instanceof Uint8Array ? undefined : new Uint8Array(Math.min(size, total, chunkBytes));
  for (let at = 0; at < total; at += zeros?.byteLength ?? size) {
    if (bytes instanceof Uint8Array) yield bytes.subarray(at, at + size);
    else if (zeros !== undefined) yield zeros.subarray(0, total - at);
  }
}

async function* slowly(
  clock: Clock,
  chunks: Iterable<Uint8Array>,
  everyMs: number,
): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) {
    yield chunk;
    if (everyMs > 0) await pause(clock, everyMs);
  }
}
