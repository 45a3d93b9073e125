import { WebhookVerifier } from "@larkline/feishu";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Bot } from "./bot.ts";
import { handleEvent } from "./events.ts";
import type { Services } from "./services.ts";

/**
 * The addresses of one bot for the developer console. Events and card callbacks have one each, but both take both
 * kinds; each bot has its own, because a body does not tell its app before it is decrypted. Needs a scope whose parser
 * leaves bodies as bytes: the signature covers those.
 */
export function registerWebhookRoutes(scope: FastifyInstance, services: Services, bot: Bot): void {
  const { settings, clock } = services;
  const { encryptKey, verificationToken, appId } = bot.access;
  const keys = { encryptKey, verificationToken, appId };
  const verifier = new WebhookVerifier({ ...keys, ...settings.webhook, clock });
  // The first bot has the plain addresses, others have their name in theirs.
  const paths =
    bot.name === "default"
      ? ["/feishu/events", "/feishu/cards"]
      : [`/feishu/${bot.name}/events`, `/feishu/${bot.name}/cards`];
  const logRefused = refusalLog(services, bot);
  for (const path of paths) {
    scope.post(path, async (request, reply) => {
      return await takeWebhook(services, bot, { verifier, logRefused, request, reply });
    });
  }
}

type RefusalLog = (refused: { status: number; reason: string; address: string }) => void;

/** Strangers may send any number of requests: of those that are refused, one is logged in this time, ms. */
const refusedEveryMs = 10_000;

function refusalLog({ clock }: Services, { log }: Bot): RefusalLog {
  let nextMs = Number.NEGATIVE_INFINITY;
  let others = 0;
  return (refused) => {
    const nowMs = clock.monotonic();
    if (nowMs < nextMs) {
      others += 1;
      return;
    }
    log.warn({ ...refused, othersBefore: others }, "webhook request refused");
    nextMs = nowMs + refusedEveryMs;
    others = 0;
  };
}

/** The platform delivers an event again after any status but 200. */
async function takeWebhook(
  services: Services,
  bot: Bot,
  {
    verifier,
    logRefused,
    request,
    reply,
  }: { verifier: WebhookVerifier; logRefused: RefusalLog; request: FastifyRequest; reply: FastifyReply },
) {
  const { body, headers, ip } = request;
  const verdict = verifier.verify(Buffer.isBuffer(body) ? body : Buffer.alloc(0), headers);
  if (verdict.kind === "refused") {
    const { status, reason } = verdict;
    services.counters.refused.add(1, { status });
    logRefused({ status, reason, address: ip });
    return await reply.code(status).send({ error: "refused" });
  }
  if (verdict.kind === "challenge") return await reply.send({ challenge: verdict.challenge });
  try {
    return await reply.send(await handleEvent(services, bot, verdict.envelope, "webhook"));
  } catch {
    // Logged by the handler.
    return await reply.code(500).send({ error: "not confirmed, please deliver again" });
  }
}
