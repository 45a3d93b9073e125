import { once } from "node:events";
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";

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
  /** Waits while the client's connection is full, so that a slow reader costs no memory here. */
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
export function openSse(response: ServerResponse, { headers, heartbeatMs, stallMs = 30_000 }: SseOptions): SseStream {
  const leaving = new AbortController();
  const closed = new AbortController();
  // Whoever left while the request was handled gets no "close" any more.
  if (response.closed || response.socket?.destroyed !== false) {
    leaving.abort();
    return { gone: leaving.signal, write: async () => {}, end: () => {} };
  }
  response.writeHead(200, { ...headers, ...sseHeaders });
  response.flushHeaders();
  const heartbeat = setInterval(() => {
    if (!response.writableNeedDrain) response.write(": ping\n\n");
  }, heartbeatMs);
  // Writing to a socket that the client has just reset; "close" follows.
  response.on("error", () => {});
  // Told at once: "close" comes too late for a writer that has more to write.
  const leave = () => {
    leaving.abort();
    response.destroy();
  };
  response.once("close", () => {
    clearInterval(heartbeat);
    closed.abort();
    if (!response.writableEnded) leave();
  });
  return {
    gone: leaving.signal,
    async write(text) {
      if (response.destroyed || response.writableEnded || response.write(text)) return;
      try {
        await once(response, "drain", { signal: AbortSignal.any([closed.signal, AbortSignal.timeout(stallMs)]) });
      } catch {
        if (!response.writableEnded) leave();
      }
    },
    end(comment) {
      clearInterval(heartbeat);
      if (!response.writableEnded) response.end(comment === undefined ? "" : `: ${comment}\n\n`);
    },
  };
}
