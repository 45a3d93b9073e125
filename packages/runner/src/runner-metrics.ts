import type { Counter, Gauge, Histogram, Metrics } from "@larkline/process/telemetry";

export interface RunnerMetrics {
  durations: Histogram;
  refused: Counter;
  /** Messages of tools' processes that were no good. */
  dropped: Counter;
  /** 1 for the tier that holds, 0 for one that held and does not any more. */
  sandbox: Gauge;
}

export function createRunnerMetrics(metrics: Metrics, running: () => number): RunnerMetrics {
  const calls = metrics.createObservableGauge("larkline_tool_calls_running", {
    description: "Tool calls this runner works on",
  });
  calls.addCallback((result) => result.observe(running()));
  return {
    durations: metrics.createHistogram("larkline_tool_call_seconds", {
      description: "Time a tool took, without queueing",
      labels: ["tool"],
    }),
    refused: metrics.createCounter("larkline_tool_calls_refused_total", {
      description: "Calls whose envelope was not good",
    }),
    dropped: metrics.createCounter("larkline_tool_messages_dropped_total", {
      description: "Messages of tools in processes of their own that were of no known kind or form",
      labels: ["tool"],
    }),
    sandbox: metrics.createGauge("larkline_sandbox_holds", {
      description: "Whether the sandbox in use keeps programs in, by tier (1 or 0)",
      labels: ["tier"],
    }),
  };
}
