import type { FastifyReply } from "fastify";
import { formatSseEvent, type SessionKey, type StreamFrame } from "@larkline/protocol";
import type { EventLog } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { Inbox } from "./inbox.ts";
import { framesOfRun, type RunPosition } from "./run-frames.ts";
import { openSse, type SseStream } from "./sse.ts";

export interface StreamHubDeps {
  log: Pick<EventLog, "follow">;
  inbox: Pick<Inbox, "cancel">;
  logger: Logger;
  heartbeatMs: number;
  maxStreams: number;
  /** A stream is closed after this time, for its client to resume; default 1 h. */
  maxStreamMs?: number;
}

export interface RunStream {
  run: RunPosition;
  /** Sent before the events of the run. */
  first: StreamFrame | undefined;
  /** Whether the run ends when the client leaves before it does. */
  cancelWhenGone: boolean;
}

/** All open event streams of the process. */
export interface StreamHub {
  /** Takes a place for the answer of this request until it is closed; false when there is none left. */
  reserve(reply: FastifyReply): boolean;
  /** Open streams of runs. */
  count(): number;
  /** Answers with these frames alone. */
  single(reply: FastifyReply, ...frames: readonly StreamFrame[]): void;
  /** Answers with the frames of a run; resolves when the stream is closed. */
  follow(reply: FastifyReply, stream: RunStream): Promise<void>;
  /** Ends all streams so that their clients resume elsewhere; their runs go on. Idempotent. */
  close(): Promise<void>;
}

type Ending = "finished" | "gone" | "shutdown" | "resume" | "interrupted";

const defaultMaxStreamMs = 3_600_000;

async function pump(stream: SseStream, frames: AsyncIterable<StreamFrame>): Promise<boolean> {
  let finished = false;
  for await (const frame of frames) {
    await stream.write(formatSseEvent(frame, frame.seq));
    if (stream.gone.aborted) return false;
    finished = frame.type === "done" || frame.type === "error";
  }
  return finished;
}

function open(reply: FastifyReply, heartbeatMs: number): SseStream {
  reply.hijack();
  const headers = Object.entries(reply.getHeaders()).map(([name, value]) => [name, value ?? ""] as const);
  return openSse(reply.raw, { headers: Object.fromEntries(headers), heartbeatMs });
}

export function createStreamHub(deps: StreamHubDeps): StreamHub {
  const closing = new AbortController();
  const running = new Set<Promise<void>>();
  let reserved = 0;

  const deliver = async (stream: SseStream, { run, first }: RunStream): Promise<Ending> => {
    const expired = AbortSignal.timeout(deps.maxStreamMs ?? defaultMaxStreamMs);
    const stop = AbortSignal.any([stream.gone, closing.signal, expired]);
    try {
      if (first !== undefined) await stream.write(formatSseEvent(first, first.seq));
      if (await pump(stream, framesOfRun(deps.log, run, stop))) return "finished";
    } catch (error) {
      if (!stop.aborted) deps.logger.warn({ error, session: run.session, turnId: run.runId }, "event stream failed");
    }
    if (stream.gone.aborted) return "gone";
    if (closing.signal.aborted) return "shutdown";
    return expired.aborted ? "resume" : "interrupted";
  };

  const cancelRun = async (session: SessionKey, runId: string) => {
    try {
      await deps.inbox.cancel(session, runId, "client_disconnected");
    } catch (error) {
      deps.logger.warn({ error, session, turnId: runId }, "could not cancel the run of a client that left");
    }
  };

  const serve = async (reply: FastifyReply, request: RunStream) => {
    const stream = open(reply, deps.heartbeatMs);
    const ending = await deliver(stream, request);
    stream.end(ending === "finished" || ending === "gone" ? undefined : ending);
    const { session, runId } = request.run;
    deps.logger.info({ session, turnId: runId, ending }, "event stream closed");
    if (ending === "gone" && request.cancelWhenGone && runId !== undefined) await cancelRun(session, runId);
  };

  return {
    reserve(reply) {
      if (reserved >= deps.maxStreams || closing.signal.aborted) return false;
      reserved += 1;
      reply.raw.once("close", () => (reserved -= 1));
      return true;
    },
    count: () => running.size,
    single(reply, ...frames) {
      const stream = open(reply, deps.heartbeatMs);
      // A client that left before its only frames has nothing to be told.
      stream.write(frames.map((frame) => formatSseEvent(frame)).join("")).finally(() => stream.end());
    },
    async follow(reply, request) {
      const work = serve(reply, request);
      running.add(work);
      await work.finally(() => running.delete(work));
    },
    async close() {
      closing.abort();
      await Promise.allSettled(running);
    },
  };
}
