import { Socket } from "node:net";
import { env } from "node:process";
import {
  callFrameBounds,
  encodeFrame,
  FrameReader,
  type FrameToChild,
  type FrameToPool,
} from "./frame.ts";

/** What a handler in a child gets besides its body. */
export interface CallContext {
  /** Aborts on cancellation and at the deadline: 2 s later the child is killed. */
  signal: AbortSignal;
  /** Sends a JSON value to the caller's `onEvent`. Ignored once the call is over. */
  emit(body: unknown): void;
  /** Asks the caller's `onRequest`; rejects with its message, and when the call is over. */
  request(body: unknown): Promise<unknown>;
}

export type CallHandler = (body: unknown, context: CallContext) => Promise<unknown>;

const maxErrorCharacters = 4_000;

function encoded(frame: FrameToPool): Buffer {
  return encodeFrame(frame);
}

/** One call while it runs. */
class RunningCall {
  readonly id: number;
  readonly #send: (frame: Buffer) => void;
  readonly #abort = new AbortController();
  readonly #requests = new Map<number, PromiseWithResolvers<unknown>>();
  #requestCount = 0;
  #over = false;

  constructor(id: number, send: (frame: Buffer) => void) {
    this.id = id;
    this.#send = send;
  }

  async run(handler: CallHandler, body: unknown): Promise<void> {
    const context: CallContext = {
      signal: this.#abort.signal,
      emit: (event) => {
        if (!this.#over) this.#send(encoded({ kind: "event", id: this.id, body: event }));
      },
      request: async (request) => await this.#request(request),
    };
    const answer = await this.#answer(async () => await handler(body, context));
    this.#over = true;
    for (const { reject } of this.#requests.values()) reject(new Error("the call is over"));
    this.#send(answer);
  }

  cancel(): void {
    this.#abort.abort();
  }

  reply({ request, ok, body }: FrameToChild & { kind: "reply" }): void {
    const waiting = this.#requests.get(request);
    this.#requests.delete(request);
    if (ok) waiting?.resolve(body);
    else waiting?.reject(new Error(String(body)));
  }

  async #answer(work: () => Promise<unknown>): Promise<Buffer> {
    try {
      const body = await work();
      return encoded({ kind: "result", id: this.id, body });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return encoded({ kind: "error", id: this.id, message: message.slice(0, maxErrorCharacters) });
    }
  }

  async #request(body: unknown): Promise<unknown> {
    if (this.#over) throw new Error("the call is over");
    this.#requestCount += 1;
    const waiting = Promise.withResolvers<unknown>();
    this.#send(encoded({ kind: "request", id: this.id, request: this.#requestCount, body }));
    this.#requests.set(this.#requestCount, waiting);
    return await waiting.promise;
  }
}

/** Serves the calls of the pool that started this process until the pool ends. Call it once. */
export function serveCalls(handler: CallHandler): void {
  delete env["NODE_COMPILE_CACHE"]; // the pool's: Node has read it
  const socket = new Socket({ fd: 3, readable: true, writable: true });
  const reader = new FrameReader(callFrameBounds);
  const running = new Map<number, RunningCall>();

  function send(frame: Buffer): void {
    socket.write(frame);
  }
  function take(frame: FrameToChild): void {
    if (frame.kind === "call") {
      const call = new RunningCall(frame.id, send);
      running.set(frame.id, call);
      void call.run(handler, frame.body).finally(() => running.delete(frame.id));
    } else if (frame.kind === "cancel") running.get(frame.id)?.cancel();
    else running.get(frame.id)?.reply(frame);
  }
  socket.on("data", (chunk: Buffer) => {
    // The pool is the only writer, and it writes nothing else.
    for (const frame of reader.push(chunk) as FrameToChild[]) take(frame);
  });
  socket.on("end", () => process.exit(0)).on("error", () => process.exit(0));
  send(encoded({ kind: "ready" }));
}
