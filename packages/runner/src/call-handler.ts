import {
  attemptIdOf,
  toolDigestOf,
  toolEffects,
  toolJobId,
  type CallClaims,
  type CallTiming,
  type ToolEffect,
  type ToolJob,
  type ToolOutcome,
  sharedNow,
} from "@larkline/protocol";
import type { JobResult } from "@larkline/queue";
import type { BlobStore } from "@larkline/store";
import type { Logger, Observation } from "@larkline/process/telemetry";
import {
  announcementOf,
  errorText,
  ToolNotFoundError,
  type CallContext,
  type StoreFile,
  type Tool,
  type ToolRegistry,
} from "@larkline/tool-kit";
import type { CallHandoff, DeliveryDetails } from "./call-handoff.ts";
import { createCallReport, type CallReport } from "./call-report.ts";
import { resultOf, watchCalls, type CallWatch } from "./call-watch.ts";
import { checkEnvelope, type EnvelopeCheck } from "./envelope.ts";
import { maxOutputBytes, withLargeResultKept } from "./large-result.ts";
import type { RunnerMetrics } from "./runner-metrics.ts";
import type { RunningCall, RunningCalls } from "./running-calls.ts";
import type { ToolLevel } from "./tool-level.ts";

export interface CallHandlerDeps {
  registry: Pick<ToolRegistry, "get">;
  /** Runs each tool at its level of isolation. */
  levels: Pick<ToolLevel, "run">;
  envelope: EnvelopeCheck;
  /** Tells workers what becomes of the calls. */
  handoff: Pick<CallHandoff, "begins" | "deliver" | "mayStart" | "report">;
  /** Keeps what tools save. */
  storeFile: StoreFile;
  /** Keeps results that are too large for a session. */
  blobs: Pick<BlobStore, "put" | "get">;
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
  changed: "the tool changed while the call waited for it; it was not run. Look at its description and call it again",
  late: "the call was not started before its deadline",
  closed: "the call was already answered",
  refused: "the call was refused by its runner, which cannot see who asks for it; it was not run",
  failed: "the runner could not work on the call",
  startedBefore:
    "outcome unknown: the call was started, but its runner stopped before it could report. It was not run again. Check whether it took effect before repeating it",
};

/** Node fires longer timers at once. */
const maxTimerMs = 2_147_483_647;

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

/** As {@link ToolAnnouncement} has it. */
export function digestOf(tool: Tool): string {
  const { spec, effect } = announcementOf(tool);
  return toolDigestOf({ inputSchema: spec.inputSchema, effect });
}

/** A call that may run. */
interface Admitted {
  tool: Tool;
  call: RunningCall;
  claims: CallClaims;
  closing: AbortSignal;
}

/** How far a call has come. */
interface Run {
  outcome: ToolOutcome;
  /** Absent when it did not begin. */
  timing?: CallTiming;
  blobId?: string;
  /** It may begin, and has; `back`: it has not, and goes back to the queue. */
  state: "waiting" | "begun" | "back";
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
    if (sharedNow() >= job.deadlineMs) return await this.#notRun(job, texts.late);
    const checked = checkEnvelope(job, envelope, sharedNow());
    if (!checked.ok) return await this.#refuse(job, checked.error);
    const tool = find(registry, job.name);
    if (tool instanceof ToolNotFoundError) return await this.#notRun(job, `${tool.message}; it was not run`);
    // Arguments, effect and approval were judged for another tool than the one that is here.
    if (job.toolDigest !== undefined && job.toolDigest !== digestOf(tool)) {
      return await this.#notRun(job, `tool_changed: ${texts.changed}`);
    }
    // Known from here on, so that a cancellation during the next step is not missed.
    const call = calls.start(job);
    try {
      return await this.#begin(job, { tool, call, claims: checked.value, closing });
    } finally {
      call.release();
    }
  }

  async fail(job: ToolJob, error: Error): Promise<void> {
    this.#deps.logger.error({ ...namesOf(job), error }, "call failed");
    this.#watch.failed(job, error);
    // The ledger tells whether it was started: only one of the two answers counts.
    if (job.effect === "once") await this.#notRun(job, texts.failed);
    await this.#answer(job, job.effect === "once" ? failure(texts.startedBefore, true) : failure(texts.failed));
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
    return await this.#answer(job, failure(error), { notRun: true });
  }

  async #begin(job: ToolJob, admitted: Admitted): Promise<JobResult> {
    const { tool, call, closing } = admitted;
    const effect = stricter(job.effect, tool.effect);
    // Not started yet: whoever takes the job next can run it, whatever its effect.
    if (closing.aborted || call.stopped()) return "requeue";
    const run = await this.#run(job, { ...admitted, tool: { ...tool, effect } });
    if (run.state === "back") return "requeue";
    const { outcome, state } = run;
    if (!outcome.ok && call.stopped() && (effect !== "once" || state === "waiting")) return "requeue";
    const { timing, blobId } = run;
    return await this.#answer(job, outcome, { ...(timing && { timing }), ...(blobId !== undefined && { blobId }) });
  }

  async #run(job: ToolJob, admitted: Admitted): Promise<Run> {
    const { logger, levels, handoff, storeFile, blobs } = this.#deps;
    const { tool } = admitted;
    const lines = logger.child(namesOf(job));
    const report = createCallReport({
      publish: async (reported) => await handoff.report(job, reported),
      onError: (error) => lines.warn({ error }, "a report is lost"),
    });
    const run: Pick<Run, "state"> = { state: "waiting" };
    let ended: ReturnType<CallWatch["began"]> | undefined;
    const begin = async (): Promise<ToolOutcome | undefined> => {
      const instead = await this.#mayBegin(job, admitted, run);
      if (instead === undefined) ended = this.#watch.began(job);
      return instead;
    };
    const leftMs = job.deadlineMs - sharedNow();
    const request = {
      argumentsText: job.arguments,
      context: contextOf(job, admitted, { lines, report }),
      storeFile,
      timeoutMs: Math.min(tool.timeoutMs, leftMs),
      endsWithinMs: leftMs,
      maxOutputBytes,
    };
    const outcome = await levels.run(tool, request, begin);
    const timing = ended?.(outcome);
    await report.close();
    lines.debug({ durationMs: timing?.ranMs, level: tool.isolation.level, result: resultOf(outcome) }, "tool ran");
    const onError = (error: unknown): void => lines.error({ error }, "a large result is lost");
    return { ...run, ...(await withLargeResultKept(outcome, { blobs, onError })), ...(timing && { timing }) };
  }

  /** Tells workers that the call begins; of a `once` call one has to agree. Gives the outcome where it may not begin. */
  async #mayBegin(job: ToolJob, admitted: Admitted, run: Pick<Run, "state">): Promise<ToolOutcome | undefined> {
    const { handoff } = this.#deps;
    const { tool, call } = admitted;
    // Running a pure call needs no leave: once too often does nothing, and only one answer counts.
    if (tool.effect === "idempotent") handoff.begins(job, tool.effect);
    if (tool.effect === "once") {
      const leftMs = Math.max(0, job.deadlineMs - sharedNow());
      const late = AbortSignal.timeout(Math.min(leftMs, maxTimerMs));
      const answer = await handoff.mayStart(job, tool.effect, AbortSignal.any([call.signal, late]));
      if (answer === "closed") return failure(texts.closed);
      if (answer === "started_before") return failure(texts.startedBefore, true);
      if (answer === undefined && call.stopped()) {
        run.state = "back";
        return failure(texts.failed);
      }
      if (answer === undefined) return failure(call.signal.aborted ? errorText(call.signal.reason) : texts.late);
    }
    run.state = "begun";
    return undefined;
  }

  async #answer(
    job: ToolJob,
    outcome: ToolOutcome,
    details: DeliveryDetails & { timing?: CallTiming } = {},
  ): Promise<"done"> {
    await this.#deps.handoff.deliver(job, outcome, details);
    this.#watch.answered(job, outcome, details.timing);
    return "done";
  }
}

export function createCallHandler(deps: CallHandlerDeps): CallHandler {
  return new ToolCallHandler(deps);
}
