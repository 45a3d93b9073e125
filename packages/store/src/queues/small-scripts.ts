import { scriptsBeside, runScript, type Script } from "../lua.ts";
import { raw2NextJobData, type BackendFactory, type WorkerOptions } from "bullmq";
import type { ScriptReplies } from "../script-replies.ts";
import { kept, keptDataOf, KeepingBackend, type KeptJobRules } from "./kept-jobs.ts";

// Jobs are taken and finished by small scripts over BullMQ's keys (docs/decisions/0034-small-queue-scripts.md). Nothing but
// the choice of a worker's backend depends on this file: without it workers have `KeepingBackend`.

const script = scriptsBeside<ScriptReplies>(import.meta.url);

/**
 * Which scripts move jobs: `small` are ours, for what happens to every job, with BullMQ's where ours do not suffice;
 * `bullmq` are BullMQ's alone. Both write the same keys, so workers of one queue may differ.
 */
export type Scripts = "small" | "bullmq";

const takeJob = script("take-job");
const finishJob = script("finish-job");

type Completion = Parameters<KeepingBackend["moveToCompleted"]>;

/** What the scripts say of the next job, where BullMQ's own are not needed. */
type Next = NonNullable<ScriptReplies["take-job"]>;

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
    return taken === undefined ? await super.moveToActive(token, name) : this.#nextOf(taken);
  }

  override async moveToCompleted(
    ...given: Completion
  ): ReturnType<KeepingBackend["moveToCompleted"]> {
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
    if (finished === undefined) return { result: await this.#takeByBullmq(token), finishedOn };
    if (finished.reply === "finished") return { result: [], finishedOn };
    if (finished.reply !== "refused") return { result: this.#nextOf(finished), finishedOn };
    const { code } = finished;
    throw this.finishedErrors({ code, jobId: id, command: "moveToFinished", state: "active" });
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

  #nextOf(next: Next): unknown[] {
    if (next.reply === "none") return [null, 0, 0, this.machineTimeOf(next.dueMs)];
    this.#onlyDueMs = next.left ? undefined : next.dueMs;
    return raw2NextJobData([next.fields, next.id, 0, 0]);
  }

  async #run<Reply>(
    moving: Script<Reply>,
    given: Readonly<Record<string, string | number>>,
  ): Promise<Reply> {
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
export function workerBackend(
  rules: KeptJobRules & { scripts: Scripts },
): BackendFactory<KeepingBackend> {
  return (...given) => {
    const { name, limiter, metrics } = optionsOf(given);
    const isPlain = name === undefined && limiter === undefined && metrics === undefined;
    const Backend = rules.scripts === "small" && isPlain ? SmallScriptsBackend : KeepingBackend;
    return new Backend(given, rules);
  };
}
