import {
  type QueuedMessage,
  type ReplyObject,
  type ControlEntry,
  type SessionKey,
  type InboundMessage,
  type HelperUse,
  type HelperWait,
  jsonParserOf,
} from "@larkline/protocol";
import type { AuditRecord } from "./audit-log.ts";
import type { Approval, ApprovalState, ApprovalDecision } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import type { NewEvent } from "@larkline/protocol/event";
import type { ReplyView } from "@larkline/protocol/reply-view";
import type { ToolOutcome, CallTiming } from "@larkline/protocol/tool";
import type { TurnState } from "@larkline/protocol/turn";
import { Type, type Static } from "@larkline/protocol/type";
import type { Fate } from "./presence.ts";

/** Ends of runs by failures of Redis that are not counted: what keeps breaking it may be the message itself. */
export const maxUncounted = 20;

/** Deaths of its worker beside other turns after which a message runs alone. */
export const deathsTogether = 2;

/**
 * What an append did; `foreign`: the session of the HTTP API belongs to another person. `wakeGen` is the generation to add
 * a wake-up job for, also when a redelivery heals a lost one.
 */
export interface AppendResult {
  /** `asks`: only where the caller said that it may be an answer. Nothing was stored. */
  result: "accepted" | "asks" | "duplicate" | "full" | "recalled" | "foreign";
  /** Position of the message in its session; 0 unless accepted or a remembered duplicate. */
  seq: number;
  wakeGen?: number;
  /**
   * Newest event of the session when the message was accepted: its run's events come later. Absent
   * where the store cannot tell; then a reader starts at 0.
   */
  eventSeq?: number;
  /** Messages of the session that come before it; 0 unless accepted. */
  ahead: number;
  /** The oldest of those: the one that is being answered. Also when the session is full. */
  head?: QueuedMessage;
}

/** Choices of one session that outlive its turns. */
export interface SessionSettings {
  /** `<provider>/<id>` in place of the agent's model. */
  model?: string;
  /** The agent that answers in messages that are for the agent `from`. */
  agent?: { from: string; to: string };
}

/** What a session has used over all its runs, but for those of versions that did not count. */
export const SessionTotals = Type.Object({
  /** The beginning of its first message; empty in groups. */
  title: Type.String(),
  /** Model steps. */
  turnCount: Type.Integer({ minimum: 0 }),
  inputTokens: Type.Integer({ minimum: 0 }),
  outputTokens: Type.Integer({ minimum: 0 }),
  costUsd: Type.Number({ minimum: 0 }),
  /** Calls that people or policies have refused. */
  denials: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Epoch ms at which its last run ended. */
  endedAtMs: Type.Integer(),
});
export type SessionTotals = Static<typeof SessionTotals>;

export interface DeliverResult {
  /** False when the call was already answered or is not known (any more). */
  accepted: boolean;
  wakeGen?: number;
  /**
   * Of an outcome that was added to a running session: the entry, and how many entries the session has not acknowledged,
   * this one included. When the worker that holds the session knows all of them it need not ask for them.
   */
  unread?: { entry: ControlEntry; count: number };
  /** Why an entry of a runner was not carried over; absent when it was, or when there is none. */
  refusal?: HandoffRefusal;
}

/**
 * `taken`: another worker was quicker, with the same effect, or the question is too old to be answered. `foreign`: the
 * ledger has another call under that name.
 */
export type HandoffRefusal = "taken" | "foreign";

/**
 * An entry of a runner's hand-off stream, as a worker has checked it. What it says is written in the step that
 * removes it, and only where the effect ledger has that very call for that very runner.
 */
export interface HandedIn {
  /** Id of the entry in the stream. */
  entry: string;
  runner: string;
  turnId: string;
  tool: string;
  argumentsHash: string;
}

/** What a worker holds after claiming: only writes that carry `epoch` are accepted from now on. */
export interface Claim {
  session: SessionKey;
  gen: number;
  epoch: string;
  /** Checkpoint of an interrupted turn, if there is one. */
  turn?: TurnState;
  /** The oldest waiting message: the one `turn` belongs to, or the next to start. */
  head?: QueuedMessage;
  /** False: nothing was before the head message when it came. What is known only since this field exists counts as true. */
  mayHaveWaited: boolean;
  /** How often its own code has ended a run of the head message, by the way in which it failed. */
  failures: Readonly<Record<string, number>>;
  /** A run of the head message was broken off before, by whatever: it may have published more than it saved. */
  ranBefore: boolean;
  /** How often its worker has died with it: beside other turns, and with this turn alone. */
  deaths: { together: number; alone: number };
  /** What is stored of the turn and cannot be read; it is missing here. */
  damaged?: string;
  /**
   * Unreadable parts of the conversation that it can do without: settings are the defaults here,
   * a summary is missing. The next commit of the turn puts that in its place.
   */
  unreadable?: { what: "settings" | "summary"; bytes: number; reason: string }[];
  /** Turns of other people wait for people, set aside. */
  othersWait: boolean;
  /** Unread control entries; acknowledge them with `consumed` of the next save. */
  control: ControlEntry[];
  /**
   * What a model gets to see: the summary of what was compacted, if any, then the messages since.
   * The list is the caller's own, its messages may be shared with later claims: never change one.
   */
  history: Message[];
  settings: SessionSettings;
  /** Absent before its first counted run has ended. */
  totals?: SessionTotals;
}

/** What {@link SessionStore.releaseUncounted} did. `wakeGen`: the generation whose wake-up has to be there. */
export interface UncountedRelease {
  uncounted: boolean;
  wakeGen?: number;
}

/** How a session is claimed. */
export interface ClaimOptions {
  /** No other turn runs in the process meanwhile. */
  alone?: boolean;
  /** A run of the session is under way in this process. */
  isHeld?: boolean;
  /** What the process can read and do, see `needs` of a checkpoint; all of this version if absent. */
  features?: readonly string[];
  /** What has become of the worker that held the session and has not given it back. Absent: it has died. */
  fateOf?: (owner: string) => Promise<Fate>;
}

export interface OpenCall {
  /** Id of the attempt. */
  callId: string;
  /** Epoch ms after which {@link SessionStore.dueDeadlines} reports the call. */
  deadlineMs: number;
  /** What the audit log says of the call from now on. */
  facts: CallFacts;
  /** The session of the helper that works on it, which begins with this write; its name is also in `facts`. */
  child?: { message: InboundMessage; facts: ChildFacts };
}

/** What is known of a child session besides what is in it. */
export const ChildFacts = Type.Object({
  /** The run that waits for it. */
  parentRunId: Type.String(),
  callId: Type.String(),
  /** The name under which its agent was called. */
  as: Type.String(),
  agent: Type.String(),
  beganAtMs: Type.Integer(),
  /** Absent while it works. */
  endedAtMs: Type.Optional(Type.Integer()),
  /** Whether its asker got an answer. */
  isOk: Type.Optional(Type.Boolean()),
});
export type ChildFacts = Static<typeof ChildFacts>;

/** A child session of a root. */
export interface ChildSession extends ChildFacts {
  session: SessionKey;
}

/** The end of a child session, as its asker gets it. */
export interface AskerAnswer {
  session: SessionKey;
  turnId: string;
  callId: string;
  outcome: ToolOutcome;
  used: HelperUse;
  facts: ChildFacts;
}

/** What a child session waits for from now on: its asker gets it. Without `wait`: for no person any more. */
export type AskerUpdate = Pick<AskerAnswer, "session" | "turnId" | "callId"> & {
  wait?: HelperWait;
};

/** Who does what, for the audit log; kept while the call is open. */
export type CallFacts = Pick<
  AuditRecord,
  | "app"
  | "tenant"
  | "turnId"
  | "tool"
  | "userId"
  | "chatId"
  | "argumentsHash"
  | "as"
  | "scopes"
  | "approvalId"
  | "ruleId"
  | "runner"
> & { child?: SessionKey };

/** How an answer to a call came about. */
export interface DeliverDetails {
  timing?: CallTiming;
  /** Runner that answered; absent when it was none. */
  runner?: string;
  /** For answers that say the call was not run: one that has been started is not answered by them. */
  unlessStarted?: boolean;
  /** Beside `unlessStarted`: the entry says so, and the turn may hand the call out again, as another attempt. */
  unstarted?: boolean;
  /** The entry of the runner that this comes from. */
  handed?: HandedIn;
}

/** What every fenced write carries: new history, and events that happened. */
export interface FencedWrite {
  session: SessionKey;
  epoch: string;
  history: Message[];
  events: NewEvent[];
  /**
   * From now on a claim's history is `summary`, if given, and the last `keep` messages, those of this
   * write included. The older ones stay readable through `history`.
   */
  context?: { keep: number; summary?: Message };
}

export interface SaveRequest extends FencedWrite {
  /** How many entries of the claim's (or last save's) `control` are dealt with; a commit drops all of them. */
  consumed: number;
  turn: TurnState;
  /** Features that the session needs beside those of its turn. */
  needs?: readonly string[];
  /** Attempts that are handed out after this write; the audit log has them from then on. */
  open: OpenCall[];
  /** Questions that come into being with this write. One that exists already stays as it is. */
  approvals?: Approval[];
  /**
   * With `suspend`: the person whose turn this is, when it waits for people only and others may continue meanwhile. It is
   * set aside as soon as another person in the group has written, and comes back to the head when an entry for it arrives.
   */
  waits?: string;
  /** For a child session: the asker that gets the news that it waits for people, or does not any more, in the same step. */
  asker?: AskerUpdate;
  /** Numbers of waiting messages that have become part of this turn: they leave the inbox. */
  absorbed?: number[];
  /**
   * `continue`: keep running. `suspend`: free the session until something is delivered.
   * `handoff`: give the session back under the same generation (shutdown).
   */
  mode: "continue" | "suspend" | "handoff";
  /** With `suspend`: epoch ms from which on {@link SessionStore.dueDeadlines} reports the session itself. */
  wakeAtMs?: number;
}

/**
 * `fenced`: another worker has taken over, stop. `suspended`: nothing to do until the next wake-up.
 * With `wakeGen` others have something to do: add that wake-up. `running`: continue, with the control entries that arrived
 * meanwhile.
 */
export type SaveResult =
  | { state: "fenced" }
  | { state: "suspended"; wakeGen?: number }
  | { state: "running"; control: ControlEntry[] };

/** Where an outbox record goes: an answer to `messageId`, or without one a message to the chat or person. */
export interface OutboxTarget {
  app: string;
  /** A chat's id, or the open_id of a person whose chat is not known. */
  chatId: string;
  /** Empty: not an answer. */
  messageId: string;
  inThread: boolean;
  /** The text goes there, and to no chat. */
  object?: ReplyObject;
}

/** A message to the person, delivered at least once with a `uuid` that makes the platform drop repeats. */
export interface OutboxRecord {
  v: 1;
  id: string;
  /** Idempotency key of the send, at most 50 characters. */
  uuid: string;
  session: SessionKey;
  target: OutboxTarget;
  /** What is sent when no card can be. */
  text: string;
  /** The last state of a reply, shown by the cards of the ledger under this record's id, or by new ones. */
  view?: ReplyView;
  /** A card that is ready to be sent as it is (JSON 2.0). */
  card?: Record<string, unknown>;
  /** The run has ended well: an object that can be completed is completed after its answer. */
  isDone?: true;
  createdAtMs: number;
  attempts: number;
  /** Time of the first attempt whose outcome is unknown (timeout, crash); 0 if none. */
  uncertainSinceMs: number;
  /** Of the message that is answered. */
  traceparent?: string;
  /** When that message was written, epoch ms. */
  askedAtMs?: number;
  /** What the last try ended with, such as `rate_limit 230020`; for people who look. */
  problem?: string;
  /** When an operator had it sent again after it had been given up: its age counts from then. */
  againAtMs?: number;
}

export interface CommitRequest extends FencedWrite {
  seq: number;
  /** The reply, if one is to be sent; delivered after all earlier ones of the session. */
  outbox?: OutboxRecord;
  settings?: SessionSettings;
  /** Features that a process must have to continue the session, until the next write. */
  needs?: readonly string[];
  /** With this run. */
  totals?: SessionTotals;
  /** Take the next waiting message at once instead of going through the queue. */
  more: boolean;
  /** For a child session: the asker that gets its end in the same step. */
  asker?: AskerAnswer;
  /** The turn has called some, and their steps were counted. */
  helpers?: boolean;
}

/**
 * `deliver` is set when the caller now owns the session's outbox and must send its head. `idle`: the session runs
 * nothing; it is suspended while turns are set aside, otherwise idle. `next` comes with a new turn to run under the same epoch; `requeue` with a wake-up to add.
 */
export type CommitResult =
  | { state: "fenced" }
  /** `askerGen`: the wake-up to add for the session that waits for this child. */
  | { state: "idle"; deliver?: OutboxLease; askerGen?: number }
  | { state: "next"; head: QueuedMessage; deliver?: OutboxLease }
  | { state: "requeue"; wakeGen: number; deliver?: OutboxLease };

/** The right to send the head of one session's outbox, until it expires. */
export interface OutboxLease {
  token: string;
  record: OutboxRecord;
  /** When it expires at the earliest, by the monotonic clock of this process. */
  untilMs: number;
}

export interface PushOptions {
  /** A message that is parked behind the reply. */
  parked?: InboundMessage | undefined;
  /** Epoch ms until which the reply is held, from the step in which it is stored. */
  notBeforeMs?: number | undefined;
}

/** What became of an answer outside a turn. */
export interface PushResult {
  /** False: its message was appended or answered before. */
  stored: boolean;
  /** Absent also while another process sends, or the head of the outbox has to wait. */
  lease?: OutboxLease;
}

/** Answer to a runner that wants to start a call. */
export type BeginResult =
  /** Run it. */
  | "run"
  /** Already answered, cancelled or unknown: do nothing. */
  | "closed"
  /** A `once` call that was started before and has no outcome: look for what that run has made, and change nothing. */
  | "look"
  /** The same of a tool that cannot look: do not run it. */
  | "started_before"
  | HandoffRefusal;

/** The checkpoint of a turn, when it has saved one; `damaged`: why it cannot be read. */
export interface StoredTurn {
  turn?: TurnState;
  damaged?: string;
}

/** Of the turn at the head it is {@link StoredTurn}. */
export interface SessionSummary extends StoredTurn {
  state: "idle" | "queued" | "running" | "suspended";
  gen: number;
  /** That of the newest claim; `0` before the first. */
  epoch: string;
  /** Messages in the inbox, the one being answered included. */
  waiting: number;
  /** Messages of the whole history. */
  messages: number;
  /** Those among them that a model still sees as they were. */
  inContext: number;
  /** The message that is being answered or comes next. */
  head?: QueuedMessage;
  /** Turns that wait for people while others continue, oldest first. They count as `waiting`. */
  setAside: ({ head: QueuedMessage } & StoredTurn)[];
  /** Messages to the person that are not delivered yet. */
  unsent: number;
  /** Number of the newest event, also when it is no longer kept; 0 before the first. */
  eventSeq: number;
  settings: SessionSettings;
  totals?: SessionTotals;
  /** Why they cannot be read; `settings` are the defaults then. */
  damagedSettings?: string;
}

/** What {@link SessionStore.reset} did. */
export interface ResetResult {
  /** The turn that it ended. */
  turnId?: string;
  wakeGen?: number;
  /** Those that had calls of the turn a moment before. */
  runners?: string[];
  /** Sessions of its helpers: they were cancelled, and are to be woken for that. */
  helpers?: SessionKey[];
  /** For a helper: the session that has called it, which waits for its end, to be woken. */
  asker?: { session: SessionKey; wakeGen: number };
}

/** What goes with a reset. */
export interface ResetOptions {
  /** Who asked for it, for the audit log. */
  by: string;
  /**
   * The reply to the person whose turn ends. Called with the message at the head, if it can be read, and with
   * whether the card ledger has cards of that turn; may be called more than once, for the last call counts.
   */
  replyOf(
    turnId: string,
    message: InboundMessage,
    hasCards: boolean,
  ): Promise<OutboxRecord | undefined>;
}

/** A session the sweeper should look at: it should be moving but has been silent. */
export interface StaleSession {
  session: SessionKey;
  state: "idle" | "queued" | "running" | "suspended";
  /** Generation whose job should exist. */
  gen: number;
  /** Worker that claimed it last. */
  owner: string;
}

/** An approval and its present state. */
export interface ApprovalStatus {
  approval: Approval;
  state: ApprovalState;
  /** In the order they were taken. */
  decisions: ApprovalDecision[];
  /** Epoch ms; absent while pending. */
  settledAtMs?: number;
}

/** One card of an approval: the one in the chat, or a copy sent to one person. */
export interface ApprovalCard {
  /** Where it is: empty for the chat, otherwise the open_id of the person who got a copy. */
  to: string;
  /** The platform's id of the message; absent while it is not sent. */
  messageId?: string;
  /** It is the card of the reply, which the worker of the turn writes. */
  inReply?: boolean;
  /** What it shows: `pending`, a count of decisions such as `pending-1`, or the settled state. */
  shows?: string;
  /** Epoch ms of the first try whose outcome is unknown; 0 or absent if none. */
  uncertainSinceMs?: number;
  /** It could not be sent or updated, for good. */
  failed?: string;
}

/** One card of a reply, as far as a writer that did not make it has to know it. */
export interface CardEntry {
  /** Empty until the platform has created it. */
  cardId: string;
  /** Message that shows it; absent until sent. */
  messageId?: string;
  /** Idempotency key of the send, at most 50 characters. */
  uuid: string;
  /** Highest operation number that may have been used; the process that continues starts above it. */
  reservedSequence: number;
  /** Epoch ms at which streaming was last enabled; 0 while it is off. */
  streamingSinceMs: number;
  /** `closed`: shows its last frame, and that was verified. `dead`: cannot be written to any more. */
  state: "created" | "sent" | "closed" | "dead";
  /** Part of the answer that it shows, in characters; without `to` it is the open one. */
  from: number;
  to?: number;
  bytes: number;
  elements: number;
  tables: number;
  /** Replaceable elements that it shows, by id, each with a hash of what was last sent. */
  parts: Record<string, string>;
}

/** How often a reply is updated: each level down costs the platform fewer calls. */
const replyModes = ["typewriter", "slow", "final", "text"] as const;
export type ReplyMode = (typeof replyModes)[number];

/** All that is known of the cards of one reply. */
export interface CardReply {
  v: 1;
  /** Id of the turn, and of its outbox record. */
  replyId: string;
  session: SessionKey;
  app: string;
  chatId: string;
  mode: ReplyMode;
  cards: CardEntry[];
  /** While buttons that decide about calls stand on the last card: that card, without a form for a reason. */
  asking?: Record<string, unknown>;
  /** The file with the rest of a very long answer: its key once uploaded, its message once sent. */
  file?: { key: string; messageId?: string };
  createdAtMs: number;
}

const parseChild = jsonParserOf(ChildFacts);

/** The child that one field of a root's hash of children is about; none for a field that counts steps. */
export function childFrom(field: string, text: string): ChildSession[] {
  if (field.startsWith("steps ")) return [];
  const parsed = parseChild(text);
  return parsed.ok ? [{ session: field, ...parsed.value }] : [];
}
