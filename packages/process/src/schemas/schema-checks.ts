import { Worker } from "node:worker_threads";
import type { Clock } from "@larkline/protocol/clock";
import { type SchemaCheck, patternsOf, schemaProblem } from "@larkline/protocol/json-schema";
import type { Logger } from "../telemetry/index.ts";

/** What the thread is asked. Without a value only the schema is looked at. */
export interface SchemaJob {
  id: number;
  /** JSON text. */
  schema: string;
  /** JSON text. */
  value?: string;
}

/** What it answers. */
export type SchemaAnswer = { id: number } & (
  | { fits: true }
  | { fits: false; error: string; isUnchecked: boolean }
);

export interface SchemaChecksOptions {
  clock: Clock;
  /** CPU time that one check may take, ms. */
  maxCpuMs?: number;
  /** Heap that schemas and values of others may take, MB. */
  maxHeapMb?: number;
  /** How long the thread waits for the next check before it ends, ms. */
  idleMs?: number;
  /** Learns of checks that took too long or too much memory. */
  log?: Pick<Logger, "warn">;
}

/** Longest time of one check on a machine that gives its thread no CPU, ms. */
const maxWallMs = 30_000;
const lookEveryMs = 100;
const maxWaiting = 1_000;
/** The longest value, in characters of JSON. */
const maxValueCharacters = 4_194_304;
interface Waiting {
  job: SchemaJob;
  settle: (check: SchemaCheck) => void;
}

/**
 * Checks values by schemas that others wrote: callers, deployers, servers of tools. Neither schemas nor their patterns
 * run in the event loop of the process: a thread compiles and runs them, one check after the other. A check that takes
 * too long is ended together with its thread, and the next one gets a new thread. Patterns match in linear time.
 */
export class SchemaChecks {
  readonly #clock: Clock;
  readonly #maxCpuMs: number;
  readonly #maxHeapMb: number;
  readonly #idleMs: number;
  readonly #log: SchemaChecksOptions["log"];
  readonly #waiting: Waiting[] = [];
  #thread: Worker | undefined;
  /** The check that the thread works on. */
  #current: (Waiting & { stopWatching: () => void }) | undefined;
  #cancelIdle: (() => void) | undefined;
  #jobs = 0;
  #isClosed = false;

  constructor({
    clock,
    maxCpuMs = 1_000,
    maxHeapMb = 96,
    idleMs = 60_000,
    log,
  }: SchemaChecksOptions) {
    this.#clock = clock;
    this.#maxCpuMs = maxCpuMs;
    this.#maxHeapMb = maxHeapMb;
    this.#idleMs = idleMs;
    this.#log = log;
  }

  /** Whether a value fits a schema. Never rejects. */
  async check(schema: object, value: unknown): Promise<SchemaCheck> {
    const problem = schemaProblem(schema);
    if (problem !== undefined) return unchecked(problem);
    const text = JSON.stringify(value) ?? "null";
    if (text.length > maxValueCharacters) {
      return unchecked(
        `the value is too long to be checked (at most ${maxValueCharacters} characters)`,
      );
    }
    return await this.#ask({ schema: JSON.stringify(schema), value: text });
  }

  /** Why values cannot be checked by this schema; undefined when they can. Only patterns need the thread. Never rejects. */
  async problemOf(schema: object): Promise<string | undefined> {
    const problem = schemaProblem(schema);
    if (problem !== undefined || patternsOf(schema).length === 0) return problem;
    const checked = await this.#ask({ schema: JSON.stringify(schema) });
    return checked.ok ? undefined : checked.error;
  }

  /** Ends the thread; what waits is answered as unchecked. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelIdle?.();
    for (const { settle } of this.#waiting.splice(0)) settle(unchecked("this process stops"));
    await this.#stop("this process stops");
  }

  async #ask(asked: Omit<SchemaJob, "id">): Promise<SchemaCheck> {
    if (this.#isClosed) return unchecked("this process stops");
    if (this.#waiting.length >= maxWaiting) {
      return unchecked("too many checks of schemas wait; try again later");
    }
    this.#jobs += 1;
    const job = { id: this.#jobs, ...asked };
    const { promise, resolve: settle } = Promise.withResolvers<SchemaCheck>();
    this.#waiting.push({ job, settle });
    this.#next();
    return await promise;
  }

  #next(): void {
    if (this.#current !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) {
      this.#cancelIdle ??= this.#clock.after(this.#idleMs, () => void this.#stop("idle"));
      return;
    }
    this.#cancelIdle?.();
    this.#cancelIdle = undefined;
    const thread = (this.#thread ??= this.#spawn());
    this.#current = { ...next, stopWatching: this.#watch(thread) };
    thread.postMessage(next.job);
  }

  #spawn(): Worker {
    const resourceLimits = { maxYoungGenerationSizeMb: 8, maxOldGenerationSizeMb: this.#maxHeapMb };
    const thread = new Worker(new URL("./schema-thread.ts", import.meta.url), {
      resourceLimits,
      env: {},
    });
    thread.unref();
    thread.on("message", (answer: SchemaAnswer) => {
      if (this.#thread === thread && answer.id === this.#current?.job.id) {
        this.#answer(checkOf(answer));
      }
    });
    thread.on("error", (error) => {
      if (this.#thread === thread) void this.#fail(`its check has failed: ${error.message}`);
    });
    thread.on("exit", () => {
      if (this.#thread === thread) void this.#fail("its check has ended without an answer");
    });
    return thread;
  }

  /** Ends the thread when it has worked for too long: time in which it did not run does not count. */
  #watch(thread: Worker): () => void {
    const beganAt = this.#clock.monotonic();
    let usedBefore: number | undefined;
    const look = async (): Promise<void> => {
      const used = await cpuMsOf(thread);
      if (this.#thread !== thread || this.#current?.stopWatching !== stop) return;
      usedBefore ??= used;
      const isLate = this.#clock.monotonic() - beganAt > maxWallMs;
      if (isLate || used - usedBefore > this.#maxCpuMs) {
        await this.#fail(`its check took longer than ${this.#maxCpuMs} ms`);
      }
    };
    const stop = this.#clock.every(lookEveryMs, () => void look());
    return stop;
  }

  async #fail(reason: string): Promise<void> {
    this.#log?.warn({ reason }, "a check by a schema was given up");
    await this.#stop(reason);
    this.#next();
  }

  /** Ends the thread and what it works on. */
  async #stop(reason: string): Promise<void> {
    const thread = this.#thread;
    this.#thread = undefined;
    this.#cancelIdle = undefined;
    const current = this.#current;
    this.#current = undefined;
    current?.stopWatching();
    current?.settle(unchecked(reason));
    await thread?.terminate();
  }

  #answer(check: SchemaCheck): void {
    const current = this.#current;
    this.#current = undefined;
    current?.stopWatching();
    current?.settle(check);
    this.#next();
  }
}

function unchecked(error: string): SchemaCheck {
  return { ok: false, error, isUnchecked: true };
}

function checkOf(answer: SchemaAnswer): SchemaCheck {
  if (answer.fits) return { ok: true };
  return answer.isUnchecked ? unchecked(answer.error) : { ok: false, error: answer.error };
}

/** What a thread has used since its start; one that has ended uses nothing more. */
async function cpuMsOf(thread: Worker): Promise<number> {
  try {
    const { user, system } = await thread.cpuUsage();
    return (user + system) / 1_000;
  } catch {
    return 0;
  }
}
