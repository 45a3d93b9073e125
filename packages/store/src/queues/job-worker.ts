import { parserOf, type Parser } from "@larkline/protocol";
import { machineNow, pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { ToolJob, toolsQueue } from "@larkline/protocol/runner";
import {
  DelayedError,
  UnrecoverableError,
  WaitingError,
  Worker,
  type Job,
  type Processor,
  type WorkerOptions,
} from "bullmq";
import { setMaxListeners } from "node:events";
import { isRedisTrouble } from "../connection.ts";
import type { JobPresence, KeptJobRules, Redact } from "./kept-jobs.ts";
import { defaultQueuePrefix, type QueueOptions, TurnJob, turnsQueue } from "./queues.ts";
import { workerBackend, type Scripts } from "./small-scripts.ts";

// How workers take and run jobs: several at once, or one alone; and how they put back those that they cannot do now.

/**
 * `done`: finished. `requeue`: put the job back for another worker at once (shutdown). `postpone`: put
 * it back for later, because this worker cannot do it. Neither counts as a failure. `alone`: nothing was
 * done; handle it once more when no other job runs in this process. `failed`: the work has failed for the
 * reason given, and its session knows: the job ends as failed, without another try, for people to see.
 */
export type JobResult = "done" | "requeue" | "postpone" | "alone" | { failed: string };

export interface JobWorkerOptions<T> extends QueueOptions {
  /** Jobs run at once. */
  concurrency: number;
  /**
   * `signal` aborts when the worker closes, or when another job has to be alone and this one has not ended in
   * time: answer `requeue` then. `alone`: no other job of this worker runs meanwhile.
   */
  handle: (job: T, signal: AbortSignal, alone: boolean) => Promise<JobResult>;
  /** Redacts the reasons and stacks that failed jobs show. */
  redact: Redact;
  /** The job failed for good (thrown, or stalled too often; not `failed`). May be called more than once. */
  onFailed: (job: T, error: Error) => Promise<void>;
  /** Renews the locks of jobs and knows who has died; if absent BullMQ renews, and locks alone decide. */
  presence?: JobPresence;
  /** Without `presence`: ms without renewal after which a job counts as stalled. Renewed at half of it. */
  lockDurationMs?: number;
  /** How long a postponed job rests, ms; 5 s if absent. */
  postponeMs?: number;
  /** How long the other jobs may take to end before one that has to be alone, ms; 30 s if absent. */
  drainMs?: number;
  /** Ms between searches for stalled jobs. */
  stalledIntervalMs?: number;
  /** `small` if absent; for a tool with limits, whose queue the small ones would leave to the others, `bullmq`. */
  scripts?: Scripts;
}

export interface JobWorker {
  /**
   * Stops taking jobs, aborts the signals of the running ones and waits for them up to `deadlineMs`
   * (default 8 s); what still runs then is recovered by other workers. Idempotent.
   */
  close(options?: { deadlineMs?: number; abort?: boolean }): Promise<void>;
  isRunning(): boolean;
  /** Whether jobs are taken; those that run continue either way. */
  take(jobs: boolean): Promise<void>;
  /** Puts jobs of dead processes back at once; done as well every `stalledIntervalMs`. */
  recover(): Promise<void>;
}

/** Processes wake-ups of sessions. */
export function createTurnWorker(options: JobWorkerOptions<TurnJob>): JobWorker {
  return createWorker({
    scripts: "small",
    clock: systemClock,
    ...options,
    queue: turnsQueue,
    parse: parserOf(TurnJob),
    isCall: false,
  });
}

/** Processes the calls of one runner; those of one of its tools if that has limits and so a queue of its own. */
export function createToolWorker(
  options: JobWorkerOptions<ToolJob> & { runner: string; limitedTool?: string },
): JobWorker {
  const { runner, limitedTool } = options;
  const scripts = limitedTool === undefined ? "small" : "bullmq";
  const queue = toolsQueue(runner, limitedTool);
  return createWorker({
    scripts,
    clock: systemClock,
    ...options,
    queue,
    parse: parserOf(ToolJob),
    isCall: true,
  });
}

interface WorkerSetup<T> extends JobWorkerOptions<T> {
  queue: string;
  parse: Parser<T>;
  isCall: boolean;
  scripts: Scripts;
  clock: Clock;
}

/** Short for a person who waits while workers are replaced, and long enough when no worker can handle the job. */
const defaultPostponeMs = 5_000;

/** Pauses between tries to put a job back, ms; the last one repeats. */
const putBackPausesMs = [50, 100, 200, 400, 800];

/** BullMQ's own refusals have numbers: this worker has the job no more. Errors of Redis have none. */
function isRefusedByQueue(error: unknown): boolean {
  return error instanceof Error && "code" in error && typeof error.code === "number";
}

/**
 * Puts a job back, at once or after `restMs`. While Redis takes no writes for the queue the slot is of use to no job:
 * it is kept until Redis does, and the job has rested by then.
 */
async function putBack(
  job: Job,
  {
    token,
    restMs,
    closing,
    setup: { onError, clock },
  }: {
    token: string | undefined;
    restMs: number;
    closing: AbortSignal;
    setup: Pick<WorkerSetup<never>, "onError" | "clock">;
  },
): Promise<never> {
  for (let tried = 0; ; tried += 1) {
    const isRested = restMs === 0 || tried > 0;
    try {
      if (isRested) await job.moveToWait(token);
      // BullMQ subtracts this machine's time from it; the backend adds the rest to the shared clock.
      else await job.moveToDelayed(machineNow() + restMs, token);
    } catch (error) {
      // An earlier try may have put it back although its answer was lost.
      if (isRefusedByQueue(error) ? tried === 0 : closing.aborted) throw error;
      if (!isRefusedByQueue(error)) {
        onError?.(asError(error));
        const pauseMs = putBackPausesMs[Math.min(tried, putBackPausesMs.length - 1)] ?? 0;
        await pause(clock, pauseMs, closing); // then once more
        continue;
      }
    }
    throw isRested ? new WaitingError() : new DelayedError();
  }
}

/**
 * How long a blocking command waits for a job, in seconds. A connection without an answer for a little longer counts as
 * dead; with BullMQ's own 5 to 10 s a lost connection would look like an idle one.
 */
const blockForS = 4;

/** Pauses between tries to fetch a job while Redis refuses that, ms; the last one repeats. */
const fetchPausesMs = [100, 200, 400, 800, 1_600, 3_200, 5_000];

/**
 * BullMQ tries again at once after an answer of Redis that is no lost connection, such as a command that its user may
 * not run: its loop would leave nothing of the process to others.
 */
function pauseAfterRefusals(worker: Worker, closing: AbortSignal, clock: Clock): void {
  const { _getNextJob: privately } = worker as unknown as {
    _getNextJob: (...given: unknown[]) => Promise<unknown>;
  };
  const fetchJob = privately.bind(worker);
  let refused = false;
  let refusals = 0;
  worker.on("error", (error) => (refused ||= !isRedisTrouble(error)));
  const fetchOrPause = async (...given: unknown[]): Promise<unknown> => {
    refused = false;
    try {
      return await fetchJob(...given);
    } catch (error) {
      refused = !isRedisTrouble(error);
      throw error;
    } finally {
      if (refused) {
        await pause(
          clock,
          fetchPausesMs[Math.min(refusals, fetchPausesMs.length - 1)] ?? 0,
          closing,
        );
      }
      refusals = refused ? refusals + 1 : 0;
    }
  };
  Object.assign(worker, { _getNextJob: fetchOrPause });
}

class PatientWorker extends Worker {
  readonly #presence: JobPresence | undefined;

  constructor(
    setup: KeptJobRules & { scripts: Scripts; queue: string },
    process: Processor,
    options: WorkerOptions,
  ) {
    // The tokens of locks begin with the id of the worker, which has to be set before it takes the first job.
    super(setup.queue, process, { ...options, autorun: false }, workerBackend(setup));
    const { presence } = setup;
    this.#presence = presence;
    if (presence !== undefined) Object.defineProperty(this, "id", { value: presence.id });
    this.run().catch((error: unknown) => this.emit("error", asError(error)));
  }

  async recover(): Promise<void> {
    await this.backend.moveStalledJobsToWait();
  }

  override get maximumBlockTimeout(): number {
    return blockForS;
  }

  /** The lock is renewed until Redis knows how the job has ended, not only until it has. */
  override async processJob(...given: Parameters<Worker["processJob"]>): Promise<void | Job> {
    const [{ id = "" }, token] = given;
    const release = this.#presence?.hold({ queue: this.toKey(""), id, token });
    try {
      return await super.processJob(...given);
    } finally {
      release?.();
    }
  }
}

function createWorker<T>(setup: WorkerSetup<T>): JobWorker {
  const lockDuration = setup.presence?.lockMs ?? setup.lockDurationMs ?? 10_000;
  // One signal for all jobs: BullMQ's own misses a job that is fetched while the worker closes, the
  // very one that was just put back.
  const closing = new AbortController();
  // BullMQ's pause lets a fetch that waits bring one more job.
  let takes = true;
  const settled = new WeakSet<object>();
  const company = new Company(setup, closing.signal, {
    pause: async () => await worker.pause(true),
    resume: () => void worker.resume(),
  });
  const worker: PatientWorker = new PatientWorker(
    { ...setup, settled },
    async (job: Job, token?: string) => {
      const parsed = setup.parse(job.data);
      if (!parsed.ok) throw new UnrecoverableError(`job data: ${parsed.error}`);
      const result = takes ? await company.run(parsed.value) : "requeue";
      if (result === "done") return;
      if (typeof result === "object") {
        settled.add(job);
        throw new SettledError(result.failed);
      }
      const restMs = result === "postpone" ? (setup.postponeMs ?? defaultPostponeMs) : 0;
      return await putBack(job, { token, restMs, closing: closing.signal, setup });
    },
    {
      connection: setup.connection,
      prefix: setup.prefix ?? defaultQueuePrefix,
      concurrency: setup.concurrency,
      lockDuration,
      skipLockRenewal: setup.presence !== undefined,
      drainDelay: blockForS,
      stalledInterval: setup.stalledIntervalMs ?? lockDuration / 2,
      // Repeating a stalled wake-up is harmless, because the store fences all writes.
      maxStalledCount: 10,
    },
  );
  pauseAfterRefusals(worker, closing.signal, setup.clock);
  worker.on("error", (error) => setup.onError?.(error));
  worker.on("failed", (job, error) => {
    if (job !== undefined && settled.has(job)) return;
    const triedAgain = job !== undefined && !job.finishedOn;
    if (triedAgain) return setup.onError?.(error);
    const parsed = setup.parse(job?.data);
    if (parsed.ok) {
      setup
        .onFailed(parsed.value, error)
        .catch((cause: unknown) => setup.onError?.(asError(cause)));
    } else setup.onError?.(error);
  });
  return {
    close: closer(worker, closing, setup.clock),
    isRunning: () => worker.isRunning(),
    recover: async () => await worker.recover(),
    take: async (jobs) => {
      takes = jobs;
      if (jobs) await worker.resume();
      else await worker.pause(true);
    },
  };
}

/** Work has failed whose session knows it. No code of the queue is at fault, so there is no stack. */
class SettledError extends UnrecoverableError {
  constructor(reason: string) {
    super(reason);
    this.stack = reason;
  }
}

/** The running jobs of one worker: several at once, or one that runs alone. */
class Company<T> {
  readonly #setup: WorkerSetup<T>;
  readonly #closing: AbortSignal;
  readonly #fetching: { pause(): Promise<void>; resume(): void };
  #running = 0;
  #isReserved = false;
  /** Aborts to make the running jobs give way; replaced after each use. */
  #leave = new AbortController();
  #emptied: (() => void) | undefined;

  constructor(
    setup: WorkerSetup<T>,
    closing: AbortSignal,
    fetching: { pause: () => Promise<void>; resume: () => void },
  ) {
    this.#setup = setup;
    this.#closing = closing;
    this.#fetching = fetching;
    setMaxListeners(0, this.#leave.signal);
    closing.addEventListener("abort", () => this.#leave.abort(closing.reason), { once: true });
  }

  async run(job: T): Promise<JobResult> {
    // A job that was fetched while another one was about to run alone. The worker fetches no more until this one has
    // run.
    if (this.#closing.aborted || this.#isReserved) return "requeue";
    const result = await this.#handle(job, false);
    if (result !== "alone") return result;
    // Another job will run alone first; this one is put back.
    return this.#isReserved ? "requeue" : await this.#runAlone(job);
  }

  async #handle(job: T, alone: boolean): Promise<JobResult> {
    this.#running += 1;
    try {
      return await this.#setup.handle(job, this.#leave.signal, alone);
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.#emptied?.();
    }
  }

  async #runAlone(job: T): Promise<JobResult> {
    this.#isReserved = true;
    try {
      await this.#fetching.pause();
      await this.#untilEmpty();
      if (this.#closing.aborted) return "requeue";
      const result = await this.#handle(job, true);
      return result === "alone" ? "postpone" : result;
    } finally {
      this.#isReserved = false;
      if (!this.#closing.aborted) this.#fetching.resume();
    }
  }

  /** The others end by themselves, or are asked to leave when that takes too long. */
  async #untilEmpty(): Promise<void> {
    if (this.#running === 0) return;
    const { drainMs = 30_000, clock } = this.#setup;
    const stop = clock.after(drainMs, () => this.#leave.abort("shutdown"));
    await new Promise<void>((resolve) => (this.#emptied = resolve));
    stop();
    this.#emptied = undefined;
    if (!this.#leave.signal.aborted || this.#closing.aborted) return;
    this.#leave = new AbortController();
    setMaxListeners(0, this.#leave.signal);
  }
}

function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(String(cause));
}

function closer(worker: Worker, closing: AbortController, clock: Clock): JobWorker["close"] {
  let closed: Promise<void> | undefined;
  return async ({ deadlineMs = 8_000, abort = true } = {}) => {
    closed ??= (async () => {
      const drained = worker.close();
      if (abort) closing.abort("shutdown");
      const over = new AbortController();
      await Promise.race([drained, pause(clock, deadlineMs, over.signal)]).finally(() =>
        over.abort(),
      );
    })();
    await closed;
  };
}
