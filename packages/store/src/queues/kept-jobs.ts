import { parserOf } from "@larkline/protocol";
import { machineNow, type Clock } from "@larkline/protocol/clock";
import { runScript, scriptsBeside } from "../lua.ts";
import { finishedCallOf, ToolJob } from "@larkline/protocol/runner";
import { createRedisBackend, RedisQueueBackend, type BackendFactory, type KeepJobs } from "bullmq";
import type { Fate, JobLock } from "../presence.ts";

// BullMQ on Redis as our workers use it: what is kept of finished jobs, whose clock counts, and whose jobs are put back.

const script = scriptsBeside<Record<never, never>>(import.meta.url);

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
export type Redact = (text: string) => string;

const parseToolJob = parserOf(ToolJob);

const maxReasonLength = 300;
const maxFrames = 15;
const maxStacks = 3;

/**
 * What of a job's data stays when it has finished: of a wake-up all, since it holds ids alone; of a call its ids and
 * numbers; of unreadable data nothing.
 */
export function keptDataOf(data: unknown, { isCall }: KeptJobRules): { data: string } | undefined {
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
  return [
    shownReason(stack, redact),
    ...frames.slice(0, maxFrames).map((line) => redact(line)),
  ].join("\n");
}

function shownStacks(json: unknown, redact: Redact): string {
  const stacks: unknown = typeof json === "string" ? JSON.parse(json) : [];
  const texts = Array.isArray(stacks) ? stacks.filter((stack) => typeof stack === "string") : [];
  return JSON.stringify(texts.slice(-maxStacks).map((stack) => shownStack(stack, redact)));
}

/** The place of the time among the keys and arguments of the scripts to which BullMQ passes it. */
export const timeAt: Readonly<Record<string, number>> = {
  moveToActive: 12,
  moveStalledJobsToWait: 11,
  retryJob: 12,
};

type ScriptArguments = (string | number | boolean | Buffer)[];

/** What BullMQ gives a method of its backend. */
type Given<
  Method extends "execCommand" | "moveToCompletedArgs" | "moveToDelayed" | "moveToFailedArgs",
> = Parameters<RedisQueueBackend[Method]>;

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
    super(
      base.connection,
      name,
      base.keys,
      (type) => base.toKey(type),
      opts,
      base.blockingConnection,
    );
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
    const settled = this.rules.settled.has(job) ? 1 : 0;
    const shown = { ...this.#shown(fields), ...keptDataOf(job.data, this.rules), settled };
    const text = shownReason(reason, this.#redact);
    const now = this.rules.clock.now();
    return this.moveToFinishedArgs(
      job,
      text,
      "failedReason",
      kept.failed,
      "failed",
      token,
      now,
      fetchNext,
      shown,
    );
  }

  override async moveToDelayed(...given: Given<"moveToDelayed">): Promise<void | unknown[]> {
    const [jobId, , delay, token, { fieldsToUpdate, ...others } = {}] = given;
    const shown =
      fieldsToUpdate === undefined
        ? others
        : { ...others, fieldsToUpdate: this.#shown(fieldsToUpdate) };
    return this.#inMachineTime(
      await super.moveToDelayed(jobId, this.rules.clock.now(), delay, token, shown),
    );
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
    const {
      active = "",
      stalled = "",
      "stalled-check": stalledCheck = "",
      "": queue = "",
    } = this.keys;
    const client = await this.client;
    const asked = { queue, own: presence.id };
    const holders = (await runScript(client, jobHolders, { active }, asked)) as string[]; // as the script has it
    if (holders.length === 0) return 0;
    const fates = await presence.fatesOf(holders);
    // Of runners in other languages nothing is known: their locks run out.
    const dead = holders.filter((id) => !["alive", "unknown"].includes(fates.get(id) ?? "unknown"));
    if (dead.length === 0) return 0;
    return Number(
      await runScript(client, unlockJobs, { active, stalled, stalledCheck }, { queue, dead }),
    );
  }

  override async waitForJob(
    blockTimeout: number,
  ): Promise<{ member: string; score: number } | null> {
    const found = await super.waitForJob(blockTimeout);
    return found === null ? null : { ...found, score: this.machineTimeOf(found.score) };
  }

  override execCommand(...[client, command, args]: Given<"execCommand">): unknown {
    const at = timeAt[command];
    return super.execCommand(
      client,
      command,
      at === undefined ? args : args.with(at, this.rules.clock.now()),
    );
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
      ...(typeof failedReason === "string" && {
        failedReason: shownReason(failedReason, this.#redact),
      }),
      ...(stacktrace !== undefined && { stacktrace: shownStacks(stacktrace, this.#redact) }),
    };
  }
}

export interface KeptJobRules {
  /** Whether the jobs are tool calls, whose arguments are not kept. */
  isCall: boolean;
  redact: Redact;
  presence?: JobPresence | undefined;
  clock: Clock;
  /** Jobs whose work has failed and whose sessions know it: they are kept as failed, with `settled` at 1. */
  settled: WeakSet<object>;
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
