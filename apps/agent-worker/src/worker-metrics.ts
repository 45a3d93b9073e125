import type { Metrics } from "@larkline/telemetry";

/** What a worker counts. */
export interface WorkerMetrics {
  /** `outcome`: answered, suspended, handoff, fenced, cancelled or an error code. */
  turn(outcome: string, seconds: number): void;
  healed(what: string, count: number): void;
  /** A frame of a card has reached the platform. */
  frame(sinceStartMs: number, isFirst: boolean): void;
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
  const frames = metrics.counter({
    name: "larkline_card_frames_total",
    help: "Frames of cards that reached the platform while their turns ran.",
  });
  const firstFrame = metrics.histogram({
    name: "larkline_card_first_frame_seconds",
    help: "Time from the beginning of a turn until its card was visible.",
  });
  return {
    frame: (sinceStartMs, isFirst) => {
      frames.add({});
      if (isFirst) firstFrame.observe({}, sinceStartMs / 1_000);
    },
    turn: (outcome, elapsed) => {
      turns.add({ outcome });
      seconds.observe({ outcome }, elapsed);
    },
    healed: (what, count) => healed.add({ what }, count),
  };
}
