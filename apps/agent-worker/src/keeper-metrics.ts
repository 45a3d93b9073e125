import type { Metrics } from "@larkline/process/telemetry";
import type { KeptWhat } from "./data-keeping.ts";

/** What a worker counts while it looks after stored data. */
export interface KeeperMetrics {
  kept(what: KeptWhat, count: number): void;
  /** `waiting`: sessions whose newest turns are not looked after; `isWhole`: everything went well. */
  round(round: { waiting: number; isWhole: boolean }): void;
}

export function keeperMetrics(metrics: Metrics): KeeperMetrics {
  const kept = metrics.counter({
    name: "larkline_data_kept_total",
    help: "Conversations that expired, messages trimmed or archived, audit records dropped or archived.",
    labels: ["what"],
  });
  const waiting = metrics.gauge({
    name: "larkline_data_waiting_sessions",
    help: "Sessions whose newest turns are not archived and bounded yet, as this worker last saw it.",
  });
  const rounds = metrics.counter({
    name: "larkline_data_rounds_total",
    help: "Rounds of looking after stored data, by whether all of it went well.",
    labels: ["outcome"],
  });
  return {
    kept: (what, count) => {
      if (count > 0) kept.add({ what }, count);
    },
    round: (round) => {
      waiting.set({}, round.waiting);
      rounds.add({ outcome: round.isWhole ? "ok" : "failed" });
    },
  };
}
