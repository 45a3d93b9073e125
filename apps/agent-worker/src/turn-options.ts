import type { CommandFacts, TurnEnvironment, ViewOptions } from "@larkline/agent";
import type { ModelOptions } from "@larkline/process/config";
import type { LiveReply } from "@larkline/feishu";
import type { ModelChain } from "@larkline/model";
import type {
  CallState,
  ControlEntry,
  InboundMessage,
  Message,
  ModelFailure,
  QueuedMessage,
  ReplyView,
  TurnState,
} from "@larkline/protocol";
import type { Claim, CommitResult, SessionSettings, SessionStore } from "@larkline/store";
import type { KeepLargeResults } from "./large-results.ts";
import type { HistoryReader } from "./model-step.ts";
import type { TurnJudge } from "./permission-judge.ts";
import type { TurnApprovals } from "./turn-approvals.ts";
import type { TurnWatch } from "./turn-watch.ts";
import type { BudgetedRun, TurnBudget } from "./turn-budget.ts";
import type { PublishedEvents } from "./event-writer.ts";
import type { TurnHolds } from "./turn-holds.ts";

/** How running a turn ended, seen from the session. */
export type TurnEnd =
  | { end: "fenced" }
  /** `wakeGen`: others have something to do meanwhile. */
  | { end: "suspended"; wakeGen?: number }
  | { end: "handoff" }
  /** `history` is the conversation with this turn, for the turn that follows at once. */
  | {
      end: "committed";
      result: CommitResult;
      reason: string;
      history: Message[];
      settings: SessionSettings;
      /** Settles when nothing is written to the turn's card any more. */
      released: Promise<void>;
      /** Of the model, when the turn ended in it. */
      failure?: ModelFailure;
    };

/** Where a turn starts from: a message, with the checkpoint of an earlier run if there was one. */
export interface TurnStart {
  session: string;
  epoch: string;
  head: QueuedMessage;
  turn?: TurnState;
  control: ControlEntry[];
  history: Message[];
  settings: SessionSettings;
  /** As in a claim. */
  mayHaveWaited: boolean;
  tries: number;
  deaths: Claim["deaths"];
  othersWait: boolean;
  damaged?: string;
  /** After a crash: what is in the event log of the run. */
  published?: PublishedEvents;
  lost?: Claim["lost"];
}

/** Hands calls to their runners. */
export type Dispatch = (turn: TurnState, calls: readonly CallState[]) => Promise<void>;

/** Tells a runner that its calls of a cancelled turn are to stop. */
export type StopCalls = (runner: string, cancel: { session: string; turnId: string }) => Promise<void>;

/** The facts of a moment that are the same for all turns of an agent. */
export type AgentFacts = Omit<TurnEnvironment, "nowMs" | "judge" | "history" | "live" | "othersWait">;

/** What a reply that types is opened with. */
export interface ReplyOpening {
  turn: TurnState;
  epoch: string;
  view: () => ReplyView;
}

export interface TurnRunOptions {
  store: Pick<SessionStore, "save" | "commit" | "emit" | "waiting" | "handOff">;
  chain: ModelChain;
  instructions: string;
  /** What model steps ask of the vendor besides an answer. */
  request: ModelOptions;
  /** What the next message of the same person does to a turn that is not over. */
  followUps: "wait" | "join" | "supersede";
  /** The clock, epoch ms. */
  now: () => number;
  /** The facts a decision depends on, fresh for each. */
  facts: () => AgentFacts;
  /** Judges the calls of the turn. */
  judge: (message: InboundMessage) => TurnJudge;
  /** Keeps results that are too large for the conversation. Never rejects. */
  keepLarge: KeepLargeResults;
  approvals: TurnApprovals;
  /** Opens the budgets that a run of the turn draws on. */
  openBudget: (run: BudgetedRun) => TurnBudget;
  /** What a command depends on. */
  commandFacts: () => CommandFacts;
  dispatch: Dispatch;
  /** Where the turn may keep its slot while its calls run. */
  holds: Pick<TurnHolds, "open">;
  /** Tells a runner that nobody waits for its calls of this turn any more; must not reject. */
  stopCalls: StopCalls;
  /** Fetches what the message refers to, before the model sees it. Never rejects. */
  prepare: (message: InboundMessage, signal: AbortSignal) => Promise<InboundMessage>;
  /** Told of a message that has become part of the turn; must not throw. */
  onJoined: (joined: QueuedMessage) => void;
  /** Puts stored content in place of references to it. */
  read: HistoryReader;
  /** The same for a summary: the beginnings of files, no images. */
  readBriefly: HistoryReader;
  /** Opens the card that types; undefined where the answer is sent whole, or to nobody. */
  openReply: (opening: ReplyOpening) => LiveReply | undefined;
  /** What the person gets to see beside the answer; undefined: nothing but its text. */
  viewOf: (message: InboundMessage) => ViewOptions | undefined;
  /** Told of what happens. */
  watch: TurnWatch;
  /** Aborts with an {@link AbortReason}. */
  controller: AbortController;
  /** Why the message is given up instead of being answered; absent: it is not. */
  givenUp: string | undefined;
  /** Whether the next waiting message may follow at once. */
  more: () => boolean;
}
