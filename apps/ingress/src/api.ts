import { noticeText } from "@larkline/agent";
import { sessionKeyOf } from "@larkline/agent/messages";
import { agentNamed, type AgentConfig } from "@larkline/process/config";
import { apiApp, jsonParserOf, parserOf, turnIdOf, type InboundMessage } from "@larkline/protocol";
import { traceIdOf, Traceparent, traceparentOfMessage } from "@larkline/protocol/trace";
import { ApiError } from "@larkline/protocol/views/run-api";
import {
  ChatRequest,
  formatSseEvent,
  streamErrors,
  type StreamFrame,
} from "@larkline/protocol/views/stream-frame";
import type { AppendResult } from "@larkline/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { bodyText, isSessionId, isTheirs } from "./api-access.ts";
import { obeyCommand, readCommand, type Order } from "./commands.ts";
import { keepLanguage, languageOfMessage, shownLanguage, writtenLanguage } from "./messages.ts";
import { afterParameter, textSchema } from "./openapi.ts";
import type { Services } from "./services.ts";
import {
  answeredBy,
  appendMessage,
  busyPolicyOf,
  MessageWatch,
  supersedeTurn,
  wakeSession,
} from "./sessions.ts";
import {
  chatView,
  findRun,
  followRun,
  lostRunFrame,
  sendFrames,
  takePlace,
  type RunQuery,
} from "./stream.ts";

// Messages over HTTP, answered with the events of their runs.

interface EventsRoute {
  Params: { sessionId: string };
  Querystring: Record<string, unknown>;
}

/**
 * The streaming HTTP API:
 * - `POST /chat` takes a message and streams its run. `Last-Event-ID` with a session id resumes
 *   instead: nothing is appended, unless a `message_id` or `Idempotency-Key` names the message.
 * - `GET /chat/:sessionId/events` follows the run under way, or shows the last one;
 *   `Last-Event-ID` or `?after=` say what the client has seen, `?run=` (a frame's `run_id`) which run.
 *
 * Needs a scope of its own that only callers of the API reach, with a parser that leaves bodies as bytes.
 */
export function registerChatRoutes(scope: FastifyInstance, services: Services): void {
  scope.addHook("onRequest", async (request, reply) => {
    // The place is taken before the request is read: requests that come at once do not pass together.
    return (await takePlace(services, request, reply)) ? undefined : reply;
  });
  scope.post(
    "/chat",
    {
      config: {
        operation: {
          about: {
            en: "Sends a message and streams its run as frames; with Last-Event-ID and a session it resumes.",
            zh: "发送一条消息并以帧流返回运行过程；带 Last-Event-ID 和会话时继续读取。",
          },
          headers: {
            "X-Session-Id": { en: "As `session_id`.", zh: "同 `session_id`。", schema: textSchema },
            "Idempotency-Key": {
              en: "As `message_id`.",
              zh: "同 `message_id`。",
              schema: textSchema,
            },
            "Last-Event-ID": afterParameter,
          },
          body: ChatRequest,
          answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError, 413: ApiError },
        },
      },
    },
    async (request, reply) => await postChat(services, request, reply),
  );
  scope.get<EventsRoute>(
    "/chat/:sessionId/events",
    {
      config: {
        operation: {
          about: {
            en: "Follows the run under way of a session as frames, or shows the last one.",
            zh: "以帧流跟随会话中进行的运行，或显示最后一次运行。",
          },
          query: {
            after: afterParameter,
            run: { en: "The run to follow.", zh: "要跟随的运行。", schema: textSchema },
          },
          headers: { "Last-Event-ID": afterParameter },
          answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await getEvents(services, request, reply),
  );
}

async function postChat(
  services: Services,
  { body, caller, headers }: FastifyRequest,
  reply: FastifyReply,
) {
  const parsed = parseAsk(body, headers, caller);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { ask } = parsed;
  if (ask.lastEventId !== undefined && ask.sessionId !== undefined && ask.key === undefined) {
    const { sessionId, lastEventId: afterSeq } = ask;
    return await resume(services, reply, { sessionId, caller, runId: undefined, afterSeq });
  }
  const { settings } = services;
  const { agent: name = "default" } = ask;
  const agent = agentNamed(settings, name);
  if (agent === undefined) {
    return await reply.code(400).send({ error: `there is no agent '${name}'` });
  }
  const { messageChars } = settings.limits;
  if (ask.text.length > messageChars) {
    return await reply
      .code(413)
      .send({ error: `the message is longer than ${messageChars} characters` });
  }
  if (ask.text.trim() === "") {
    return await sendFrames(services, reply, { type: "error", message: streamErrors.emptyMessage });
  }
  return await start(services, reply, ask, agent);
}

/** A message that a client brings, and what it wants of the run. */
export interface Ask {
  /** The person that the client stands for. */
  caller: string;
  text: string;
  sessionId: string | undefined;
  /** Dedup id of the message within its session. */
  key: string | undefined;
  onDisconnect: "cancel" | "continue" | undefined;
  /** Tool calls of the run come after those of others. */
  background: boolean;
  /** Name of the agent that is to answer; not looked up yet. */
  agent: string | undefined;
  /** The client's own trace, which the message continues. */
  traceparent: Traceparent | undefined;
  /** Sent by a client that resumes: nothing is appended unless `key` is there, too. */
  lastEventId: number | undefined;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

const parseBody = jsonParserOf(ChatRequest);
const parseFields = parserOf(ChatRequest);

/**
 * Reads body and headers of `POST /chat`; fields of the body win over `X-Session-Id` and
 * `Idempotency-Key`. The content type is not looked at.
 */
function parseAsk(
  body: unknown,
  headers: Headers,
  caller: string,
): { ok: true; ask: Ask } | { ok: false; error: string } {
  const text = bodyText(body);
  if (text === undefined) return { ok: false, error: "the body is not valid UTF-8" };
  const parsed = parseBody(text);
  if (!parsed.ok) return parsed;
  const sessionId = parsed.value.session_id ?? headerOf(headers, "x-session-id");
  const key = parsed.value.message_id ?? headerOf(headers, "idempotency-key");
  // Headers obey the same patterns as the fields that they replace.
  const checked = parseFields({
    ...(sessionId === undefined ? {} : { session_id: sessionId }),
    ...(key === undefined ? {} : { message_id: key }),
  });
  if (!checked.ok) return checked;
  const lastEventId = eventSeqOf(headerOf(headers, "last-event-id"));
  if (sessionId === undefined && (key !== undefined || lastEventId !== undefined)) {
    return { ok: false, error: "message_id, Idempotency-Key and Last-Event-ID need a session_id" };
  }
  const { message, on_disconnect: given, background = false, agent } = parsed.value;
  const onDisconnect = given === "detach" ? "continue" : given;
  const traceparent = traceparentIn(headers);
  const ask = {
    caller,
    text: message ?? "",
    sessionId,
    key,
    onDisconnect,
    background,
    agent,
    traceparent,
    lastEventId,
  };
  return { ok: true, ask };
}

export function headerOf(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The number in a `Last-Event-ID` header or an `after` parameter; undefined when it is none of ours. */
function eventSeqOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

const parseTraceparent = parserOf(Traceparent);

/** The trace of a client (W3C Trace Context); one that is not well-formed is no reason to refuse a message. */
export function traceparentIn(headers: Headers): Traceparent | undefined {
  const parsed = parseTraceparent(headerOf(headers, "traceparent"));
  return parsed.ok && !/-0+-/.test(parsed.value.slice(2)) ? parsed.value : undefined;
}

/** Stores a message and streams its run, or carries out the order in it. */
async function start(
  services: Services,
  reply: FastifyReply,
  ask: Ask,
  agent: AgentConfig,
): Promise<void> {
  const asked = await askedOf(services, ask, agent);
  const { sessionId, key } = asked;
  // Requests that are refused from here on are observed as well, because people ask why they got no answer.
  reply.header("x-trace-id", traceIdOf(traceparentOfMessage(asked.message)));
  const command = readCommand(asked.message, ask.text, agent.commands);
  if (command.for === "now") return await runOrder(services, reply, command, asked);
  const { message } = command;
  const stored = await storeMessage(services, { ...asked, message });
  count(services, outcomeOf(stored));
  if (stored === "refused") {
    return await unavailable(services, reply, "not taken, please try again");
  }
  if (typeof stored !== "string" && stored.result === "foreign") return await unknownSession(reply);
  reply.header("x-session-id", sessionId);
  if (stored === "uncertain") {
    return await sendFrames(services, reply, uncertainFrame(sessionId, key));
  }
  if (stored === "busy") return await sendFrames(services, reply, busyFrame);
  if (stored.result === "full") return await sendFrames(services, reply, fullFrame);
  await supersedeAndWake(services, message, agent, stored);
  await follow(services, reply, ask, { message, appended: stored });
}

/** A message on its way into its session. */
export interface Asked {
  message: InboundMessage;
  /** The words of the client; those of a command may be others in `message`. */
  text: string;
  sessionId: string;
  /** The id of the message within its session: the client's, or made here. */
  key: string;
  agent: AgentConfig;
}

export async function askedOf(services: Services, ask: Ask, agent: AgentConfig): Promise<Asked> {
  const { apiChannel, clock, random } = services;
  const { sessionId = random.id(), key = random.id() } = ask;
  // No person is known, so the id of the session is used. Whether the client may use that session is not known yet.
  const written = { person: sessionId, text: ask.text, isStranger: true };
  const language = await languageOfMessage(services, apiChannel, written, agent);
  const message: InboundMessage = {
    v: 1,
    session: sessionKeyOf(apiApp, sessionId),
    // The dedup key of a client holds within its session only.
    id: `${sessionId}.${key}`,
    app: apiApp,
    sender: { id: ask.caller },
    chatType: "api",
    parts: [{ type: "text", text: ask.text }],
    language,
    createdAtMs: clock.now(),
    reply: { channel: "none" },
    ...(ask.background ? { background: true } : {}),
    ...(ask.traceparent === undefined ? {} : { traceparent: ask.traceparent }),
    ...answeredBy(agent),
  };
  return { message, text: ask.text, sessionId, key, agent };
}

/** Answers an order that needs no run, such as `/stop`, with text. */
async function runOrder(
  services: Services,
  reply: FastifyReply,
  order: Order,
  asked: Asked,
): Promise<void> {
  const { message, sessionId } = asked;
  const obeyed = await obeyNow(services, order, asked);
  switch (obeyed) {
    case "refused":
      return await unavailable(services, reply, "not taken, please try again");
    case "uncertain":
      return await unavailable(services, reply, mayBeDone);
    case "foreign":
      return await unknownSession(reply);
  }
  reply.header("x-session-id", sessionId);
  await sendFrames(
    services,
    reply,
    { type: "user_message", content: wordsOf(message) },
    { type: "assistant", content: obeyed.text },
    { type: "done", final: obeyed.text },
  );
}

/** Answer when it is not known whether the order was carried out. */
export const mayBeDone = "it is not known whether this was done, please try again";

/** The answer to an order that needs no run, or why there is none. */
export async function obeyNow(
  services: Services,
  order: Order,
  { message, agent }: Asked,
): Promise<{ text: string } | "refused" | "uncertain" | "foreign"> {
  if (!services.redis.isReady()) return "refused";
  const language = shownLanguage(agent, message.language);
  const watch = watchOf(services, message);
  let text: string;
  try {
    if (!(await isTheirs(services, message.session, message.sender.id))) return "foreign";
    const answer = await obeyCommand(services, services.apiChannel, order, { message, language });
    text = typeof answer === "object" ? answer.text : (answer ?? noticeText("stopping", language));
  } catch (error) {
    watch.end("failed", error);
    count(services, "failed");
    services.log.error(
      { error, session: message.session, command: order.name },
      "command could not be obeyed",
    );
    return "uncertain";
  }
  watch.end("command");
  count(services, "command");
  return { text };
}

function wordsOf({ parts }: InboundMessage): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The API has no chats, so the id of the session is used as chat id. */
function watchOf(
  services: Services,
  { app, id, session, sender, traceparent }: InboundMessage,
): MessageWatch {
  const chat = session.slice(apiApp.length + 1);
  const arriving = { app, id, chat, person: sender.id, channel: "api" } as const;
  return new MessageWatch(services, {
    ...arriving,
    ...(traceparent === undefined ? {} : { traceparent }),
  });
}

/** What became of a message of the API. */
type ApiOutcome = AppendResult["result"] | "busy" | "command" | "failed" | "uncertain";

export function count({ counters }: Services, outcome: ApiOutcome): void {
  counters.messages.add(1, { channel: "api", outcome });
}

/** An error frame only while the process starts. */
async function unavailable(services: Services, reply: FastifyReply, error: string): Promise<void> {
  if (!services.redis.wasReady()) {
    return await sendFrames(services, reply, { type: "error", message: streamErrors.notReady });
  }
  await reply.code(503).header("retry-after", "1").send({ error });
}

/** What storing a message came to; `refused`: it is certain that nothing was stored. */
export type Stored = AppendResult | "busy" | "refused" | "uncertain";

export async function storeMessage(services: Services, asked: Asked): Promise<Stored> {
  const { message, text, sessionId, agent } = asked;
  const { apiChannel, log, redis } = services;
  const watch = watchOf(services, message);
  if (!redis.isReady()) {
    watch.end("not_ready");
    return "refused";
  }
  try {
    const policy = await busyPolicyOf(services, apiChannel, agent, message.session);
    const appended = await appendMessage(services, apiChannel, message, { policy });
    watch.end(appended === "busy" ? "busy" : appended.result);
    if (appended !== "busy" && appended.result === "accepted") {
      const spoken = writtenLanguage({ text });
      // A message never waits for this.
      if (spoken?.isSure === true) {
        void keepLanguage(services, apiChannel, sessionId, spoken.language);
      }
    }
    return appended;
  } catch (error) {
    const outcome = redis.refused(error) ? "refused" : "uncertain";
    watch.end(outcome === "refused" ? "failed" : outcome, error);
    log.error({ error, session: message.session, outcome }, "message may not be stored");
    return outcome;
  }
}

export function outcomeOf(stored: Stored): ApiOutcome {
  if (stored === "refused") return "failed";
  return typeof stored === "string" ? stored : stored.result;
}

function uncertainFrame(sessionId: string, key: string): StreamFrame {
  return {
    type: "error",
    message:
      "ERROR: the message may be stored or not; repeat the request with this session_id and message_id",
    code: "uncertain",
    session_id: sessionId,
    message_id: key,
  };
}

const busyFrame: StreamFrame = {
  type: "error",
  message: "ERROR: the session is at work, and its agent takes no other message meanwhile",
  code: "busy",
};

const fullFrame: StreamFrame = {
  type: "error",
  message: "ERROR: too many messages of this session are waiting",
  code: "full",
};

/** What follows an append. The message is stored, so the client can wait whatever fails here. */
export async function supersedeAndWake(
  services: Services,
  message: InboundMessage,
  agent: AgentConfig,
  appended: AppendResult,
): Promise<void> {
  const { apiChannel, log } = services;
  const { session } = message;
  try {
    const policy = await busyPolicyOf(services, apiChannel, agent, session);
    if (policy === "interrupt" && appended.seq > 0) {
      await supersedeTurn(services, apiChannel, message, appended);
    }
    await wakeSession(services, apiChannel, session, appended.wakeGen);
  } catch (error) {
    log.warn({ error, session }, "session could not be woken at once"); // the workers' sweeper finds the message
  }
}

const aheadFrame: StreamFrame = {
  type: "error",
  message: "ERROR: Last-Event-ID names an event that this session does not have",
};

async function follow(
  services: Services,
  reply: FastifyReply,
  ask: Ask,
  { message, appended }: { message: InboundMessage; appended: AppendResult },
): Promise<void> {
  const { session } = message;
  const runId = turnIdOf(session, appended.seq);
  services.log.info({ session, turnId: runId, outcome: appended.result }, "message accepted");
  const isNew = appended.result === "accepted";
  // The message is new, so the client cannot have seen events of it.
  const seen = isNew ? undefined : ask.lastEventId;
  const run = { session, runId, afterSeq: seen ?? appended.eventSeq ?? 0 };
  // The message is stored, so it is followed even when nothing can be found out at the moment.
  const found = isNew ? run : await findRun(services, run).catch(() => run);
  if (found === "ahead") return await sendFrames(services, reply, aheadFrame);
  if (typeof found === "string") return await sendFrames(services, reply, lostRunFrame);
  reply.header("x-run-id", runId);
  const asked: StreamFrame = { type: "user_message", content: ask.text, run_id: runId };
  await followRun(services, reply, {
    run,
    view: chatView,
    first: seen === undefined ? formatSseEvent(asked) : undefined,
    // A repeated request must not end the run of the first one, whose client may still read.
    cancelWhenGone: isNew && (ask.onDisconnect ?? services.config.api.onDisconnect) === "cancel",
  });
}

async function getEvents(
  services: Services,
  request: FastifyRequest<EventsRoute>,
  reply: FastifyReply,
) {
  const { sessionId } = request.params;
  const { after, run } = request.query;
  if (!isSessionId(sessionId)) return await reply.code(400).send({ error: "bad session id" });
  if (
    run !== undefined &&
    (typeof run !== "string" || !run.startsWith(`${sessionKeyOf(apiApp, sessionId)}-`))
  ) {
    return await reply.code(400).send({ error: "run names no run of this session" });
  }
  const lastEventId = request.headers["last-event-id"];
  const afterSeq =
    eventSeqOf(typeof lastEventId === "string" ? lastEventId : undefined) ??
    eventSeqOf(typeof after === "string" ? after : undefined);
  return await resume(services, reply, { sessionId, caller: request.caller, runId: run, afterSeq });
}

/** The same for sessions of others: a caller does not learn that there are any. */
async function unknownSession(reply: FastifyReply) {
  return await reply.code(404).send({ error: "nothing is known of this session" });
}

/** Streams to a client that comes back. */
async function resume(
  services: Services,
  reply: FastifyReply,
  {
    sessionId,
    caller,
    ...query
  }: Omit<RunQuery, "session"> & { sessionId: string; caller: string },
): Promise<void> {
  if (!services.redis.isReady()) {
    return await unavailable(services, reply, "not taken, please try again");
  }
  const session = sessionKeyOf(apiApp, sessionId);
  const found = (await isTheirs(services, session, caller))
    ? await findRun(services, { session, ...query })
    : "unknown";
  if (found === "unknown") return await unknownSession(reply);
  // 204 also keeps an EventSource from connecting again.
  if (found === "idle" || found === "ahead") return await reply.code(204).send();
  reply.header("x-session-id", sessionId);
  if (found.runId !== undefined) reply.header("x-run-id", found.runId);
  await followRun(services, reply, {
    run: found,
    view: chatView,
    first: undefined,
    cancelWhenGone: false,
  });
}
