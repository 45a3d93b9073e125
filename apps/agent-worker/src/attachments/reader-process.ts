import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import { confinedFork } from "./confinement.ts";
import { Extraction, ScaledPicture, type ReadingJob } from "./extraction.ts";

/** How one file ended: with an answer, or with the process. */
export type ReadingEnd =
  | { kind: "answer"; result: Extraction | ScaledPicture; retire: boolean }
  | { kind: "died"; reason: "memory" | "time" | "unknown" };

export interface ReaderLimits {
  /** Resident memory at most, MB. */
  memoryMb: number;
  /** CPU time for one file, ms. */
  cpuMs: number;
  /** Longest time for one file, ms. */
  deadlineMs: number;
}

const parseAnswer = parserOf(
  Type.Object({ result: Type.Union([Extraction, ScaledPicture]), retire: Type.Boolean() }),
);

// SIGUSR2: the watchdog. SIGABRT, SIGTRAP and their exit codes: the heap of V8 is full.
const memorySignals: ReadonlySet<unknown> = new Set(["SIGUSR2", "SIGABRT", "SIGTRAP", 134, 133]);

/** Sent by the watchdog. */
const timeSignal = "SIGVTALRM";

function reasonOf(cause: NodeJS.Signals | number | null): "memory" | "time" | "unknown" {
  if (cause === timeSignal) return "time";
  return memorySignals.has(cause) ? "memory" : "unknown";
}

const program = fileURLToPath(new URL("./reading-process.ts", import.meta.url));

/** A process that reads one file at a time. Ends with its parent, however that ends. */
export class ReaderProcess {
  readonly #process: ChildProcess;
  /** Resolves when the process is gone. */
  readonly ended: Promise<void>;
  #alive = true;
  #ending = false;

  constructor(limits: ReaderLimits) {
    // A grace for the case that this process cannot keep the deadline itself.
    const patienceMs = limits.deadlineMs * 2;
    const orders = [process.pid, limits.memoryMb, patienceMs, limits.cpuMs].map(String);
    this.#process = fork(program, orders, confinedFork(limits));
    this.#process.on("error", () => undefined); // `read` listens when it matters
    this.ended = new Promise((resolve) => {
      const end = (): void => {
        this.#alive = false;
        resolve();
      };
      this.#process.once("exit", end);
      if (this.#process.pid === undefined) end(); // it could not be started: an error follows, no exit
    });
    this.#setHolding(false);
  }

  get alive(): boolean {
    return this.#alive && this.#process.connected;
  }

  /** Hands a file over and waits. Kills the process and rejects with the signal's reason on abort. */
  async read(job: ReadingJob, signal: AbortSignal): Promise<ReadingEnd> {
    this.#setHolding(true);
    const { promise, resolve, reject } = Promise.withResolvers<ReadingEnd>();
    const onMessage = (message: unknown): void => {
      const answer = parseAnswer(message);
      resolve(
        answer.ok ? { kind: "answer", ...answer.value } : { kind: "died", reason: "unknown" },
      );
    };
    const onExit = (code: number | null, cause: NodeJS.Signals | null): void => {
      resolve({ kind: "died", reason: reasonOf(cause ?? code) });
    };
    const onError = (): void => {
      this.kill();
      resolve({ kind: "died", reason: "unknown" });
    };
    const onAbort = (): void => {
      this.kill();
      reject(signal.reason);
    };
    this.#process.once("message", onMessage).once("exit", onExit).once("error", onError);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      if (signal.aborted) onAbort();
      else if (this.alive) this.#send(job, onError);
      else onError();
      return await promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#process.off("message", onMessage).off("exit", onExit).off("error", onError);
      this.#setHolding(false);
    }
  }

  #send(job: ReadingJob, onError: () => void): void {
    // A plain copy of just these bytes: a Buffer can be a small view into a large shared one.
    this.#process.send({ ...job, bytes: Uint8Array.from(job.bytes) }, (error) => {
      // The exit event of a process that ends says why.
      if (error !== null && !this.#alive) onError();
    });
  }

  /** Ends the process at once, whatever it does. */
  kill(): void {
    this.#process.kill("SIGKILL");
  }

  /** Kills the process and waits until it is gone. */
  async end(): Promise<void> {
    this.#ending = true;
    this.#setHolding(true);
    this.kill();
    await this.ended;
  }

  /** Whether the process keeps this one running: only while a caller waits for it. */
  #setHolding(holding: boolean): void {
    if (holding || this.#ending) {
      this.#process.ref();
      this.#process.channel?.ref();
    } else {
      this.#process.unref();
      this.#process.channel?.unref();
    }
  }
}
