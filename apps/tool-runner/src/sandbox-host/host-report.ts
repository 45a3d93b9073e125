import type { SandboxEvent, SandboxHostEvent } from "@larkline/sandbox";
import type { Logger, Metrics } from "@larkline/process/telemetry";

export interface HostReport {
  onHostEvent(event: SandboxHostEvent): void;
  onSandboxEvent(event: SandboxEvent): void;
}

/** Turns what happens in a sandbox host into log lines and metrics; never a word of a program or its output. */
export function createHostReport({ logger, metrics }: { logger: Logger; metrics: Metrics }): HostReport {
  const runs = metrics.createCounter("larkline_sandbox_runs_total");
  const seconds = metrics.createHistogram("larkline_sandbox_run_seconds");
  const turnedAway = metrics.createCounter("larkline_sandbox_refused_total");
  const troubles = metrics.createCounter("larkline_sandbox_troubles_total");
  return {
    onHostEvent: ({ event, ...fields }) => {
      if (event === "run_failed") logger.error(fields, event);
      else if (event === "run_refused") logger.warn(fields, event);
      else logger.info(fields, event);
      if ("wallMs" in fields) {
        runs.add(1, { status: fields.status });
        seconds.record(fields.wallMs / 1_000);
      } else if ("httpStatus" in fields) turnedAway.add(1, { status: fields.httpStatus });
      else if (event === "run_abandoned" || event === "run_failed") runs.add(1, { status: event });
    },
    onSandboxEvent: ({ event, detail }) => {
      logger.warn({ detail }, event);
      troubles.add(1, { event });
    },
  };
}
