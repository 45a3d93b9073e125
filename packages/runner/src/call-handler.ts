import { toolEffects, toolJobId, type ToolEffect, type ToolJob, type ToolOutcome } from "@larkline/protocol";
import type { JobResult } from "@larkline/queue";
import type { BeginResult, SessionStore } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import {
  runTool,
  ToolNotFoundError,
  type CallContext,
  type StoreFile,
  type Tool,
  type ToolRegistry,
} from "@larkline/tool";
import type { DeliverOutcome } from "./outcome-delivery.ts";
import { createProgressReport } from "./progress-report.ts";
import type { RunnerMetrics } from "./runner-metrics.ts";
import type { RunningCall, RunningCalls } from "./running-calls.ts";

export interface CallHandlerDeps {
  registry: ToolRegistry;
  store: Pick<SessionStore, "begin" | "report">;
  deliver: DeliverOutcome;
  /** Keeps what tools save. */
  storeFile: StoreFile;
  calls: RunningCalls;
  metrics: RunnerMetrics;
  logger: Logger;
  maxOutputBytes?: number;
}

/** What a runner does with the jobs of its queue. */
export interface CallHandler {
  /** Runs one call at most once as its effect demands, and answers it. */
  handle(job: ToolJob, signal: AbortSignal): Promise<JobResult>;
  /** Answers a call whose job failed for good. */
  fail(job: ToolJob, error: Error): Promise<void>;
}

const texts = {
  late: "the call was not started before its deadline",
  closed: "the call was already answered",
  failed: "the runner could not work on the call",
  startedBefore:
    "outcome unknown: the call was started, but its runner stopped before it could report. It was not run again. Check whether it took effect before repeating it",
};

function failure(error: string, unknown = false): ToolOutcome {
  return unknown ? { ok: false, error, unknown } : { ok: false, error };
}

/** The stricter of two effects: the worker may have seen another version of the tool. */
function stricter(one: ToolEffect, other: ToolEffect): ToolEffect {
  return toolEffects.indexOf(one) > toolEffects.indexOf(other) ? one : other;
}

function find(registry: ToolRegistry, name: string): Tool | ToolNotFoundError {
  try {
    return registry.get(name);
  } catch (error) {
    if (error instanceof ToolNotFoundError) return error;
    throw error;
  }
}

function contextOf(job: ToolJob, call: RunningCall, logger: Logger): Omit<CallContext, "progress"> {
  return {
    callId: job.callId,
    turnId: job.turnId,
    actor: job.actor,
    signal: call.signal,
    log: (message, fields) => logger.info({ ...fields }, message),
  };
}

function resultOf(outcome: ToolOutcome): string {
  if (outcome.ok) return "ok";
  return outcome.unknown === true ? "unknown" : "error";
}

function notStarted(begun: Exclude<BeginResult, "run">): ToolOutcome {
  return begun === "closed" ? failure(texts.closed) : failure(texts.startedBefore, true);
}

class ToolCallHandler implements CallHandler {
  readonly #deps: CallHandlerDeps;
  readonly #results = new Map<string, Promise<JobResult>>();

  constructor(deps: CallHandlerDeps) {
    this.#deps = deps;
  }

  async handle(job: ToolJob, signal: AbortSignal): Promise<JobResult> {
    const id = toolJobId(job.turnId, job.callId);
    // A process that stood still (a tool that computes, a starved machine) loses the locks of its
    // jobs and gets them once more. The call still runs: its own result counts, not "unknown".
    const running = this.#results.get(id);
    if (running !== undefined) return await running;
    const result = this.#work(job, signal);
    this.#results.set(id, result);
    try {
      return await result;
    } finally {
      this.#results.delete(id);
    }
  }

  async #work(job: ToolJob, signal: AbortSignal): Promise<JobResult> {
    const { calls, registry } = this.#deps;
    if (Date.now() >= job.deadlineMs) return await this.#answer(job, failure(texts.late));
    const tool = find(registry, job.name);
    if (tool instanceof ToolNotFoundError) return await this.#answer(job, failure(`${tool.message}; it was not run`));
    // Known from here on, so that a cancellation during the next step is not missed.
    const call = calls.start(job);
    try {
      return await this.#begin(job, { tool, call, closing: signal });
    } finally {
      call.release();
    }
  }

  async fail(job: ToolJob, error: Error): Promise<void> {
    const { store, logger } = this.#deps;
    logger.error(
      { session: job.session, turnId: job.turnId, callId: job.callId, tool: job.name, error },
      "call failed",
    );
    // Asking to start it once more is how the ledger tells whether it was started.
    const begun = await store.begin(job.session, job.callId, job.effect);
    const outcome = begun === "run" ? failure(texts.failed) : notStarted(begun);
    await this.#answer(job, outcome);
  }

  async #begin(
    job: ToolJob,
    { tool, call, closing }: { tool: Tool; call: RunningCall; closing: AbortSignal },
  ): Promise<JobResult> {
    const effect = stricter(job.effect, tool.effect);
    // Not started yet: whoever takes the job next can run it, whatever its effect.
    if (closing.aborted || call.stopped()) return "requeue";
    // Running a pure call needs no leave: once too often does nothing, and only one answer counts.
    const begun = effect === "pure" ? "run" : await this.#deps.store.begin(job.session, job.callId, effect);
    if (begun !== "run") return await this.#answer(job, notStarted(begun));
    const outcome = await this.#run(job, { ...tool, effect }, call);
    if (!outcome.ok && call.stopped() && effect !== "once") return "requeue";
    return await this.#answer(job, outcome);
  }

  async #run(job: ToolJob, tool: Tool, call: RunningCall): Promise<ToolOutcome> {
    const { logger, metrics, maxOutputBytes, store, storeFile } = this.#deps;
    const lines = logger.child({ session: job.session, turnId: job.turnId, callId: job.callId, tool: job.name });
    const startMs = performance.now();
    const progress = createProgressReport({
      store,
      job,
      onError: (error) => lines.warn({ error }, "progress is lost"),
    });
    const outcome = await runTool(tool, {
      argumentsText: job.arguments,
      context: { ...contextOf(job, call, lines), progress: progress.report },
      storeFile,
      timeoutMs: Math.min(tool.timeoutMs, job.deadlineMs - Date.now()),
      ...(maxOutputBytes === undefined ? {} : { maxOutputBytes }),
    });
    await progress.close();
    const durationMs = Math.round(performance.now() - startMs);
    metrics.durations.observe({ tool: job.name }, durationMs / 1_000);
    lines.debug({ durationMs, result: resultOf(outcome) }, "tool ran");
    return outcome;
  }

  async #answer(job: ToolJob, outcome: ToolOutcome): Promise<"done"> {
    await this.#deps.deliver(job, outcome);
    this.#deps.metrics.calls.add({ tool: job.name, result: resultOf(outcome) });
    return "done";
  }
}

export function createCallHandler(deps: CallHandlerDeps): CallHandler {
  return new ToolCallHandler(deps);
}
