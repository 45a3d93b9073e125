import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { StreamFrame } from "@larkline/protocol";
import { readFrames } from "./frame-reader.ts";
import type { Texts } from "./texts.ts";

export interface ChatClientOptions {
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
   * Sends a message and yields the frames of its run as they arrive. Never throws: what goes wrong
   * is an `error` frame. Ends after `done` or `error`; aborting `signal` cancels the run on the
   * server and ends without either.
   */
  send(message: string, signal: AbortSignal): AsyncGenerator<StreamFrame>;
}

/** The server answered and will answer the same again. */
class Refused extends Error {}

/** No byte came for too long. */
class Silence extends Error {}

interface Attempt {
  message: string;
  messageId: string;
  lastEventId: string | undefined;
}

const standardRetryDelaysMs = [200, 500, 1_000, 2_000, 4_000] as const;

/** Aborts a connection when it is silent for too long. */
function createWatch(silenceMs: number) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Silence()), silenceMs);
  return {
    signal: controller.signal,
    heard: () => void timer.refresh(),
    end: () => clearTimeout(timer),
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

class HttpChatClient implements ChatClient {
  readonly #options: ChatClientOptions;

  constructor(options: ChatClientOptions) {
    this.#options = options;
  }

  async *send(message: string, signal: AbortSignal): AsyncGenerator<StreamFrame> {
    const attempt: Attempt = { message, messageId: randomUUID(), lastEventId: undefined };
    const retryDelaysMs = this.#options.retryDelaysMs ?? standardRetryDelaysMs;
    let connected = false;
    for (let tries = 0; ; tries += 1) {
      try {
        for await (const frame of this.#receive(attempt, signal)) {
          connected = true;
          yield frame;
          if (isOver(frame)) return;
        }
        // The stream ended in the middle of a run.
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused || !connected) return yield this.#failure(error);
      }
      if (signal.aborted) return;
      const pauseMs = retryDelaysMs[tries];
      if (pauseMs === undefined) return yield { type: "error", message: this.#options.texts.cutOff };
      await delay(pauseMs, undefined, { signal }).catch(() => {});
    }
  }

  /** The frames of one connection. A later one goes on after the last frame that was seen. */
  async *#receive(attempt: Attempt, signal: AbortSignal): AsyncGenerator<StreamFrame> {
    const watch = createWatch(this.#options.silenceMs ?? 60_000);
    try {
      const response = await this.#post(attempt, AbortSignal.any([signal, watch.signal]));
      if (response.body === null) return;
      for await (const { frame, id } of readFrames(heardBytes(response.body, watch))) {
        attempt.lastEventId = id ?? attempt.lastEventId;
        yield frame;
      }
    } catch (error) {
      throw watch.signal.aborted ? watch.signal.reason : error;
    } finally {
      watch.end();
    }
  }

  async #post({ message, messageId, lastEventId }: Attempt, signal: AbortSignal): Promise<Response> {
    const { url, token, sessionId, texts } = this.#options;
    const response = await fetch(new URL("/chat", url), {
      method: "POST",
      signal,
      headers: {
        "content-type": "application/json",
        accept: "text/event-stream",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
      },
      body: JSON.stringify({ message, session_id: sessionId, message_id: messageId, on_disconnect: "cancel" }),
    });
    if (response.ok) return response;
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
