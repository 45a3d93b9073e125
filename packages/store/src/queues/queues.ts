import {
  newEngineError,
  parserOf,
  TurnJob,
  turnJobId,
  turnsQueue,
  type SessionKey,
  attemptIdOf,
  backgroundPriority,
  ToolJob,
  toolJobId,
  toolsQueue,
  type ToolLimits,
  machineNow,
  pause,
  systemClock,
  type Clock,
  type Parser,
  finishedCallOf,
} from "@larkline/protocol";
import {
  Queue,
  DelayedError,
  UnrecoverableError,
  WaitingError,
  Worker,
  type Job,
  createRedisBackend,
  RedisQueueBackend,
  type BackendFactory,
  type KeepJobs,
  type Processor,
  raw2NextJobData,
  type WorkerOptions,
} from "bullmq";
import { runScript, scriptsBeside, type Script } from "@larkline/protocol/lua";
import { setMaxListeners } from "node:events";
import { isRedisTrouble, type RedisConnection } from "../connection.ts";
import type { Fate, JobLock } from "../presence.ts";

// The jobs of all queues: how they are added, and how workers take, run and finish them.

const script = scriptsBeside<Record<never, never>>(import.meta.url);

const parseTurnJob = parserOf(TurnJob);

// More would be a bug: a wake-up holds a session and a number.
const maxTurnBytes = 2_048;

/** Wakes sessions. Jobs carry no data: adding one twice is harmless, losing one is healed. */
export class TurnQueue {
  readonly #queue: Queue;
  readonly #jobs: JobAdder;

  constructor(options: QueueOptions) {
    this.#queue = openQueue(turnsQueue, options);
    this.#jobs = new JobAdder(this.#queue, options.clock);
  }

  /** Adds the wake-up of generation `gen` unless it is waiting, delayed or active; one that has finished is replaced. */
  async wake(session: SessionKey, gen: number): Promise<void> {
    await this.ensure(session, gen);
  }

  /** The same. True if it had to be added. */
  async ensure(session: SessionKey, gen: number): Promise<boolean> {
    const job = parseTurnJob({ v: 1, session, gen });
    if (!job.ok) throw newEngineError("internal_error", `refusing to queue a wake-up: ${job.error}`);
    return await this.#jobs.add({ id: turnJobId(session, gen), name: "turn", data: job.value, maxBytes: maxTurnBytes });
  }

  /** Whether it is waiting, delayed or active. */
  async alive(session: SessionKey, gen: number): Promise<boolean> {
    return !["unknown", "failed", "completed"].includes(await this.#queue.getJobState(turnJobId(session, gen)));
  }

  async close(): Promise<void> {
    await this.#queue.close();
  }
}

export interface DispatchOptions {
  /** Calls of background turns: they come after all others of their queue. Default false. */
  background?: boolean;
  /** Tools of the runner that have limits, and so queues of their own. */
  limitedTools?: ReadonlySet<string>;
}

/** Sends calls to runners: one queue per runner, and one for each of its tools that has limits. */
export class ToolQueues {
  readonly #options: QueueOptions;
  readonly #queues = new Map<string, { queue: Queue; jobs: JobAdder }>();

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  /**
   * Adds calls; an attempt that is queued or running already is not added again, nor is one that was answered within the
   * last 10 s: its outcome is on its way to the session. One that was answered before is: its outcome is lost.
   */
  async dispatch(
    runner: string,
    jobs: readonly ToolJob[],
    { background = false, limitedTools }: DispatchOptions = {},
  ): Promise<void> {
    const limited = (job: ToolJob): string | undefined => (limitedTools?.has(job.name) ? job.name : undefined);
    const added = jobs.map((job) => ({ to: toolsQueue(runner, limited(job)), job: newJobOf(job, background) }));
    await Promise.all(added.map(async ({ to, job }) => await this.#open(to).jobs.add(job)));
  }

  /** Bounds the queue of one tool from now on, over all instances of its runner together. */
  async limit(runner: string, tool: string, { concurrency, rate }: ToolLimits): Promise<void> {
    const { queue } = this.#open(toolsQueue(runner, tool));
    if (concurrency === undefined) await queue.removeGlobalConcurrency();
    else await queue.setGlobalConcurrency(concurrency);
    if (rate === undefined) await queue.removeGlobalRateLimit();
    else await queue.setGlobalRateLimit(rate.calls, rate.perMs);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#queues.values()].map(async ({ queue }) => await queue.close()));
  }

  #open(name: string): { queue: Queue; jobs: JobAdder } {
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const queue = openQueue(name, this.#options);
    const opened = { queue, jobs: new JobAdder(queue, this.#options.clock) };
    this.#queues.set(name, opened);
    return opened;
  }
}

const parseToolJob = parserOf(ToolJob);

// Workers send at most 200 KB of arguments, which as JSON inside JSON can double; a larger job is a bug.
const maxToolBytes = 524_288;

/**
 * A suspended turn adds all of its open calls again whenever it is woken, for example by the answer to one of them. The
 * outcome of a call that has just ended may not be in the session yet, and the call would run a second time. Carrying it
 * over takes some ms, about a second if the notification is lost, and longer while workers are replaced.
 */
const answeredMs = 10_000;

function checked(data: ToolJob): ToolJob {
  const job = parseToolJob(data);
  if (!job.ok) throw newEngineError("internal_error", `refusing to queue a tool call: ${job.error}`);
  return job.value;
}

function newJobOf(data: ToolJob, background: boolean): NewJob {
  const job = checked(data);
  const id = toolJobId(job.turnId, attemptIdOf(job));
  return {
    id,
    name: job.name,
    data: job,
    maxBytes: maxToolBytes,
    recentMs: answeredMs,
    ...(background && { priority: backgroundPriority }),
  };
}

/** A job as it is added. */
export interface NewJob {
  id: string;
  name: string;
  data: object;
  /** Above 0: after all jobs without one. Default 0. */
  priority?: number;
  /** One of the same id that has succeeded within so many ms is left alone. Default 0: it is replaced. */
  recentMs?: number;
  /** Of the data as JSON, in UTF-8; a larger job is a bug. */
  maxBytes: number;
}

const addJob = script("add-job");

/**
 * How often a job that throws is tried, with growing pauses (0.1 s to 3.2 s, 6.3 s in all): Redis may
 * be away for a moment between two steps of a job, and only the job knows what is left to do.
 */
const retries = { attempts: 7, backoff: { type: "exponential", delay: 100 } };

// Workers of this version decide by themselves what they keep (see `keptDataOf`); those of the version before do what
// the job says, and must keep no arguments.
const storedOptions = JSON.stringify({ ...retries, removeOnComplete: true, removeOnFail: { count: 500 } });

/** Adds jobs to one queue. No other way of adding them replaces finished ones. */
export class JobAdder {
  readonly #queue: Queue;
  readonly #clock: Clock;

  constructor(queue: Queue, clock = systemClock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** True where the job was added; false where one of its id is waiting, active or delayed, or has just succeeded. */
  async add({ id, name, data, priority = 0, recentMs = 0, maxBytes }: NewJob): Promise<boolean> {
    const text = JSON.stringify(data);
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) {
      throw newEngineError(
        "internal_error",
        `refusing to queue ${id}: its size of ${bytes} bytes is above ${maxBytes}`,
      );
    }
    const { keys } = this.#queue;
    const added = await runScript(
      await this.#queue.getBackend().client,
      addJob,
      { ...keys, priorityCounter: keys["pc"] ?? "", job: this.#queue.toKey(id) },
      { id, name, data: text, options: storedOptions, nowMs: this.#clock.now(), priority, maxEvents, recentMs },
    );
    return added === 1;
  }
}

/** Keys of all queues start with this; the braces keep them in one Redis Cluster slot. */
export const defaultQueuePrefix = "{larkline}";

/** What queues and their workers need: an open connection, which stays the caller's to close. */
export interface QueueOptions {
  connection: RedisConnection;
  prefix?: string;
  /** Connection and protocol errors; the parts reconnect by themselves. */
  onError?: (error: Error) => void;
  /** The machine's if absent. */
  clock?: Clock;
}

/**
 * Entries of a queue's stream of events, which BullMQ writes at every step of a job and which no process reads.
 * Shortened in portions of about 100.
 */
export const maxEvents = 200;

/** Opens a queue to add jobs to it. */
export function openQueue(name: string, { connection, prefix = defaultQueuePrefix, onError }: QueueOptions): Queue {
  const queue = new Queue(name, { connection, prefix, streams: { events: { maxLen: maxEvents } } });
  queue.on("error", (error) => onError?.(error));
  return queue;
}

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
  /** Redacts the reasons and stacks that failed jobs show. */
  redact: Redact;
  /** The job failed for good (thrown, or stalled too often). May be called more than once. */
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
  return createWorker({ scripts, clock: systemClock, ...options, queue, parse: parserOf(ToolJob), isCall: true });
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
  const { _getNextJob: privately } = worker as unknown as { _getNextJob: (...given: unknown[]) => Promise<unknown> };
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
      if (refused) await pause(clock, fetchPausesMs[Math.min(refusals, fetchPausesMs.length - 1)] ?? 0, closing);
      refusals = refused ? refusals + 1 : 0;
    }
  };
  Object.assign(worker, { _getNextJob: fetchOrPause });
}

class PatientWorker extends Worker {
  readonly #presence: JobPresence | undefined;

  constructor(setup: KeptJobRules & { scripts: Scripts; queue: string }, process: Processor, options: WorkerOptions) {
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
  const company = new Company(setup, closing.signal, {
    pause: async () => await worker.pause(true),
    resume: () => void worker.resume(),
  });
  const worker: PatientWorker = new PatientWorker(
    setup,
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
    const triedAgain = job !== undefined && !job.finishedOn;
    if (triedAgain) return setup.onError?.(error);
    const parsed = setup.parse(job?.data);
    if (parsed.ok) setup.onFailed(parsed.value, error).catch((cause: unknown) => setup.onError?.(asError(cause)));
    else setup.onError?.(error);
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
      await Promise.race([drained, pause(clock, deadlineMs, over.signal)]).finally(() => over.abort());
    })();
    await closed;
  };
}

// How a worker takes, finishes and puts back jobs in Redis, and what it keeps of them.

const maxAgeS = 14 * 86_400;
/** Finished jobs that are kept for people. BullMQ drops the oldest when another job of the kind finishes. */
export const kept = {
  completed: { count: 200, age: maxAgeS },
  failed: { count: 1_000, age: maxAgeS },
} as const satisfies Record<string, KeepJobs>;

const finishJobOfRunner = script("finish-job-of-runner");
const jobHolders = script("job-holders");
const unlockJobs = script("unlock-jobs");

/** For runners in other languages, with the names of its keys and arguments in order. */
export const finishJobScript = {
  keys: finishJobOfRunner.keys,
  arguments: finishJobOfRunner.arguments,
  lua: finishJobOfRunner.lua,
};

/** Replaces recognisable secrets in free text. */
type Redact = (text: string) => string;

const maxReasonLength = 300;
const maxFrames = 15;
const maxStacks = 3;

/**
 * What of a job's data stays when it has finished: of a wake-up all, since it holds ids alone; of a call its ids and
 * numbers; of unreadable data nothing.
 */
function keptDataOf(data: unknown, { isCall }: KeptJobRules): { data: string } | undefined {
  if (!isCall) return undefined;
  const call = parseToolJob(data);
  return { data: JSON.stringify(call.ok ? finishedCallOf(call.value) : {}) };
}

/**
 * The reason of a failure as it may be shown: its first line up to the first quotation mark, since parsers quote what
 * they were given, without secrets. The log has the rest.
 */
function shownReason(text: string, redact: Redact): string {
  const [line = ""] = text.split("\n", 1);
  const [unquoted = "", ...quoted] = line.split('"');
  return `${redact(unquoted).slice(0, maxReasonLength)}${quoted.length === 0 ? "" : "…"}`;
}

/** Where a failure came from: the reason, and the calls without anything that they were given. */
function shownStack(stack: string, redact: Redact): string {
  const frames = stack.split("\n").filter((line) => /^\s+at \S/.test(line));
  return [shownReason(stack, redact), ...frames.slice(0, maxFrames).map((line) => redact(line))].join("\n");
}

function shownStacks(json: unknown, redact: Redact): string {
  const stacks: unknown = typeof json === "string" ? JSON.parse(json) : [];
  const texts = Array.isArray(stacks) ? stacks.filter((stack) => typeof stack === "string") : [];
  return JSON.stringify(texts.slice(-maxStacks).map((stack) => shownStack(stack, redact)));
}

/** The place of the time among the keys and arguments of the scripts to which BullMQ passes it. */
export const timeAt: Readonly<Record<string, number>> = { moveToActive: 12, moveStalledJobsToWait: 11, retryJob: 12 };

type ScriptArguments = (string | number | boolean | Buffer)[];

/** What BullMQ gives a method of its backend. */
type Given<Method extends "execCommand" | "moveToCompletedArgs" | "moveToDelayed" | "moveToFailedArgs"> = Parameters<
  RedisQueueBackend[Method]
>;

/**
 * BullMQ on Redis, with two differences: it decides what of finished jobs is kept and what they may show, whatever the
 * options of a job say, and all times in Redis are those of the shared clock, so that a worker on a machine whose clock
 * is wrong does not delay the jobs of others.
 */
export class KeepingBackend extends RedisQueueBackend {
  protected readonly rules: KeptJobRules;
  readonly #redact: Redact;

  constructor([name, opts, ...others]: Parameters<BackendFactory>, rules: KeptJobRules) {
    const base = createRedisBackend(name, opts, ...others);
    base.on("error", () => undefined); // this one has the same connections, and reports their errors
    super(base.connection, name, base.keys, (type) => base.toKey(type), opts, base.blockingConnection);
    this.rules = rules;
    this.#redact = rules.redact;
  }

  override moveToCompletedArgs(...given: Given<"moveToCompletedArgs">): ScriptArguments {
    const [job, , , token, fetchNext] = given;
    const fields = keptDataOf(job.data, this.rules);
    const [result, now] = ["null", this.rules.clock.now()];
    return this.moveToFinishedArgs(
      job,
      result,
      "returnvalue",
      kept.completed,
      "completed",
      token,
      now,
      fetchNext,
      fields,
    );
  }

  override moveToFailedArgs(...given: Given<"moveToFailedArgs">): ScriptArguments {
    const [job, reason, , token, fetchNext, fields = {}] = given;
    const shown = { ...this.#shown(fields), ...keptDataOf(job.data, this.rules) };
    const text = shownReason(reason, this.#redact);
    const now = this.rules.clock.now();
    return this.moveToFinishedArgs(job, text, "failedReason", kept.failed, "failed", token, now, fetchNext, shown);
  }

  override async moveToDelayed(...given: Given<"moveToDelayed">): Promise<void | unknown[]> {
    const [jobId, , delay, token, { fieldsToUpdate, ...others } = {}] = given;
    const shown = fieldsToUpdate === undefined ? others : { ...others, fieldsToUpdate: this.#shown(fieldsToUpdate) };
    return this.#inMachineTime(await super.moveToDelayed(jobId, this.rules.clock.now(), delay, token, shown));
  }

  override async moveToFinished(jobId: string, args: ScriptArguments): Promise<unknown[]> {
    return this.#inMachineTime(await super.moveToFinished(jobId, args));
  }

  override async moveToActive(token: string, name?: string): Promise<unknown[]> {
    return this.#inMachineTime(await super.moveToActive(token, name));
  }

  /**
   * Jobs of dead processes are put back at once. Those without a lock, which has run out, only when those who live have
   * had the time to lock their jobs again.
   */
  override async moveStalledJobsToWait(): Promise<string[]> {
    const { presence } = this.rules;
    if (presence === undefined) return await super.moveStalledJobsToWait();
    const unlocked = await this.#unlockJobsOfTheDead(presence);
    return unlocked > 0 || presence.isSteady() ? await super.moveStalledJobsToWait() : [];
  }

  async #unlockJobsOfTheDead(presence: JobPresence): Promise<number> {
    const { active = "", stalled = "", "stalled-check": stalledCheck = "", "": queue = "" } = this.keys;
    const client = await this.client;
    const asked = { queue, own: presence.id };
    const holders = (await runScript(client, jobHolders, { active }, asked)) as string[]; // as the script has it
    if (holders.length === 0) return 0;
    const fates = await presence.fatesOf(holders);
    // Of runners in other languages nothing is known: their locks run out.
    const dead = holders.filter((id) => !["alive", "unknown"].includes(fates.get(id) ?? "unknown"));
    if (dead.length === 0) return 0;
    return Number(await runScript(client, unlockJobs, { active, stalled, stalledCheck }, { queue, dead }));
  }

  override async waitForJob(blockTimeout: number): Promise<{ member: string; score: number } | null> {
    const found = await super.waitForJob(blockTimeout);
    return found === null ? null : { ...found, score: this.machineTimeOf(found.score) };
  }

  override execCommand(...[client, command, args]: Given<"execCommand">): unknown {
    const at = timeAt[command];
    return super.execCommand(client, command, at === undefined ? args : args.with(at, this.rules.clock.now()));
  }

  /** A time of the shared clock, as BullMQ compares it with the machine's. 0 is no time. */
  protected machineTimeOf(sharedMs: number): number {
    return sharedMs > 0 ? sharedMs + machineNow() - this.rules.clock.now() : sharedMs;
  }

  /** The fourth part of what a script answers about the next job is when the next delayed one is due. */
  #inMachineTime<T extends unknown[] | void>(next: T): T {
    const dueMs: unknown = next?.[3];
    if (next !== undefined && typeof dueMs === "number") next[3] = this.machineTimeOf(dueMs);
    return next;
  }

  #shown(fields: Record<string, unknown>): Record<string, unknown> {
    const { failedReason, stacktrace, ...others } = fields;
    return {
      ...others,
      ...(typeof failedReason === "string" && { failedReason: shownReason(failedReason, this.#redact) }),
      ...(stacktrace !== undefined && { stacktrace: shownStacks(stacktrace, this.#redact) }),
    };
  }
}

interface KeptJobRules {
  /** Whether the jobs are tool calls, whose arguments are not kept. */
  isCall: boolean;
  redact: Redact;
  presence?: JobPresence | undefined;
  clock: Clock;
}

/** What workers need to know of processes: that of their own, and of those that hold jobs. */
export interface JobPresence {
  /** Of this process; the tokens of its locks begin with it. */
  readonly id: string;
  /** How long a lock is good for, ms. */
  readonly lockMs: number;
  /** Renews the lock of a job until the returned function is called. */
  hold(lock: JobLock): () => void;
  /** Whether the locks of all jobs that run are there: not right after an outage of Redis. */
  isSteady(): boolean;
  /** What has become of processes. */
  fatesOf(ids: readonly string[]): Promise<Map<string, Fate>>;
}

/**
 * Which scripts move jobs: `small` are ours, for what happens to every job, with BullMQ's where ours do not suffice;
 * `bullmq` are BullMQ's alone. Both write the same keys, so workers of one queue may differ.
 */
export type Scripts = "small" | "bullmq";

const takeJob = script("take-job");
const finishJob = script("finish-job");

type Completion = Parameters<KeepingBackend["moveToCompleted"]>;

/** What the script `take` gives: the fields of a job, its id, how many lists hold more, when the next one is due. */
type Taken = [fields: string[] | 0, id: string | 0, left: number, dueMs: number];

/**
 * Takes and finishes jobs by scripts that do the same as BullMQ's with half of the commands, because they leave out
 * what our queues do not have: parents, deduplication, limits of workers, metrics, and readers of events. What they
 * find that is not theirs (a queue that is paused or has limits, jobs with priority, delayed jobs that are due) they
 * leave to BullMQ's.
 */
class SmallScriptsBackend extends KeepingBackend {
  readonly #lockMs: number;
  /** When the next delayed job is due, by the shared clock, where the last script has left no other job. */
  #onlyDueMs: number | undefined;

  constructor(given: Parameters<BackendFactory>, rules: KeptJobRules) {
    super(given, rules);
    this.#lockMs = optionsOf(given).lockDuration ?? 0;
  }

  /** BullMQ asks again after every job that it got; where the script has seen that no other waits, this answers. */
  override async moveToActive(token: string, name?: string): Promise<unknown[]> {
    const onlyDueMs = this.#onlyDueMs;
    this.#onlyDueMs = undefined;
    if (onlyDueMs !== undefined) return [null, 0, 0, this.machineTimeOf(onlyDueMs)];
    const taken = await this.#run(takeJob, { token, nowMs: this.rules.clock.now() });
    return taken === null ? await super.moveToActive(token, name) : this.#nextOf(taken as Taken);
  }

  override async moveToCompleted(...given: Completion): ReturnType<KeepingBackend["moveToCompleted"]> {
    const [job, , , token, fetchNext] = given;
    const isPlain = job.parentKey === undefined && job.opts.deduplication === undefined;
    if (!isPlain) return await super.moveToCompleted(...given);
    const id = job.id ?? "";
    const finishedOn = this.rules.clock.now();
    const finished = await this.#run(finishJob, {
      token,
      nowMs: finishedOn,
      id,
      data: keptDataOf(job.data, this.rules)?.data ?? "",
      maxCount: kept.completed.count,
      maxAgeMs: kept.completed.age * 1_000,
      fetchNext: fetchNext && this.closing === undefined ? 1 : 0,
    });
    if (typeof finished === "number" && finished < 0) {
      throw this.finishedErrors({ code: finished, jobId: id, command: "moveToFinished", state: "active" });
    }
    if (finished === 0) return { result: [], finishedOn };
    if (finished !== null) return { result: this.#nextOf(finished as Taken), finishedOn };
    return { result: await this.#takeByBullmq(token), finishedOn };
  }

  override execCommand(...given: Parameters<KeepingBackend["execCommand"]>): unknown {
    this.#onlyDueMs = undefined;
    return super.execCommand(...given);
  }

  /** After a job has been finished: an error must not tell the worker that it has not. */
  async #takeByBullmq(token: string): Promise<unknown[] | undefined> {
    try {
      return await super.moveToActive(token);
    } catch (error) {
      this.emit("error", error);
      return undefined;
    }
  }

  #nextOf([fields, id, left, dueMs]: Taken): unknown[] {
    if (fields === 0) return [null, 0, 0, this.machineTimeOf(dueMs)];
    this.#onlyDueMs = left === 0 ? dueMs : undefined;
    return raw2NextJobData([fields, id, 0, 0]);
  }

  async #run(moving: Script, given: Readonly<Record<string, string | number>>): Promise<unknown> {
    this.#onlyDueMs = undefined;
    const { keys } = this;
    const job = given["id"] === undefined ? "" : this.toKey(String(given["id"]));
    return await runScript(
      await this.client,
      moving,
      { ...keys, priorityCounter: keys["pc"] ?? "", job, lock: `${job}:lock` },
      { queue: keys[""] ?? "", lockMs: this.#lockMs, ...given },
    );
  }
}

/** BullMQ gives the backend of a worker the worker's options, and types them as those of a queue. */
function optionsOf([, options]: Parameters<BackendFactory>): WorkerOptions {
  return options as WorkerOptions;
}

/** The connections and scripts that a worker uses for its queue. */
export function workerBackend(rules: KeptJobRules & { scripts: Scripts }): BackendFactory<KeepingBackend> {
  return (...given) => {
    const { name, limiter, metrics } = optionsOf(given);
    const isPlain = name === undefined && limiter === undefined && metrics === undefined;
    const Backend = rules.scripts === "small" && isPlain ? SmallScriptsBackend : KeepingBackend;
    return new Backend(given, rules);
  };
}
