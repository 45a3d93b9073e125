/** What a peer wrote is not a frame, or not one that is taken. The reader is of no use afterwards. */
export class FrameError extends Error {
  override readonly name = "FrameError";
}

/** Bounds on what one peer may write. */
export interface FrameBounds {
  /** Bytes of one frame. Taken from its header, so that nothing is kept of a frame that is too large. */
  bytes: number;
  /** Frames in all. */
  frames: number;
}

const headerBytes = 4;
// Deeper nesting could overflow the stack of whatever walks over the value later.
const maxDepth = 64;

/** A JSON value as it goes over descriptor 3: its length in four bytes, little-endian, then UTF-8. Throws a TypeError for what is no JSON. */
export function encodeFrame(value: unknown): Buffer {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError("not a JSON value");
  const bytes = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(headerBytes + bytes);
  frame.writeUInt32LE(bytes, 0);
  frame.write(text, headerBytes);
  return frame;
}

/** The same, for a peer that reads with a {@link FrameReader}: throws a {@link FrameError} for what it would refuse as nested too deeply. */
export function encodeReadableFrame(value: unknown): Buffer {
  const frame = encodeFrame(value);
  refuseDepth(frame.subarray(headerBytes));
  return frame;
}

/** Takes in what a hostile peer writes; everything it returns is a plain JSON value of bounded size and depth. */
export class FrameReader {
  readonly #bounds: FrameBounds;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #bodyBytes: number | undefined;
  #frames = 0;

  constructor(bounds: FrameBounds) {
    this.#bounds = bounds;
  }

  /** The values of the frames that are complete now. Throws a {@link FrameError}. */
  push(chunk: Buffer): unknown[] {
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    const values: unknown[] = [];
    for (let body = this.#nextBody(); body !== undefined; body = this.#nextBody()) {
      values.push(parseUntrusted(body));
    }
    return values;
  }

  #nextBody(): Buffer | undefined {
    if (this.#bodyBytes === undefined) {
      if (this.#pendingBytes < headerBytes) return undefined;
      this.#bodyBytes = this.#take(headerBytes).readUInt32LE(0);
      this.#admit(this.#bodyBytes);
    }
    if (this.#pendingBytes < this.#bodyBytes) return undefined;
    const body = this.#take(this.#bodyBytes);
    this.#bodyBytes = undefined;
    return body;
  }

  #admit(bytes: number): void {
    this.#frames += 1;
    if (bytes > this.#bounds.bytes) {
      throw new FrameError(`a message of ${bytes} bytes; at most ${this.#bounds.bytes}`);
    }
    if (this.#frames > this.#bounds.frames) {
      throw new FrameError(`more than ${this.#bounds.frames} messages`);
    }
  }

  #take(bytes: number): Buffer {
    const [first] = this.#pending;
    const all = first !== undefined && first.length >= bytes ? first : Buffer.concat(this.#pending);
    const rest = all.subarray(bytes);
    this.#pending = all === first ? [rest, ...this.#pending.slice(1)] : [rest];
    this.#pendingBytes -= bytes;
    return all.subarray(0, bytes);
  }
}

/** Reads JSON of a hostile peer: bounded in depth, without the keys that change prototypes. Throws a {@link FrameError}. */
export function parseUntrusted(body: Buffer): unknown {
  refuseDepth(body);
  const text = body.toString("utf8");
  try {
    // A reviver makes parsing several times slower, so it is used only where one of the names may occur.
    return mayHoldPrototype.test(text)
      ? (JSON.parse(text, withoutPrototype) as unknown)
      : (JSON.parse(text) as unknown);
  } catch {
    throw new FrameError("a message that is not JSON");
  }
}

const mayHoldPrototype = /"(?:__proto__|constructor)"|\\u/;

/** Drops the keys that would change a prototype if the value were merged into another object. */
function withoutPrototype(key: string, value: unknown): unknown {
  if (key === "__proto__") return undefined;
  const isPrototypeCarrier = key === "constructor" && typeof value === "object" && value !== null;
  return isPrototypeCarrier && Object.hasOwn(value, "prototype") ? undefined : value;
}

const quote = 0x22;
const backslash = 0x5c;

function refuseDepth(body: Buffer): void {
  let depth = 0;
  for (let at = 0; at < body.length; at += 1) {
    const byte = body[at];
    if (byte === quote) at = endOfString(body, at + 1);
    else if (byte === 0x5b || byte === 0x7b) depth += 1;
    else if (byte === 0x5d || byte === 0x7d) depth -= 1;
    if (depth > maxDepth) throw new FrameError(`a message nested deeper than ${maxDepth}`);
  }
}

/** Where the string ends that has begun before `from`: its closing quote, or the end. */
function endOfString(body: Buffer, from: number): number {
  for (let at = from; at < body.length; at += 1) {
    if (body[at] === backslash) at += 1;
    else if (body[at] === quote) return at;
  }
  return body.length;
}

/* ---- Messages of a pool and its children ---- */

/** What the pool writes to a child. The body of a refused reply is the message for the handler. */
export type FrameToChild =
  | { kind: "call"; id: number; body: unknown }
  | { kind: "cancel"; id: number }
  | { kind: "reply"; id: number; request: number; ok: boolean; body: unknown };

/** What a child writes: `ready` once, then per call events and requests, and one result or error. */
export type FrameToPool =
  | { kind: "ready" }
  | { kind: "event"; id: number; body: unknown }
  | { kind: "request"; id: number; request: number; body: unknown }
  | { kind: "result"; id: number; body: unknown }
  | { kind: "error"; id: number; message: string };

/** For both directions; children are reused, so the number of frames has no bound. */
export const callFrameBounds: FrameBounds = {
  bytes: 32 * 1024 * 1024,
  frames: Number.MAX_SAFE_INTEGER,
};

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/** Reads what a child wrote; undefined for anything that is not in the protocol. */
export function frameFromChild(value: unknown): FrameToPool | undefined {
  if (!isRecord(value)) return undefined;
  const { kind, id, body = null, request, message } = value;
  if (kind === "ready") return { kind };
  if (typeof id !== "number") return undefined;
  if (kind === "event" || kind === "result") return { kind, id, body };
  if (kind === "request" && typeof request === "number") return { kind, id, request, body };
  if (kind === "error" && typeof message === "string") return { kind, id, message };
  return undefined;
}
