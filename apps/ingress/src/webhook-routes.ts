import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { WebhookVerifier } from "@larkline/feishu";
import type { CounterMetric, Logger } from "@larkline/process/telemetry";
import type { EventRouter } from "./event-router.ts";

export interface WebhookRoutesDeps {
  /** What the addresses of this bot begin with. */
  path: string;
  verifier: WebhookVerifier;
  route: EventRouter;
  refused: CounterMetric<"status">;
  logger: Logger;
}

async function answer(deps: WebhookRoutesDeps, { body, headers, ip }: FastifyRequest, reply: FastifyReply) {
  const verdict = deps.verifier.verify(Buffer.isBuffer(body) ? body : Buffer.alloc(0), headers);
  if (verdict.kind === "refused") {
    const { status, reason } = verdict;
    deps.refused.add({ status });
    deps.logger.warn({ status, reason, address: ip }, "webhook request refused");
    return await reply.code(status).send({ error: "refused" });
  }
  if (verdict.kind === "challenge") return await reply.send({ challenge: verdict.challenge });
  try {
    return await reply.send(await deps.route(verdict.envelope, "webhook"));
  } catch {
    // Logged by the router. Anything but 200 makes the platform deliver the event again.
    return await reply.code(500).send({ error: "not stored, please deliver again" });
  }
}

/**
 * The addresses for the developer console. Events and card callbacks have one each, but both take
 * both kinds; each bot has its own, because a body does not tell its app before it is decrypted.
 * Needs a scope whose parser leaves bodies as bytes: the signature covers those.
 */
export function registerWebhookRoutes(scope: FastifyInstance, deps: WebhookRoutesDeps): void {
  for (const kind of ["events", "cards"]) {
    scope.post(`${deps.path}/${kind}`, async (request, reply) => await answer(deps, request, reply));
  }
}
