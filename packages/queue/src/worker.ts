import { setMaxListeners } from "node:events";
import { DelayedError, UnrecoverableError, WaitingError, Worker, type Job } from "bullmq";
import {
  machineNow,
  parserOf,
  pause,
  systemClock,
  ToolJob,
  toolsQueue,
  TurnJob,
  turnsQueue,
  type Clock,
  type Parser,
} from "@larkline/protocol";
import { defaultQueuePrefix, type QueueOptions } from "./queues.ts";
import { type LockRenewals, type Redact, workerBackend, type Scripts } from "./job-backend.ts";

/**
 * `done`: finished. `requeue`: put the job back for another worker at once (shutdown). `postpone`: put
 * it back for later, because this worker cannot do it. Neither counts as a failure. `alone`: nothing was
 * done; handle it once more when no other job runs in this process.
 */
export type JobResult = "done" | "requeue" | "postpone" | "alone";

export interface JobWorkerOptions<T> extends QueueOptions {
  /** Jobs run at once. */
  concurrency: number;
  /**
   * `signal` aborts when the worker closes, or when another job has to be alone and this one has not ended in
   * time: answer `requeue` then. `alone`: no other job of this worker runs meanwhile.
   */
  handle: (job: T, signal: AbortSignal, alone: boolean) => Promise<JobResult>;
  /** What failed jobs show, their reasons and stacks, goes through it. */
  redact: Redact;
  /** The job failed for good (thrown, or stalled too often). May be called more than once. */
  onFailed: (job: T, error: Error) => Promise<void>;
  /** Renews the locks of jobs; if absent BullMQ does, as often as the event loop lets it. */
  renewals?: LockRenewals;
  /** Without `renewals`: ms without renewal after which a job counts as stalled. Renewed at half of it. */
  lockDurationMs?: number;
  /** How long a postponed job rests, ms; 5 s if absent. */
  postponeMs?: number;
  /** How long the other jobs may take to end before one that has to be alone, ms; 30 s if absent. */
  drainMs?: number;
  /** Ms between searches for stalled jobs. */
  stalledIntervalMs?: number;
  /** `small` if absent; for a tool with limits, whose queue the small ones would leave to the others, `bullmq`. */
  scripts?: Scripts;
  /** The machine's if absent. */
  clock?: Clock;
}

export interface JobWorker {
  /**
   * Stops taking jobs, aborts the signals of the running ones and waits for them up to `deadlineMs`
   * (default 8 s); what still runs then is recovered by other workers as stalled. Idempotent.
   */
  close(options?: { deadlineMs?: number; abort?: boolean }): Promise<void>;
  isRunning(): boolean;
  /** Whether jobs are taken; those that run go on either way. */
  take(jobs: boolean): Promise<void>;
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
  return createWorker({ scripts, clock: systemClock, ...options, queue, parse: parserOf(ToolJob), isCall: true });
}

interface WorkerSetup<T> extends JobWorkerOptions<T> {
  queue: string;
  parse: Parser<T>;
  isCall: boolean;
  scripts: Scripts;
  clock: Clock;
}

/** Soon enough for a person who waits while workers are replaced, and seldom enough where none can ever do it. */
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
      // BullMQ makes a span of it by the same clock; the backend adds that to the shared one.
      else await job.moveToDelayed(machineNow() + restMs, token);
    } catch (error) {
      // An earlier try may have put it back without being told so.
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
 * How long a worker waits for a job before it asks anew, in seconds. What has heard nothing for a little longer than
 * this is dead: BullMQ's own 5 to 10 s would let a lost connection pass for one that has nothing to do.
 */
const blockForS = 4;

class PatientWorker extends Worker {
  renewals: LockRenewals | undefined;

  override get maximumBlockTimeout(): number {
    return blockForS;
  }

  /** The lock is renewed until Redis knows how the job has ended, not only until it has. */
  override async processJob(...given: Parameters<Worker["processJob"]>): Promise<void | Job> {
    const [{ id = "" }, token] = given;
    const release = this.renewals?.hold({ queue: this.toKey(""), id, token });
    try {
      return await super.processJob(...given);
    } finally {
      release?.();
    }
  }
}

function createWorker<T>(setup: WorkerSetup<T>): JobWorker {
  const lockDuration = setup.renewals?.lockMs ?? setup.lockDurationMs ?? 10_000;
  // One signal for all jobs: BullMQ's own misses a job that is fetched while the worker closes, the
  // very one that was just put back.
  const closing = new AbortController();
  // BullMQ's pause lets a fetch that waits bring one more job.
  let takes = true;
  const company = new Company(setup, closing.signal, {
    pause: async () => await worker.pause(true),
    resume: () => void worker.resume(),
  });
  const worker: PatientWorker = new PatientWorker(
    setup.queue,
    async (job: Job, token?: string) => {
      const parsed = setup.parse(job.data);
      if (!parsed.ok) throw new UnrecoverableError(`job data: ${parsed.error}`);
      const result = takes ? await company.run(parsed.value) : "requeue";
      if (result === "done") return;
      const restMs = result === "postpone" ? (setup.postponeMs ?? defaultPostponeMs) : 0;
      return await putBack(job, { token, restMs, closing: closing.signal, setup });
    },
    {
      connection: setup.connection,
      prefix: setup.prefix ?? defaultQueuePrefix,
      concurrency: setup.concurrency,
      lockDuration,
      skipLockRenewal: setup.renewals !== undefined,
      drainDelay: blockForS,
      stalledInterval: setup.stalledIntervalMs ?? lockDuration / 2,
      // A stalled wake-up is harmless to repeat: what must not repeat is fenced elsewhere.
      maxStalledCount: 10,
    },
    workerBackend(setup),
  );
  worker.renewals = setup.renewals;
  worker.on("error", (error) => setup.onError?.(error));
  worker.on("failed", (job, error) => {
    const triedAgain = job !== undefined && !job.finishedOn;
    if (triedAgain) return setup.onError?.(error);
    const parsed = setup.parse(job?.data);
    if (parsed.ok) setup.onFailed(parsed.value, error).catch((cause: unknown) => setup.onError?.(asError(cause)));
    else setup.onError?.(error);
  });
  return {
    close: closer(worker, closing, setup.clock),
    isRunning: () => worker.isRunning(),
    take: async (jobs) => {
      takes = jobs;
      if (jobs) await worker.resume();
      else await worker.pause(true);
    },
  };
}

/** The jobs of one worker: side by side, or one of them alone. */
class Company<T> {
  readonly #setup: WorkerSetup<T>;
  readonly #closing: AbortSignal;
  readonly #fetching: { pause(): Promise<void>; resume(): void };
  #running = 0;
  #isReserved = false;
  /** Asks the running jobs to leave; a new one after each time it was used. */
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
    // One that was fetched in the last moment; the worker fetches no more until it is its turn.
    if (this.#closing.aborted || this.#isReserved) return "requeue";
    const result = await this.#handle(job, false);
    if (result !== "alone") return result;
    // Another one was quicker: this one comes again, here or elsewhere.
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
      await Promise.race([drained, pause(clock, deadlineMs, over.signal)]).finally(() => over.abort());
    })();
    await closed;
  };
}
