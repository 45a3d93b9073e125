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
  sharedNow,
} from "@larkline/protocol";
import { noticeText, sessionKeyOf } from "@larkline/agent";
import type { AgentConfig } from "@larkline/process/config";
import type { AppendResult, SessionStore } from "@larkline/store";
import type { Logger, Observation } from "@larkline/process/telemetry";
import type { AccessRules } from "./access.ts";
import { guardApi } from "./api-guard.ts";
import { apiApp, isSessionId } from "./api-request.ts";
import { answeredBy } from "./bot-agents.ts";
import { appendAs, supersede } from "./busy-policy.ts";
import { eventSeqOf, parseAsk, type Ask } from "./chat-request.ts";
import { readCommand, type CommandDesk, type Order } from "./command-desk.ts";
import type { Inbox } from "./inbox.ts";
import { watchMessage, type MessageWatch } from "./message-watch.ts";
import type { PersonLanguages } from "./person-language.ts";
import { cancelRun } from "./run-cancel.ts";
import { findRun, type RunFinderDeps, type RunQuery } from "./run-finder.ts";
import { lostRunFrame } from "./run-frames.ts";
import type { StreamHub } from "./stream-hub.ts";

/** What became of a message of the API. */
export type ApiOutcome = AppendResult["result"] | "busy" | "command" | "failed" | "uncertain";

export interface ChatRoutesDeps {
  store: Pick<SessionStore, "summary" | "waiting">;
  inbox: Inbox;
  streams: StreamHub;
  runs: RunFinderDeps;
  commands: CommandDesk;
  languages: Pick<PersonLanguages, "hear">;
  rules: AccessRules;
  onDisconnect: "cancel" | "continue";
  /** Longest text that is taken. */
  maxChars: number;
  /** The agent of that name; undefined when there is none. */
  agentNamed: (name: string) => AgentConfig | undefined;
  /** Whether messages can be stored at this moment, and whether they ever could. */
  isReady: () => boolean;
  wasReady: () => boolean;
  /** Whether an error says that nothing was stored. */
  refused: (error: unknown) => boolean;
  /** Called once for each message, with what became of it. */
  count: (outcome: ApiOutcome) => void;
  observation: Observation;
  logger: Logger;
}

const fullFrame: StreamFrame = {
  type: "error",
  message: "ERROR: too many messages of this session are waiting",
  code: "full",
};

const busyFrame: StreamFrame = {
  type: "error",
  message: "ERROR: the session is at work, and its agent takes no other message meanwhile",
  code: "busy",
};

const aheadFrame: StreamFrame = {
  type: "error",
  message: "ERROR: Last-Event-ID names an event that this session does not have",
};

/** A message on its way into its session. */
interface Asked {
  message: InboundMessage;
  sessionId: string;
  /** The id of the message within its session: the client's, or made here. */
  key: string;
  agent: AgentConfig;
}

function randomId(): string {
  return randomBytes(16).toString("base64url");
}

async function askedOf(ask: Ask, agent: AgentConfig, languages: ChatRoutesDeps["languages"]): Promise<Asked> {
  const { sessionId = randomId(), key = randomId() } = ask;
  // No person is known: the session stands for one.
  const language = await languages.hear(sessionId, ask, agent);
  const message: InboundMessage = {
    v: 1,
    session: sessionKeyOf(apiApp, sessionId),
    // The dedup key of a client holds within its session only.
    id: `${sessionId}.${key}`,
    app: apiApp,
    sender: { id: apiApp },
    chatType: "api",
    parts: [{ type: "text", text: ask.text }],
    language,
    createdAtMs: sharedNow(),
    reply: { channel: "none" },
    ...(ask.background ? { background: true } : {}),
    ...(ask.traceparent === undefined ? {} : { traceparent: ask.traceparent }),
    ...answeredBy(agent),
  };
  return { message, sessionId, key, agent };
}

/** The API has no chats: the id of the session stands for one. */
function chatOf(session: SessionKey): string {
  return session.slice(apiApp.length + 1);
}

/** What storing a message came to; `refused`: it is certain that nothing was stored. */
type Stored = AppendResult | "busy" | "refused" | "uncertain";

/** Answers what clients ask for. */
class ChatApi {
  readonly #deps: ChatRoutesDeps;

  constructor(deps: ChatRoutesDeps) {
    this.#deps = deps;
  }

  #watch({ app, id, session, sender, traceparent }: InboundMessage): MessageWatch {
    const arriving = { app, id, chat: chatOf(session), person: sender.id, channel: "api" } as const;
    return watchMessage(this.#deps.observation, { ...arriving, ...(traceparent === undefined ? {} : { traceparent }) });
  }

  #count({ session }: InboundMessage, outcome: ApiOutcome): void {
    if (!isCanary(session)) this.#deps.count(outcome);
  }

  /** An error frame only while the process starts. */
  async #unavailable(reply: FastifyReply, error = "not taken, please try again"): Promise<void> {
    const { wasReady, streams } = this.#deps;
    if (!wasReady()) return streams.single(reply, { type: "error", message: streamErrors.notReady });
    await reply.code(503).header("retry-after", "1").send({ error });
  }

  async #stored({ message, agent }: Asked): Promise<Stored> {
    const { inbox, isReady, refused, logger } = this.#deps;
    const ended = this.#watch(message);
    if (!isReady()) {
      ended("not_ready");
      return "refused";
    }
    try {
      const appended = await appendAs(agent.busy, inbox, message);
      ended(appended === "busy" ? "busy" : appended.result);
      return appended;
    } catch (error) {
      const outcome = refused(error) ? "refused" : "uncertain";
      ended(outcome === "refused" ? "failed" : outcome, error);
      logger.error({ error, session: message.session, outcome }, "message may not be stored");
      return outcome;
    }
  }

  /** What follows an append. The message is stored, so the client can wait whatever fails here. */
  async #goOn({ message, agent }: Asked, appended: AppendResult): Promise<void> {
    const { session } = message;
    const { inbox, logger } = this.#deps;
    try {
      if (agent.busy === "interrupt" && appended.seq > 0) await supersede(this.#deps, message, appended);
      await inbox.wake(session, appended.wakeGen);
    } catch (error) {
      logger.warn({ error, session }, "session could not be woken at once"); // the workers' sweeper finds the message
    }
  }

  /** Answers an order that needs no run, such as `/stop`, with text. */
  async #obey(reply: FastifyReply, order: Order, { message, agent, sessionId }: Asked): Promise<void> {
    if (!this.#deps.isReady()) return await this.#unavailable(reply);
    const content = wordsOf(message);
    const language = agent.language === "auto" ? (message.language ?? agent.defaultLanguage) : agent.language;
    const ended = this.#watch(message);
    let text: string;
    try {
      text = (await this.#deps.commands(order, message, language)) ?? noticeText("stopping", language);
    } catch (error) {
      ended("failed", error);
      this.#count(message, "failed");
      this.#deps.logger.error({ error, session: message.session, command: order.name }, "command could not be obeyed");
      return await this.#unavailable(reply, "it is not known whether this was done, please try again");
    }
    ended("command");
    this.#count(message, "command");
    reply.header("x-session-id", sessionId);
    const answer = [
      { type: "user_message", content },
      { type: "assistant", content: text },
      { type: "done", final: text },
    ] as const;
    this.#deps.streams.single(reply, ...answer);
  }

  async start(reply: FastifyReply, ask: Ask, agent: AgentConfig): Promise<void> {
    const { streams, languages } = this.#deps;
    const asked = await askedOf(ask, agent, languages);
    const { sessionId, key } = asked;
    const { session } = asked.message;
    // Also of what is refused from here on: that is what people ask about.
    reply.header("x-trace-id", traceIdOf(traceparentOfMessage(asked.message)));
    const command = readCommand(asked.message, ask.text, agent.commands);
    if (command.for === "desk") return await this.#obey(reply, command, asked);
    const { message } = command;
    const appended = await this.#stored({ ...asked, message });
    this.#count(message, outcomeOf(appended));
    if (appended === "refused") return await this.#unavailable(reply);
    reply.header("x-session-id", sessionId);
    if (appended === "uncertain") return streams.single(reply, uncertainFrame(sessionId, key));
    if (appended === "busy") return streams.single(reply, busyFrame);
    if (appended.result === "full") return streams.single(reply, fullFrame);
    await this.#goOn({ ...asked, message }, appended);
    await this.#follow(reply, ask, { session, appended });
  }

  async #follow(
    reply: FastifyReply,
    ask: Ask,
    { session, appended }: { session: SessionKey; appended: AppendResult },
  ): Promise<void> {
    const { streams, runs, onDisconnect, logger } = this.#deps;
    const runId = turnIdOf(session, appended.seq);
    logger.info({ session, turnId: runId, outcome: appended.result }, "message accepted");
    const isNew = appended.result === "accepted";
    // Of a message that was not known nothing can have been seen.
    const seen = isNew ? undefined : ask.lastEventId;
    const run = { session, runId, afterSeq: seen ?? appended.eventSeq ?? 0 };
    // The message is stored, so it is followed even when nothing can be found out at the moment.
    const found = isNew ? run : await findRun(runs, run).catch(() => run);
    if (found === "ahead") return streams.single(reply, aheadFrame);
    if (typeof found === "string") return streams.single(reply, lostRunFrame);
    reply.header("x-run-id", runId);
    await streams.follow(reply, {
      run,
      first: seen === undefined ? { type: "user_message", content: ask.text, run_id: runId } : undefined,
      // A repeated request must not end the run of the first one, whose client may still read.
      cancelWhenGone: isNew && (ask.onDisconnect ?? onDisconnect) === "cancel",
    });
  }

  async resume(reply: FastifyReply, sessionId: string, query: Omit<RunQuery, "session">): Promise<void> {
    const { isReady, runs, streams } = this.#deps;
    if (!isReady()) return await this.#unavailable(reply);
    const found = await findRun(runs, { session: sessionKeyOf(apiApp, sessionId), ...query });
    if (found === "unknown") return await reply.code(404).send({ error: "nothing is known of this session" });
    // 204 also keeps an EventSource from connecting again.
    if (found === "idle" || found === "ahead") return await reply.code(204).send();
    reply.header("x-session-id", sessionId);
    if (found.runId !== undefined) reply.header("x-run-id", found.runId);
    await streams.follow(reply, { run: found, first: undefined, cancelWhenGone: false });
  }

  async refuse(reply: FastifyReply): Promise<void> {
    this.#deps.streams.single(reply, { type: "error", message: streamErrors.emptyMessage });
  }
}

function outcomeOf(appended: Stored): ApiOutcome {
  if (appended === "refused") return "failed";
  return typeof appended === "string" ? appended : appended.result;
}

function wordsOf({ parts }: InboundMessage): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

function uncertainFrame(sessionId: string, key: string): StreamFrame {
  return {
    type: "error",
    message: "ERROR: the message may be stored or not; repeat the request with this session_id and message_id",
    code: "uncertain",
    session_id: sessionId,
    message_id: key,
  };
}

async function postChat(deps: ChatRoutesDeps, { body, headers }: FastifyRequest, reply: FastifyReply) {
  const api = new ChatApi(deps);
  const parsed = parseAsk(body, headers);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { ask } = parsed;
  if (ask.lastEventId !== undefined && ask.sessionId !== undefined && ask.key === undefined) {
    return await api.resume(reply, ask.sessionId, { runId: undefined, afterSeq: ask.lastEventId });
  }
  const { agent: name = "default" } = ask;
  const agent = deps.agentNamed(name);
  if (agent === undefined) return await reply.code(400).send({ error: `there is no agent '${name}'` });
  if (ask.sessionId === canarySessionId && ask.text !== canaryMessage) {
    return await reply.code(400).send({ error: `the session '${canarySessionId}' is kept for the canary` });
  }
  if (ask.text.length > deps.maxChars) {
    return await reply.code(413).send({ error: `the message is longer than ${deps.maxChars} characters` });
  }
  return await (ask.text.trim() === "" ? api.refuse(reply) : api.start(reply, ask, agent));
}

interface EventsRoute {
  Params: { sessionId: string };
  Querystring: Record<string, unknown>;
}

async function getEvents(deps: ChatRoutesDeps, request: FastifyRequest<EventsRoute>, reply: FastifyReply) {
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
  return await new ChatApi(deps).resume(reply, sessionId, { runId: run, afterSeq });
}

const cancelPath = "/v1/runs/:id/cancel";

async function postCancel(deps: ChatRoutesDeps, runId: string, reply: FastifyReply) {
  try {
    const state = await cancelRun({ ...deps, log: deps.runs.log }, runId);
    if (state === "unknown") return await reply.code(404).send({ error: "there is no such run" });
    return await reply.code(state === "ended" ? 200 : 202).send({ run_id: runId, state });
  } catch (error) {
    deps.logger.error({ error, turnId: runId }, "run could not be cancelled");
    return await reply.code(503).header("retry-after", "1").send({ error: "it may go on, please try again" });
  }
}

/**
 * The streaming HTTP API:
 * - `POST /chat` takes a message and streams its run. `Last-Event-ID` with a session id resumes
 *   instead: nothing is appended, unless a `message_id` or `Idempotency-Key` names the message.
 * - `GET /chat/:sessionId/events` follows the run under way, or shows the last one;
 *   `Last-Event-ID` or `?after=` say what the client has seen, `?run=` (a frame's `run_id`) which run.
 * - `POST /v1/runs/:id/cancel` stops a run, waiting or under way: 202, or 200 when it has ended.
 *
 * To be registered in a scope of its own with a parser that leaves bodies as bytes.
 */
export function registerChatRoutes(scope: FastifyInstance, deps: ChatRoutesDeps): void {
  guardApi(scope, deps);
  scope.post<{ Params: { id: string } }>(
    cancelPath,
    async (request, reply) => await postCancel(deps, request.params.id, reply),
  );
  scope.addHook("onRequest", async (request, reply) => {
    // The place is taken before the request is read: requests that come at once do not pass together.
    if (request.routeOptions.url === cancelPath || deps.streams.reserve(reply)) return undefined;
    return await reply.code(503).header("retry-after", "5").send({ error: "too many open streams" });
  });
  scope.post("/chat", async (request, reply) => await postChat(deps, request, reply));
  scope.get<EventsRoute>(
    "/chat/:sessionId/events",
    { exposeHeadRoute: false },
    async (request, reply) => await getEvents(deps, request, reply),
  );
}
