import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { cookieOf } from "./cookie.ts";
import { withDeadline } from "./deadline.ts";
import { isLoopbackAddress, isLoopbackHost } from "./loopback.ts";
import { isSame, localVisitor, type SignIns, type Visitor } from "./sign-ins.ts";

export interface GuardDeps {
  /** Absent: there are no passwords, and only this machine is served. */
  signIns: SignIns | undefined;
  deadlineMs: number;
  /** Says no in a way that a person can read. */
  refuse(request: FastifyRequest, reply: FastifyReply, refusal: Refusal): unknown;
}

export interface Refusal {
  status: 401 | 403;
  reason: "sign_in" | "not_local" | "foreign" | "viewer";
}

/** Who makes a request; only where the guard has let it through. */
export type Visitors = (request: FastifyRequest) => Visitor;

/** The cookie that holds the token of a sign-in. */
export const tokenCookie = "larkline_console";

/** The cookie of a browser that a person has signed in with: it opens nothing, but its tries are counted apart. */
export const browserCookie = "larkline_browser";

/** Field of a form, and header of a script, that carry {@link Visitor.csrf}. */
const csrfField = "csrf";
const csrfHeader = "x-xsrf-token";

/** For programs that watch the process, and what the sign-in page itself needs. */
const openPaths = new Set(["/health", "/ready", "/metrics", "/style.css", "/sign-in"]);

/** What a viewer may change all the same: that they are signed in. */
const ownPaths = new Set(["/sign-out"]);

function pathOf({ url }: FastifyRequest): string {
  return url.split("?", 1)[0] ?? "";
}

function isChange({ method }: FastifyRequest): boolean {
  return method !== "GET" && method !== "HEAD";
}

/**
 * Whether a request may come from a page of another site. Browsers say where a request comes from; what
 * is no browser carries no cookies that it does not own.
 */
export function isForeign({ headers }: Pick<FastifyRequest, "headers">): boolean {
  const site = headers["sec-fetch-site"];
  if (site !== undefined) return site !== "same-origin" && site !== "none";
  const { origin } = headers;
  if (origin === undefined) return false;
  const hosts = [headers.host, headers["x-forwarded-host"]];
  return !URL.canParse(origin) || !hosts.includes(new URL(origin).host);
}

function sentCsrf({ headers, body }: FastifyRequest): string {
  const header = headers[csrfHeader];
  if (typeof header === "string") return header;
  return body instanceof URLSearchParams ? (body.get(csrfField) ?? "") : "";
}

const proxyHeader = /^(?:forwarded|via|x-forwarded(?:-.*)?|x-real-ip)$/;

/**
 * Without passwords the network is the only guard; a page of any site could name this machine, too. A proxy
 * on it looks like a local client, whomever it speaks for.
 */
function isLocal({ socket, headers }: FastifyRequest): boolean {
  if (Object.keys(headers).some((name) => proxyHeader.test(name))) return false;
  const host = URL.canParse(`http://${headers.host ?? ""}`) ? new URL(`http://${headers.host ?? ""}`).hostname : "";
  return isLoopbackAddress(socket.remoteAddress ?? "") && isLoopbackHost(host);
}

/**
 * Lets nobody through who is not signed in, no viewer to anything that changes something, and no such
 * request without its token. To be called before routes are added: it holds for all of them.
 */
export function guard(server: FastifyInstance, { signIns, deadlineMs, refuse }: GuardDeps): Visitors {
  const visitors = new WeakMap<FastifyRequest, Visitor>();
  const local = localVisitor();

  const visitorOf = async (request: FastifyRequest): Promise<Visitor | undefined> => {
    if (signIns === undefined) return local;
    const token = cookieOf(request, tokenCookie);
    return token === undefined ? undefined : await withDeadline(signIns.find(token), deadlineMs);
  };

  server.addHook("onRequest", async (request, reply) => {
    if (signIns === undefined && !isLocal(request) && !openPaths.has(pathOf(request))) {
      return await refuse(request, reply, { status: 403, reason: "not_local" });
    }
    if (openPaths.has(pathOf(request))) return undefined;
    const visitor = await visitorOf(request);
    if (visitor === undefined) return await refuse(request, reply, { status: 401, reason: "sign_in" });
    visitors.set(request, visitor);
    return undefined;
  });

  // After the body is read, which may hold the token.
  server.addHook("preHandler", async (request, reply) => {
    if (!isChange(request)) return undefined;
    if (isForeign(request)) return await refuse(request, reply, { status: 403, reason: "foreign" });
    if (openPaths.has(pathOf(request))) return undefined;
    const visitor = visitors.get(request);
    if (visitor === undefined || !isSame(sentCsrf(request), visitor.csrf)) {
      return await refuse(request, reply, { status: 403, reason: "foreign" });
    }
    if (visitor.role !== "operator" && !ownPaths.has(pathOf(request))) {
      return await refuse(request, reply, { status: 403, reason: "viewer" });
    }
    return undefined;
  });

  return (request) => {
    const visitor = visitors.get(request);
    if (visitor === undefined) throw new Error("the guard has not seen this request");
    return visitor;
  };
}
