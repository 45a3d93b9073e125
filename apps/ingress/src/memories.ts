import { sessionKeyOf } from "@larkline/agent/messages";
import { apiApp, memoryOwnersOf, type MemoryOwner, type SessionKey } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { ApiError, Memories } from "@larkline/protocol/views/run-api";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { isSessionId, isTheirs } from "./api-access.ts";
import { decisionDeadlineMs } from "./bot.ts";
import { sessionParameter } from "./openapi.ts";
import type { Services } from "./services.ts";

// What is remembered, for clients of the HTTP API: that of the caller, and that of one of their sessions.

interface MemoryRoute {
  Params: { id?: string };
  Querystring: Record<string, unknown>;
}

/** Adds memories. Needs a scope that only callers of the API reach. */
export function registerMemoryRoutes(scope: FastifyInstance, services: Services): void {
  scope.get<MemoryRoute>(
    "/v1/memories",
    {
      config: {
        operation: {
          about: {
            en: "Lists what is remembered of the caller and of a session, the newest first.",
            zh: "列出关于调用方和会话所记住的内容，最新的在前。",
          },
          query: { session_id: sessionParameter },
          answers: { 200: Memories, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await answer(services, request, reply, listMemories),
  );
  scope.delete<MemoryRoute>(
    "/v1/memories/:id",
    {
      config: {
        operation: {
          about: { en: "Takes a memory away, at once.", zh: "立即忘掉一条内容。" },
          query: { session_id: sessionParameter },
          answers: { 204: "empty", 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await answer(services, request, reply, deleteMemory),
  );
}

type Handler = (
  services: Services,
  owners: readonly MemoryOwner[],
  reply: FastifyReply,
  id: string,
) => Promise<unknown>;

async function answer(
  services: Services,
  { query, params, caller }: FastifyRequest<MemoryRoute>,
  reply: FastifyReply,
  handle: Handler,
) {
  const { clock, log } = services;
  const { session_id: sessionId } = query;
  if (typeof sessionId !== "string" || !isSessionId(sessionId)) {
    return await reply.code(400).send({ error: "session_id: must name a session" });
  }
  const session = sessionKeyOf(apiApp, sessionId);
  try {
    if (!(await withDeadline(clock, isTheirs(services, session, caller), decisionDeadlineMs))) {
      return await reply.code(404).send({ error: "nothing is known of this session" });
    }
    return await withDeadline(
      clock,
      handle(services, ownersOf(session, caller), reply, params.id ?? ""),
      decisionDeadlineMs,
    );
  } catch (error) {
    log.error({ error, sessionId }, "memories could not be reached");
    return await reply.code(503).header("retry-after", "1").send({ error: "try again" });
  }
}

function ownersOf(session: SessionKey, caller: string): MemoryOwner[] {
  const place = {
    app: apiApp,
    sender: { id: caller },
    session,
    chatType: "api",
    reply: { channel: "none" },
  } as const;
  const { person, chat } = memoryOwnersOf(place);
  return [person, chat];
}

async function listMemories(
  { memories }: Services,
  owners: readonly MemoryOwner[],
  reply: FastifyReply,
) {
  const lists = await Promise.all(
    owners.map(async (owner) => ({ owner, ...(await memories.list(owner)) })),
  );
  const found: Memories = {
    memories: lists.flatMap(({ owner, memories: all }) =>
      all.map(({ id, text, atMs, usedAtMs }) => ({
        id,
        owner: owner.kind,
        text,
        created_at: atMs,
        used_at: usedAtMs,
      })),
    ),
    off: lists.some(({ off }) => off),
  };
  return await reply.send(found);
}

async function deleteMemory(
  { memories }: Services,
  owners: readonly MemoryOwner[],
  reply: FastifyReply,
  id: string,
) {
  for (const owner of /^[0-9a-f]{1,64}$/.test(id) ? owners : []) {
    if ((await memories.forget(owner, [id])) > 0) return await reply.code(204).send();
  }
  return await reply.code(404).send({ error: "there is no such memory" });
}
