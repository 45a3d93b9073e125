import { isDeepStrictEqual } from "node:util";
import type { ParseResult } from "@larkline/protocol";
import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import {
  attemptIdOf,
  toolJobId,
  type CallClaims,
  type ToolJob,
  argumentsHashOf,
  inputHashOf,
  verifyCall,
} from "@larkline/protocol/runner";
import {
  toolDigestOf,
  toolEffects,
  type CallTiming,
  type ToolEffect,
  type ToolOutcome,
  tokenDigestOf,
  outcomeText,
  shortenedResult,
} from "@larkline/protocol/tool";
import type { JobResult } from "@larkline/store/queues";
import type { BlobStore } from "@larkline/store";
import { putResult, type RunnerLocks } from "@larkline/store/runners";
import type {
  Logger,
  Telemetry,
  Tags,
  Counter,
  Gauge,
  Histogram,
  Metrics,
} from "@larkline/process/telemetry";
import {
  announcementOf,
  errorText,
  ToolNotFoundError,
  type CallContext,
  type StoreFile,
  type Tool,
  type ToolRegistry,
} from "@larkline/tool-kit";
import {
  createCallReport,
  type CallHandoff,
  type CallReport,
  type DeliveryDetails,
  type LookOnly,
} from "./call-handoff.ts";
import type { ToolLevel } from "./level.ts";

/** What calls are handled with. */
interface CallServices {
  registry: Pick<ToolRegistry, "get">;
  /** Runs each tool at its level of isolation. */
  levels: Pick<ToolLevel, "run">;
  envelope: EnvelopeCheck;
  /** Reports the calls to workers. */
  handoff: Pick<CallHandoff, "begins" | "deliver" | "mayStart" | "mayStartAs" | "report">;
  /** For objects that the processes of this runner change one at a time. */
  locks: Pick<RunnerLocks, "run">;
  /** Keeps what tools save. */
  storeFile: StoreFile;
  /** Keeps results that are too large for a session. */
  blobs: Pick<BlobStore, "put" | "get">;
  /** Whether another process of this runner, or this one soon, has the tool that the call was made for. */
  isElsewhere(job: ToolJob): Promise<boolean>;
  calls: RunningCalls;
  metrics: RunnerMetrics;
  telemetry: Telemetry;
  logger: Logger;
  /** Those of the machine if absent. */
  clock?: Clock;
  random?: Random;
}

/** Handles the jobs of a runner's queue. */
export class CallHandler {
  readonly #services: CallServices;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #watch: CallWatch;
  readonly #results = new Map<string, Promise<JobResult>>();

  constructor(services: CallServices) {
    this.#services = services;
    this.#clock = services.clock ?? systemClock;
    this.#random = services.random ?? systemRandom;
    this.#watch = watchCalls(services, this.#clock);
  }

  /** Runs one call at most once as its effect demands, and answers it. */
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
    const { calls, registry, envelope } = this.#services;
    if (this.#clock.now() >= job.deadlineMs) return await this.#notRun(job, texts.late);
    const checked = checkEnvelope(job, envelope, this.#clock.now());
    if (!checked.ok) return await this.#refuse(job, checked.error);
    const tool = find(registry, job.name);
    if (tool instanceof ToolNotFoundError) {
      return await this.#giveBack(job, `${tool.message}; it was not run`);
    }
    // Arguments, effect and approval were judged for another version of the tool.
    if (job.toolDigest !== undefined && job.toolDigest !== digestOf(tool)) {
      return await this.#giveBack(job, `tool_changed: ${texts.changed}`);
    }
    // Known from here on, so that a cancellation during the next step is not missed.
    const call = calls.start(job);
    try {
      return await this.#begin(job, { tool, call, claims: checked.value, closing });
    } finally {
      call.release();
    }
  }

  /** Answers a call whose job failed for good. */
  async fail(job: ToolJob, error: Error): Promise<void> {
    this.#services.logger.error({ ...namesOf(job), error }, "call failed");
    this.#watch.failed(job, error);
    // While the call is open in the effect ledger it counts as not run; once it was started its outcome is unknown.
    if (job.effect === "once") await this.#notRun(job, texts.failed);
    await this.#answer(
      job,
      job.effect === "once" ? failure(texts.startedBefore, true) : failure(texts.failed),
    );
  }

  async #refuse(job: ToolJob, reason: string): Promise<JobResult> {
    const { logger, metrics } = this.#services;
    logger.error({ ...namesOf(job), reason }, "call refused: its envelope is not good");
    metrics.refused.add(1);
    return await this.#notRun(job, texts.refused);
  }

  /**
   * Reports that the call was not run, unless another process has started it (then this job is a second delivery, and
   * that process answers, or the call ends at its deadline).
   */
  async #notRun(job: ToolJob, error: string): Promise<JobResult> {
    return await this.#answer(job, failure(error), { notRun: true });
  }

  /** While processes are replaced, one of them takes calls that are meant for another; `error` where there is none. */
  async #giveBack(job: ToolJob, error: string): Promise<JobResult> {
    return (await this.#services.isElsewhere(job)) ? "postpone" : await this.#notRun(job, error);
  }

  async #begin(job: ToolJob, admitted: Admitted): Promise<JobResult> {
    const { tool, call, closing } = admitted;
    const effect = stricter(job.effect, tool.effect);
    // Not started yet: the next runner can run it, whatever its effect.
    if (closing.aborted || call.stopped()) return "requeue";
    const run = await this.#run(job, { ...admitted, tool: { ...tool, effect } });
    if (run.state === "back") return "requeue";
    const { outcome, state } = run;
    if (!outcome.ok && call.stopped() && (effect !== "once" || state === "waiting")) {
      return "requeue";
    }
    const { timing, blobId, refusedToken } = run;
    const result = await this.#answer(job, outcome, {
      ...(timing && { timing }),
      ...(blobId !== undefined && { blobId }),
      ...(refusedToken !== undefined && { refusedToken }),
    });
    return state === "closed" || call.cancelled() ? "done" : result;
  }

  async #run(job: ToolJob, admitted: Admitted): Promise<Run> {
    const { logger, levels, handoff, storeFile, blobs, locks } = this.#services;
    const { tool } = admitted;
    let child: Logger | undefined;
    const lines = (): Logger => (child ??= logger.child(namesOf(job))); // most calls log nothing
    const report = createCallReport({
      publish: async (reported) => await handoff.report(job, reported),
      onError: (error) => lines().warn({ error }, "a report is lost"),
      clock: this.#clock,
    });
    const run: Pick<Run, "state"> = { state: "waiting" };
    let ended: ReturnType<CallWatch["began"]> | undefined;
    const leftMs = job.deadlineMs - this.#clock.now();
    const context = contextOf(job, admitted, { lines, report, locks });
    const begin = async (): Promise<ToolOutcome | undefined> => {
      const may = await this.#mayBegin(job, admitted, run);
      if ("instead" in may) return may.instead;
      if (may.identity !== undefined) context.identity = may.identity;
      if (may.beganAtMs !== undefined) context.beganAtMs = may.beganAtMs;
      ended = this.#watch.began(job);
      return undefined;
    };
    const request = {
      argumentsText: job.arguments,
      context,
      storeFile,
      timeoutMs: Math.min(tool.timeoutMs, leftMs),
      endsWithinMs: leftMs,
      maxOutputBytes,
    };
    const given = await levels.run(tool, request, begin);
    const outcome = context.beganAtMs === undefined ? given : lookedFor(given);
    const timing = ended?.(outcome);
    await report.close();
    if (logger.writesDebug !== false) {
      lines().debug(
        { durationMs: timing?.ranMs, level: tool.isolation.level, result: resultOf(outcome) },
        "tool ran",
      );
    }
    const onError = (error: unknown): void => lines().error({ error }, "a large result is lost");
    const { identity } = context;
    const isRefused = !outcome.ok && outcome.grant?.kind === "token" && identity !== undefined;
    return {
      ...run,
      ...(isRefused ? { refusedToken: tokenDigestOf(identity.token) } : {}),
      ...(await withLargeResultKept(outcome, { blobs, random: this.#random, onError })),
      ...(timing && { timing }),
    };
  }

  /**
   * Reports to workers that the call begins; one that is `once` or needs an identity waits until a worker agrees.
   * `instead`: the outcome of a call that may not begin.
   */
  async #mayBegin(
    job: ToolJob,
    admitted: Admitted,
    run: Pick<Run, "state">,
  ): Promise<Partial<LookOnly> | { instead: ToolOutcome }> {
    const { handoff } = this.#services;
    const { tool, call } = admitted;
    const isAsked = tool.effect === "once" || tool.as !== undefined;
    // Another pure call needs no permission: a repeated run is harmless, and only one answer counts.
    if (!isAsked && tool.effect === "idempotent") handoff.begins(job, tool.effect);
    let begun: Partial<LookOnly> = {};
    if (isAsked) {
      const leftMs = Math.max(0, job.deadlineMs - this.#clock.now());
      const late = deadline(this.#clock, Math.min(leftMs, maxTimerMs), call.signal);
      const answer =
        tool.as === undefined
          ? await handoff.mayStart(job, tool.effect, late, tool)
          : await handoff.mayStartAs(job, tool.effect, late, tool);
      if (answer === "closed") {
        run.state = "closed";
        return { instead: failure(texts.closed) };
      }
      if (answer === "started_before") return { instead: failure(texts.startedBefore, true) };
      if (answer === undefined && call.stopped()) {
        run.state = "back";
        return { instead: failure(texts.failed) };
      }
      if (answer === undefined) {
        if (call.signal.aborted) return { instead: failure(errorText(call.signal.reason)) };
        return { instead: failure(late.aborted ? texts.late : texts.noIdentity) };
      }
      if (answer !== "run") begun = "beganAtMs" in answer ? answer : { identity: answer };
    }
    run.state = "begun";
    return begun;
  }

  /** The outcome is handed in first: a process that dies then leaves a job that finds its call answered. */
  async #answer(
    job: ToolJob,
    outcome: ToolOutcome,
    details: DeliveryDetails & { timing?: CallTiming } = {},
  ): Promise<JobResult> {
    await this.#services.handoff.deliver(job, outcome, details);
    this.#watch.answered(job, outcome, details.timing);
    return jobResultOf(outcome);
  }
}

/** Node fires longer timers at once. */
const maxTimerMs = 2_147_483_647;

const texts = {
  changed:
    "the tool changed while the call waited for it; it was not run. Look at its description and call it again",
  late: "the call was not started before its deadline",
  closed: "the call was already answered",
  noIdentity: "the call was not started: no token came with the permission to begin",
  refused: "the call was refused by its runner, which cannot see who asks for it; it was not run",
  failed: "the runner could not work on the call",
  startedBefore:
    "outcome unknown: the call was started, but its runner stopped before it could report. It was not run again. Check whether it took effect before repeating it",
};

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
  refusedToken?: string;
  /** It has begun; `back`: it has not, and goes back to the queue; `closed`: it was answered before. */
  state: "waiting" | "begun" | "back" | "closed";
}

/** A call that people are asked about first has not failed. */
function jobResultOf(outcome: ToolOutcome): JobResult {
  const isOver = !outcome.ok && outcome.input === undefined && outcome.grant === undefined;
  return isOver ? { failed: outcome.error } : "done";
}

/** A look that finds nothing proves nothing: what the run before has sent may still take effect. */
function lookedFor(outcome: ToolOutcome): ToolOutcome {
  return outcome.ok || outcome.unknown === true ? outcome : failure(texts.startedBefore, true);
}

function failure(error: string, unknown = false): ToolOutcome {
  return unknown ? { ok: false, error, unknown } : { ok: false, error };
}

function find(registry: Pick<ToolRegistry, "get">, name: string): Tool | ToolNotFoundError {
  try {
    return registry.get(name);
  } catch (error) {
    if (error instanceof ToolNotFoundError) return error;
    throw error;
  }
}

const digests = new WeakMap<Tool, string>();

/** As {@link ToolAnnouncement} has it; a tool does not change. */
export function digestOf(tool: Tool): string {
  const known = digests.get(tool);
  if (known !== undefined) return known;
  const { spec, effect } = announcementOf(tool);
  const digest = toolDigestOf({ inputSchema: spec.inputSchema, effect });
  digests.set(tool, digest);
  return digest;
}

/** The stricter of two effects: the worker may have seen another version of the tool. */
function stricter(one: ToolEffect, other: ToolEffect): ToolEffect {
  return toolEffects.indexOf(one) > toolEffects.indexOf(other) ? one : other;
}

function contextOf(
  job: ToolJob,
  { call, claims }: Admitted,
  {
    lines,
    report,
    locks,
  }: { lines: () => Logger; report: CallReport } & Pick<CallServices, "locks">,
): CallContext {
  return {
    callId: job.callId,
    turnId: job.turnId,
    ...(job.input === undefined ? {} : { input: job.input }),
    actor: claims.actor,
    authority: claims.authority,
    signal: call.signal,
    progress: report.progress,
    exclusive: async (object, options, work) => {
      const { app, userId: person } = claims.actor;
      return await locks.run(`${app} ${object}`, { ...options, person }, work);
    },
    log: (message, fields) => {
      lines().info({ ...fields }, message);
      report.log(fields === undefined ? message : `${message} ${JSON.stringify(fields)}`);
    },
  };
}

function namesOf({ session, turnId, callId, attempt, name }: ToolJob) {
  return { session, turnId, callId, ...(attempt === 1 ? {} : { attempt }), tool: name };
}

interface EnvelopeCheck {
  /** `runnerKeyOf` the deployment's key and this runner's name. */
  runnerKey: string;
  runner: string;
}

/**
 * The claims of a job's envelope if it is genuine and about this very job; otherwise what is wrong, in
 * words that hold no secret. A writer of the queue without a key gets nothing run.
 */
export function checkEnvelope(
  job: ToolJob,
  { runnerKey, runner }: EnvelopeCheck,
  nowMs: number,
): ParseResult<CallClaims> {
  const verified = verifyCall(runnerKey, job.envelope, nowMs);
  if (!verified.ok) return verified;
  const claims: Record<string, unknown> = verified.value;
  const wrong = Object.entries(expectedOf(job, runner)).find(
    ([name, value]) => !isDeepStrictEqual(claims[name], value),
  );
  return wrong === undefined ? verified : { ok: false, error: `it is for another ${wrong[0]}` };
}

/** The claims that must match the job, by the name under which a mismatch is reported. */
function expectedOf(job: ToolJob, runner: string): Partial<Record<keyof CallClaims, unknown>> {
  const { name, session, turnId, callId, attempt, actor, input } = job;
  const argumentsHash = argumentsHashOf(job.arguments);
  const inputHash = input === undefined ? undefined : inputHashOf(input);
  return { runner, tool: name, session, turnId, callId, attempt, argumentsHash, inputHash, actor };
}

/** The calls that this process works on, so that others can stop them. */
export class RunningCalls {
  readonly #calls = new Map<AbortController, ToolJob>();
  #stopped = false;

  get count(): number {
    return this.#calls.size;
  }

  start(job: ToolJob): RunningCall {
    const controller = new AbortController();
    this.#calls.set(controller, job);
    if (this.#stopped) controller.abort(stopping);
    return {
      signal: controller.signal,
      stopped: () => controller.signal.reason === stopping,
      cancelled: () => controller.signal.reason === cancelled,
      release: () => void this.#calls.delete(controller),
    };
  }

  /** Stops the calls of a turn; without `turnId` all of the session. */
  cancel(session: string, turnId?: string): void {
    for (const [controller, job] of this.#calls) {
      if (job.session === session && (turnId === undefined || job.turnId === turnId)) {
        controller.abort(cancelled);
      }
    }
  }

  /** Gives up all calls, and every one that starts from now on. */
  stop(): void {
    this.#stopped = true;
    for (const controller of this.#calls.keys()) controller.abort(stopping);
  }
}

/** A call that this process works on. */
export interface RunningCall {
  signal: AbortSignal;
  /** Whether the runner itself gave the call up. */
  stopped(): boolean;
  /** Whether its turn was cancelled. */
  cancelled(): boolean;
  release(): void;
}

/** Abort reason of calls whose turn was cancelled; its message is the outcome's error text. */
const cancelled = new Error("cancelled");

/** Abort reason of calls that a stopping runner gives up. */
const stopping = new Error("the runner was stopped during the call");

/** Reports calls to observers and metrics: ids, numbers and names of tools only. */
export interface CallWatch {
  /** The tool of the call runs from now on; called with the outcome, what this returns gives the times. */
  began(job: ToolJob): (outcome: ToolOutcome) => CallTiming;
  /** The call is answered. */
  answered(job: ToolJob, outcome: ToolOutcome, timing?: CallTiming): void;
  /** The job of the call has failed for good. */
  failed(job: ToolJob, error: Error): void;
}

export function watchCalls(
  { telemetry, metrics, envelope: { runner } }: CallServices,
  clock: Clock,
): CallWatch {
  const { tracer, events, samples } = telemetry;
  return {
    began: (job) => {
      const startedMs = clock.monotonic();
      const queuedMs = Math.max(0, clock.now() - job.queuedAtMs);
      const { name: tool } = job;
      const run = tracer.startSpan("tool.run", {
        attributes: { ...tagsOf(job), runner, queuedMs },
      });
      samples["tool.queue_seconds"].record(queuedMs / 1_000, { tool });
      return (outcome) => {
        const ranMs = Math.round(clock.monotonic() - startedMs);
        const result = resultOf(outcome);
        if (!outcome.ok) run.recordException(result);
        run.setAttributes({ outcome: result }).end();
        metrics.durations.record(ranMs / 1_000, { tool });
        return { queuedMs, ranMs };
      };
    },
    answered: (job, outcome, timing) => {
      const result = resultOf(outcome);
      samples["tool.calls"].add(1, { tool: job.name, outcome: result });
      events.emit({
        eventName: "call.outcome",
        attributes: { ...tagsOf(job), outcome: result, ...timing },
      });
    },
    failed: (job, error) => events.emit({ exception: error, attributes: tagsOf(job) }),
  };
}

/** An outcome in one word. */
export function resultOf(outcome: ToolOutcome): string {
  if (outcome.ok) return "ok";
  if (outcome.input !== undefined) return "input_required";
  return outcome.unknown === true ? "unknown" : "error";
}

function tagsOf({
  session,
  turnId: turn,
  callId: call,
  attempt,
  name: tool,
  traceparent,
}: ToolJob): Tags {
  return {
    session,
    turn,
    call,
    attempt,
    tool,
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

/**
 * Keeps files of tools where workers find them. The reason of a failure is for the operator; tools and models learn
 * only that it failed.
 */
export function createFileStore({ blobs, onError }: FileStoreOptions): StoreFile {
  return async (bytes, facts) => {
    try {
      return await blobs.put(bytes, facts);
    } catch (error) {
      onError(error);
      throw new Error(
        "the file could not be stored; call the tool again later, or answer without it",
        {
          cause: error,
        },
      );
    }
  };
}

interface FileStoreOptions {
  blobs: Pick<BlobStore, "put">;
  onError: (error: unknown) => void;
}

/** What is read of a tool at all: the rest is cut off, with a mark. */
export const maxOutputBytes = 16 * 1_048_576;

/** Larger results do not go through the session, in bytes. */
const maxResultBytes = 262_144;

const shownCharacters = 50_000;

/**
 * Keeps a large result where the model can read it page by page; what goes into the session is its
 * head and tail. The handle is good once a worker has taken the outcome. When the result cannot be kept, head and tail
 * are all there is, and the text says so.
 */
async function withLargeResultKept(
  outcome: ToolOutcome,
  { blobs, random, onError }: KeepOptions,
): Promise<{ outcome: ToolOutcome; blobId?: string }> {
  const text = outcomeText(outcome);
  if (!outcome.ok || Buffer.byteLength(text) <= maxResultBytes) return { outcome };
  try {
    const { stored, blobId } = await putResult(blobs, text, random);
    return {
      outcome: { ok: true, result: shortenedResult(text, stored, shownCharacters), stored },
      blobId,
    };
  } catch (error) {
    onError(error);
    const left = text.length - shownCharacters;
    const mark = `[the last ${left} of ${text.length} characters could not be kept: ask for less]`;
    return {
      outcome: { ok: true, result: `${text.slice(0, shownCharacters).toWellFormed()}\n${mark}` },
    };
  }
}

interface KeepOptions {
  blobs: Pick<BlobStore, "put" | "get">;
  random: Random;
  onError: (error: unknown) => void;
}

/** What a runner counts. */
export interface RunnerMetrics {
  durations: Histogram;
  refused: Counter;
  /** Invalid messages of tools' processes. */
  dropped: Counter;
  /** 1 for the tier that holds, 0 for one that held and does not any more. */
  sandbox: Gauge;
}

export function createRunnerMetrics(metrics: Metrics, running: () => number): RunnerMetrics {
  const calls = metrics.createObservableGauge("larkline_tool_calls_running");
  calls.addCallback((result) => result.observe(running()));
  return {
    durations: metrics.createHistogram("larkline_tool_call_seconds"),
    refused: metrics.createCounter("larkline_tool_calls_refused_total"),
    dropped: metrics.createCounter("larkline_tool_messages_dropped_total"),
    sandbox: metrics.createGauge("larkline_sandbox_holds"),
  };
}
