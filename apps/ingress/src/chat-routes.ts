import { randomBytes } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import {
  canaryMessage,
  canarySessionId,
  isCanary,
  streamErrors,
  traceIdOf,
  traceparentOfMessage,
  turnIdOf,
  type InboundMessage,
  type SessionKey,
  type StreamFrame,
} from "@larkline/protocol";
import { sessionKeyOf, type CustomCommands } from "@larkline/agent";
import type { AgentConfig } from "@larkline/config";
import type { AppendResult } from "@larkline/session";
import type { Logger, Observation } from "@larkline/telemetry";
import type { AccessRules } from "./access.ts";
import { guardApi } from "./api-guard.ts";
import { apiApp, isSessionId } from "./api-request.ts";
import { answeredBy } from "./bot-agents.ts";
import { eventSeqOf, parseAsk, type Ask } from "./chat-request.ts";
import { readCommand } from "./command-desk.ts";
import type { Inbox } from "./inbox.ts";
import { findRun, type RunFinderDeps, type RunQuery } from "./run-finder.ts";
import { watchMessage } from "./message-watch.ts";
import { lostRunFrame } from "./run-frames.ts";
import type { StreamHub } from "./stream-hub.ts";

export interface ChatRoutesDeps {
  inbox: Inbox;
  streams: StreamHub;
  runs: RunFinderDeps;
  rules: AccessRules;
  onDisconnect: "cancel" | "detach";
  /** The agent of that name; undefined when there is none. */
  agentNamed: (name: string) => AgentConfig | undefined;
  /** Whether messages can be stored at this moment. */
  isReady: () => boolean;
  /** Called once for each message, with what became of it. */
  count: (result: AppendResult["result"] | "failed") => void;
  observation: Observation;
  logger: Logger;
}

const full: StreamFrame = { type: "error", message: "ERROR: too many messages of this session are waiting" };

interface AskedSession {
  session: SessionKey;
  sessionId: string;
  agent: AgentConfig;
}

function messageOf(ask: Ask, { session, sessionId, agent }: AskedSession): InboundMessage {
  return {
    v: 1,
    session,
    // The dedup key of a client holds within its session only.
    id: `${sessionId}.${ask.key ?? randomBytes(16).toString("base64url")}`,
    app: apiApp,
    sender: { id: apiApp },
    chatType: "api",
    parts: [{ type: "text", text: ask.text }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
    ...(ask.background ? { background: true } : {}),
    ...(ask.traceparent === undefined ? {} : { traceparent: ask.traceparent }),
    ...answeredBy(agent),
  };
}

/** The API has no chats: the id of the session stands for one. */
function chatOf(session: SessionKey): string {
  return session.slice(apiApp.length + 1);
}

/** Orders to the session and an agent's own commands; the others answer people in a chat, here the model does. */
function withCommand(message: InboundMessage, text: string, commands: CustomCommands): InboundMessage {
  const command = readCommand(message, text, commands);
  return command.for === "session" ? command.message : message;
}

/** Stores a message; undefined when it could not be, which is told. */
async function stored(deps: ChatRoutesDeps, message: InboundMessage): Promise<AppendResult | undefined> {
  const { inbox, isReady, observation, logger } = deps;
  const { app, id, sender, session, traceparent } = message;
  const arriving = { app, id, chat: chatOf(session), person: sender.id, channel: "api" } as const;
  const ended = watchMessage(observation, { ...arriving, ...(traceparent === undefined ? {} : { traceparent }) });
  if (!isReady()) {
    ended("not_ready");
    return undefined;
  }
  try {
    const appended = await inbox.append(message);
    ended(appended.result);
    return appended;
  } catch (error) {
    ended("failed", error);
    logger.error({ error, session }, "message could not be stored");
    return undefined;
  }
}

function createChatHandlers(deps: ChatRoutesDeps) {
  const { inbox, streams, runs, onDisconnect, isReady, count, logger } = deps;

  const wake = async (session: SessionKey, wakeGen: number | undefined) => {
    try {
      await inbox.wake(session, wakeGen);
    } catch (error) {
      // The message is stored: the workers' sweeper will find it, so the client can go on waiting.
      logger.warn({ error, session }, "session could not be woken at once");
    }
  };

  const start = async (reply: FastifyReply, ask: Ask, agent: AgentConfig) => {
    const sessionId = ask.sessionId ?? randomBytes(16).toString("base64url");
    const session = sessionKeyOf(apiApp, sessionId);
    const message = withCommand(messageOf(ask, { session, sessionId, agent }), ask.text, agent.commands);
    // Also of what is refused from here on: that is what people ask about.
    reply.header("x-trace-id", traceIdOf(traceparentOfMessage(message)));
    const appended = await stored(deps, message);
    if (!isCanary(session)) count(appended?.result ?? "failed");
    if (appended === undefined) return streams.single(reply, { type: "error", message: streamErrors.notReady });
    if (appended.result === "full") return streams.single(reply, full);
    await wake(session, appended.wakeGen);
    const runId = turnIdOf(session, appended.seq);
    logger.info({ session, turnId: runId, outcome: appended.result }, "message accepted");
    const afterSeq = ask.lastEventId ?? appended.eventSeq ?? 0;
    if (appended.result === "duplicate" && (await findRun(runs, { session, runId, afterSeq })) === "idle") {
      return streams.single(reply, lostRunFrame);
    }
    reply.headers({ "x-session-id": sessionId, "x-run-id": runId });
    const first: StreamFrame = { type: "user_message", content: ask.text, run_id: runId };
    await streams.follow(reply, {
      run: { session, runId, afterSeq },
      first: ask.lastEventId === undefined ? first : undefined,
      // A repeated request must not end the run of the first one, whose client may still read.
      cancelWhenGone: appended.result === "accepted" && (ask.onDisconnect ?? onDisconnect) === "cancel",
    });
  };

  const resume = async (reply: FastifyReply, sessionId: string, query: Omit<RunQuery, "session">) => {
    const session = sessionKeyOf(apiApp, sessionId);
    const found = isReady() ? await findRun(runs, { session, ...query }) : undefined;
    if (found === undefined) return streams.single(reply, { type: "error", message: streamErrors.notReady });
    if (found === "unknown") return await reply.code(404).send({ error: "nothing is known of this session" });
    // 204 also keeps an EventSource from connecting again.
    if (found === "idle") return await reply.code(204).send();
    reply.header("x-session-id", sessionId);
    if (found.runId !== undefined) reply.header("x-run-id", found.runId);
    await streams.follow(reply, { run: found, first: undefined, cancelWhenGone: false });
  };

  const refuse = async (reply: FastifyReply) => {
    streams.single(reply, { type: "error", message: streamErrors.emptyMessage });
  };

  return { start, resume, refuse };
}

type Handlers = ReturnType<typeof createChatHandlers> & Pick<ChatRoutesDeps, "agentNamed">;

async function postChat(handlers: Handlers, { body, headers }: FastifyRequest, reply: FastifyReply) {
  const parsed = parseAsk(body, headers);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { ask } = parsed;
  if (ask.lastEventId !== undefined && ask.sessionId !== undefined && ask.key === undefined) {
    return await handlers.resume(reply, ask.sessionId, { runId: undefined, afterSeq: ask.lastEventId });
  }
  const { agent: name = "default" } = ask;
  const agent = handlers.agentNamed(name);
  if (agent === undefined) return await reply.code(400).send({ error: `there is no agent '${name}'` });
  if (ask.sessionId === canarySessionId && ask.text !== canaryMessage) {
    return await reply.code(400).send({ error: `the session '${canarySessionId}' is kept for the canary` });
  }
  return await (ask.text.trim() === "" ? handlers.refuse(reply) : handlers.start(reply, ask, agent));
}

interface EventsRoute {
  Params: { sessionId: string };
  Querystring: Record<string, unknown>;
}

async function getEvents(handlers: Handlers, request: FastifyRequest<EventsRoute>, reply: FastifyReply) {
  const { sessionId } = request.params;
  const { after, run } = request.query;
  if (!isSessionId(sessionId)) return await reply.code(400).send({ error: "bad session id" });
  if (run !== undefined && (typeof run !== "string" || !run.startsWith(`${sessionKeyOf(apiApp, sessionId)}-`))) {
    return await reply.code(400).send({ error: "run names no run of this session" });
  }
  const lastEventId = request.headers["last-event-id"];
  const afterSeq =
    eventSeqOf(typeof lastEventId === "string" ? lastEventId : undefined) ??
    eventSeqOf(typeof after === "string" ? after : undefined);
  return await handlers.resume(reply, sessionId, { runId: run, afterSeq });
}

/**
 * The streaming HTTP API:
 * - `POST /chat` takes a message and streams its run. `Last-Event-ID` with a session id resumes
 *   instead: nothing is appended, unless a `message_id` or `Idempotency-Key` names the message.
 * - `GET /chat/:sessionId/events` follows the run under way, or shows the last one;
 *   `Last-Event-ID` or `?after=` say what the client has seen, `?run=` (a frame's `run_id`) which run.
 *
 * To be registered in a scope of its own with a parser that leaves bodies as bytes.
 */
export function registerChatRoutes(scope: FastifyInstance, deps: ChatRoutesDeps): void {
  const handlers: Handlers = { ...createChatHandlers(deps), agentNamed: deps.agentNamed };
  guardApi(scope, deps);
  scope.addHook("onRequest", async (_request, reply) => {
    if (deps.streams.full()) {
      return await reply.code(503).header("retry-after", "5").send({ error: "too many open streams" });
    }
    return undefined;
  });
  scope.post("/chat", async (request, reply) => await postChat(handlers, request, reply));
  scope.get<EventsRoute>(
    "/chat/:sessionId/events",
    { exposeHeadRoute: false },
    async (request, reply) => await getEvents(handlers, request, reply),
  );
}
