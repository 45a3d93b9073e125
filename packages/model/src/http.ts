import type { IncomingMessage, request as sendRequest, RequestOptions } from "node:http";
import { systemClock } from "@larkline/protocol/clock";

// The HTTP client below the vendors' SDKs, the events of a streamed answer, and the fields of what they hold.

const maxTextBytes = 1_000_000;

/** The part of a `Response` that the vendors' SDKs use. */
class HttpResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly headers: ResponseHeaders;
  readonly url: string;
  readonly body: AsyncIterable<Uint8Array>;
  readonly #incoming: IncomingMessage;

  constructor(incoming: IncomingMessage, url: string) {
    this.status = incoming.statusCode ?? 0;
    this.ok = this.status >= 200 && this.status < 300;
    this.statusText = incoming.statusMessage ?? "";
    this.headers = new ResponseHeaders(incoming.headers);
    this.url = url;
    this.body = piecesOf(incoming);
    this.#incoming = incoming;
  }

  /** The SDKs read the bodies of refusals with it: an endless one is cut, and its connection closed. */
  async text(): Promise<string> {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of this.body) {
      pieces.push(piece);
      bytes += piece.length;
      if (bytes > maxTextBytes) break;
    }
    if (bytes > maxTextBytes) this.#incoming.destroy();
    return Buffer.concat(pieces).subarray(0, maxTextBytes).toString("utf8");
  }

  async json(): Promise<unknown> {
    return JSON.parse(await this.text());
  }
}

/** The part of `Headers` that the SDKs use: the platform's own costs more than the rest of the response's head. */
class ResponseHeaders {
  readonly #fields: IncomingMessage["headers"];

  constructor(fields: IncomingMessage["headers"]) {
    this.#fields = fields;
  }

  get(name: string): string | null {
    return textOf(this.#fields[name.toLowerCase()]) ?? null;
  }

  *entries(): Generator<[name: string, value: string]> {
    for (const [name, value] of Object.entries(this.#fields)) yield [name, textOf(value) ?? ""];
  }

  [Symbol.iterator](): Generator<[name: string, value: string]> {
    return this.entries();
  }
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}

/** A body in pieces: text, and bytes that are kept from one request to the next. */
class PiecedBody {
  readonly pieces: readonly [string, Buffer];

  constructor(...pieces: [string, Buffer]) {
    this.pieces = pieces;
  }
}

export type SentBody = NonNullable<RequestInit["body"]>;

/** Tools that were offered together, and how a request ends that offers them. By the first of them. */
const offers = new WeakMap<object, { tools: readonly unknown[]; end: Buffer }[]>();

/** So many offers that begin with the same tool are kept: agents have different ones. */
const maxOffers = 8;

/**
 * The JSON of a request, for {@link httpFetch} alone: with its tools at the end. Every step offers the same tools, which are
 * often the longest part of a request, so their bytes are kept for as long as the tools are: the objects must not change.
 */
export function jsonBody(request: object): SentBody {
  const { tools, ...others } = request as { tools?: unknown }; // any object may have one
  const first: unknown = Array.isArray(tools) ? tools[0] : undefined;
  if (!Array.isArray(tools) || typeof first !== "object" || first === null) {
    return JSON.stringify(request);
  }
  const text = JSON.stringify(others);
  if (text === "{}") return JSON.stringify(request);
  const known = offers.get(first) ?? [];
  let offer = known.find(
    (one) => one.tools.length === tools.length && one.tools.every((tool, at) => tool === tools[at]),
  );
  if (offer === undefined) {
    offer = { tools: [...tools], end: Buffer.from(`,"tools":${JSON.stringify(tools)}}`) };
    offers.set(first, [offer, ...known].slice(0, maxOffers));
  }
  return new PiecedBody(text.slice(0, -1), offer.end) as unknown as SentBody; // what `httpFetch` takes
}

/**
 * A `fetch` for the vendors' SDKs over Node's own HTTP client and its kept-alive connections: text
 * bodies and those of {@link jsonBody} only, redirects are not followed. A short streamed answer costs a quarter less processor time
 * than with the global `fetch`, whose web streams are the larger part of a call.
 */
export const httpFetch: typeof fetch = async (input, init = {}) => {
  const url = new URL(input instanceof Request ? input.url : input);
  const response = await send(url, init);
  return response as unknown as Response; // the SDKs use no more of it than HttpResponse has
};

/** One event of a `text/event-stream`. */
export interface ServerEvent {
  /** Empty when the server did not name it. */
  event: string;
  data: string;
}

class PendingEvent {
  #event = "";
  readonly #data: string[] = [];
  chars = 0;

  /** The event, when this line ends it. */
  take(given: string): ServerEvent | undefined {
    const line = given.endsWith("\r") ? given.slice(0, -1) : given;
    if (line === "") {
      return this.#data.length === 0
        ? undefined
        : { event: this.#event, data: this.#data.join("\n") };
    }
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") this.#event = value;
    if (name !== "data") return undefined;
    this.#data.push(value);
    this.chars += value.length;
    return undefined;
  }
}

/** A body as `httpFetch` or a `fetch` of the platform gives it. */
type Body = AsyncIterable<Uint8Array>;

/** Longer than any event of a vendor: the last one of a Responses stream repeats the whole answer. */
const maxEventChars = 16_000_000;

/**
 * Reads the events of a response. `alive` is called for every piece of the body, so that pings and comments, which
 * are no events, show that the vendor is alive. Throws when the body breaks off, or when one event is larger than 16
 * million characters. Comments and unknown fields are skipped.
 */
export async function* serverEvents(
  response: Response,
  alive: () => void,
): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let rest = "";
  let searched = 0;
  let next = new PendingEvent();
  for await (const piece of response.body as Body) {
    alive();
    rest += decoder.decode(piece, { stream: true });
    let start = 0;
    for (let end = rest.indexOf("\n", searched); end !== -1; end = rest.indexOf("\n", start)) {
      const complete = next.take(rest.slice(start, end));
      start = end + 1;
      if (complete === undefined) continue;
      next = new PendingEvent();
      yield complete;
    }
    rest = rest.slice(start);
    searched = rest.length;
    if (rest.length + next.chars > maxEventChars) {
      throw new RangeError("An event of the stream is too large.");
    }
  }
  // Some servers leave out the empty line behind the last event.
  next.take(rest);
  const last = next.take("");
  if (last !== undefined) yield last;
}

/** The body as it arrives. */
async function* piecesOf(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of incoming.iterator({ destroyOnReturn: false })) yield piece;
  } finally {
    drain(incoming);
  }
}

/** What may follow after the reader has left, before the connection is closed. */
const maxRestBytes = 65_536;

const maxRestMs = 1_000;

/** Reads the rest of a body away, so that the connection can be used again; an endless rest closes it. */
function drain(incoming: IncomingMessage): void {
  if (incoming.complete || incoming.destroyed) return void incoming.resume();
  let bytes = 0;
  incoming.on("data", (piece: Uint8Array) => {
    bytes += piece.length;
    if (bytes > maxRestBytes) incoming.destroy();
  });
  incoming.once(
    "close",
    systemClock.after(maxRestMs, () => incoming.destroy()),
  );
}

// Loaded with the first request: that takes a fifth of the time in which an embedded engine starts. Each import of what
// is loaded already would still cost 6 microseconds.
let http: Promise<HttpModule> | undefined;
let https: Promise<HttpModule> | undefined;

interface HttpModule {
  request: typeof sendRequest;
}

async function send(url: URL, init: RequestInit): Promise<HttpResponse> {
  const { signal } = init;
  const { request } = await (url.protocol === "https:"
    ? (https ??= import("node:https"))
    : (http ??= import("node:http")));
  signal?.throwIfAborted();
  const given: unknown = init.body;
  const [text, end] = given instanceof PiecedBody ? given.pieces : [given];
  const body = typeof text === "string" ? text : "";
  const bytes = Buffer.byteLength(body) + (end?.byteLength ?? 0);
  return await new Promise((resolve, reject) => {
    const outgoing = request(url, optionsOf(url, init, bytes));
    let incoming: IncomingMessage | undefined;
    const stop = () => {
      if (signal === undefined || signal === null) return;
      if (incoming === undefined) outgoing.destroy(reasonOf(signal));
      // After a complete answer the connection belongs to the pool, perhaps to another request.
      else if (!incoming.complete) incoming.destroy(reasonOf(signal));
    };
    signal?.addEventListener("abort", stop, { once: true });
    outgoing.on("error", reject);
    outgoing.on("response", (response) => {
      incoming = response;
      // The reader of the body sees the error; without a reader the error must not end the process.
      response.on("error", () => {});
      response.on("close", () => signal?.removeEventListener("abort", stop));
      resolve(new HttpResponse(response, url.href));
    });
    if (end === undefined) return void outgoing.end(body);
    outgoing.cork();
    outgoing.write(body);
    outgoing.end(end);
  });
}

/** Headers go as a list, which Node's client writes as it is. */
function optionsOf(url: URL, init: RequestInit, bytes: number): RequestOptions {
  const given = init.headers instanceof Headers ? init.headers : new Headers(init.headers);
  const headers = [...listOf(given), "host", url.host, "content-length", String(bytes)];
  return { method: init.method ?? "GET", headers };
}

const known = new WeakMap<Headers, readonly string[]>();

/** Names and values. Read once: who gives the same headers again must not have changed them. */
function listOf(given: Headers): readonly string[] {
  const read = known.get(given) ?? [...given].flat();
  known.set(given, read);
  return read;
}

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("The request was aborted.");
}

// Reads what vendors and servers compatible with them send, field by field. Their types are a promise that some of them
// break: any field may be missing or hold any JSON value. What is of no use counts as absent.

export type JsonObject = Record<string, unknown>;

/** The value as an object; undefined for everything else, lists included. */
export function asObject(value: unknown): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : undefined;
}

export function fieldIn(value: unknown, name: string): unknown {
  const object = asObject(value);
  return object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;
}

export function objectIn(value: unknown, name: string): JsonObject | undefined {
  return asObject(fieldIn(value, name));
}

/** Empty where there is no text. */
export function textIn(value: unknown, name: string): string {
  const field = fieldIn(value, name);
  return typeof field === "string" ? field : "";
}

export function listIn(value: unknown, name: string): unknown[] {
  const field = fieldIn(value, name);
  return Array.isArray(field) ? field : [];
}

/** A number of things, such as tokens. */
export function countIn(value: unknown, name: string): number | undefined {
  const field = fieldIn(value, name);
  return typeof field === "number" && field >= 0 && field <= Number.MAX_SAFE_INTEGER
    ? Math.trunc(field)
    : undefined;
}

/** The number of a block, call or item in its answer. */
export function indexIn(value: unknown, name: string): number | undefined {
  const field = fieldIn(value, name);
  return Number.isSafeInteger(field) && Number(field) >= 0 ? Number(field) : undefined;
}

/** Text that some servers send as a list of parts; parts without text count as nothing. */
export function partsTextIn(value: unknown, name: string): string {
  const field = fieldIn(value, name);
  if (typeof field === "string") return field;
  const parts = Array.isArray(field) ? field : [field];
  return parts.map((part) => (typeof part === "string" ? part : textIn(part, "text"))).join("");
}

/** What a text cites of the web, as its part keeps it: a list of `{url, title}` as JSON text. */
export function keptCitations(citations: readonly unknown[]): Record<string, string> {
  const kept = citations
    .slice(0, maxCitations)
    .map((one) => ({ url: textIn(one, "url"), title: textIn(one, "title") }));
  const found = kept.filter(({ url }) => url !== "");
  return found.length === 0 ? {} : { citations: JSON.stringify(found) };
}

/** Most places that one text cites. */
export const maxCitations = 100;

/** What a piece costs besides its text: many empty ones must not be free. */
const pieceCharacters = 64;
const maxHeldCharacters = 4_000_000;

/** Counts what a reader keeps of a stream without giving it on: blocks of vendors' tools, signatures, citations. */
export class HeldBack {
  #characters = 0;

  /** Throws when it is too much. */
  add(characters: number): void {
    this.#characters += pieceCharacters + characters;
    if (this.#characters > maxHeldCharacters) {
      throw new RangeError(
        `the answer has more than ${maxHeldCharacters} characters that say nothing`,
      );
    }
  }
}

/** JSON text that some servers send as the value itself. */
export function jsonTextIn(value: unknown, name: string): string {
  const field = fieldIn(value, name) ?? "";
  return typeof field === "string" ? field : JSON.stringify(field);
}
