import { sessionKeyOf } from "@larkline/agent/messages";
import { apiApp, type SessionKey } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { conversationRunItems } from "@larkline/protocol/views/item-input";
import {
  ApiError,
  SessionItems,
  SessionReport,
  type SessionState,
} from "@larkline/protocol/views/run-api";
import type { SessionSummary } from "@larkline/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { isSessionId, isTheirs, pageIn, readDeadlineMs } from "./api-access.ts";
import { interruptionView } from "./approvals.ts";
import { textSchema } from "./openapi.ts";
import type { Services } from "./services.ts";

// Reading sessions of the HTTP API: their state and totals, and their conversation.

interface SessionRoute {
  Params: { id: string };
  Querystring: Record<string, unknown>;
}

/** Adds sessions. Needs a scope that only callers of the API reach. */
export function registerSessionRoutes(scope: FastifyInstance, services: Services): void {
  scope.get<SessionRoute>(
    "/v1/sessions/:id",
    {
      config: {
        operation: {
          about: {
            en: "Returns the state of a session, and what its runs have used.",
            zh: "查询会话状态及其用量。",
          },
          answers: { 200: SessionReport, 404: ApiError },
        },
      },
    },
    async (request, reply) => await getSession(services, request, reply),
  );
  scope.get<SessionRoute>(
    "/v1/sessions/:id/items",
    {
      config: {
        operation: {
          about: {
            en: "The conversation of a session, oldest first, in pages.",
            zh: "分页读取会话内容，最早的在前。",
          },
          query: {
            after: {
              en: "`next` of the page before.",
              zh: "上一页的 `next`。",
              schema: textSchema,
            },
            limit: {
              en: "Messages of a page, 1 to 200; default 50.",
              zh: "每页消息数，1 到 200，默认 50。",
              schema: textSchema,
            },
          },
          answers: { 200: SessionItems, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await getItems(services, request, reply),
  );
}

async function getSession(
  services: Services,
  { params, caller }: FastifyRequest<SessionRoute>,
  reply: FastifyReply,
) {
  return await answer(services, reply, params.id, async (session) => {
    if (!(await isTheirs(services, session, caller))) return undefined;
    return await reportOn(services, session);
  });
}

/** Answers with what is read of a session; 404 when there is nothing. */
async function answer(
  { clock, log, redis }: Services,
  reply: FastifyReply,
  sessionId: string,
  read: (session: SessionKey) => Promise<SessionReport | SessionItems | undefined>,
) {
  const unavailable = async () =>
    await reply
      .code(503)
      .header("retry-after", "1")
      .send({ error: "not known at the moment, please try again" });
  if (!redis.isReady()) return await unavailable();
  try {
    const session = isSessionId(sessionId) ? sessionKeyOf(apiApp, sessionId) : undefined;
    const found =
      session === undefined ? undefined : await withDeadline(clock, read(session), readDeadlineMs);
    if (found !== undefined) return await reply.send(found);
    return await reply
      .code(404)
      .send({ error: "nothing is known of this session", code: "session_not_found" });
  } catch (error) {
    log.error({ error, sessionId }, "session could not be read");
    return await unavailable();
  }
}

/** The session; undefined where nothing was ever said. */
async function reportOn(
  services: Services,
  session: SessionKey,
): Promise<SessionReport | undefined> {
  const { approvals, store } = services;
  const summary = await store.summary(session);
  const { totals } = summary;
  if (summary.messages + summary.waiting + summary.eventSeq === 0) return undefined;
  const pending = await approvals.pending(session);
  return {
    session_id: session.slice(apiApp.length + 1),
    state: stateOf(summary),
    messages: summary.messages,
    waiting: summary.waiting,
    title: totals?.title ?? "",
    turn_count: totals?.turnCount ?? 0,
    input_tokens: totals?.inputTokens ?? 0,
    output_tokens: totals?.outputTokens ?? 0,
    cost_usd: totals?.costUsd ?? 0,
    denials: totals?.denials ?? 0,
    interruptions: pending.map(interruptionView),
  };
}

function stateOf({ state }: SessionSummary): SessionState {
  return state === "suspended" ? "waiting" : state;
}

/** Messages of a page. */
const pageSizes = { usual: 50, most: 200 };

async function getItems(
  services: Services,
  request: FastifyRequest<SessionRoute>,
  reply: FastifyReply,
) {
  const page = pageIn(request.query, pageSizes);
  if ("error" in page) return await reply.code(400).send(page);
  const { from, size } = page;
  return await answer(
    services,
    reply,
    request.params.id,
    async (session): Promise<SessionItems | undefined> => {
      if (!(await isTheirs(services, session, request.caller))) return undefined;
      const { first, messages, people } = await services.sessions.read(session, from, size);
      if (Object.keys(people).length === 0) return undefined;
      const sessionId = session.slice(apiApp.length + 1);
      const next = first + messages.length;
      return {
        session_id: sessionId,
        items: conversationRunItems(messages, { prefix: sessionId, first }),
        next: messages.length < size ? null : `${next}`,
      };
    },
  );
}
