import { withDeadline } from "@larkline/protocol/clock";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { html } from "./html.ts";
import {
  fieldOf,
  isOwnPath,
  isSecure,
  sendPage,
  strangersView,
  type Page,
  type PlainView,
} from "./page.ts";
import type { Services } from "./services.ts";
import { knownBrowserMs, longestQueueMs, signedInMs, type SignIns } from "./sign-ins.ts";
import type { Word } from "./words.ts";

/** The cookie that holds the token of a sign-in. */
export const tokenCookie = "larkline_console";

/** The cookie of a browser that a person has signed in with: it opens nothing, but its tries are counted apart. */
const browserCookie = "larkline_browser";

/** How long Redis may take to find a sign-in. */
export const redisDeadlineMs = 3_000;

/** Adds signing in and out; only where there are passwords. */
export function registerSignIn(
  server: FastifyInstance,
  services: Services,
  signIns: SignIns,
): void {
  const { clock, config, counters } = services;
  server.get<{ Querystring: { next?: unknown } }>("/sign-in", async (request, reply) => {
    const { next } = request.query;
    return await showForm(request, reply, {
      next: nextOf(typeof next === "string" ? next : undefined),
    });
  });
  server.post("/sign-in", async (request, reply) => {
    const next = nextOf(fieldOf(request, "next", 2_000));
    const password = fieldOf(request, "password", maxPassword) ?? "";
    const name = claimedName(fieldOf(request, "name", longestName) ?? "");
    const origin = {
      // Without a named proxy in front, addresses are not known to be those of clients.
      address: config.proxies.length > 0 ? request.ip : undefined,
      browser: request.cookies[browserCookie],
    };
    const tried = await withDeadline(
      clock,
      signIns.try({ password, name }, origin),
      longestQueueMs + redisDeadlineMs,
    );
    counters.signIns.add(1, { outcome: tried.result });
    if (tried.result === "signed_in") {
      const secure = isSecure(request);
      reply.setCookie(tokenCookie, tried.token, { maxAge: signedInMs / 1_000, secure });
      reply.setCookie(browserCookie, tried.browser, { maxAge: knownBrowserMs / 1_000, secure });
      return await reply.redirect(next, 303);
    }
    if (tried.result === "wrong") {
      return await showForm(request, reply.code(401), { next, problem: "wrongPassword" });
    }
    reply.code(429).header("retry-after", String(Math.ceil(tried.waitMs / 1_000)));
    return await showForm(request, reply, { next, problem: "tooManyTries" });
  });
  server.post("/sign-out", async (request, reply) => {
    const token = request.cookies[tokenCookie];
    if (token !== undefined) await withDeadline(clock, signIns.end(token), redisDeadlineMs);
    reply.setCookie(tokenCookie, "", { maxAge: 0, secure: isSecure(request) });
    return await reply.redirect("/sign-in", 303);
  });
}

const maxPassword = 1_000;
const longestName = 60;

/** In one line, and undefined when it is empty. */
function claimedName(text: string): string | undefined {
  const name = text
    .toWellFormed()
    .replaceAll(/[\s\p{Cc}\p{Cf}]+/gu, " ")
    .trim();
  return name === "" ? undefined : name;
}

function nextOf(path: string | undefined): string {
  return path !== undefined && isOwnPath(path) ? path : "/";
}

async function showForm(
  request: FastifyRequest,
  reply: FastifyReply,
  form: SignInForm,
): Promise<FastifyReply> {
  const view = strangersView(request, true);
  return await sendPage(reply, view, signInPage(view, form));
}

interface SignInForm {
  /** Where to go afterwards. */
  next: string;
  problem?: Word;
}

function signInPage({ say }: PlainView, { next, problem }: SignInForm): Page {
  const body = html`<form method="post" action="/sign-in" class="sign-in">
    <input type="hidden" name="next" value="${next}" />
    <div class="field">
      <label for="name">${say("operatorName")}</label>
      <input
        id="name"
        name="name"
        required
        autofocus
        autocomplete="name"
        maxlength="${longestName}"
        aria-describedby="name-hint"
      />
      <p id="name-hint" class="quiet">${say("operatorNameIs")}</p>
    </div>
    <div class="field">
      <label for="password">${say("password")}</label>
      <input
        id="password"
        name="password"
        type="password"
        required
        autocomplete="current-password"
        maxlength="1000"
        ${problem !== undefined && html`aria-invalid="true" aria-describedby="problem"`}
      />
      ${problem !== undefined && html`<p id="problem" role="alert">${say(problem)}</p>`}
    </div>
    <button>${say("signIn")}</button>
  </form>`;
  return { title: say("signIn"), body };
}
