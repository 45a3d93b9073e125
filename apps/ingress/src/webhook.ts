import { WebhookVerifier } from "@larkline/feishu";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Bot } from "./bot.ts";
import { handleEvent } from "./events.ts";
import { refusalLog, type RefusedRequest } from "./refusal-log.ts";
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
  const logRefused = refusalLog(clock, bot.log, "webhook request refused");
  for (const path of paths) {
    scope.post(path, async (request, reply) => {
      return await takeWebhook(services, bot, { verifier, logRefused, request, reply });
    });
  }
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
  }: {
    verifier: WebhookVerifier;
    logRefused: (refused: RefusedRequest) => void;
    request: FastifyRequest;
    reply: FastifyReply;
  },
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
