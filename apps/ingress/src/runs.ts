import { apiApp, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { isTerminal, type EventRecord } from "@larkline/protocol/event";
import type { RunFacts } from "@larkline/protocol/views/engine-view";
import type { RunState } from "@larkline/protocol/views/item-view";
import { ApiError, RunCancelled, RunReport } from "@larkline/protocol/views/run-api";
import { runViews, type Position, type RunViewName } from "@larkline/protocol/views/run-stream";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { isTheirs, pageIn, readDeadlineMs, type Page } from "./api-access.ts";
import { headerOf } from "./api.ts";
import { interruptionsOf } from "./approvals.ts";
import { parseNested, runView, tellNested, type NestedPosition } from "./nested.ts";
import { afterParameter, textSchema } from "./openapi.ts";
import type { Services } from "./services.ts";
import { cancelTurn } from "./sessions.ts";
import {
  foldRun,
  followRun,
  hasEventsOfRun,
  hasLeft,
  helpersBelow,
  keptEvents,
  recordsOfRun,
  takePlace,
  usedWith,
  withTotals,
  type SseStream,
} from "./stream.ts";

// Runs of the HTTP API by their id: each is asked for, followed in a view, and cancelled.

/** The ids of runs of the API: their session, and their number in it. */
const runPattern = new RegExp(`^(${apiApp}\\.[A-Za-z0-9_-]{1,64}(?:~[0-9a-f]{20})?)-(\\d{1,15})$`);

export interface RunRoute {
  Params: { id: string };
  Querystring: Record<string, unknown>;
}

/** Adds what is done with a run that was started. */
export function registerRunReading(scope: FastifyInstance, services: Services): void {
  scope.get<RunRoute>(
    "/v1/runs/:id",
    {
      config: {
        operation: {
          about: {
            en: "Reports on a run, as long as its events are kept. Its lists come in pages.",
            zh: "查询一次运行（在其事件保留期内）。其中的列表分页返回。",
          },
          query: {
            after: {
              en: "`next` of the page before.",
              zh: "上一页的 `next`。",
              schema: textSchema,
            },
            limit: {
              en: "Entries of each list in a page, 1 to 500; default 100.",
              zh: "每页中各列表的条数，1 到 500，默认 100。",
              schema: textSchema,
            },
          },
          answers: { 200: RunReport, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await getRun(services, request, reply),
  );
  scope.get<RunRoute>(
    "/v1/runs/:id/events",
    {
      config: {
        operation: {
          about: {
            en: "Follows a run in a view. The event `end` is the last one; 204 when nothing is left to see.",
            zh: "以某种视图跟随一次运行。最后一个事件是 `end`；没有更多内容时返回 204。",
          },
          query: {
            view: {
              en: "`engine` (default), `items` or `messages`.",
              zh: "`engine`（默认）、`items` 或 `messages`。",
              schema: { ...textSchema, enum: ["engine", "items", "messages"] },
            },
            after: afterParameter,
            nested: {
              en: "`1` adds the events of runs that work for this one, each with its `runId` and `parentRunId`: all of a helper's before the result of its call. The `id` lines are opaque positions in all of them.",
              zh: "`1` 加入子运行的事件，各带自己的 `runId` 和 `parentRunId`：子运行的全部事件都在其调用结果之前。`id` 行是所有运行的总位置，请原样使用。",
              schema: { ...textSchema, enum: ["0", "1"] },
            },
          },
          headers: { "Last-Event-ID": afterParameter },
          answers: { 200: "events", 204: "empty", 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await getEvents(services, request, reply),
  );
  scope.post<RunRoute>(
    "/v1/runs/:id/cancel",
    {
      config: {
        operation: {
          about: { en: "Stops a run, waiting or under way.", zh: "停止一次等待中或进行中的运行。" },
          answers: { 202: RunCancelled, 404: ApiError, 409: RunCancelled },
        },
      },
    },
    async (request, reply) => await postCancel(services, request, reply),
  );
}

/** The report of a run that ends within `waitMs`, while the client is there and the process does not stop. */
export async function reportAtEnd(
  services: Services,
  reply: FastifyReply,
  { session, runId, afterSeq }: { session: SessionKey; runId: string; afterSeq: number },
  waitMs: number,
): Promise<RunReport | undefined> {
  const { clock, eventLog, log, streams } = services;
  const over = new AbortController();
  const cancel = clock.after(waitMs, () => over.abort());
  reply.raw.once("close", () => over.abort());
  // A client that left while its run was stored causes no "close" any more.
  if (hasLeft(reply)) over.abort();
  const stop = AbortSignal.any([over.signal, streams.closing]);
  try {
    for await (const record of recordsOfRun(eventLog.follow(session, afterSeq, stop), runId)) {
      if (record === "lost" || isTerminal(record.event)) break;
    }
    const report = await reportOn(services, session, runId, firstPage);
    return report !== undefined && isOver(report.state) ? report : undefined;
  } catch (error) {
    log.warn({ error, session, turnId: runId }, "a run could not be waited for");
    return undefined; // it is stored: the client asks for it
  } finally {
    cancel();
    over.abort();
  }
}

function isOver(state: RunState): boolean {
  return state === "done" || state === "error" || state === "cancelled";
}

/** Entries of each list of a report that come in one page. */
const reportPages = { usual: 100, most: 500 };
const firstPage: Page = { from: 0, size: reportPages.usual };

async function getRun(
  services: Services,
  { params, caller, query }: FastifyRequest<RunRoute>,
  reply: FastifyReply,
) {
  const { id: runId } = params;
  const session = runPattern.exec(runId)?.[1];
  if (session === undefined) return await noSuchRun(reply);
  const page = pageIn(query, reportPages);
  if ("error" in page) return await refuse(reply, page.error);
  if (!services.redis.isReady()) {
    return await unavailable(reply, "not known at the moment, please try again");
  }
  try {
    if (!(await isTheirs(services, session, caller))) return await noSuchRun(reply);
    const report = await reportOn(services, session, runId, page);
    return report === undefined ? await noSuchRun(reply) : await reply.send(report);
  } catch (error) {
    services.log.error({ error, turnId: runId }, "run could not be read");
    return await unavailable(reply, "not known at the moment, please try again");
  }
}

/**
 * What is known of a run; undefined when it is unknown, or its events are no longer kept. Rejects when that takes longer
 * than a client waits.
 */
async function reportOn(
  services: Services,
  session: SessionKey,
  runId: string,
  page: Page,
): Promise<RunReport | undefined> {
  const late = new AbortController();
  try {
    return await withDeadline(
      services.clock,
      readReport(services, { session, runId }, page, late.signal),
      readDeadlineMs,
    );
  } finally {
    late.abort();
  }
}

async function readReport(
  services: Services,
  { session, runId }: { session: SessionKey; runId: string },
  page: Page,
  stop: AbortSignal,
): Promise<RunReport | undefined> {
  // Read before the log: a run that ends in between has its last events in the log already.
  const open = await openRun(services, session, runId);
  const read = await foldRun(services, { session, runId }, stop);
  const { first, end, metadata = open?.message.metadata } = read;
  if (open === undefined && end === undefined) return undefined;
  // The session may have been handed over: then another agent answers than the one that the message is for.
  const agent = first?.agent ?? (open === undefined ? null : agentOf(open.message));
  const { state, finalOutput, lastAgent, responseIds, reason, error, endedAtMs, ...own } =
    read.result;
  const helpers = await helpersBelow(services, session, read);
  const { usage, costUsd } = await usedWith(
    services,
    own,
    [...helpers.own, ...helpers.further],
    stop,
  );
  const interruptions = end === undefined ? await interruptionsOf(services, session, runId) : [];
  const to = page.from + page.size;
  const longest = Math.max(responseIds.length, interruptions.length, helpers.own.length);
  return {
    run_id: runId,
    session_id: sessionIdOf(session),
    state: end === undefined && open !== undefined ? open.state : state,
    agent,
    last_agent: first === undefined && open !== undefined ? agentOf(open.message) : lastAgent,
    ...answerOf(end, finalOutput),
    usage,
    cost_usd: costUsd,
    response_ids: responseIds.slice(page.from, to),
    reason: error === null ? reason : "",
    error,
    interruptions: interruptions.slice(page.from, to),
    children: helpers.own.slice(page.from, to).map((helper) => helper.runId),
    metadata: { ...metadata },
    created_at: first?.atMs ?? null,
    ended_at: endedAtMs,
    next: longest > to ? `${to}` : null,
  };
}

function answerOf(
  end: EventRecord | undefined,
  value: unknown,
): Pick<RunReport, "final_output" | "output"> {
  if (end?.event.type !== "done") return { final_output: null };
  const { final, output } = end.event;
  return { final_output: final, ...(output === undefined ? {} : { output: value }) };
}

export function factsOf(
  { session, runId }: { session: SessionKey; runId: string },
  agent = "default",
): RunFacts {
  return { runId, sessionId: sessionIdOf(session), agent, startedAtMs: 0 };
}

function sessionIdOf(session: SessionKey): string {
  return session.slice(apiApp.length + 1);
}

/** A run that has not ended; undefined for any other. */
async function openRun(
  { store }: Services,
  session: SessionKey,
  runId: string,
): Promise<{ state: RunState; message: InboundMessage } | undefined> {
  const { head, turn, waiting, setAside, state } = await store.summary(session);
  const seq = Number(runPattern.exec(runId)?.[2]);
  const aside = setAside.find((one) => one.head.seq === seq);
  if (aside !== undefined) return { state: "waiting", message: aside.head.message };
  if (head?.seq === seq || (head !== undefined && turn?.absorbed.includes(runId) === true)) {
    const { message } = head;
    if (state === "suspended") return { state: "waiting", message };
    return { state: state === "running" || turn !== undefined ? "running" : "queued", message };
  }
  const queued = waiting > 0 ? await store.waiting(session, waiting) : [];
  const found = queued.find((message) => message.seq === seq);
  return found === undefined ? undefined : { state: "queued", message: found.message };
}

function agentOf({ agent = "default" }: InboundMessage): string {
  return agent;
}

async function getEvents(
  services: Services,
  request: FastifyRequest<RunRoute>,
  reply: FastifyReply,
) {
  const { id: runId } = request.params;
  const { nested = "0", view = "engine" } = request.query;
  if (!isViewName(view)) return await refuse(reply, `view: must be one of ${runViews.join(", ")}`);
  if (nested !== "0" && nested !== "1") return await refuse(reply, "nested: must be 0 or 1");
  const session = runPattern.exec(runId)?.[1];
  if (session === undefined) return await noSuchRun(reply);
  if (!(await takePlace(services, request, reply))) return reply;
  if (!services.redis.isReady()) {
    return await unavailable(reply, "not known at the moment, please try again");
  }
  const after = seenBy(request);
  const position = after?.root;
  let open: Awaited<ReturnType<typeof openRun>>;
  try {
    if (!(await isTheirs(services, session, request.caller))) return await noSuchRun(reply);
    open = await openRun(services, session, runId);
    // Read after the summary: a run that has ended in between has its events in the log.
    const left =
      open === undefined ? await eventsLeft(services, { session, runId, view }, position) : "some";
    if (left === "unknown") return await noSuchRun(reply);
    // 204 also keeps an EventSource from connecting again.
    if (left === "none") return await reply.code(204).send();
  } catch (error) {
    services.log.error({ error, turnId: runId }, "run could not be read");
    return await unavailable(reply, "not known at the moment, please try again");
  }
  reply.header("x-session-id", sessionIdOf(session)).header("x-run-id", runId);
  // From the first event on, since a view is made from all of them.
  const run = { session, runId, afterSeq: 0 };
  const shown = runView(
    view,
    factsOf(run, open === undefined ? undefined : agentOf(open.message)),
    position,
  );
  const alone = { run, view: shown, first: undefined, cancelWhenGone: false };
  if (nested === "0") return await followRun(services, reply, alone);
  const tree = { run, name: view, view: shown, sessionIdOf, after };
  const tell = async (stream: SseStream, stop: AbortSignal) =>
    await tellNested(services, stream, tree, stop);
  await followRun(services, reply, { ...alone, tell });
}

/** How far a client that comes back has read. */
function seenBy({ headers, query }: FastifyRequest<RunRoute>): NestedPosition | undefined {
  const { after } = query;
  const seen =
    headerOf(headers, "last-event-id") ?? (typeof after === "string" ? after : undefined);
  return seen === undefined ? undefined : parseNested(seen);
}

function isViewName(name: unknown): name is RunViewName {
  return runViews.some((known) => known === name);
}

/** Whether a run that is over has events that a client has not seen. */
async function eventsLeft(
  services: Services,
  { session, runId, view }: { session: SessionKey; runId: string; view: RunViewName },
  after: Position = { seq: 0 },
): Promise<"some" | "none" | "unknown"> {
  let known = false;
  const records = recordsOfRun(keptEvents(services, session, 0), runId);
  for await (const record of view === "engine" ? withTotals(services, session, records) : records) {
    // The event that comes with more than one emission may be seen in part.
    if (record === "lost" || record.seq > after.seq || after.part !== undefined) return "some";
    known = true;
  }
  return known ? "none" : "unknown";
}

async function postCancel(
  services: Services,
  { params, caller }: FastifyRequest<RunRoute>,
  reply: FastifyReply,
) {
  const { id: runId } = params;
  const session = runPattern.exec(runId)?.[1];
  try {
    const isKnown = session !== undefined && (await isTheirs(services, session, caller));
    const state = isKnown ? await cancelRun(services, runId) : "unknown";
    if (state === "unknown") return await noSuchRun(reply);
    if (state === "ended") {
      return await reply.code(409).send({ error: "the run has ended", run_id: runId, state });
    }
    return await reply.code(202).send({ run_id: runId, state });
  } catch (error) {
    services.log.error({ error, turnId: runId }, "run could not be cancelled");
    return await unavailable(reply, "it may go on, please try again");
  }
}

/** Stops a run of the API, waiting or under way; of a message that has joined another run, that one. */
async function cancelRun(
  services: Services,
  runId: string,
): Promise<"cancelling" | "ended" | "unknown"> {
  const [, session, ordinal] = runPattern.exec(runId) ?? [];
  if (session === undefined) return "unknown";
  const seq = Number(ordinal);
  const { head, turn, waiting } = await services.store.summary(session);
  const isOpen =
    head?.seq === seq ||
    turn?.absorbed.includes(runId) === true ||
    (waiting > 0 &&
      (await services.store.waiting(session, waiting)).some((message) => message.seq === seq));
  if (isOpen) {
    await cancelTurn(services, services.apiChannel, { session, turnId: runId, reason: "stopped" });
    return "cancelling";
  }
  // Read after the summary: a run that ended in between has its events in the log.
  return (await hasEventsOfRun(services, session, runId)) ? "ended" : "unknown";
}

export async function refuse(reply: FastifyReply, error: string, status = 400, code?: string) {
  return await reply.code(status).send({ error, ...(code === undefined ? {} : { code }) });
}

async function noSuchRun(reply: FastifyReply) {
  return await refuse(
    reply,
    "there is no such run, or its events are no longer kept",
    404,
    "session_not_found",
  );
}

/**
 * Refuses a session that the caller may not see: a caller does not learn that others have sessions.
 */
export async function noSuchSession(reply: FastifyReply) {
  return await refuse(reply, "nothing is known of this session", 404, "session_not_found");
}

export async function unavailable(reply: FastifyReply, error: string) {
  return await reply.code(503).header("retry-after", "1").send({ error });
}
