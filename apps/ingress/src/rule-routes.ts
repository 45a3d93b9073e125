import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { sessionKeyOf } from "@larkline/agent";
import { ApprovalId, parserOf, type ApiRule, type ApiRules, type PermissionRule } from "@larkline/protocol";
import type { PermissionRules } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { AccessRules } from "./access.ts";
import { guardApi } from "./api-guard.ts";
import { apiApp, isSessionId } from "./api-request.ts";
import { withDeadline } from "./deadline.ts";

export interface RuleRoutesDeps {
  remembered: Pick<PermissionRules, "inForce" | "revoke">;
  rules: AccessRules;
  deadlineMs: number;
  logger: Logger;
}

interface RuleRoute {
  Params: { id?: string };
  Querystring: Record<string, unknown>;
}

const parseId = parserOf(ApprovalId);

function viewOf({ id, tool, pattern, createdAtMs, expiresAtMs }: PermissionRule): ApiRule {
  return { id, tool, pattern, created_at: createdAtMs, expires_at: expiresAtMs };
}

/** A session of the API is a chat of its own. */
async function heldBy({ remembered, deadlineMs }: RuleRoutesDeps, sessionId: string): Promise<PermissionRule[]> {
  return await withDeadline(remembered.inForce(apiApp, sessionKeyOf(apiApp, sessionId)), deadlineMs);
}

async function list(deps: RuleRoutesDeps, sessionId: string, reply: FastifyReply) {
  const rules: ApiRules = { rules: (await heldBy(deps, sessionId)).map(viewOf) };
  return await reply.send(rules);
}

async function revoke(deps: RuleRoutesDeps, { sessionId, id }: { sessionId: string; id: string }, reply: FastifyReply) {
  const isHeld = parseId(id).ok && (await heldBy(deps, sessionId)).some((rule) => rule.id === id);
  // Whoever may use the API has left the rules of its sessions.
  const revoked = isHeld
    ? await withDeadline(deps.remembered.revoke(apiApp, id, { id: apiApp }), deps.deadlineMs)
    : undefined;
  return revoked === undefined ? await reply.code(404).send({ error: "no such rule" }) : await reply.code(204).send();
}

/**
 * Remembered decisions of a session over HTTP:
 * - `GET /v1/permissions?session_id=` lists what runs without asking, oldest first.
 * - `DELETE /v1/permissions/:id?session_id=` takes one back, at once; 404 when it does not hold.
 */
export function registerRuleRoutes(scope: FastifyInstance, deps: RuleRoutesDeps): void {
  guardApi(scope, deps);
  const route = async (
    request: FastifyRequest<RuleRoute>,
    reply: FastifyReply,
    obey: (sessionId: string) => Promise<unknown>,
  ) => {
    const { session_id: sessionId } = request.query;
    if (typeof sessionId !== "string" || !isSessionId(sessionId)) {
      return await reply.code(400).send({ error: "session_id must name a session" });
    }
    try {
      return await obey(sessionId);
    } catch (error) {
      deps.logger.error({ error, sessionId }, "rules could not be reached");
      return await reply.code(503).header("retry-after", "1").send({ error: "try again" });
    }
  };
  scope.get<RuleRoute>(
    "/v1/permissions",
    { exposeHeadRoute: false },
    async (request, reply) => await route(request, reply, async (sessionId) => await list(deps, sessionId, reply)),
  );
  scope.delete<RuleRoute>(
    "/v1/permissions/:id",
    async (request, reply) =>
      await route(
        request,
        reply,
        async (sessionId) => await revoke(deps, { sessionId, id: request.params.id ?? "" }, reply),
      ),
  );
}
