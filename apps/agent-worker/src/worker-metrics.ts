import type { Metrics } from "@larkline/process/telemetry";
import type { HoldEnd } from "./turn-holds.ts";
import { keeperMetrics, type KeeperMetrics } from "./keeper-metrics.ts";

/** Which budget; never whose. */
export interface BudgetLabels {
  per: string;
  period: string;
}

/** What a worker counts. */
export interface WorkerMetrics {
  /** Looking after stored data. */
  keeper: KeeperMetrics;
  /** `outcome`: answered, suspended, handoff, fenced, cancelled or an error code. */
  turn(outcome: string, seconds: number): void;
  /** A turn has kept its slot while its calls ran. */
  held(end: HoldEnd): void;
  healed(what: string, count: number): void;
  /** People are asked; `kind` as in approvals. */
  approvalAsked(kind: string): void;
  /** An approval that a turn waited for is settled; `seconds` since it was asked for. */
  approvalSettled(approval: { kind: string; state: string; seconds: number }): void;
  /** What became of a result that was too large for its conversation: `kept` or `cut`. */
  largeResult(what: "kept" | "cut"): void;
  /** A turn was refused a model call because a budget is spent, or warned that one is nearly spent. */
  budgetRefused(budget: BudgetLabels): void;
  budgetWarned(budget: BudgetLabels): void;
  /** A frame of a card has reached the platform. */
  frame(sinceStartMs: number, isFirst: boolean): void;
}

export function createWorkerMetrics(metrics: Metrics): WorkerMetrics {
  return {
    keeper: keeperMetrics(metrics),
    ...turnMetrics(metrics),
    ...cardMetrics(metrics),
    ...approvalMetrics(metrics),
    ...budgetMetrics(metrics),
  };
}

function turnMetrics(metrics: Metrics): Pick<WorkerMetrics, "turn" | "held" | "healed" | "largeResult"> {
  const turns = metrics.createCounter("larkline_turn_runs_total", {
    description: "Runs of turns by how they ended; a turn with slow tools has several.",
    labels: ["outcome"],
  });
  const seconds = metrics.createHistogram("larkline_turn_run_seconds", {
    description: "Time a run held its slot.",
    labels: ["outcome"],
  });
  const held = metrics.createCounter("larkline_turn_holds_total", {
    description:
      "Times that a turn kept its slot while its calls ran, by how that ended: answered, or else it was suspended.",
    labels: ["end"],
  });
  const healed = metrics.createCounter("larkline_healed_total", {
    description: "What the sweeper found left lying and took up.",
    labels: ["what"],
  });
  const large = metrics.createCounter("larkline_large_results_total", {
    description: "Results too large for their conversation: kept as a whole, or cut because they could not be kept.",
    labels: ["what"],
  });
  return {
    turn: (outcome, elapsed) => {
      turns.add(1, { outcome });
      seconds.record(elapsed, { outcome });
    },
    held: (end) => held.add(1, { end }),
    healed: (what, count) => healed.add(count, { what }),
    largeResult: (what) => large.add(1, { what }),
  };
}

function cardMetrics(metrics: Metrics): Pick<WorkerMetrics, "frame"> {
  const frames = metrics.createCounter("larkline_card_frames_total", {
    description: "Frames of cards that reached the platform while their turns ran.",
  });
  const firstFrame = metrics.createHistogram("larkline_card_first_frame_seconds", {
    description: "Time from the beginning of a turn until its card was visible.",
  });
  return {
    frame: (sinceStartMs, isFirst) => {
      frames.add(1);
      if (isFirst) firstFrame.record(sinceStartMs / 1_000);
    },
  };
}

/** People take seconds or days. */
const waitBuckets = [1, 5, 15, 30, 60, 300, 900, 3_600, 14_400, 86_400, 604_800] as const;

function approvalMetrics(metrics: Metrics): Pick<WorkerMetrics, "approvalAsked" | "approvalSettled"> {
  const asked = metrics.createCounter("larkline_approvals_asked_total", {
    description: "Questions to people: may a call run, what becomes of an unknown outcome, may such calls always run.",
    labels: ["kind"],
  });
  const settled = metrics.createCounter("larkline_approvals_settled_total", {
    description: "Questions of turns that are settled, by how.",
    labels: ["kind", "state"],
  });
  const waited = metrics.createHistogram("larkline_approval_wait_seconds", {
    description: "Time from a question of a turn until it was settled.",
    labels: ["kind", "state"],
    advice: { explicitBucketBoundaries: [...waitBuckets] },
  });
  return {
    approvalAsked: (kind) => asked.add(1, { kind }),
    approvalSettled: ({ kind, state, seconds }) => {
      settled.add(1, { kind, state });
      waited.record(seconds, { kind, state });
    },
  };
}

function budgetMetrics(metrics: Metrics): Pick<WorkerMetrics, "budgetRefused" | "budgetWarned"> {
  const refusals = metrics.createCounter("larkline_budget_refusals_total", {
    description: "Turns that were refused a model call because a budget is spent.",
    labels: ["per", "period"],
  });
  const warnings = metrics.createCounter("larkline_budget_warnings_total", {
    description: "Turns that were warned because a budget is spent by 80 % or more.",
    labels: ["per", "period"],
  });
  return {
    budgetRefused: ({ per, period }) => refusals.add(1, { per, period }),
    budgetWarned: ({ per, period }) => warnings.add(1, { per, period }),
  };
}
