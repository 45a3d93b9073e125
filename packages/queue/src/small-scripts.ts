import { sharedNow } from "@larkline/protocol";
import { raw2NextJobData, type BackendFactory, type WorkerOptions } from "bullmq";
import { KeepingBackend, kept, keptDataOf, machineTimeOf, type KeptJobRules } from "./kept-jobs.ts";
import { runScript, script, type Script } from "./script.ts";

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
    if (onlyDueMs !== undefined) return [null, 0, 0, machineTimeOf(onlyDueMs)];
    const taken = await this.#run(takeJob, { token, nowMs: sharedNow() });
    return taken === null ? await super.moveToActive(token, name) : this.#nextOf(taken as Taken);
  }

  override async moveToCompleted(...given: Completion): ReturnType<KeepingBackend["moveToCompleted"]> {
    const [job, , , token, fetchNext] = given;
    const isPlain = job.parentKey === undefined && job.opts.deduplication === undefined;
    if (!isPlain) return await super.moveToCompleted(...given);
    const id = job.id ?? "";
    const finishedOn = sharedNow();
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
    if (fields === 0) return [null, 0, 0, machineTimeOf(dueMs)];
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

/** What a worker works its queue with. */
export function workerBackend(rules: KeptJobRules & { scripts: Scripts }): BackendFactory<KeepingBackend> {
  return (...given) => {
    const { name, limiter, metrics } = optionsOf(given);
    const isPlain = name === undefined && limiter === undefined && metrics === undefined;
    const Backend = rules.scripts === "small" && isPlain ? SmallScriptsBackend : KeepingBackend;
    return new Backend(given, rules);
  };
}
