import type { ModelChunk } from "@larkline/protocol";
import { modelFailure } from "./failure.ts";

/** Deadlines of one model call, in ms. */
export interface StreamTimeouts {
  /** From the call to its first chunk. */
  firstChunkMs: number;
  /** Between two chunks. */
  gapMs: number;
  /** For the whole call. */
  callMs: number;
}

/** Generous: a model that thinks hard says nothing for minutes, and its vendor's pings are not chunks. */
export const defaultTimeouts: StreamTimeouts = { firstChunkMs: 300_000, gapMs: 120_000, callMs: 1_200_000 };

export interface TimedStreamOptions {
  timeouts: StreamTimeouts;
  now: () => number;
  signal?: AbortSignal | undefined;
}

type Interruption = "aborted" | "timeout";

interface Watch {
  /** Stops the vendor call. */
  signal: AbortSignal;
  interrupted: Promise<Interruption>;
  /** Starts the clock of the next wait. */
  arm(waitMs: number): void;
  /** Stops the clock while the consumer holds the stream: its slowness is not the vendor's. */
  pause(): void;
  /** `stop`: the vendor call is still going on and has to end. */
  close(stop: boolean): void;
}

/** Stops a call on abort or at the next deadline, and tells which of them it was. */
function createWatch(options: TimedStreamOptions): Watch {
  const { timeouts, now, signal } = options;
  const controller = new AbortController();
  const interrupted = Promise.withResolvers<Interruption>();
  const endMs = now() + timeouts.callMs;
  let timer: NodeJS.Timeout | undefined;
  const interrupt = (reason: Interruption) => {
    interrupted.resolve(reason);
    controller.abort();
  };
  const onAbort = () => interrupt("aborted");
  const pause = () => clearTimeout(timer);
  signal?.addEventListener("abort", onAbort, { once: true });
  return {
    signal: controller.signal,
    interrupted: interrupted.promise,
    arm: (waitMs) => {
      timer = setTimeout(() => interrupt("timeout"), Math.min(waitMs, Math.max(endMs - now(), 0)));
    },
    pause,
    close: (stop) => {
      pause();
      signal?.removeEventListener("abort", onAbort);
      if (stop) controller.abort();
    },
  };
}

function isTerminal(chunk: ModelChunk): boolean {
  return chunk.type === "message_stop" || chunk.type === "error";
}

function timeoutFailure(started: boolean): ModelChunk {
  return started
    ? modelFailure("stream_truncated", "The model's stream stood still for too long.")
    : modelFailure("api_overloaded", "The model did not begin to answer in time.");
}

async function* pump(
  iterator: AsyncIterator<ModelChunk>,
  watch: Watch,
  timeouts: StreamTimeouts,
): AsyncGenerator<ModelChunk> {
  for (let started = false; ; started = true) {
    watch.arm(started ? timeouts.gapMs : timeouts.firstChunkMs);
    const next = await Promise.race([iterator.next(), watch.interrupted]);
    watch.pause();
    if (next === "aborted") return;
    if (next === "timeout") return void (yield timeoutFailure(started));
    if (next.done === true) break;
    yield next.value;
    if (isTerminal(next.value)) return;
  }
  yield modelFailure("stream_truncated", "The model's stream ended before its answer was complete.");
}

/**
 * Runs one model call under deadlines. Adds what a faulty stream lacks: a stream that stops without
 * a terminal chunk ends in `stream_truncated`, a throw in `internal_error`, a missed deadline in a
 * retryable failure. Abort ends it at once without a terminal chunk. Leaving early stops the call.
 */
export async function* timedStream(
  open: (signal: AbortSignal) => AsyncIterable<ModelChunk>,
  options: TimedStreamOptions,
): AsyncGenerator<ModelChunk> {
  const aborted = () => options.signal?.aborted === true;
  if (aborted()) return;
  const watch = createWatch(options);
  let iterator: AsyncIterator<ModelChunk> | undefined;
  let ended = false;
  try {
    iterator = open(watch.signal)[Symbol.asyncIterator]();
    for await (const chunk of pump(iterator, watch, options.timeouts)) {
      if (aborted()) return;
      ended = isTerminal(chunk);
      yield chunk;
    }
  } catch (error) {
    if (!aborted())
      yield modelFailure("internal_error", error instanceof Error ? error.message : "The backend failed.");
  } finally {
    watch.close(!ended);
    // A backend may be stuck in a wait: leaving does not wait for it.
    void iterator?.return?.()?.catch(() => {});
  }
}
