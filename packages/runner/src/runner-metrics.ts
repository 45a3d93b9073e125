import type { CounterMetric, GaugeMetric, HistogramMetric, Metrics } from "@larkline/process/telemetry";

export interface RunnerMetrics {
  durations: HistogramMetric<"tool">;
  refused: CounterMetric<never>;
  /** Messages of tools' processes that were no good. */
  dropped: CounterMetric<"tool">;
  /** 1 for the tier that holds, 0 for one that held and does not any more. */
  sandbox: GaugeMetric<"tier">;
}

export function createRunnerMetrics(metrics: Metrics, running: () => number): RunnerMetrics {
  metrics.gauge({ name: "larkline_tool_calls_running", help: "Tool calls this runner works on", read: running });
  return {
    durations: metrics.histogram({
      name: "larkline_tool_call_seconds",
      help: "Time a tool took, without queueing",
      labels: ["tool"],
    }),
    refused: metrics.counter({
      name: "larkline_tool_calls_refused_total",
      help: "Calls whose envelope was not good",
    }),
    dropped: metrics.counter({
      name: "larkline_tool_messages_dropped_total",
      help: "Messages of tools in processes of their own that were of no known kind or form",
      labels: ["tool"],
    }),
    sandbox: metrics.gauge({
      name: "larkline_sandbox_holds",
      help: "Whether the sandbox in use keeps programs in, by tier (1 or 0)",
      labels: ["tier"],
    }),
  };
}
