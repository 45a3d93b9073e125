import { EventEmitter } from "node:events";
import { registerHooks, syncBuiltinESMExports } from "node:module";
import threads, { type WorkerOptions } from "node:worker_threads";
import { oneRound, ownerOfThis } from "./time.ts";

// Threads have a clock and a turn of their own. In the simulation each runs in the main thread, its module loaded anew,
// and exchanges messages with the rest as before.

interface Inside {
  parentPort: EventEmitter & { postMessage(message: unknown): void; close(): void };
  workerData: unknown;
}

const insides = new Map<string, Inside>();
let count = 0;

/** From now on `new Worker` starts no thread. */
export function runThreadsInside(): void {
  Object.assign(globalThis, { insideOfThread: (id: string) => insides.get(id) });
  registerHooks({
    resolve: (specifier, context, next) => {
      const thread = /[?&]thread=(\d+)/.exec(context.parentURL ?? "")?.[1];
      if (thread === undefined || specifier !== "node:worker_threads") {
        return next(specifier, context);
      }
      return { url: `inside:${thread}`, format: "module", shortCircuit: true };
    },
    load: (url, context, next) => {
      if (!url.startsWith("inside:")) return next(url, context);
      const id = JSON.stringify(url.slice("inside:".length));
      const source = `export const { parentPort, workerData } = insideOfThread(${id}); export const isMainThread = false;`;
      return { format: "module", shortCircuit: true, source };
    },
  });
  Object.assign(threads, { Worker: InsideWorker });
  syncBuiltinESMExports();
}

/** As a `Worker` of node:worker_threads, as far as it is used. */
class InsideWorker extends EventEmitter {
  readonly #id = String(++count);
  readonly #port: Inside["parentPort"];
  readonly #owner = ownerOfThis();
  #isOver = false;
  readonly threadId = count;

  constructor(file: URL | string, { workerData }: WorkerOptions = {}) {
    super();
    const post = (to: EventEmitter, message: unknown): void => {
      const copy = structuredClone(message);
      const deliver = (): boolean =>
        !this.#isOver && this.#owner?.isDead !== true && to.emit("message", copy);
      void oneRound().then(deliver);
    };
    const port = Object.assign(new EventEmitter(), {
      postMessage: (message: unknown) => post(this, message),
      close: () => this.#end(0),
      ref: () => undefined,
      unref: () => undefined,
    });
    this.#port = port;
    this.postMessage = (message) => post(port, message);
    insides.set(this.#id, { parentPort: port, workerData });
    const url = new URL(file);
    url.searchParams.set("thread", this.#id);
    import(url.href).then(
      () => this.emit("online"),
      (error: unknown) => {
        this.emit("error", error);
        this.#end(1);
      },
    );
  }

  postMessage: (message: unknown) => void;

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  terminate(): Promise<number> {
    this.#end(1);
    return Promise.resolve(1);
  }

  #end(code: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    insides.delete(this.#id);
    this.#port.removeAllListeners();
    void oneRound().then(() => this.emit("exit", code));
  }
}
