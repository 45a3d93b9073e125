import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { sessionKeyOf } from "@larkline/agent";
import { maskedArguments } from "@larkline/agent/permissions";
import {
  ApiDecision,
  jsonParserOf,
  type ApiApproval,
  type ApiApprovals,
  type Approval,
  type DecisionWord,
} from "@larkline/protocol";
import type { ApprovalStatus, ApprovalStore } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { AccessRules } from "./access.ts";
import { guardApi } from "./api-guard.ts";
import { apiApp, bodyText, isSessionId } from "./api-request.ts";
import type { ApprovalDesk, SayResult } from "./approval-desk.ts";
import { withDeadline } from "./deadline.ts";

export interface ApprovalRoutesDeps {
  approvals: Pick<ApprovalStore, "pending">;
  decide: ApprovalDesk;
  rules: AccessRules;
  deadlineMs: number;
  logger: Logger;
}

const wordsFor: Readonly<Record<Approval["kind"], DecisionWord[]>> = {
  call: ["approve", "reject"],
  rule: ["approve", "reject"],
  outcome: ["retry", "done", "abort"],
};

function viewOf({ approval, state }: ApprovalStatus): ApiApproval {
  return {
    id: approval.id,
    kind: approval.kind,
    run_id: approval.turnId,
    call_id: approval.callId,
    tool: approval.tool,
    arguments: maskedArguments(approval.arguments, approval.secrets),
    reason: approval.reason,
    risk: approval.risk,
    decisions: wordsFor[approval.kind],
    may_remember: approval.remember !== undefined,
    created_at: approval.createdAtMs,
    expires_at: approval.expiresAtMs,
    state,
  };
}

const parseDecision = jsonParserOf(ApiDecision);

interface ListRoute {
  Querystring: Record<string, unknown>;
}

interface DecideRoute {
  Params: { id: string };
}

async function list(deps: ApprovalRoutesDeps, { query }: FastifyRequest<ListRoute>, reply: FastifyReply) {
  const { session_id: sessionId } = query;
  if (typeof sessionId !== "string" || !isSessionId(sessionId)) {
    return await reply.code(400).send({ error: "session_id must name a session" });
  }
  const session = sessionKeyOf(apiApp, sessionId);
  try {
    const pending = await withDeadline(deps.approvals.pending(session), deps.deadlineMs);
    const approvals: ApiApprovals = { approvals: pending.map(viewOf) };
    return await reply.send(approvals);
  } catch (error) {
    deps.logger.error({ error, session }, "approvals could not be read");
    return await unavailable(reply, "try again");
  }
}

async function unavailable(reply: FastifyReply, error: string) {
  return await reply.code(503).header("retry-after", "1").send({ error });
}

async function answer(reply: FastifyReply, said: SayResult) {
  switch (said.result) {
    case "settled":
    case "counted":
    case "repeated":
      return await reply.send({ approval: viewOf(said.status) });
    case "closed":
      return await reply.code(409).send({ error: "no pending approval", approval: viewOf(said.status) });
    case "not_allowed":
      return await reply.code(403).send({ error: "others have to decide this", approval: viewOf(said.status) });
    case "unknown":
      return await reply.code(404).send({ error: "no pending approval" });
    case "failed":
      return await unavailable(reply, "not taken, try again");
    case "uncertain":
      return await unavailable(reply, "it is not certain that this was taken: ask again, which does no harm");
  }
}

async function decide(deps: ApprovalRoutesDeps, request: FastifyRequest<DecideRoute>, reply: FastifyReply) {
  const text = bodyText(request.body);
  if (text === undefined) return await reply.code(400).send({ error: "the body is not valid UTF-8" });
  const parsed = parseDecision(text);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { decision, note, remember } = parsed.value;
  const said = await deps.decide({
    app: apiApp,
    approvalId: request.params.id,
    decision: {
      decision,
      // Whoever may use the API speaks for the person behind its messages.
      by: { id: apiApp },
      ...(note === undefined || note === null || note.trim() === "" ? {} : { note }),
      ...(remember === true ? { remember } : {}),
    },
  });
  return await answer(reply, said);
}

/**
 * Approvals of runs over HTTP, where no card asks:
 * - `GET /v1/approvals?session_id=` lists what a session waits for, oldest first.
 * - `POST /v1/approvals/:id` decides: `{decision, note?, remember?}`. 409 when it was decided before or
 *   has expired, 403 when others have to, 404 for an id or a word that fits no approval.
 *
 * To be registered in a scope of its own with a parser that leaves bodies as bytes.
 */
export function registerApprovalRoutes(scope: FastifyInstance, deps: ApprovalRoutesDeps): void {
  guardApi(scope, deps);
  scope.get<ListRoute>(
    "/v1/approvals",
    { exposeHeadRoute: false },
    async (request, reply) => await list(deps, request, reply),
  );
  scope.post<DecideRoute>("/v1/approvals/:id", async (request, reply) => await decide(deps, request, reply));
}
