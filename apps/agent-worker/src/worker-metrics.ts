import type { Metrics } from "@larkline/telemetry";

/** What a worker counts. */
export interface WorkerMetrics {
  /** `outcome`: answered, suspended, handoff, fenced, cancelled or an error code. */
  turn(outcome: string, seconds: number): void;
  healed(what: string, count: number): void;
}

export function createWorkerMetrics(metrics: Metrics): WorkerMetrics {
  const turns = metrics.counter({
    name: "larkline_turn_runs_total",
    help: "Runs of turns by how they ended; a turn with tools has several.",
    labels: ["outcome"],
  });
  const seconds = metrics.histogram({
    name: "larkline_turn_run_seconds",
    help: "Time a run held its slot.",
    labels: ["outcome"],
  });
  const healed = metrics.counter({
    name: "larkline_healed_total",
    help: "What the sweeper found left lying and took up.",
    labels: ["what"],
  });
  return {
    turn: (outcome, elapsed) => {
      turns.add({ outcome });
      seconds.observe({ outcome }, elapsed);
    },
    healed: (what, count) => healed.add({ what }, count),
  };
}
