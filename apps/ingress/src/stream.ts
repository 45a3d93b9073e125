import { once } from "node:events";
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { turnIdOf, type SessionKey } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import { hasJoined, isTerminal, type EventRecord } from "@larkline/protocol/event";
import { addItemUsage } from "@larkline/protocol/views/item-helpers";
import { ItemView, type RunResult } from "@larkline/protocol/views/item-view";
import {
  formatSseEvent,
  streamFramesOfRecord,
  type StreamFrame,
} from "@larkline/protocol/views/stream-frame";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Services } from "./services.ts";
import { cancelTurn } from "./sessions.ts";

// Runs as streams of server-sent events: which run a returning client wants, its frames, and the bytes.

/** Takes a place for a stream before the request is read. False when there is none; the client then has its refusal. */
export async function takePlace(
  { streams }: Services,
  { caller }: FastifyRequest,
  reply: FastifyReply,
): Promise<boolean> {
  const place = streams.reserve(reply.raw, caller);
  if (place === "taken") return true;
  const status = place === "full" ? 503 : 429;
  await reply.code(status).header("retry-after", "5").send({ error: "too many open streams" });
  return false;
}

/** A run to follow. Without `runId`: the run of the next event. */
export interface RunPosition {
  session: SessionKey;
  runId: string | undefined;
  /** Only events after this one are read. */
  afterSeq: number;
}

/** What a resuming client has seen. */
export interface RunQuery {
  session: SessionKey;
  runId: string | undefined;
  /** The last event it has seen. */
  afterSeq: number | undefined;
}

/**
 * A run to follow, or why there is none: the session does nothing now, nothing is known of it, or the client
 * claims to have seen events that the session does not have.
 */
export type FoundRun = RunPosition | "idle" | "unknown" | "ahead";

/** Finds the run that a resuming client wants. Does not wait for a run unless a stored message will start it. */
export async function findRun(services: Services, query: RunQuery): Promise<FoundRun> {
  const { session, runId, afterSeq } = query;
  // Read before the log: a run that ends in between has its last events in the log already.
  const summary = await services.store.summary(session);
  const moving = summary.state !== "idle" || summary.waiting > 0;
  if (afterSeq !== undefined && afterSeq > summary.eventSeq) return "ahead";
  if (runId === undefined && afterSeq === undefined) {
    return await latestRun(services, session, moving);
  }
  const position =
    runId === undefined
      ? await interruptedRun(services, session, afterSeq ?? 0)
      : { session, runId, afterSeq: afterSeq ?? 0 };
  return moving || (await hasEventsOf(services, position)) ? position : "idle";
}

/** The run under way, else (when the session is idle) the last one, from its first event. */
async function latestRun(
  services: Services,
  session: SessionKey,
  moving: boolean,
): Promise<FoundRun> {
  const runs = new Map<string, { afterSeq: number; ended: boolean }>();
  let newest = 0;
  for await (const { runId, seq, event } of keptEvents(services, session, 0)) {
    const afterSeq = runs.get(runId)?.afterSeq ?? seq - 1;
    runs.set(runId, { afterSeq, ended: isTerminal(event) });
    newest = seq;
  }
  const known = [...runs].map(([runId, run]) => ({ session, runId, ...run }));
  const found = known.findLast((run) => !run.ended) ?? (moving ? undefined : known.at(-1));
  if (found !== undefined) return { session, runId: found.runId, afterSeq: found.afterSeq };
  return moving ? { session, runId: undefined, afterSeq: newest } : "unknown";
}

/** The run that the client was reading: that of its last event, unless it had ended. */
async function interruptedRun(
  { eventLog }: Services,
  session: SessionKey,
  afterSeq: number,
): Promise<RunPosition> {
  const [seen] = afterSeq > 0 ? await eventLog.read(session, afterSeq - 1, 1) : [];
  const open = seen !== undefined && seen.seq === afterSeq && !isTerminal(seen.event);
  return { session, runId: open ? seen.runId : undefined, afterSeq };
}

async function hasEventsOf(
  services: Services,
  { session, runId, afterSeq }: RunPosition,
): Promise<boolean> {
  for await (const record of keptEvents(services, session, afterSeq)) {
    if (runId === undefined || record.runId === runId) return true;
  }
  return false;
}

/** Batches of events that are in memory at once. One step's can be a megabyte. */
const pageSize = 100;

/** The events of a session after `afterSeq`, as far as they are kept. Throws between two pages once `stop` aborts. */
export async function* keptEvents(
  { eventLog }: Services,
  session: SessionKey,
  afterSeq: number,
  stop?: AbortSignal,
): AsyncGenerator<EventRecord> {
  let from = afterSeq;
  for (;;) {
    stop?.throwIfAborted();
    const page = await eventLog.read(session, from, pageSize);
    yield* page;
    const last = page.at(-1);
    if (last === undefined) return;
    from = last.seq;
  }
}

/** Whether the log still has events of a run. */
export async function hasEventsOfRun(
  services: Services,
  session: SessionKey,
  runId: string,
): Promise<boolean> {
  return await hasEventsOf(services, { session, runId, afterSeq: 0 });
}

/** Answers with these frames alone. */
export async function sendFrames(
  services: Services,
  reply: FastifyReply,
  ...frames: readonly StreamFrame[]
): Promise<void> {
  const stream = openStream(services, reply);
  try {
    // Nothing is sent to a client that has left.
    await stream.write(frames.map((frame) => formatSseEvent(frame)).join(""));
  } finally {
    stream.end();
  }
}

/** How a client sees the events of a run: each of them as server-sent events, or as nothing. */
export interface RunView {
  /** What belongs to a run besides its own records: see {@link withTotals}, and {@link recordsOfRun} for `joined`. */
  readonly also?: "totals" | "joined" | undefined;
  /** What a record comes to; a returning client names the last `id:` line that it has. */
  show(record: EventRecord): string;
  /** What stands after the last record. */
  end(last: EventRecord): string;
  /** Ends a stream whose run is over and forgotten. */
  readonly lost: string;
}

export interface RunStream {
  run: RunPosition;
  view: RunView;
  /** Sent before the events of the run. */
  first: string | undefined;
  /** Whether the run ends when the client leaves before it does. */
  cancelWhenGone: boolean;
  /** Writes more than the records of the run, up to its end; false: it was stopped before. */
  tell?: ((stream: SseStream, stop: AbortSignal) => Promise<boolean>) | undefined;
}

/** Answers with the frames of a run; resolves when the stream is closed. */
export async function followRun(
  services: Services,
  reply: FastifyReply,
  request: RunStream,
): Promise<void> {
  await services.streams.run(serveRun(services, reply, request));
}

type Ending = "finished" | "gone" | "shutdown" | "resume" | "interrupted";

async function serveRun(
  services: Services,
  reply: FastifyReply,
  request: RunStream,
): Promise<void> {
  const stream = openStream(services, reply);
  const ending = await deliver(services, stream, request);
  stream.end(ending === "finished" || ending === "gone" ? undefined : ending);
  const { session, runId } = request.run;
  services.log.info({ session, turnId: runId, ending }, "event stream closed");
  if (ending === "gone" && request.cancelWhenGone && runId !== undefined) {
    await cancelOfGone(services, session, runId);
  }
}

/** Whether a client has left before it had its answer. */
export function hasLeft({ raw, request }: FastifyReply): boolean {
  return !raw.writableEnded && request.raw.socket.destroyed;
}

/** Cancels the run of a client that has left. Never rejects. */
export async function cancelOfGone(
  services: Services,
  session: SessionKey,
  runId: string,
): Promise<void> {
  const { log, apiChannel } = services;
  try {
    await cancelTurn(services, apiChannel, {
      session,
      turnId: runId,
      reason: "client_disconnected",
    });
  } catch (error) {
    log.warn({ error, session, turnId: runId }, "could not cancel the run of a client that left");
  }
}

/** A stream is closed after this time, for its client to resume. */
const maxStreamMs = 3_600_000;

async function deliver(
  services: Services,
  stream: SseStream,
  { run, view, first, tell }: RunStream,
): Promise<Ending> {
  const { clock, log, streams } = services;
  const expired = new AbortController();
  const cancelExpiry = clock.after(maxStreamMs, () => expired.abort());
  const stop = AbortSignal.any([stream.gone, streams.closing, expired.signal]);
  try {
    if (first !== undefined) await stream.write(first);
    const isSent =
      tell === undefined
        ? await pump(stream, recordsFor(services, run, view.also, stop), view)
        : await tell(stream, stop);
    if (isSent) return "finished";
  } catch (error) {
    if (!stop.aborted) {
      log.warn({ error, session: run.session, turnId: run.runId }, "event stream failed");
    }
  } finally {
    cancelExpiry();
  }
  if (stream.gone.aborted) return "gone";
  if (streams.closing.aborted) return "shutdown";
  return expired.signal.aborted ? "resume" : "interrupted";
}

/** The records of a run as they come, with what also belongs to it. */
export function recordsFor(
  services: Services,
  { session, runId, afterSeq }: RunPosition,
  also: RunView["also"],
  stop: AbortSignal,
): AsyncIterable<EventRecord | "lost"> {
  const records = recordsOfRun(
    services.eventLog.follow(session, afterSeq, stop),
    runId,
    also === "joined",
  );
  return also === "totals" ? withTotals(services, session, records) : records;
}

/** True when everything was written up to the end of the run. */
async function pump(
  stream: SseStream,
  records: AsyncIterable<EventRecord | "lost">,
  view: RunView,
): Promise<boolean> {
  let last: EventRecord | undefined;
  let hasEnded = false;
  for await (const record of records) {
    if (record === "lost") {
      await stream.write(view.lost);
      return !stream.gone.aborted;
    }
    const text = view.show(record);
    if (text !== "") await stream.write(text);
    if (stream.gone.aborted) return false;
    last = record;
    hasEnded ||= isEnd(record);
  }
  if (!hasEnded || last === undefined) return false;
  const end = view.end(last);
  if (end !== "") await stream.write(end);
  return true;
}

/** Whether a run is over with this record; one that has joined another run is not. */
export function isEnd({ event }: EventRecord): boolean {
  return event.type === "error" || (event.type === "done" && event.takenBy === undefined);
}

/** Says that a run is over and forgotten. */
export const lostRunFrame: StreamFrame = {
  type: "error",
  message: "ERROR: the events of this run are no longer kept",
};

/** The frames of `POST /chat`. */
export const chatView: RunView = {
  end: () => "",
  show: (record) =>
    streamFramesOfRecord(record)
      .map((frame) => formatSseEvent(frame, frame.seq))
      .join(""),
  lost: formatSseEvent(lostRunFrame),
};

/**
 * The records of one run (of the first event's run, without `runId`) from the events of its session, up to the one that
 * ends it; `lost` when its end is no longer in the log. An outcome that the successor of a worker publishes
 * again, since that worker died before it could save, comes once. A message that has joined another run ends with that one. `joined` adds the
 * records that say so, which have the words of such messages.
 */
export async function* recordsOfRun(
  records: AsyncIterable<EventRecord | undefined>,
  runId: string | undefined,
  joined = false,
): AsyncGenerator<EventRecord | "lost"> {
  let followed = runId;
  const outcomes = new Set<string>();
  for await (const record of records) {
    if (record === undefined) continue;
    followed ??= record.runId;
    if (record.runId === followed) {
      if (record.event.type === "tool_result") {
        if (outcomes.has(record.event.id)) continue;
        outcomes.add(record.event.id);
      }
      if (record.event.type === "done" && record.event.takenBy !== undefined) {
        followed = record.event.takenBy;
        if (joined) yield record;
        continue;
      }
      yield record;
      if (isTerminal(record.event)) return;
    } else if (joined && hasJoined(record, followed)) {
      yield record;
    } else if (provesEnd(record, followed)) {
      yield "lost";
      return;
    }
  }
}

/**
 * The records of a run, and after its end the totals of its session. They come in the same write, so that who has read
 * the end need not wait for them; ends that come without them are those of messages that were never begun.
 */
export async function* withTotals(
  { eventLog }: Services,
  session: SessionKey,
  records: AsyncIterable<EventRecord | "lost">,
): AsyncGenerator<EventRecord | "lost"> {
  for await (const record of records) {
    yield record;
    if (record === "lost" || !isTerminal(record.event)) continue;
    const [next] = await eventLog.read(session, record.seq, 1);
    if (next?.event.type === "session_info" && next.runId === record.runId) yield next;
  }
}

/**
 * Whether a later run is under way, so that `runId` must have ended. The end of a waiting run alone
 * proves nothing: it may have been cancelled before its turn.
 */
function provesEnd(record: EventRecord, runId: string): boolean {
  return ordinalOf(record.runId) > ordinalOf(runId) && !isTerminal(record.event);
}

function ordinalOf(runId: string): number {
  return Number(runId.slice(runId.lastIndexOf("-") + 1));
}

/** Takes the response over from fastify, with the headers that it has so far. */
function openStream({ clock, config }: Services, reply: FastifyReply): SseStream {
  reply.hijack();
  const headers = Object.entries(reply.getHeaders()).map(
    ([name, value]) => [name, value ?? ""] as const,
  );
  const { heartbeatMs } = config.api;
  return openSse(clock, reply.raw, { headers: Object.fromEntries(headers), heartbeatMs });
}

export interface SseOptions {
  headers: OutgoingHttpHeaders;
  /** Pause between two `: ping` comments. */
  heartbeatMs: number;
  /** How long a client may leave its connection full before it counts as gone; default 30 s. */
  stallMs?: number;
}

/** One open event stream. */
export interface SseStream {
  /** Aborts when the client has left, or reads nothing any more. */
  readonly gone: AbortSignal;
  /** Waits while the client's connection is full, so that a slow reader costs no memory here. Never rejects. */
  write(text: string): Promise<void>;
  /** Writes a last comment, if given, and closes. Idempotent. */
  end(comment?: string): void;
}

const sseHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
  connection: "close",
} as const;

/** Answers with status 200 and an event stream. Clients skip its comments. */
export function openSse(
  clock: Clock,
  response: ServerResponse,
  { headers, heartbeatMs, stallMs = 30_000 }: SseOptions,
): SseStream {
  const leaving = new AbortController();
  const closed = new AbortController();
  // A client that left while the request was handled causes no "close" any more.
  if (response.closed || response.socket?.destroyed !== false) {
    leaving.abort();
    return { gone: leaving.signal, write: async () => {}, end: () => {} };
  }
  response.writeHead(200, { ...headers, ...sseHeaders });
  response.flushHeaders();
  const stopHeartbeat = clock.every(heartbeatMs, () => {
    if (!response.writableNeedDrain) response.write(": ping\n\n");
  });
  // Writing to a socket that the client has just reset; "close" follows.
  response.on("error", () => {});
  // Called at once: "close" comes too late for a writer that has more to write.
  const leave = () => {
    leaving.abort();
    response.destroy();
  };
  response.once("close", () => {
    stopHeartbeat();
    closed.abort();
    if (!response.writableEnded) leave();
  });
  return {
    gone: leaving.signal,
    async write(text) {
      if (response.destroyed || response.writableEnded || response.write(text)) return;
      const stalled = new AbortController();
      const cancel = clock.after(stallMs, () => stalled.abort());
      try {
        await once(response, "drain", { signal: AbortSignal.any([closed.signal, stalled.signal]) });
      } catch {
        if (!response.writableEnded) leave();
      } finally {
        cancel();
      }
    },
    end(comment) {
      stopHeartbeat();
      if (!response.writableEnded) response.end(comment === undefined ? "" : `: ${comment}\n\n`);
    },
  };
}

/** The run of a helper, in its session. */
interface HelperRun {
  session: SessionKey;
  runId: string;
}

/**
 * The runs of helpers below a run (and below those that it has joined, `runIds`): those that it has called itself, oldest
 * first, and those that they have called.
 */
export async function helpersBelow(
  { store }: Services,
  session: SessionKey,
  { runIds, hasHelpers }: Pick<FoldedRun, "runIds" | "hasHelpers">,
): Promise<{ own: HelperRun[]; further: HelperRun[] }> {
  if (!hasHelpers) return { own: [], further: [] };
  const all = (await store.children(session)).sort((one, other) => one.beganAtMs - other.beganAtMs);
  const calledBy = (runs: Iterable<string>): HelperRun[] => {
    const askers = new Set(runs);
    const called = all.filter(({ parentRunId }) => askers.has(parentRunId));
    return called.map((child) => ({ session: child.session, runId: turnIdOf(child.session, 1) }));
  };
  const own = calledBy(runIds);
  const further: HelperRun[] = [];
  for (let level = own; level.length > 0;) {
    level = calledBy(level.map(({ runId }) => runId));
    further.push(...level);
  }
  return { own, further };
}

/** What a run and its helpers have used. */
export async function usedWith(
  services: Services,
  own: Pick<RunResult, "usage" | "costUsd">,
  helpers: readonly HelperRun[],
  stop: AbortSignal,
): Promise<Pick<RunResult, "usage" | "costUsd">> {
  let { usage, costUsd } = own;
  for (const helper of helpers) {
    const { result } = await foldRun(services, helper, stop);
    usage = addItemUsage(usage, result.usage);
    costUsd += result.costUsd;
  }
  return { usage, costUsd };
}

/** What the kept events of a run come to. */
export interface FoldedRun {
  first: EventRecord | undefined;
  /** Its `done` or `error`. */
  end: EventRecord | undefined;
  /** The metadata of the request. */
  metadata: Readonly<Record<string, string>> | undefined;
  /** The run, and the one that its message has joined. */
  runIds: Set<string>;
  hasHelpers: boolean;
  /** The result of the run, without its items. */
  result: RunResult;
}

/** Reads a run page by page and keeps none of its events. Of a message that has joined another run: that one. */
export async function foldRun(
  services: Services,
  { session, runId }: HelperRun,
  stop: AbortSignal,
): Promise<FoldedRun> {
  const viewOf = (id: string, agent: string) =>
    new ItemView({ runId: id, sessionId: session, agent, startedAtMs: 0 }, [], "totals");
  let [view, viewed] = [viewOf(runId, "default"), runId];
  const folded: Omit<FoldedRun, "result"> = {
    first: undefined,
    end: undefined,
    metadata: undefined,
    runIds: new Set(),
    hasHelpers: false,
  };
  for await (const record of recordsOfRun(keptEvents(services, session, 0, stop), runId)) {
    if (record === "lost") break;
    const { event } = record;
    if (folded.first === undefined || record.runId !== viewed) {
      folded.first ??= record;
      viewed = record.runId;
      view = viewOf(viewed, folded.first.agent ?? "default");
    }
    view.push(record);
    folded.runIds.add(record.runId);
    folded.metadata ??= record.person?.metadata;
    folded.hasHelpers ||= event.type === "tool_use" && event.helper !== undefined;
    if (isTerminal(event)) folded.end = record;
  }
  return { ...folded, result: view.result() };
}
