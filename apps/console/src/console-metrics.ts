import type { Metrics } from "@larkline/process/telemetry";

/** The metrics of this process. */
export function createConsoleMetrics(metrics: Metrics) {
  return {
    signIns: metrics.counter({
      name: "larkline_console_sign_ins_total",
      help: "Tries to sign in by what became of them (signed_in, wrong, too_many).",
      labels: ["outcome"],
    }),
    actions: metrics.counter({
      name: "larkline_console_actions_total",
      help: "What operators did (content_shown, rule_revoked, turn_cancelled, and actions on queues such as retry).",
      labels: ["action"],
    }),
  };
}

export type ConsoleMetrics = ReturnType<typeof createConsoleMetrics>;
