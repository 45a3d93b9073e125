import type { BudgetBook } from "@larkline/agent/budgets";
import type { ApprovalCards, LiveReplies, OutboxSender } from "@larkline/feishu";
import type { LarklineConfig } from "@larkline/process/config";
import type { SchemaChecks } from "@larkline/process/schemas";
import type { Logger, Metrics, Telemetry } from "@larkline/process/telemetry";
import type { SessionKey } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import type { OwnPresence } from "@larkline/store/redis";
import type { HandoffImport } from "@larkline/store/runners";
import type { LRUCache } from "lru-cache";
import type { ChangedAgents } from "./agent-versions.ts";
import type { Agent, HelperReadiness } from "./agent.ts";
import type { TextExtractor } from "./attachments/text-extractor.ts";
import type { Bot } from "./bot.ts";
import type { WorkerConfig } from "./config.ts";
import type { PersonTokens } from "./person-tokens.ts";
import type { MessagePreparer } from "./prepare.ts";
import type { RunRecords } from "./run-records.ts";
import type { RunningTurns, TurnHolds } from "./running-turns.ts";
import type { Queues, Stores } from "./stores.ts";
import type { RunnerKeys, ToolCatalog } from "./tool-catalog.ts";

/** Everything that the parts of this process share. Made once, in `startWorkerApp`, and passed whole. */
export interface Services extends Stores, Queues {
  config: WorkerConfig;
  settings: LarklineConfig;
  /** Name of this worker: in its heartbeat, in claims, and in the jobs of the calls that it hands out. */
  owner: string;
  clock: Clock;
  random: Random;
  log: Logger;
  counters: WorkerCounters;
  telemetry: Telemetry;
  /** The bots, by app id. */
  bots: ReadonlyMap<string, Bot>;
  /** The agents, by name. */
  agents: ReadonlyMap<string, Agent>;
  budgetBook: BudgetBook;
  /**
   * How often operators had changed agents when these agents and budgets were made; 0: they are those of the file.
   */
  revision: number;
  changedAgents: ChangedAgents;
  helperReadiness: HelperReadiness;
  toolCatalog: ToolCatalog;
  /** The turns that run in this process. */
  runningTurns: RunningTurns;
  /** The turns that keep their slots while their calls run. */
  turnHolds: TurnHolds;
  /** Attempts of built-in tools that run now, until their answers are stored. */
  builtInsAtWork: Map<string, Promise<void>>;
  /** Sessions whose stored files this worker has waited for in vain, until it can read them. */
  filesGivenUp: LRUCache<SessionKey, true>;
  /**
   * The presence of this worker, with the locks of its jobs; it also tells what has become of other processes.
   */
  presence: OwnPresence;
  runnerKeys: RunnerKeys;
  /** Tokens of people; absent where there are no `grants`. */
  personTokens: PersonTokens | undefined;
  /** Moves entries that runners have handed in to their sessions. */
  handoffs: HandoffImport;
  extractor: TextExtractor;
  preparer: MessagePreparer;
  /** Checks values by schemas that others wrote, in a thread. */
  schemas: SchemaChecks;
  /** The cards of replies while their turns run. */
  liveReplies: LiveReplies;
  /** Sends what is in outboxes. */
  outboxSender: OutboxSender;
  approvalCards: ApprovalCards;
  /** Writes down how runs have ended. */
  runs: RunRecords;
}

/** What a worker counts. */
export function createCounters(metrics: Metrics) {
  return {
    turnRuns: metrics.createCounter("larkline_turn_runs_total"),
    turnRunSeconds: metrics.createHistogram("larkline_turn_run_seconds"),
    turnHolds: metrics.createCounter("larkline_turn_holds_total"),
    healed: metrics.createCounter("larkline_healed_total"),
    largeResults: metrics.createCounter("larkline_large_results_total"),
    cardFrames: metrics.createCounter("larkline_card_frames_total"),
    firstFrameSeconds: metrics.createHistogram("larkline_card_first_frame_seconds"),
    approvalsAsked: metrics.createCounter("larkline_approvals_asked_total"),
    approvalsSettled: metrics.createCounter("larkline_approvals_settled_total"),
    approvalWaitSeconds: metrics.createHistogram("larkline_approval_wait_seconds"),
    budgetRefusals: metrics.createCounter("larkline_budget_refusals_total"),
    budgetWarnings: metrics.createCounter("larkline_budget_warnings_total"),
    dataKept: metrics.createCounter("larkline_data_kept_total"),
    dataWaiting: metrics.createGauge("larkline_data_waiting_sessions"),
    dataRounds: metrics.createCounter("larkline_data_rounds_total"),
  };
}

export type WorkerCounters = ReturnType<typeof createCounters>;
