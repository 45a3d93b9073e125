import { request as requestHttp, type IncomingMessage, type RequestOptions } from "node:http";
import { request as requestHttps } from "node:https";

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
  const timer = setTimeout(() => incoming.destroy(), maxRestMs);
  timer.unref();
  incoming.once("close", () => clearTimeout(timer));
}

/** The body as it arrives. */
async function* piecesOf(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of incoming.iterator({ destroyOnReturn: false })) yield piece;
  } finally {
    drain(incoming);
  }
}

function headersOf(incoming: IncomingMessage): Headers {
  const headers = new Headers();
  const { rawHeaders } = incoming;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) headers.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
  return headers;
}

const maxTextBytes = 1_000_000;

/** The part of a `Response` that the vendors' SDKs use. */
class HttpResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly headers: Headers;
  readonly url: string;
  readonly body: AsyncIterable<Uint8Array>;
  readonly #incoming: IncomingMessage;

  constructor(incoming: IncomingMessage, url: string) {
    this.status = incoming.statusCode ?? 0;
    this.ok = this.status >= 200 && this.status < 300;
    this.statusText = incoming.statusMessage ?? "";
    this.headers = headersOf(incoming);
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

function optionsOf(init: RequestInit, body: string): RequestOptions {
  const headers: Record<string, string | number> = { "content-length": Buffer.byteLength(body) };
  for (const [name, value] of new Headers(init.headers)) headers[name] = value;
  return { method: init.method ?? "GET", headers };
}

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("The request was aborted.");
}

async function send(url: URL, init: RequestInit): Promise<HttpResponse> {
  const { signal } = init;
  signal?.throwIfAborted();
  const body = typeof init.body === "string" ? init.body : "";
  return await new Promise((resolve, reject) => {
    const outgoing = (url.protocol === "https:" ? requestHttps : requestHttp)(url, optionsOf(init, body));
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
      // Whoever reads the body sees the error; when nobody does, it must not end the process.
      response.on("error", () => {});
      response.on("close", () => signal?.removeEventListener("abort", stop));
      resolve(new HttpResponse(response, url.href));
    });
    outgoing.end(body);
  });
}

/**
 * A `fetch` for the vendors' SDKs over Node's own HTTP client and its kept-alive connections: text
 * bodies only, redirects are not followed. A short streamed answer costs a quarter less processor time
 * than with the global `fetch`, whose web streams are the larger part of a call.
 */
export const httpFetch: typeof fetch = async (input, init = {}) => {
  const url = new URL(input instanceof Request ? input.url : input);
  const response = await send(url, init);
  return response as unknown as Response; // the SDKs use no more of it than HttpResponse has
};
