import { noticeText, type NoticeName } from "@larkline/agent";
import type { FastifyInstance } from "fastify";
import type { Bot } from "./bot.ts";
import { refusalLog } from "./refusal-log.ts";
import type { Services } from "./services.ts";

/** Longer ones are none of the platform ("Obtain authorization code": codes may have 64 characters, and more). */
const maxCodeLength = 512;

/**
 * Where the platform's consent page sends a person's browser, in the code flow. What comes with the `state` of a link
 * that a person of this bot has now is kept for the worker that waits for it, once; anything else grants nothing.
 */
export function registerConsentRoute(server: FastifyInstance, services: Services, bot: Bot): void {
  const { approvals, clock, consentCallbacks } = services;
  const logRefused = refusalLog(clock, bot.log, "consent refused");
  const path = bot.name === "default" ? "/feishu/consent" : `/feishu/${bot.name}/consent`;
  server.get<{ Querystring: Record<string, unknown> }>(path, async (request, reply) => {
    const { query, ip } = request;
    const { state, code, error } = query;
    const isRefused = typeof error === "string";
    const isCode = typeof code === "string" && code.length > 0 && code.length <= maxCodeLength;
    const taken =
      typeof state === "string" && (isRefused || isCode)
        ? await consentCallbacks.take(bot.app, state, isRefused ? {} : { code: String(code) })
        : undefined;
    if (taken === undefined) {
      logRefused({ status: 400, reason: "the state is of no link that a person has", address: ip });
    } else {
      // The worker looks by itself, too, a little later.
      await approvals
        .touchCards(taken.session, taken.approvalId, false)
        .catch((reason: unknown) => bot.log.warn({ error: reason }, "no worker was called"));
    }
    const text =
      taken === undefined ? "consentStale" : isRefused ? "consentRefused" : "consentTaken";
    // The address has a code in it: no cache and no other page is to have it.
    return await reply
      .code(taken === undefined ? 400 : 200)
      .headers({
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
      })
      .send(pageOf(text));
  });
}

function pageOf(text: NoticeName): string {
  const [zh, en] = [noticeText(text, "zh"), noticeText(text, "en")];
  return (
    `<!doctype html><html lang="zh"><head><meta charset="utf-8">` +
    `<meta name="viewport" content="width=device-width, initial-scale=1"><title>Larkline</title></head>` +
    `<body><p>${zh}</p><p lang="en">${en}</p></body></html>`
  );
}
