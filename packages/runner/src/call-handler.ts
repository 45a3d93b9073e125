import {
  attemptIdOf,
  toolEffects,
  toolJobId,
  type CallClaims,
  type CallTiming,
  type ToolEffect,
  type ToolJob,
  type ToolOutcome,
} from "@larkline/protocol";
import type { JobResult } from "@larkline/queue";
import type { BeginResult, ResultDesk, SessionStore } from "@larkline/session";
import type { Logger, Observation } from "@larkline/telemetry";
import { ToolNotFoundError, type CallContext, type StoreFile, type Tool, type ToolRegistry } from "@larkline/tool";
import { createCallReport, type CallReport } from "./call-report.ts";
import { resultOf, watchCalls, type CallWatch } from "./call-watch.ts";
import { checkEnvelope, type EnvelopeCheck } from "./envelope.ts";
import { maxOutputBytes, withLargeResultKept } from "./large-result.ts";
import type { DeliverOutcome } from "./outcome-delivery.ts";
import type { RunnerMetrics } from "./runner-metrics.ts";
import type { RunningCall, RunningCalls } from "./running-calls.ts";
import type { ToolLevel } from "./tool-level.ts";

export interface CallHandlerDeps {
  registry: Pick<ToolRegistry, "get">;
  /** Runs each tool at its level of isolation. */
  levels: Pick<ToolLevel, "run">;
  envelope: EnvelopeCheck;
  store: Pick<SessionStore, "begin" | "report">;
  deliver: DeliverOutcome;
  /** Keeps what tools save. */
  storeFile: StoreFile;
  /** Keeps results that are too large for a session. */
  desk: ResultDesk;
  calls: RunningCalls;
  metrics: RunnerMetrics;
  observation: Observation;
  logger: Logger;
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
  refused: "the call was refused by its runner, which cannot see who asks for it; it was not run",
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

function find(registry: Pick<ToolRegistry, "get">, name: string): Tool | ToolNotFoundError {
  try {
    return registry.get(name);
  } catch (error) {
    if (error instanceof ToolNotFoundError) return error;
    throw error;
  }
}

/** A call that may run. */
interface Admitted {
  tool: Tool;
  call: RunningCall;
  claims: CallClaims;
  closing: AbortSignal;
}

interface Ended {
  outcome: ToolOutcome;
  timing: CallTiming;
}

function contextOf(
  job: ToolJob,
  { call, claims }: Admitted,
  { lines, report }: { lines: Logger; report: CallReport },
): CallContext {
  return {
    callId: job.callId,
    turnId: job.turnId,
    actor: claims.actor,
    authority: claims.authority,
    signal: call.signal,
    progress: report.progress,
    log: (message, fields) => {
      lines.info({ ...fields }, message);
      report.log(fields === undefined ? message : `${message} ${JSON.stringify(fields)}`);
    },
  };
}

function namesOf({ session, turnId, callId, attempt, name }: ToolJob) {
  return { session, turnId, callId, ...(attempt === 1 ? {} : { attempt }), tool: name };
}

function notStarted(begun: Exclude<BeginResult, "run">): ToolOutcome {
  return begun === "closed" ? failure(texts.closed) : failure(texts.startedBefore, true);
}

class ToolCallHandler implements CallHandler {
  readonly #deps: CallHandlerDeps;
  readonly #watch: CallWatch;
  readonly #results = new Map<string, Promise<JobResult>>();

  constructor(deps: CallHandlerDeps) {
    this.#deps = deps;
    this.#watch = watchCalls(deps.observation, deps.metrics, deps.envelope.runner);
  }

  async handle(job: ToolJob, signal: AbortSignal): Promise<JobResult> {
    const id = toolJobId(job.turnId, attemptIdOf(job));
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

  async #work(job: ToolJob, closing: AbortSignal): Promise<JobResult> {
    const { calls, registry, envelope } = this.#deps;
    if (Date.now() >= job.deadlineMs) return await this.#notRun(job, texts.late);
    const checked = checkEnvelope(job, envelope, Date.now());
    if (!checked.ok) return await this.#refuse(job, checked.error);
    const tool = find(registry, job.name);
    if (tool instanceof ToolNotFoundError) return await this.#notRun(job, `${tool.message}; it was not run`);
    // Known from here on, so that a cancellation during the next step is not missed.
    const call = calls.start(job);
    try {
      return await this.#begin(job, { tool, call, claims: checked.value, closing });
    } finally {
      call.release();
    }
  }

  async fail(job: ToolJob, error: Error): Promise<void> {
    const { store, envelope, logger } = this.#deps;
    logger.error({ ...namesOf(job), error }, "call failed");
    this.#watch.failed(job, error);
    // Asking to start it once more is how the ledger tells whether it was started.
    const begun = await store.begin(job.session, attemptIdOf(job), job.effect, envelope.runner);
    const outcome = begun === "run" ? failure(texts.failed) : notStarted(begun);
    await this.#answer(job, outcome);
  }

  async #refuse(job: ToolJob, reason: string): Promise<"done"> {
    const { logger, metrics } = this.#deps;
    logger.error({ ...namesOf(job), reason }, "call refused: its envelope is not good");
    metrics.refused.add({});
    return await this.#notRun(job, texts.refused);
  }

  /**
   * Says that the call was not run, unless another process has started it: this job is its second
   * delivery then. Whoever started it answers, or the deadline does.
   */
  async #notRun(job: ToolJob, error: string): Promise<"done"> {
    return await this.#answer(job, failure(error), { unlessStarted: true });
  }

  async #begin(job: ToolJob, admitted: Admitted): Promise<JobResult> {
    const { tool, call, closing } = admitted;
    const { store, envelope } = this.#deps;
    const effect = stricter(job.effect, tool.effect);
    // Not started yet: whoever takes the job next can run it, whatever its effect.
    if (closing.aborted || call.stopped()) return "requeue";
    // Running a pure call needs no leave: once too often does nothing, and only one answer counts.
    const begun = effect === "pure" ? "run" : await store.begin(job.session, attemptIdOf(job), effect, envelope.runner);
    if (begun !== "run") return await this.#answer(job, notStarted(begun));
    const { outcome, timing } = await this.#run(job, { ...admitted, tool: { ...tool, effect } });
    if (!outcome.ok && call.stopped() && effect !== "once") return "requeue";
    return await this.#answer(job, outcome, { timing });
  }

  async #run(job: ToolJob, admitted: Admitted): Promise<Ended> {
    const { logger, levels, store, storeFile, desk } = this.#deps;
    const { tool } = admitted;
    const lines = logger.child(namesOf(job));
    const ended = this.#watch.began(job);
    const report = createCallReport({ store, job, onError: (error) => lines.warn({ error }, "a report is lost") });
    const leftMs = job.deadlineMs - Date.now();
    const outcome = await levels.run(tool, {
      argumentsText: job.arguments,
      context: contextOf(job, admitted, { lines, report }),
      storeFile,
      timeoutMs: Math.min(tool.timeoutMs, leftMs),
      endsWithinMs: leftMs,
      maxOutputBytes,
    });
    const timing = ended(outcome);
    await report.close();
    const { ranMs: durationMs } = timing;
    lines.debug({ durationMs, level: tool.isolation.level, result: resultOf(outcome) }, "tool ran");
    const onError = (error: unknown): void => lines.error({ error }, "a large result is lost");
    return { outcome: await withLargeResultKept(outcome, { desk, session: job.session, onError }), timing };
  }

  async #answer(job: ToolJob, outcome: ToolOutcome, details?: Parameters<DeliverOutcome>[2]): Promise<"done"> {
    await this.#deps.deliver(job, outcome, details);
    this.#watch.answered(job, outcome, details?.timing);
    return "done";
  }
}

export function createCallHandler(deps: CallHandlerDeps): CallHandler {
  return new ToolCallHandler(deps);
}
