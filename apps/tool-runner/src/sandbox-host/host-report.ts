import type { SandboxEvent, SandboxHostEvent } from "@larkline/sandbox";
import type { Logger, Metrics } from "@larkline/process/telemetry";

export interface HostReport {
  onHostEvent(event: SandboxHostEvent): void;
  onSandboxEvent(event: SandboxEvent): void;
}

/** Turns what happens in a sandbox host into log lines and metrics; never a word of a program or its output. */
export function createHostReport({ logger, metrics }: { logger: Logger; metrics: Metrics }): HostReport {
  const runs = metrics.counter({ name: "larkline_sandbox_runs_total", help: "Runs by their end.", labels: ["status"] });
  const seconds = metrics.histogram({ name: "larkline_sandbox_run_seconds", help: "Duration of a run." });
  const turnedAway = metrics.counter({
    name: "larkline_sandbox_refused_total",
    help: "Requests that were not run, by HTTP status.",
    labels: ["status"],
  });
  const troubles = metrics.counter({
    name: "larkline_sandbox_troubles_total",
    help: "Failed boots, given up slots and the like.",
    labels: ["event"],
  });
  return {
    onHostEvent: ({ event, ...fields }) => {
      if (event === "run_failed") logger.error(fields, event);
      else if (event === "run_refused") logger.warn(fields, event);
      else logger.info(fields, event);
      if ("wallMs" in fields) {
        runs.add({ status: fields.status });
        seconds.observe({}, fields.wallMs / 1_000);
      } else if ("httpStatus" in fields) turnedAway.add({ status: fields.httpStatus });
      else if (event === "run_abandoned" || event === "run_failed") runs.add({ status: event });
    },
    onSandboxEvent: ({ event, detail }) => {
      logger.warn({ detail }, event);
      troubles.add({ event });
    },
  };
}
