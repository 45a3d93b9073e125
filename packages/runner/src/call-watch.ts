import { sharedNow, type CallTiming, type ToolJob, type ToolOutcome } from "@larkline/protocol";
import type { Observation, Tags } from "@larkline/process/telemetry";
import type { RunnerMetrics } from "./runner-metrics.ts";

/** What observers and metrics hear of the calls of a runner. Ids, numbers and names of tools only. */
export interface CallWatch {
  /** The tool of the call runs from now on; to be told how that ended, it says how long things took. */
  began(job: ToolJob): (outcome: ToolOutcome) => CallTiming;
  /** The call is answered. */
  answered(job: ToolJob, outcome: ToolOutcome, timing?: CallTiming): void;
  /** The job of the call has failed for good. */
  failed(job: ToolJob, error: Error): void;
}

/** An outcome in one word. */
export function resultOf(outcome: ToolOutcome): string {
  if (outcome.ok) return "ok";
  return outcome.unknown === true ? "unknown" : "error";
}

function tagsOf({ session, turnId: turn, callId: call, attempt, name: tool, traceparent }: ToolJob): Tags {
  return { session, turn, call, attempt, tool, ...(traceparent === undefined ? {} : { traceparent }) };
}

export function watchCalls(
  { span, metric, event, error: tellError }: Observation,
  { durations }: Pick<RunnerMetrics, "durations">,
  runner: string,
): CallWatch {
  return {
    began: (job) => {
      const startedMs = performance.now();
      const queuedMs = Math.max(0, sharedNow() - job.queuedAtMs);
      const { name: tool } = job;
      const run = span("tool.run", { ...tagsOf(job), runner, queuedMs });
      metric("tool.queue_seconds", queuedMs / 1_000, { tool });
      return (outcome) => {
        const ranMs = Math.round(performance.now() - startedMs);
        const result = resultOf(outcome);
        run.end(outcome.ok ? undefined : result, { outcome: result });
        durations.observe({ tool }, ranMs / 1_000);
        return { queuedMs, ranMs };
      };
    },
    answered: (job, outcome, timing) => {
      const result = resultOf(outcome);
      metric("tool.calls", 1, { tool: job.name, outcome: result });
      event("call.outcome", { ...tagsOf(job), outcome: result, ...timing });
    },
    failed: (job, error) => tellError(error, tagsOf(job)),
  };
}
