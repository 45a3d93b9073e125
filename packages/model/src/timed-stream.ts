import type { ModelChunk } from "@larkline/protocol";
import { modelFailure } from "./failure.ts";

/** How long a vendor may be silent, in ms. Every byte is a sign of life, those of pings and comments too. */
export interface StreamTimeouts {
  /** From the call to its headers, and from there to the first chunk. */
  headersMs: number;
  /** The same where the interface sends nothing while the model thinks. */
  thinkingMs: number;
  /** Between two signs of life once the answer has begun. */
  gapMs: number;
  /** For the whole call. */
  callMs: number;
}

export const defaultTimeouts: StreamTimeouts = {
  headersMs: 30_000,
  thinkingMs: 300_000,
  gapMs: 30_000,
  callMs: 1_200_000,
};

export interface TimedStreamOptions {
  timeouts: StreamTimeouts;
  /** The model thinks, and its interface is silent meanwhile. */
  thinksSilently: boolean;
  now: () => number;
  /** Called for every sign of life. */
  onAlive: () => void;
  signal?: AbortSignal | undefined;
}

type Interruption = "aborted" | "timeout";

/** Stops a call on abort or after too long a silence, and tells which of them it was. */
class SilenceWatch {
  readonly #options: TimedStreamOptions;
  readonly #controller = new AbortController();
  readonly #interrupted = Promise.withResolvers<Interruption>();
  readonly #endMs: number;
  #aliveMs: number;
  #began = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: TimedStreamOptions) {
    this.#options = options;
    this.#aliveMs = options.now();
    this.#endMs = this.#aliveMs + options.timeouts.callMs;
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Stops the vendor call. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get interrupted(): Promise<Interruption> {
    return this.#interrupted.promise;
  }

  alive = (): void => {
    this.#aliveMs = this.#options.now();
    this.#options.onAlive();
  };

  /** The vendor is waited for from now on. */
  resume(): void {
    this.#aliveMs = this.#options.now();
    this.#arm();
  }

  /** The consumer has the stream: its slowness is not the vendor's. */
  pause(): void {
    clearTimeout(this.#timer);
    this.#began = true;
  }

  /** `stop`: the vendor call has not ended by itself. */
  close(stop: boolean): void {
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    if (stop) this.#controller.abort();
  }

  #onAbort = (): void => this.#interrupt("aborted");

  #interrupt(reason: Interruption): void {
    this.#interrupted.resolve(reason);
    this.#controller.abort();
  }

  #silenceMs(): number {
    const { timeouts, thinksSilently } = this.#options;
    if (this.#began) return timeouts.gapMs;
    return thinksSilently ? timeouts.thinkingMs : timeouts.headersMs;
  }

  /** Bytes only note the time: a timer for each of them would cost more than the bytes. */
  #arm(): void {
    const nowMs = this.#options.now();
    const dueMs = Math.min(this.#aliveMs + this.#silenceMs(), this.#endMs);
    if (dueMs <= nowMs) return this.#interrupt("timeout");
    this.#timer = setTimeout(() => this.#arm(), Math.ceil(dueMs - nowMs));
  }
}

function isTerminal(chunk: ModelChunk): boolean {
  return chunk.type === "message_stop" || chunk.type === "error";
}

function timeoutFailure(started: boolean): ModelChunk {
  return started
    ? modelFailure("stream_truncated", "The model's stream stood still for too long.", { silent: true })
    : modelFailure("api_overloaded", "The model did not begin to answer in time.", { silent: true });
}

async function* pump(iterator: AsyncIterator<ModelChunk>, watch: SilenceWatch): AsyncGenerator<ModelChunk> {
  for (let started = false; ; started = true) {
    watch.resume();
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
 * Runs one model call under deadlines; `open` reports signs of life besides its chunks. Adds what a faulty stream
 * lacks: a stream that stops without a terminal chunk ends in `stream_truncated`, a throw in `internal_error`, a
 * missed deadline in a retryable failure that is `silent`. Abort ends it at once without a terminal chunk. Leaving
 * early stops the call.
 */
export async function* timedStream(
  open: (signal: AbortSignal, alive: () => void) => AsyncIterable<ModelChunk>,
  options: TimedStreamOptions,
): AsyncGenerator<ModelChunk> {
  const aborted = () => options.signal?.aborted === true;
  if (aborted()) return;
  const watch = new SilenceWatch(options);
  let iterator: AsyncIterator<ModelChunk> | undefined;
  let ended = false;
  try {
    iterator = open(watch.signal, watch.alive)[Symbol.asyncIterator]();
    for await (const chunk of pump(iterator, watch)) {
      if (aborted()) return;
      options.onAlive();
      ended = isTerminal(chunk);
      yield chunk;
    }
  } catch (error) {
    if (!aborted()) {
      yield modelFailure("internal_error", error instanceof Error ? error.message : "The backend failed.");
    }
  } finally {
    watch.close(!ended);
    // A backend may be stuck in a wait: leaving does not wait for it.
    void iterator?.return?.()?.catch(() => {});
  }
}
