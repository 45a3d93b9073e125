import cookie from "@fastify/cookie";
import csrfProtection from "@fastify/csrf-protection";
import helmet, { type FastifyHelmetOptions } from "@fastify/helmet";
import { withDeadline } from "@larkline/protocol/clock";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { isLoopbackAddress, isLoopbackHost } from "./config.ts";
import { boardPath } from "./queue-board.ts";
import type { Services } from "./services.ts";
import { redisDeadlineMs, tokenCookie } from "./sign-in.ts";
import { localVisitor, type Visitor } from "./sign-ins.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Who makes the request; null on open paths. Its name and its `_csrf` are what @fastify/csrf-protection reads. */
    session: Visitor | null;
  }
}

export interface Refusal {
  status: 401 | 403;
  reason: "sign_in" | "not_local" | "foreign" | "viewer";
}

/** Says no in a way that a person can read. */
export type Refuse = (
  request: FastifyRequest,
  reply: FastifyReply,
  refusal: Refusal,
) => Promise<unknown>;

/** For programs that watch the process, and what the sign-in page itself needs. */
const openPaths = new Set(["/health", "/ready", "/metrics", "/style.css", "/sign-in"]);

/** What a viewer may change all the same: that they are signed in. */
const ownPaths = new Set(["/sign-out"]);

/**
 * Admits only visitors who have signed in, lets only operators change something, and only with the token of a
 * page of ours. To be called before routes are added: it holds for all of them.
 */
export async function guard(
  server: FastifyInstance,
  services: Services,
  refuse: Refuse,
): Promise<void> {
  await server.register(cookie, {
    parseOptions: { path: "/", sameSite: "strict", httpOnly: true },
  });
  await sendSecurityHeaders(server);
  // The secret belongs to the sign-in: `@fastify/session` here only means that it is read from `request.session`.
  await server.register(csrfProtection, { sessionPlugin: "@fastify/session", getToken: sentToken });
  server.decorateRequest("session", null);
  const local = localVisitor();

  server.addHook("onRequest", async (request, reply) => {
    const path = pathOf(request);
    if (services.signIns === undefined && !isLocal(request) && !openPaths.has(path)) {
      return await refuse(request, reply, { status: 403, reason: "not_local" });
    }
    if (openPaths.has(path)) return undefined;
    const visitor = services.signIns === undefined ? local : await signedIn(services, request);
    if (visitor === undefined) {
      return await refuse(request, reply, { status: 401, reason: "sign_in" });
    }
    request.session = visitor;
    return undefined;
  });

  // The other hooks run after the body is read, which may hold the token.
  server.addHook("preHandler", async (request, reply) =>
    isChange(request) && isForeign(request)
      ? await refuse(request, reply, { status: 403, reason: "foreign" })
      : undefined,
  );
  server.addHook("preHandler", (request, reply, done) => {
    if (isChange(request) && !openPaths.has(pathOf(request))) {
      server.csrfProtection(request, reply, done);
    } else done();
  });
  server.addHook("preHandler", async (request, reply) => {
    const isAllowed = request.session?.role === "operator" || ownPaths.has(pathOf(request));
    if (!isChange(request) || openPaths.has(pathOf(request)) || isAllowed) return undefined;
    return await refuse(request, reply, { status: 403, reason: "viewer" });
  });
}

async function signedIn(
  { clock, signIns }: Services,
  { cookies }: FastifyRequest,
): Promise<Visitor | undefined> {
  const token = cookies[tokenCookie];
  return token === undefined
    ? undefined
    : await withDeadline(clock, signIns?.find(token) ?? none, redisDeadlineMs);
}

const none = Promise.resolve(undefined);

function pathOf({ url }: FastifyRequest): string {
  return url.split("?", 1)[0] ?? "";
}

function isChange({ method }: FastifyRequest): boolean {
  return method !== "GET" && method !== "HEAD";
}

const proxyHeader = /^(?:forwarded|via|x-forwarded(?:-.*)?|x-real-ip)$/;

/**
 * Without passwords the network is the only guard; a page of any site could name this machine, too. A proxy
 * on it looks like a local client, although its own clients may be elsewhere.
 */
function isLocal({ socket, headers }: FastifyRequest): boolean {
  if (Object.keys(headers).some((name) => proxyHeader.test(name))) return false;
  const host = URL.canParse(`http://${headers.host ?? ""}`)
    ? new URL(`http://${headers.host ?? ""}`).hostname
    : "";
  return isLoopbackAddress(socket.remoteAddress ?? "") && isLoopbackHost(host);
}

/**
 * Whether a request may come from a page of another site. Browsers say where a request comes from; what
 * is no browser carries no cookies that it does not own.
 */
function isForeign({ headers }: FastifyRequest): boolean {
  const site = headers["sec-fetch-site"];
  if (site !== undefined) return site !== "same-origin" && site !== "none";
  const { origin } = headers;
  if (origin === undefined) return false;
  const hosts = [headers.host, headers["x-forwarded-host"]];
  return !URL.canParse(origin) || !hosts.includes(new URL(origin).host);
}

/** The token of a page: Bull Board's scripts send it as a header, our own pages as a field of their forms. */
function sentToken({ headers, body }: FastifyRequest): string {
  const header = headers["x-xsrf-token"];
  if (typeof header === "string") return header;
  return body instanceof URLSearchParams ? (body.get("csrf") ?? "") : "";
}

/** Our own pages hold no scripts at all. */
const pagePolicy = {
  useDefaults: false,
  directives: {
    "default-src": ["'none'"],
    "style-src": ["'self'"],
    "img-src": ["'self'", "data:"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
  },
};

/** Bull Board brings scripts, workers and styles of its own. */
const boardPolicy = {
  useDefaults: false,
  directives: {
    "default-src": ["'self'"],
    "script-src": ["'self'"],
    "style-src": ["'self'", "'unsafe-inline'"],
    "img-src": ["'self'", "data:"],
    "font-src": ["'self'"],
    "worker-src": ["'self'", "blob:"],
    "object-src": ["'none'"],
    "form-action": ["'self'"],
    "base-uri": ["'self'"],
    "frame-ancestors": ["'none'"],
  },
};

const headers: FastifyHelmetOptions = {
  contentSecurityPolicy: pagePolicy,
  referrerPolicy: { policy: "same-origin" },
  frameguard: { action: "deny" },
  // The console is also served by plain http, and its host may serve others that are not ours to force to https.
  strictTransportSecurity: false,
};

/** Headers for browsers: pages load nothing from elsewhere, run in no frame of others, and are not cached. */
async function sendSecurityHeaders(server: FastifyInstance): Promise<void> {
  await server.register(helmet, headers);
  server.addHook("onRequest", async ({ url }, reply) => {
    reply.header("cache-control", "no-store");
    const isBoard =
      url === boardPath || url.startsWith(`${boardPath}/`) || url.startsWith(`${boardPath}?`);
    if (isBoard) reply.helmet({ ...headers, contentSecurityPolicy: boardPolicy });
  });
}
