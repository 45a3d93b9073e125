import type { CounterMetric, HistogramMetric, Metrics } from "@larkline/telemetry";

export interface RunnerMetrics {
  calls: CounterMetric<"tool" | "result">;
  durations: HistogramMetric<"tool">;
}

export function createRunnerMetrics(metrics: Metrics, running: () => number): RunnerMetrics {
  metrics.gauge({ name: "larkline_tool_calls_running", help: "Tool calls this runner works on", read: running });
  return {
    calls: metrics.counter({
      name: "larkline_tool_calls_total",
      help: "Tool calls answered, by tool and result (ok, error, unknown)",
      labels: ["tool", "result"],
    }),
    durations: metrics.histogram({
      name: "larkline_tool_call_seconds",
      help: "Time a tool took, without queueing",
      labels: ["tool"],
    }),
  };
}
