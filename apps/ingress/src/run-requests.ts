import { agentNamed, type AgentConfig } from "@larkline/process/config";
import {
  jsonParserOf,
  outputFormProblem,
  turnIdOf,
  type InboundMessage,
  type SessionKey,
} from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import { parseInput } from "@larkline/protocol/views/item-input";
import {
  ApiError,
  CommandAnswer,
  CommandRequest,
  RunReport,
  RunRequest,
  RunStarted,
} from "@larkline/protocol/views/run-api";
import { isKeptFor } from "@larkline/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { bodyText, isSessionId, isTheirs } from "./api-access.ts";
import {
  askedOf,
  count,
  headerOf,
  mayBeDone,
  obeyNow,
  outcomeOf,
  storeMessage,
  supersedeAndWake,
  traceparentIn,
  type Ask,
  type Asked,
  type Stored,
} from "./api.ts";
import {
  factsOf,
  noSuchSession,
  refuse,
  registerRunReading,
  reportAtEnd,
  unavailable,
  type RunRoute,
} from "./runs.ts";
import { readCommand } from "./commands.ts";
import { runView } from "./nested.ts";
import { textSchema } from "./openapi.ts";
import type { Services } from "./services.ts";
import { cancelOfGone, followRun, hasLeft, takePlace } from "./stream.ts";

// What programs send over HTTP: runs and orders.

/**
 * Adds runs and orders. The input of a run is never taken for an order.
 * Needs a scope of its own that only callers of the API reach, with a parser that leaves bodies as bytes.
 */
export function registerRunRoutes(scope: FastifyInstance, services: Services): void {
  scope.post(
    "/v1/runs",
    {
      config: {
        operation: {
          about: {
            en: "Starts a run. The same session_id and message_id mean the same run, however often they are sent.",
            zh: "开始一次运行。相同的 session_id 和 message_id 始终指同一次运行。",
          },
          headers: {
            Prefer: {
              en: "`wait=<1-300>`: answer with the report if the run ends within so many seconds.",
              zh: "`wait=<1-300>`：若运行在该秒数内结束，则返回报告。",
              schema: textSchema,
            },
            Accept: {
              en: "`text/event-stream`: answer with the events of the run.",
              zh: "`text/event-stream`：以事件流返回运行过程。",
              schema: textSchema,
            },
          },
          body: RunRequest,
          answers: {
            200: RunReport,
            202: RunStarted,
            400: ApiError,
            404: ApiError,
            409: ApiError,
            413: ApiError,
          },
        },
      },
    },
    async (request, reply) => await postRun(services, request, reply),
  );
  registerRunReading(scope, services);
  scope.post<RunRoute>(
    "/v1/sessions/:id/commands",
    {
      config: {
        operation: {
          about: {
            en: "Gives an order such as /new or /status: 200 with its answer, 202 where a run answers it.",
            zh: "执行 /new、/status 等命令：直接答复时返回 200，由一次运行答复时返回 202。",
          },
          body: CommandRequest,
          answers: {
            200: CommandAnswer,
            202: RunStarted,
            400: ApiError,
            404: ApiError,
            409: ApiError,
          },
        },
      },
    },
    async (request, reply) => await postCommand(services, request, reply),
  );
}

async function postRun(services: Services, request: FastifyRequest, reply: FastifyReply) {
  const waitMs = waitMsOf(headerOf(request.headers, "prefer"));
  const isFollowed = request.headers.accept === "text/event-stream";
  const read = await readRun(services, request);
  if ("error" in read) return await refuse(reply, read.error, read.status);
  // The place is taken before anything is stored, so that a client that is sent away can simply come again.
  if ((isFollowed || waitMs > 0) && !(await takePlace(services, request, reply))) return reply;
  const { asked } = read;
  const stored = await storeRun(services, reply, asked);
  if (stored === undefined) return reply;
  const { run } = stored;
  // A repeated request must not end the run of the first one, whose client may still read.
  const cancelWhenGone = stored.isNew && read.cancelWhenGone;
  if (isFollowed) {
    const view = runView("engine", factsOf(run, asked.agent.name));
    return await followRun(services, reply, { run, view, first: undefined, cancelWhenGone });
  }
  const report = waitMs > 0 ? await reportAtEnd(services, reply, run, waitMs) : undefined;
  if (report !== undefined) return await reply.send(report);
  if (cancelWhenGone && hasLeft(reply)) await cancelOfGone(services, run.session, run.runId);
  return await tellStarted(reply, asked, run);
}

/** A run that is in its session, and from where to follow it. */
interface StoredRun {
  run: { session: SessionKey; runId: string; afterSeq: number };
  /** Whether this request has stored it, and none before. */
  isNew: boolean;
}

/** Stores a message, and wakes its session. Undefined: it was not stored, and the client has the reason. */
async function storeRun(
  services: Services,
  reply: FastifyReply,
  asked: Asked,
): Promise<StoredRun | undefined> {
  const { agent, message, sessionId } = asked;
  reply
    .header("x-trace-id", traceIdOf(traceparentOfMessage(message)))
    .header("x-session-id", sessionId);
  const stored = await storeMessage(services, asked);
  count(services, outcomeOf(stored));
  if (typeof stored === "string") return await notStored(reply, asked, stored);
  const { result: outcome } = stored;
  if (outcome === "full" || outcome === "foreign") return await notStored(reply, asked, outcome);
  await supersedeAndWake(services, message, agent, stored);
  const { session } = message;
  const runId = turnIdOf(session, stored.seq);
  services.log.info({ session, turnId: runId, outcome }, "run accepted");
  reply.header("x-run-id", runId);
  const isNew = outcome === "accepted";
  return { run: { session, runId, afterSeq: isNew ? (stored.eventSeq ?? 0) : 0 }, isNew };
}

async function tellStarted(
  reply: FastifyReply,
  { message, sessionId }: Asked,
  { runId }: StoredRun["run"],
) {
  const traceId = traceIdOf(traceparentOfMessage(message));
  return await reply.code(202).send({ run_id: runId, session_id: sessionId, trace_id: traceId });
}

/** A request that can be stored. */
interface ReadRun {
  asked: Asked;
  cancelWhenGone: boolean;
}

/** What a request asks for, or why it is refused. Stores nothing. */
async function readRun(
  services: Services,
  { body, caller, headers }: FastifyRequest,
): Promise<ReadRun | { error: string; status?: number }> {
  const { settings } = services;
  const text = bodyText(body);
  if (text === undefined) return { error: "the body is not valid UTF-8" };
  const parsed = parseRequest(text);
  if (!parsed.ok) return parsed;
  const request = parsed.value;
  const agent = agentNamed(settings, request.agent ?? "default");
  if (agent === undefined) return { error: `agent: there is no agent '${request.agent}'` };
  if (request.message_id !== undefined && request.session_id === undefined) {
    return { error: "message_id: needs a session_id" };
  }
  const input = parseInput(request.input);
  if (!input.ok) return input;
  const { history, parts } = input.value;
  const problem =
    (await problemOfForm(services, request)) ?? problemOfContinued(agent, request, history);
  if (problem !== undefined) return { error: problem };
  const refusal = await refusalOfContinued(services, request, caller);
  if (refusal !== undefined) return refusal;
  const said = textOf({ role: "user", content: parts });
  const { messageChars } = settings.limits;
  if (said.length > messageChars) {
    return {
      error: `input: the last message is longer than ${messageChars} characters`,
      status: 413,
    };
  }
  const asked = await askedOf(services, { ...askOf(request, said, headers), caller }, agent);
  const isNew = history.length === 0 || (await isNewSession(services, asked.message));
  if (isNew === "foreign") return { error: "nothing is known of this session", status: 404 };
  if (isNew === "unknown") return { error: "not taken, please try again", status: 503 };
  if (!isNew) {
    return {
      error: "input: this session has a conversation already, so it takes user messages only",
    };
  }
  const given = givenOf(request, history);
  const needs = [...(given.needs ?? []), ...(asked.message.needs ?? [])];
  const message = { ...given, ...asked.message, parts, ...(needs.length === 0 ? {} : { needs }) };
  return { asked: { ...asked, message }, cancelWhenGone: request.on_disconnect === "cancel" };
}

const parseRequest = jsonParserOf(RunRequest);

/** Schemas of callers are looked at here, and their patterns in a thread; only workers check answers by them. */
async function problemOfForm(
  { schemas }: Services,
  { output: form }: RunRequest,
): Promise<string | undefined> {
  if (form === undefined) return undefined;
  const problem = outputFormProblem(form) ?? (await schemas.problemOf(form.schema));
  return problem === undefined ? undefined : `output.${problem}`;
}

/** Why a run cannot continue an answer that a vendor keeps, or undefined. */
function problemOfContinued(
  { name, request }: AgentConfig,
  { previous_response_id: id }: RunRequest,
  history: readonly Message[],
): string | undefined {
  if (id === undefined) return undefined;
  if (request.storeResponses !== true) {
    return `previous_response_id: agent '${name}' does not store its responses (agents.${name}.storeResponses)`;
  }
  return history.length > 0 ? "input: with previous_response_id it is one user message" : undefined;
}

/** An answer that the vendor does not keep for this caller, as far as is known: nothing says whether it is another's. */
async function refusalOfContinued(
  { lookups, log, redis }: Services,
  { previous_response_id: id }: RunRequest,
  caller: string,
): Promise<{ error: string; status: number } | undefined> {
  if (id === undefined) return undefined;
  const later = { error: "not taken, please try again", status: 503 };
  if (!redis.isReady()) return later;
  try {
    if (await isKeptFor(lookups, id, caller)) return undefined;
    return { error: "previous_response_id: nothing is known of this answer", status: 404 };
  } catch (error) {
    log.warn({ error }, "for whom an answer is kept could not be read");
    return later;
  }
}

/** What a message brings for its run, beside its words. Workers that do not know it leave the message to others. */
function givenOf(
  { model, output, metadata, previous_response_id: previousResponseId }: RunRequest,
  history: readonly Message[],
): Partial<InboundMessage> {
  const hasOptions = model !== undefined || output !== undefined;
  const needs = [
    ...(history.length > 0 ? ["given-history"] : []),
    ...(hasOptions ? ["run-options"] : []),
    ...(previousResponseId === undefined ? [] : ["stored-response"]),
  ];
  return {
    ...(needs.length === 0 ? {} : { needs }),
    ...(history.length === 0 ? {} : { history: [...history] }),
    ...(model === undefined ? {} : { model }),
    ...(output === undefined ? {} : { output }),
    ...(metadata === undefined ? {} : { metadata }),
    ...(previousResponseId === undefined ? {} : { previousResponseId }),
  };
}

/** Whether nothing has been said in the session of a message, except the message itself by a request before. */
async function isNewSession(
  services: Services,
  { session, app, id, sender }: InboundMessage,
): Promise<boolean | "unknown" | "foreign"> {
  const { store, redis, log } = services;
  if (!redis.isReady()) return "unknown";
  try {
    if (!(await isTheirs(services, session, sender.id))) return "foreign";
    if (await store.seen(session, app, id)) return true;
    const { messages, waiting } = await store.summary(session);
    return messages === 0 && waiting === 0;
  } catch (error) {
    log.warn({ error, session }, "session could not be read");
    return "unknown";
  }
}

const parseCommandRequest = jsonParserOf(CommandRequest);

async function postCommand(
  services: Services,
  { body, caller, headers, params }: FastifyRequest<RunRoute>,
  reply: FastifyReply,
) {
  const { id: sessionId } = params;
  if (!isSessionId(sessionId)) return await noSuchSession(reply);
  const parsed = parseCommandRequest(bodyText(body) ?? "");
  if (!parsed.ok) return await refuse(reply, parsed.error);
  const { command: text, agent: name = "default", message_id: key } = parsed.value;
  const agent = agentNamed(services.settings, name);
  if (agent === undefined) return await refuse(reply, `agent: there is no agent '${name}'`);
  const ask: Ask = {
    caller,
    text,
    sessionId,
    key,
    onDisconnect: "continue",
    background: false,
    agent: name,
    traceparent: traceparentIn(headers),
    lastEventId: undefined,
  };
  const asked = await askedOf(services, ask, agent);
  const order = readCommand(asked.message, text, agent.commands);
  if (order.for === "session") {
    const isOrder = order.message !== asked.message;
    if (!isOrder) return await refuse(reply, "command: there is no such command", 400, noCommand);
    const stored = await storeRun(services, reply, { ...asked, message: order.message });
    return stored === undefined ? reply : await tellStarted(reply, asked, stored.run);
  }
  const obeyed = await obeyNow(services, order, asked);
  switch (obeyed) {
    case "refused":
      return await unavailable(reply, "not taken, please try again");
    case "uncertain":
      return await unavailable(reply, mayBeDone);
    case "foreign":
      return await noSuchSession(reply);
    default:
      return await reply.send(obeyed);
  }
}

/** Says to a client that its text is a message, not an order. */
const noCommand = "no_command";

async function notStored(
  reply: FastifyReply,
  { sessionId, key }: Asked,
  why: Exclude<Stored, object> | "full" | "foreign",
): Promise<undefined> {
  switch (why) {
    case "foreign":
      return void (await noSuchSession(reply));
    case "refused":
      return void (await unavailable(reply, "not taken, please try again"));
    case "uncertain": {
      const error =
        "it may be stored or not: repeat the request with this session_id and message_id";
      const body = { error, code: why, session_id: sessionId, message_id: key };
      return void (await reply.code(503).header("retry-after", "1").send(body));
    }
    case "busy":
      return void (await refuse(
        reply,
        "the session is at work, and its agent takes no other message meanwhile",
        409,
        why,
      ));
    case "full":
      return void (await refuse(reply, "too many messages of this session are waiting", 429, why));
  }
}

function askOf(
  request: RunRequest,
  text: string,
  headers: FastifyRequest["headers"],
): Omit<Ask, "caller"> {
  return {
    text,
    sessionId: request.session_id,
    key: request.message_id,
    onDisconnect: request.on_disconnect,
    background: request.background ?? false,
    agent: request.agent,
    traceparent: traceparentIn(headers),
    lastEventId: undefined,
  };
}

/** The wait that `Prefer: wait=<1-300>` (RFC 7240) asks for, ms; 0 without it. */
function waitMsOf(prefer: string | undefined): number {
  const seconds = Number(/(?:^|[,;\s])wait=(\d{1,3})(?:$|[,;\s])/.exec(prefer ?? "")?.[1] ?? 0);
  return Math.min(seconds, 300) * 1_000;
}
