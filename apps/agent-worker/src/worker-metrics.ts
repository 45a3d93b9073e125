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
  const turns = metrics.counter({
    name: "larkline_turn_runs_total",
    help: "Runs of turns by how they ended; a turn with slow tools has several.",
    labels: ["outcome"],
  });
  const seconds = metrics.histogram({
    name: "larkline_turn_run_seconds",
    help: "Time a run held its slot.",
    labels: ["outcome"],
  });
  const held = metrics.counter({
    name: "larkline_turn_holds_total",
    help: "Times that a turn kept its slot while its calls ran, by how that ended: answered, or else it was suspended.",
    labels: ["end"],
  });
  const healed = metrics.counter({
    name: "larkline_healed_total",
    help: "What the sweeper found left lying and took up.",
    labels: ["what"],
  });
  const large = metrics.counter({
    name: "larkline_large_results_total",
    help: "Results too large for their conversation: kept as a whole, or cut because they could not be kept.",
    labels: ["what"],
  });
  return {
    turn: (outcome, elapsed) => {
      turns.add({ outcome });
      seconds.observe({ outcome }, elapsed);
    },
    held: (end) => held.add({ end }),
    healed: (what, count) => healed.add({ what }, count),
    largeResult: (what) => large.add({ what }),
  };
}

function cardMetrics(metrics: Metrics): Pick<WorkerMetrics, "frame"> {
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
  };
}

/** People take seconds or days. */
const waitBuckets = [1, 5, 15, 30, 60, 300, 900, 3_600, 14_400, 86_400, 604_800] as const;

function approvalMetrics(metrics: Metrics): Pick<WorkerMetrics, "approvalAsked" | "approvalSettled"> {
  const asked = metrics.counter({
    name: "larkline_approvals_asked_total",
    help: "Questions to people: may a call run, what becomes of an unknown outcome, may such calls always run.",
    labels: ["kind"],
  });
  const settled = metrics.counter({
    name: "larkline_approvals_settled_total",
    help: "Questions of turns that are settled, by how.",
    labels: ["kind", "state"],
  });
  const waited = metrics.histogram({
    name: "larkline_approval_wait_seconds",
    help: "Time from a question of a turn until it was settled.",
    labels: ["kind", "state"],
    buckets: waitBuckets,
  });
  return {
    approvalAsked: (kind) => asked.add({ kind }),
    approvalSettled: ({ kind, state, seconds }) => {
      settled.add({ kind, state });
      waited.observe({ kind, state }, seconds);
    },
  };
}

function budgetMetrics(metrics: Metrics): Pick<WorkerMetrics, "budgetRefused" | "budgetWarned"> {
  const refusals = metrics.counter({
    name: "larkline_budget_refusals_total",
    help: "Turns that were refused a model call because a budget is spent.",
    labels: ["per", "period"],
  });
  const warnings = metrics.counter({
    name: "larkline_budget_warnings_total",
    help: "Turns that were warned because a budget is spent by 80 % or more.",
    labels: ["per", "period"],
  });
  return {
    budgetRefused: ({ per, period }) => refusals.add({ per, period }),
    budgetWarned: ({ per, period }) => warnings.add({ per, period }),
  };
}
