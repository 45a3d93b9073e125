import { setMaxListeners } from "node:events";
import { DelayedError, UnrecoverableError, WaitingError, Worker, type Job } from "bullmq";
import { parserOf, ToolJob, toolsQueue, TurnJob, turnsQueue, type Parser } from "@larkline/protocol";
import { defaultQueuePrefix, type QueueOptions } from "./connection.ts";

/**
 * `done`: finished. `requeue`: put the job back for another worker at once (shutdown). `postpone`: put
 * it back for later, because this worker cannot do it. Neither counts as a failure.
 */
export type JobResult = "done" | "requeue" | "postpone";

export interface JobWorkerOptions<T> extends QueueOptions {
  /** Jobs run at once. */
  concurrency: number;
  /** `signal` aborts when the worker closes. */
  handle: (job: T, signal: AbortSignal) => Promise<JobResult>;
  /** The job failed for good (thrown, or stalled too often). May be called more than once. */
  onFailed: (job: T, error: Error) => Promise<void>;
  /** Ms without renewal after which a job counts as stalled. Renewed at half of it. */
  lockDurationMs?: number;
  /** How long a postponed job rests, ms; 5 s if absent. */
  postponeMs?: number;
  /** Ms between searches for stalled jobs. */
  stalledIntervalMs?: number;
}

export interface JobWorker {
  /**
   * Stops taking jobs, aborts the signals of the running ones and waits for them up to `deadlineMs`
   * (default 8 s); what still runs then is recovered by other workers as stalled. Idempotent.
   */
  close(options?: { deadlineMs?: number; abort?: boolean }): Promise<void>;
  isRunning(): boolean;
}

/** Processes wake-ups of sessions. */
export function createTurnWorker(options: JobWorkerOptions<TurnJob>): JobWorker {
  return createWorker({ ...options, queue: turnsQueue, parse: parserOf(TurnJob) });
}

/** Processes the calls of one runner; those of one of its tools if that has limits and so a queue of its own. */
export function createToolWorker(
  options: JobWorkerOptions<ToolJob> & { runner: string; limitedTool?: string },
): JobWorker {
  const { runner, limitedTool } = options;
  return createWorker({ ...options, queue: toolsQueue(runner, limitedTool), parse: parserOf(ToolJob) });
}

interface WorkerSetup<T> extends JobWorkerOptions<T> {
  queue: string;
  parse: Parser<T>;
}

/** Soon enough for a person who waits while workers are replaced, and seldom enough where none can ever do it. */
const defaultPostponeMs = 5_000;

async function postpone(job: Job, token: string | undefined, waitMs = defaultPostponeMs): Promise<never> {
  await job.moveToDelayed(Date.now() + waitMs, token);
  throw new DelayedError();
}

function createWorker<T>(setup: WorkerSetup<T>): JobWorker {
  const lockDuration = setup.lockDurationMs ?? 10_000;
  // One signal for all jobs: BullMQ's own misses a job that is fetched while the worker closes, the
  // very one that was just put back.
  const closing = new AbortController();
  setMaxListeners(0, closing.signal);
  const worker = new Worker(
    setup.queue,
    async (job: Job, token?: string) => {
      const parsed = setup.parse(job.data);
      if (!parsed.ok) throw new UnrecoverableError(`job data: ${parsed.error}`);
      const result = closing.signal.aborted ? "requeue" : await setup.handle(parsed.value, closing.signal);
      if (result === "done") return;
      if (result === "postpone") await postpone(job, token, setup.postponeMs);
      await job.moveToWait(token);
      throw new WaitingError();
    },
    {
      connection: setup.connection,
      prefix: setup.prefix ?? defaultQueuePrefix,
      concurrency: setup.concurrency,
      lockDuration,
      stalledInterval: setup.stalledIntervalMs ?? lockDuration / 2,
      // A stalled wake-up is harmless to repeat: what must not repeat is fenced elsewhere.
      maxStalledCount: 10,
    },
  );
  worker.on("error", (error) => setup.onError?.(error));
  worker.on("failed", (job, error) => {
    const triedAgain = job !== undefined && !job.finishedOn;
    if (triedAgain) return setup.onError?.(error);
    const parsed = setup.parse(job?.data);
    if (parsed.ok) setup.onFailed(parsed.value, error).catch((cause: unknown) => setup.onError?.(asError(cause)));
    else setup.onError?.(error);
  });
  return { close: closer(worker, closing), isRunning: () => worker.isRunning() };
}

function asError(cause: unknown): Error {
  return cause instanceof Error ? cause : new Error(String(cause));
}

function closer(worker: Worker, closing: AbortController): JobWorker["close"] {
  let closed: Promise<void> | undefined;
  return async ({ deadlineMs = 8_000, abort = true } = {}) => {
    closed ??= (async () => {
      const drained = worker.close();
      if (abort) closing.abort("shutdown");
      let timer: NodeJS.Timeout | undefined;
      const deadline = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, deadlineMs);
      });
      await Promise.race([drained, deadline]);
      clearTimeout(timer);
    })();
    await closed;
  };
}
