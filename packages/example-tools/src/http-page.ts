import type { IncomingMessage, RequestOptions } from "node:http";
import { createBrotliDecompress, createInflate, createGunzip } from "node:zlib";
import { pipeline, type Duplex, type Readable } from "node:stream";
import { lookupOf, pinnedAddresses, type AddressPolicy } from "@larkline/sandbox/egress";

/** A response after all redirects. */
export interface HttpPage {
  url: URL;
  status: number;
  contentType: string;
  body: Buffer;
  /** The body was longer than allowed; only its beginning is here. */
  truncated: boolean;
}

export interface HttpPageRequest {
  policy: AddressPolicy;
  signal: AbortSignal;
  maxBytes: number;
}

const maxRedirects = 5;
const maxUrlCharacters = 2_048;
const redirectStatus = new Set([301, 302, 303, 307, 308]);
const decoders: Record<string, () => Duplex> = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

function checkedUrl(text: string, base?: URL): URL {
  const url = URL.parse(text, base?.href);
  if (url === null || text.length > maxUrlCharacters) throw new Error("not a valid URL");
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new Error(`only http and https pages, not ${url.protocol}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new Error("URLs with a user name or password are refused");
  }
  return url;
}

async function send(url: URL, request: HttpPageRequest): Promise<IncomingMessage> {
  const addresses = await pinnedAddresses(url.hostname, request.policy);
  const options: RequestOptions = {
    // No shared connections: a kept-alive socket would have skipped the address check.
    agent: false,
    lookup: lookupOf(addresses),
    signal: request.signal,
    maxHeaderSize: 16_384,
    headers: {
      "user-agent": "larkline-fetch-page/0.1",
      accept: "text/html, text/plain;q=0.9, application/json;q=0.9, */*;q=0.1",
      "accept-encoding": "gzip, br",
    },
  };
  // With the first page: an `import` of them would load all of Node's client, 20 MB in each process that may fetch one.
  const { request: open } =
    url.protocol === "https:"
      ? process.getBuiltinModule("node:https")
      : process.getBuiltinModule("node:http");
  return await new Promise((resolve, reject) => {
    const outgoing = open(url, options, resolve);
    outgoing.on("error", reject);
    outgoing.end();
  });
}

function decoded(response: IncomingMessage): Readable {
  const encoding = (response.headers["content-encoding"] ?? "identity").trim().toLowerCase();
  if (encoding === "identity" || encoding === "") return response;
  const decoder = Object.hasOwn(decoders, encoding) ? decoders[encoding] : undefined;
  if (decoder === undefined) {
    throw new Error(`the page uses an unknown content encoding ${JSON.stringify(encoding)}`);
  }
  // Errors of either side destroy the other and reach the reader of the result.
  return pipeline(response, decoder(), () => {});
}

/** Reads up to `maxBytes` after decompression, so that a small bomb stays small. */
async function readBody(
  response: IncomingMessage,
  maxBytes: number,
): Promise<{ body: Buffer; truncated: boolean }> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of decoded(response)) {
    const bytes = Buffer.from(chunk as Uint8Array); // streams without encoding yield bytes
    chunks.push(bytes);
    size += bytes.length;
    if (size > maxBytes) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, maxBytes), truncated: size > maxBytes };
}

function siteOf({ hostname }: URL): string {
  return hostname.replace(/^www\./, "");
}

/**
 * Gets a page, following at most 5 redirects by hand: each address is checked and pinned anew. A redirect to another
 * host is reported and not followed: whether that one may be reached is judged like any call. Rejects with a reason for
 * the model.
 */
export async function getPage(start: string, request: HttpPageRequest): Promise<HttpPage> {
  let url = checkedUrl(start);
  for (let hop = 0; hop <= maxRedirects; hop += 1) {
    request.signal.throwIfAborted();
    const response = await send(url, request);
    try {
      const { location } = response.headers;
      const status = response.statusCode ?? 0;
      if (redirectStatus.has(status) && location !== undefined) {
        const target = checkedUrl(location, url);
        // With or without `www.`: who let the call reach the one has let it reach the other.
        if (siteOf(target) !== siteOf(url)) {
          throw new Error(`the page redirects to another host: ${target.href}`);
        }
        url = target;
        continue;
      }
      const body = await readBody(response, request.maxBytes);
      return { url, status, contentType: response.headers["content-type"] ?? "", ...body };
    } finally {
      response.destroy();
    }
  }
  throw new Error(`more than ${maxRedirects} redirects`);
}
