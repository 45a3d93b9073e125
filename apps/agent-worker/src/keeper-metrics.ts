import type { Metrics } from "@larkline/process/telemetry";
import type { KeptWhat } from "./data-keeping.ts";

/** What a worker counts while it looks after stored data. */
export interface KeeperMetrics {
  kept(what: KeptWhat, count: number): void;
  /** `waiting`: sessions whose newest turns are not looked after; `isWhole`: everything went well. */
  round(round: { waiting: number; isWhole: boolean }): void;
}

export function keeperMetrics(metrics: Metrics): KeeperMetrics {
  const kept = metrics.createCounter("larkline_data_kept_total", {
    description: "Conversations that expired, messages trimmed or archived, audit records dropped or archived.",
    labels: ["what"],
  });
  const waiting = metrics.createGauge("larkline_data_waiting_sessions", {
    description: "Sessions whose newest turns are not archived and bounded yet, as this worker last saw it.",
  });
  const rounds = metrics.createCounter("larkline_data_rounds_total", {
    description: "Rounds of looking after stored data, by whether all of it went well.",
    labels: ["outcome"],
  });
  return {
    kept: (what, count) => {
      if (count > 0) kept.add(count, { what });
    },
    round: (round) => {
      waiting.record(round.waiting);
      rounds.add(1, { outcome: round.isWhole ? "ok" : "failed" });
    },
  };
}
