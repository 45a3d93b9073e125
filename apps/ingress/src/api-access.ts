import { BlockList, isIPv6 } from "node:net";
import { apiApp, type SessionKey } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import type { FastifyInstance } from "fastify";
import { needsCredentials, personOf, type CallerRules } from "./callers.ts";
import type { RefusedRequest } from "./refusal-log.ts";
import type { Services } from "./services.ts";

// Who may use the HTTP API, and how its requests are read.

declare module "fastify" {
  interface FastifyRequest {
    /** The person as whom a caller of the HTTP API acts, see `personOf`. */
    caller: string;
  }
}

/**
 * Refuses requests of a scope from callers that may not use the HTTP API, and logs them with `logRefused`. Also refuses
 * requests beyond a caller's limit.
 */
export function guardApi(
  scope: FastifyInstance,
  { clock, config, requestLimits }: Services,
  logRefused: (refused: RefusedRequest) => void,
): void {
  const { callers, corsOrigins } = config.api;
  scope.decorateRequest("caller", "");
  scope.addHook("onRequest", async (request, reply) => {
    const { host, origin, authorization } = request.headers;
    const isCrossSite = request.headers["sec-fetch-site"] === "cross-site";
    const headerNames = Object.keys(request.headers);
    const caller = {
      address: request.socket.remoteAddress ?? "",
      host,
      origin,
      authorization,
      headerNames,
      isCrossSite,
    };
    const access = needsCredentials(callers)
      ? await withCredentials(caller, callers, clock)
      : withoutCredentials(caller, corsOrigins);
    if (access.allowed) {
      request.caller = access.person;
      const waitSeconds = await requestLimits.take(access.person);
      if (waitSeconds === 0) return undefined;
      return await reply
        .code(429)
        .header("retry-after", `${waitSeconds}`)
        .send({ error: "too many requests" });
    }
    const { status, reason } = access;
    logRefused({ status, reason, address: request.ip });
    if (status === 401) reply.header("www-authenticate", "Bearer");
    return await reply.code(status).send({ error: reason });
  });
}

/** What a request says about its caller. */
interface Caller {
  /** Address of the socket; headers that proxies add are not believed. */
  address: string;
  host: string | undefined;
  origin: string | undefined;
  authorization: string | undefined;
  /** Names of the headers of the request, and whether a browser says that another site's page made it. */
  headerNames: readonly string[];
  isCrossSite: boolean;
}

type Access =
  | { allowed: true; person: string }
  | { allowed: false; status: 401 | 403; reason: string };

/** Every caller with a credential, from any origin: a page of another site cannot know it. */
async function withCredentials(
  { authorization }: Caller,
  rules: CallerRules,
  clock: Clock,
): Promise<Access> {
  const given = /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1] ?? "";
  const person = await personOf(rules, given, clock);
  if (person === undefined) {
    return { allowed: false, status: 401, reason: "wrong or missing token" };
  }
  return { allowed: true, person };
}

const proxyHeader = /^(?:forwarded|via|x-forwarded(?:-.*)?|x-real-ip)$/;

/**
 * Without credentials the network is the only guard, so what a proxy on the same machine passes on is refused, and so
 * are two tricks of web pages that run there: DNS rebinding (the Host header then names the attacker's domain) and plain
 * cross-origin requests (the Origin header does, or Sec-Fetch-Site where a request has no Origin), although CORS
 * preflights succeed.
 */
function withoutCredentials(caller: Caller, corsOrigins: "*" | readonly string[]): Access {
  const allowed = { allowed: true, person: apiApp } as const;
  if (!isLoopbackAddress(caller.address)) {
    return refused("without API_TOKEN only clients on loopback are served");
  }
  if (!isLoopbackUrl(`http://${caller.host ?? ""}`)) {
    return refused("the Host header does not name loopback");
  }
  // A proxy on the same machine connects from loopback, wherever its clients are.
  const proxied = caller.headerNames.find((name) => proxyHeader.test(name));
  if (proxied !== undefined) {
    return refused(`requests that a proxy passes on (${proxied}) need API_TOKEN`);
  }
  const { origin } = caller;
  if (origin !== undefined && corsOrigins !== "*" && corsOrigins.includes(origin)) return allowed;
  if ((origin === undefined || isLoopbackUrl(origin)) && !caller.isCrossSite) return allowed;
  return refused("pages of other origins need API_TOKEN, or their origin in API_CORS_ORIGINS");
}

function refused(reason: string): Access {
  return { allowed: false, status: 403, reason };
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

function isLoopbackAddress(address: string): boolean {
  const plain = address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
  return loopback.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
}

function isLoopbackUrl(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const name = new URL(url).hostname.replace(/^\[(.*)\]$/, "$1");
  return name === "localhost" || name.endsWith(".localhost") || isLoopbackAddress(name);
}

/** Whether a session is the caller's, or belongs to no one yet. */
export async function isTheirs(
  { store }: Services,
  session: SessionKey,
  caller: string,
): Promise<boolean> {
  const owner = await store.ownerOf(session);
  return owner === undefined || owner === caller;
}

/** Which part of a list a request wants: entries `from` on, `size` of them at most. */
export interface Page {
  from: number;
  size: number;
}

/** The page that `after` (the `next` of an answer before) and `limit` ask for, or which of them is wrong. */
export function pageIn(
  { after = "0", limit }: Record<string, unknown>,
  { usual, most }: { usual: number; most: number },
): Page | { error: string } {
  const from = numberIn(after, Number.MAX_SAFE_INTEGER);
  const size = numberIn(limit ?? `${usual}`, most);
  if (from === undefined) return { error: "after: must be a `next` of an answer before" };
  if (size === undefined || size === 0) {
    return { error: `limit: must be a number from 1 to ${most}` };
  }
  return { from, size };
}

function numberIn(text: unknown, most: number): number | undefined {
  if (typeof text !== "string" || !/^\d{1,15}$/.test(text)) return undefined;
  return Number(text) <= most ? Number(text) : undefined;
}

/** How long a run or session may take to be read. */
export const readDeadlineMs = 8_000;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The text of a body that was left as bytes; undefined when it is not UTF-8. */
export function bodyText(body: unknown): string | undefined {
  try {
    return body instanceof Uint8Array ? utf8.decode(body) : "";
  } catch {
    return undefined;
  }
}

/** Whether a text can be the id of a session of the API. */
export function isSessionId(text: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(text);
}
