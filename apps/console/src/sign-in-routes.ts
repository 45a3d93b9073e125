import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { cookieOf, setCookie } from "./cookie.ts";
import { withDeadline } from "./deadline.ts";
import { browserCookie, tokenCookie } from "./guard.ts";
import { fieldOf, sendPage } from "./pages.ts";
import { isOwnPath } from "./paths.ts";
import { signInPage, type SignInForm } from "./sign-in-page.ts";
import { knownBrowserMs, longestQueueMs, signedInMs, type SignInResult, type SignIns } from "./sign-ins.ts";
import { viewOf } from "./view.ts";

export interface SignInRoutesDeps {
  signIns: SignIns;
  onTry(outcome: SignInResult["result"]): void;
  /** Whether addresses of requests are those of clients. */
  knowsAddresses: boolean;
  /** Of asking Redis. */
  deadlineMs: number;
}

const maxPassword = 1_000;

function nextOf(path: string | undefined): string {
  return path !== undefined && isOwnPath(path) ? path : "/";
}

async function showForm(request: FastifyRequest, reply: FastifyReply, form: SignInForm): Promise<FastifyReply> {
  const view = viewOf(request, undefined, true);
  return await sendPage(reply, view, signInPage(view, form));
}

/** Adds signing in and out; only where there are passwords. */
export function registerSignInRoutes(
  server: FastifyInstance,
  { signIns, onTry, knowsAddresses, deadlineMs }: SignInRoutesDeps,
): void {
  server.get<{ Querystring: { next?: unknown } }>("/sign-in", async (request, reply) => {
    const { next } = request.query;
    return await showForm(request, reply, { next: nextOf(typeof next === "string" ? next : undefined) });
  });
  server.post("/sign-in", async (request, reply) => {
    const next = nextOf(fieldOf(request, "next", 2_000));
    const password = fieldOf(request, "password", maxPassword) ?? "";
    const origin = {
      address: knowsAddresses ? request.ip : undefined,
      browser: cookieOf(request, browserCookie),
    };
    const tried = await withDeadline(signIns.try(password, origin), longestQueueMs + deadlineMs);
    onTry(tried.result);
    if (tried.result === "signed_in") {
      setCookie(reply, [tokenCookie, tried.token], { maxAgeSeconds: signedInMs / 1_000 });
      setCookie(reply, [browserCookie, tried.browser], { maxAgeSeconds: knownBrowserMs / 1_000 });
      return await reply.redirect(next, 303);
    }
    if (tried.result === "wrong") return await showForm(request, reply.code(401), { next, problem: "wrongPassword" });
    reply.code(429).header("retry-after", String(Math.ceil(tried.waitMs / 1_000)));
    return await showForm(request, reply, { next, problem: "tooManyTries" });
  });
  server.post("/sign-out", async (request, reply) => {
    const token = cookieOf(request, tokenCookie);
    if (token !== undefined) await withDeadline(signIns.end(token), deadlineMs);
    setCookie(reply, [tokenCookie, ""], { maxAgeSeconds: 0 });
    return await reply.redirect("/sign-in", 303);
  });
}
