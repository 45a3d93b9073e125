import { jsonParserOf, StreamFrame, pause, systemRandom, type Clock } from "@larkline/protocol";
import { createParser, type EventSourceMessage } from "eventsource-parser";
import type { Texts } from "./answer-view.ts";

interface ChatClientOptions {
  clock: Clock;
  /** Base address of the ingress. */
  url: string;
  /** Sent as bearer token when given. */
  token?: string;
  /** The conversation that every message belongs to. */
  sessionId: string;
  texts: Texts;
  /** How long the server may be silent; it sends a heartbeat every 15 s. Default 60 s. */
  silenceMs?: number;
  /** Pauses before each new attempt after a broken connection. */
  retryDelaysMs?: readonly number[];
}

export interface ChatClient {
  /**
   * Sends a message and yields the frames of its run as they arrive, over as many connections as it
   * takes. Never throws: what goes wrong is an `error` frame. Ends after `done` or `error`; aborting
   * `signal` cancels the run on the server and ends without either, or with an `error` frame when the
   * run may continue.
   */
  send(message: string, signal: AbortSignal): AsyncGenerator<StreamFrame>;
}

/** The server answered and will answer the same again. */
class Refused extends Error {}

/** The server takes nothing at the moment, or did not learn whether it did: worth another attempt. */
class NotNow extends Error {}

/** No byte came for too long. */
class Silence extends Error {}

/** `signal`: the person wants no more of it. `stop`: the connection has to end. */
interface Stops {
  signal: AbortSignal;
  stop: AbortSignal;
}

interface Attempt {
  message: string;
  messageId: string;
  lastEventId: string | undefined;
  runId: string | undefined;
  /** Whether the server may have stored the message. */
  mayBeStored: boolean;
}

const standardRetryDelaysMs = [200, 500, 1_000, 2_000, 4_000] as const;
/** A connection that held for so long was a good one: attempts are counted anew after it. */
const goodConnectionMs = 5_000;
/** How long Ctrl-C waits for the answer that names the run, and for the cancel. */
const cancelPatienceMs = 5_000;

/** Aborts a connection when it is silent for too long. */
function createWatch(clock: Clock, silenceMs: number) {
  const controller = new AbortController();
  const start = (): (() => void) => clock.after(silenceMs, () => controller.abort(new Silence()));
  let end = start();
  return {
    signal: controller.signal,
    heard: () => {
      end();
      end = start();
    },
    end: () => end(),
  };
}

type Watch = ReturnType<typeof createWatch>;

async function* heardBytes(body: AsyncIterable<Uint8Array>, watch: Watch): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    watch.heard();
    yield chunk;
  }
}

function isOver(frame: StreamFrame): boolean {
  return frame.type === "done" || frame.type === "error";
}

async function reasonOf(response: Response): Promise<string> {
  const body = (await response.text()).slice(0, 500);
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === "object" && parsed !== null && "error" in parsed) return String(parsed.error);
  } catch {
    // Not JSON: shown as it is.
  }
  return body;
}

/** Resolves when the signal aborts. */
async function abortOf(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

class HttpChatClient implements ChatClient {
  readonly #options: ChatClientOptions;

  constructor(options: ChatClientOptions) {
    this.#options = options;
  }

  async *send(message: string, signal: AbortSignal): AsyncGenerator<StreamFrame> {
    const messageId = systemRandom.uuid();
    const attempt: Attempt = { message, messageId, lastEventId: undefined, runId: undefined, mayBeStored: false };
    // Ctrl-C ends the connection only after the cancel: the run's id may still be on its way.
    const stop = new AbortController();
    const cancelling = abortOf(signal).then(async () => await this.#cancel(attempt).finally(() => stop.abort()));
    for await (const frame of this.#frames(attempt, { signal, stop: stop.signal })) {
      if (!signal.aborted) yield frame;
    }
    if (!signal.aborted) return;
    stop.abort();
    if (!(await cancelling)) yield { type: "error", message: this.#options.texts.mayGoOn };
  }

  async *#frames(attempt: Attempt, { signal, stop }: Stops): AsyncGenerator<StreamFrame> {
    const { clock, texts, retryDelaysMs = standardRetryDelaysMs } = this.#options;
    for (let tries = 0; ; tries += 1) {
      const startedMs = clock.monotonic();
      let received = false;
      let problem: unknown;
      try {
        for await (const frame of this.#receive(attempt, stop)) {
          received = true;
          yield frame;
          if (isOver(frame)) return;
        }
        // The stream ended in the middle of a run.
      } catch (error) {
        problem = error;
        const isNew = attempt.runId === undefined && !(error instanceof NotNow);
        if (!stop.aborted && (error instanceof Refused || isNew)) return yield this.#failure(error);
      }
      if (signal.aborted) return;
      if (received || clock.monotonic() - startedMs >= goodConnectionMs) tries = 0;
      const pauseMs = retryDelaysMs[tries];
      if (pauseMs === undefined) {
        const message = problem instanceof NotNow ? problem.message : texts.cutOff;
        return yield { type: "error", message };
      }
      await pause(clock, pauseMs, signal);
    }
  }

  /** Stops the run on the server; false when it may continue. */
  async #cancel(attempt: Attempt): Promise<boolean> {
    const { clock, url, token } = this.#options;
    const patience = AbortSignal.timeout(cancelPatienceMs);
    while (attempt.runId === undefined && attempt.mayBeStored && !patience.aborted) await pause(clock, 20);
    if (attempt.runId === undefined) return !attempt.mayBeStored;
    try {
      const { status } = await fetch(new URL(`/v1/runs/${encodeURIComponent(attempt.runId)}/cancel`, url), {
        method: "POST",
        headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
        signal: patience,
      });
      return status === 202 || status === 409; // 409: it has ended
    } catch {
      return false;
    }
  }

  /** The frames of one connection. A later one continues after the last frame that was seen. */
  async *#receive(attempt: Attempt, signal: AbortSignal): AsyncGenerator<StreamFrame> {
    const watch = createWatch(this.#options.clock, this.#options.silenceMs ?? 60_000);
    try {
      const response = await this.#post(attempt, AbortSignal.any([signal, watch.signal]));
      if (response.body === null) return;
      for await (const { frame, id } of readFrames(heardBytes(response.body, watch))) {
        if (frame.type === "error" && frame.code === "uncertain") throw new NotNow(frame.message);
        attempt.lastEventId = id ?? attempt.lastEventId;
        if (frame.run_id !== undefined) attempt.runId = frame.run_id;
        yield frame;
      }
    } catch (error) {
      throw watch.signal.aborted ? watch.signal.reason : error;
    } finally {
      watch.end();
    }
  }

  async #post(attempt: Attempt, signal: AbortSignal): Promise<Response> {
    const { message, messageId, lastEventId } = attempt;
    const { url, token, sessionId, texts } = this.#options;
    attempt.mayBeStored = true;
    const response = await fetch(new URL("/chat", url), {
      method: "POST",
      signal,
      headers: {
        "content-type": "application/json",
        accept: "text/event-stream",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
      },
      body: JSON.stringify({ message, session_id: sessionId, message_id: messageId, on_disconnect: "continue" }),
    });
    attempt.runId = response.headers.get("x-run-id") ?? attempt.runId;
    if (response.ok) return response;
    attempt.mayBeStored = attempt.runId !== undefined;
    if (response.status === 503) throw new NotNow(texts.refused(503, await reasonOf(response)));
    if (response.status === 401) throw new Refused(texts.tokenRefused);
    throw new Refused(texts.refused(response.status, await reasonOf(response)));
  }

  #failure(error: unknown): StreamFrame {
    const { texts, url, silenceMs = 60_000 } = this.#options;
    if (error instanceof Refused) return { type: "error", message: error.message };
    if (error instanceof Silence) return { type: "error", message: texts.silent(silenceMs / 1_000) };
    return { type: "error", message: texts.unreachable(url) };
  }
}

/** Creates a client of the HTTP API for one conversation. */
export function createChatClient(options: ChatClientOptions): ChatClient {
  return new HttpChatClient(options);
}

/** A frame and the id that the server gave it, if any. */
export interface ReceivedFrame {
  frame: StreamFrame;
  id: string | undefined;
}

// A frame holds one tool result at most, which the server caps far below this.
const maxFrameLength = 16 * 1024 * 1024;

const parseFrame = jsonParserOf(StreamFrame);

/**
 * Turns the bytes of an event stream into frames. Bytes may be cut anywhere, inside a character
 * too. Comments, unknown fields and data that is no frame are skipped. Throws when a frame is
 * larger than 16 MiB, and what `bytes` throws.
 */
export async function* readFrames(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<ReceivedFrame> {
  const received: EventSourceMessage[] = [];
  const parser = createParser({ onEvent: (event) => received.push(event), maxBufferSize: maxFrameLength });
  const decoder = new TextDecoder();
  for await (const chunk of bytes) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    for (const event of received.splice(0)) {
      const parsed = parseFrame(event.data);
      if (parsed.ok) yield { frame: parsed.value, id: event.id };
    }
  }
}
