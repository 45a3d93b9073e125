/* oxlint-disable max-lines -- one class implements the whole store. */
import {
  knownFeatures,
  turnIdOf,
  type AuditRecord,
  type ControlEntry,
  type InboundMessage,
  type Message,
  type QueuedMessage,
  type SessionKey,
  type ToolEffect,
  type ToolOutcome,
} from "@larkline/protocol";
import { auditResultOf } from "./audit-facts.ts";
import { cancelledRun } from "./cancelled-run.ts";
import { MemoryApprovals } from "./memory-approvals.ts";
import type { MemoryAuditLog } from "./memory-audit-log.ts";
import { MemoryCardLedger } from "./memory-card-ledger.ts";
import type { MemoryEventLog } from "./memory-event-log.ts";
import { MemoryDeadLetters } from "./memory-dead-letters.ts";
import { MemoryHandoffs } from "./memory-handoffs.ts";
import { MemoryOutboxes } from "./memory-outbox.ts";
import { MemoryRetention } from "./memory-retention.ts";
import { MemorySessionIndex } from "./memory-session-index.ts";
import { MemorySession, type LedgerEntry } from "./memory-session.ts";
import { Remembered } from "./remembered.ts";
import {
  ClaimRefusedError,
  deathsTogether,
  type AppendResult,
  type BeginResult,
  type Claim,
  type CommitRequest,
  type CommitResult,
  type DeliverDetails,
  type DeliverResult,
  type ExcuseResult,
  type FencedWrite,
  type OutboxLease,
  type OutboxRecord,
  type ResetOptions,
  type ResetResult,
  type SaveRequest,
  type SaveResult,
  type SessionStore,
  type SessionSummary,
  type StaleSession,
} from "./session-store.ts";

const diesAlways = async (): Promise<boolean> => true;

const dayMs = 24 * 60 * 60 * 1_000;

/** How a memory store can be made to differ from the defaults. */
export interface MemorySessionStoreOptions {
  /** The clock, epoch ms. */
  now?: () => number;
  /** `maxWaiting`: messages of one session that may wait, the running one included; 1,000 if absent. */
  limits?: { maxWaiting?: number };
  /** How long message ids, outbox dedup ids and parked messages are remembered; 24 hours if absent. */
  dedupTtlMs?: number;
  /** How long a process may take for the cards of one approval; 15 s if absent. */
  cardsLeaseMs?: number;
  /** How many approvals of one session are kept; 200 if absent. */
  maxApprovals?: number;
}

/** The session store of `createMemorySessionStore`. */
export class MemorySessionStore implements SessionStore {
  readonly cards: MemoryCardLedger;
  readonly approvals: MemoryApprovals;
  readonly letters: MemoryDeadLetters;
  readonly index: MemorySessionIndex;
  readonly retention: MemoryRetention;
  readonly #sessions = new Map<SessionKey, MemorySession>();
  readonly #events: MemoryEventLog;
  readonly #audit: MemoryAuditLog;
  readonly #outboxes: MemoryOutboxes;
  readonly #now: () => number;
  readonly #maxWaiting: number;
  readonly #messageIds: Remembered<number>;
  readonly #parked: Remembered<InboundMessage>;
  readonly #handoffs = new MemoryHandoffs();
  /** Answers to questions of runners. */
  readonly #asked = new Map<string, BeginResult>();

  constructor(events: MemoryEventLog, audit: MemoryAuditLog, options: MemorySessionStoreOptions) {
    const { now = Date.now, limits, dedupTtlMs = dayMs, cardsLeaseMs = 15_000, maxApprovals = 200 } = options;
    this.#events = events;
    this.#audit = audit;
    this.#now = now;
    this.approvals = new MemoryApprovals({
      now,
      inbox: {
        isRunning: (key, turnId) => this.#sessions.get(key)?.isRunningTurn(turnId) ?? false,
        tell: (key, entry) => this.#tell(key, entry),
        lostWake: (key) => this.#sessions.get(key)?.lostWake(),
      },
      audit,
      cardsLeaseMs,
      maxKept: maxApprovals,
    });
    this.#outboxes = new MemoryOutboxes(now);
    this.#maxWaiting = limits?.maxWaiting ?? 1_000;
    this.#messageIds = new Remembered(dedupTtlMs);
    this.#parked = new Remembered(dedupTtlMs);
    this.cards = new MemoryCardLedger(
      now,
      (session, replyId, fence) =>
        "epoch" in fence
          ? this.#answers({ session, epoch: fence.epoch }, replyId)
          : this.#outboxes.isSending(session, replyId, fence.outboxToken),
      (session) => this.#outboxes.count(session),
    );
    this.letters = new MemoryDeadLetters(now, this.#outboxes, this.cards);
    this.index = new MemorySessionIndex(this.#sessions, this.#outboxes);
    const { approvals, cards } = this;
    const parts = { sessions: this.#sessions, events, outboxes: this.#outboxes, approvals, cards, now };
    this.retention = new MemoryRetention(parts);
  }

  #answers(held: Pick<FencedWrite, "session" | "epoch">, turnId: string): boolean {
    const head = this.#held(held)?.inbox[0];
    return head !== undefined && turnIdOf(held.session, head.seq) === turnId;
  }

  async append(message: InboundMessage, options: { maxWaiting?: number } = {}): Promise<AppendResult> {
    const session = this.#open(message.session);
    const known = this.#messageIds.get(keyOf(message.session, message.app, message.id), this.#now());
    if (known !== undefined) {
      return withWake({ result: "duplicate", seq: known, ahead: 0 } as const, session.lostWake());
    }
    const maxWaiting = Math.min(options.maxWaiting ?? this.#maxWaiting, this.#maxWaiting);
    return this.#enqueue(session, message, maxWaiting);
  }

  #enqueue(session: MemorySession, message: InboundMessage, maxWaiting: number): AppendResult {
    const isFree = session.passesHead(message);
    const ahead = session.inbox.length - (isFree ? 1 : 0);
    const head = structuredClone(session.asideOfPerson(message.sender.id) ?? session.inbox[0]);
    const before = head === undefined ? {} : { head };
    if (ahead >= maxWaiting) return { result: "full", seq: 0, ahead: 0, ...before };
    const nowMs = this.#now();
    const seq = session.enqueue(structuredClone(message));
    this.#messageIds.set(keyOf(session.key, message.app, message.id), seq, nowMs);
    if (ahead > 0) session.lastBehind = seq;
    const eventSeq = this.#events.lastSeq(session.key);
    const isWoken = session.state === "idle" || (session.state === "suspended" && isFree);
    const wakeGen = isWoken ? session.wake(nowMs) : undefined;
    return withWake({ result: "accepted", seq, eventSeq, ahead, ...before } as const, wakeGen);
  }

  async seqOf(session: SessionKey, app: string, messageId: string): Promise<number | undefined> {
    // 0 stands for a message that was answered outside a turn.
    return this.#messageIds.get(keyOf(session, app, messageId), this.#now()) || undefined;
  }

  async seen(session: SessionKey, app: string, messageId: string): Promise<boolean> {
    return this.#messageIds.get(keyOf(session, app, messageId), this.#now()) !== undefined;
  }

  async waiting(key: SessionKey, limit: number): Promise<QueuedMessage[]> {
    return structuredClone(this.#sessions.get(key)?.inbox.slice(1, 1 + limit) ?? []);
  }

  async deliver(...given: Parameters<SessionStore["deliver"]>): Promise<DeliverResult> {
    const [key, callId, outcome, details = {}] = given;
    const session = this.#sessions.get(key);
    const entry = session?.ledger.get(callId);
    const refusal = this.#handoffs.refusal(entry, details.handed);
    if (refusal !== undefined) return { accepted: false, refusal };
    if (entry?.state === "started" && details.unlessStarted === true) return { accepted: false };
    if (!session || !entry || entry.state === "done") return withWake({ accepted: false }, session?.lostWake());
    return this.#answerCall(session, entry, { outcome, ...details });
  }

  #answerCall(
    session: MemorySession,
    entry: LedgerEntry,
    { outcome, timing, unstarted, handed, runner = handed?.runner }: DeliverDetails & { outcome: ToolOutcome },
  ): DeliverResult {
    const { callId } = entry;
    entry.state = "done";
    const facts = { ...(timing && { timing }), ...(unstarted && { unstarted }) };
    const answer: ControlEntry = { type: "outcome", callId, outcome, ...facts };
    session.control.push(structuredClone(answer));
    const result = auditResultOf(outcome);
    this.#recordCall(session, entry, { kind: "call_ended", result, ...(runner && { runner }) });
    const unread = { entry: structuredClone(answer), count: session.control.length };
    const isRunning = session.state === "running";
    return withWake({ accepted: true, ...(isRunning && { unread }) }, this.#wakeIfResting(session));
  }

  #recordCall(session: MemorySession, call: LedgerEntry, what: Omit<AuditRecord, "atMs">): void {
    this.#audit.write({ session: session.key, callId: call.callId, ...call.facts, ...what });
  }

  /** What has become of a question of the running turn. */
  #tell(key: SessionKey, entry: ControlEntry): number | undefined {
    const session = this.#sessions.get(key);
    return session && this.#hear(session, entry);
  }

  /** Gives an entry to the turn that it is for. Of a turn set aside while another one waits for calls: it is heard after that. */
  #hear(session: MemorySession, entry: ControlEntry): number | undefined {
    const aside = entry.type === "outcome" ? undefined : session.asideOf(entry.turnId);
    (aside ?? session).control.push(entry);
    return aside !== undefined && session.waits === undefined ? undefined : this.#wakeIfResting(session);
  }

  #wakeIfResting(session: MemorySession): number | undefined {
    return session.isMoving() ? undefined : session.wake(this.#now());
  }

  async cancel(key: SessionKey, { turnId, reason }: { turnId?: string; reason: string }): Promise<DeliverResult> {
    const session = this.#sessions.get(key);
    if (!session || session.inbox.length === 0 || session.state === "idle") return { accepted: false };
    const seq = Number(turnId?.slice(turnId.lastIndexOf("-") + 1));
    const isAnswered = session.isAnswering(seq) || session.asideOf(turnId) !== undefined;
    if (turnId !== undefined && (turnId !== turnIdOf(key, seq) || !isAnswered)) {
      return this.#cancelWaiting(session, turnId);
    }
    const entry: ControlEntry = { type: "cancel", ...(turnId !== undefined && { turnId }), reason };
    return withWake({ accepted: true }, this.#hear(session, entry));
  }

  async cancelled(key: SessionKey, turnIds?: readonly string[]): Promise<boolean> {
    const session = this.#sessions.get(key);
    const entries = [...(session?.control ?? []), ...(session?.setAside.flatMap(({ control }) => control) ?? [])];
    return entries.some(
      (entry) =>
        entry.type === "cancel" &&
        (turnIds === undefined || entry.turnId === undefined || turnIds.includes(entry.turnId)),
    );
  }

  /** The message leaves the inbox at once; its run ends before it began, so that followers do not wait. */
  #cancelWaiting(session: MemorySession, turnId: string): DeliverResult {
    const index = session.inbox.findIndex(({ seq }) => turnIdOf(session.key, seq) === turnId);
    if (index < 0) return { accepted: false };
    session.inbox.splice(index, 1);
    this.#events.add(session.key, [{ runId: turnId, event: cancelledRun }]);
    return { accepted: true };
  }

  async claim(...given: Parameters<SessionStore["claim"]>): Promise<Claim | undefined> {
    const [key, gen, owner, { alone = false, features = knownFeatures, hasDied = diesAlways } = {}] = given;
    const session = this.#sessions.get(key);
    if (session === undefined || !session.hasWorkFor(gen)) return undefined;
    const missing = session.needs().filter((feature) => !features.includes(feature));
    if (missing.length > 0) throw new ClaimRefusedError("needs", `it needs ${missing.join(", ")}`);
    const { judged } = session;
    if (judged !== undefined) {
      const isDeath = judged !== owner && (await hasDied(judged));
      // Another claim may have been quicker.
      if (session.judged !== judged || !session.isFor(gen)) return await this.claim(...given);
      session.countLost(isDeath);
    }
    if (session.deaths.together >= deathsTogether && !alone) {
      throw new ClaimRefusedError("alone", "it has taken others along");
    }
    session.touchedAtMs = this.#now();
    return structuredClone(session.claim(gen, owner, alone));
  }

  async handOff(session: SessionKey, epoch: string): Promise<boolean> {
    const held = this.#held({ session, epoch });
    held?.handOff();
    return held !== undefined;
  }

  async excuse(key: SessionKey, epoch: string): Promise<ExcuseResult> {
    const session = this.#sessions.get(key);
    if (session === undefined) return { excused: true };
    session.touchedAtMs = this.#now();
    return session.excuse(epoch);
  }

  async save(request: SaveRequest): Promise<SaveResult> {
    const session = this.#held(request);
    if (!session) return { state: "fenced" };
    this.#write(session, request);
    for (const call of request.open) {
      const opened = session.openCall(structuredClone(call));
      if (opened) this.#recordCall(session, opened, { kind: "call_opened" });
    }
    for (const approval of request.approvals ?? []) this.approvals.create(approval);
    return structuredClone(session.save(structuredClone(request), this.#now()));
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const session = this.#held(request);
    if (!session || session.inbox[0]?.seq !== request.seq) return { state: "fenced" };
    this.#write(session, request);
    this.#closeCalls(session, turnIdOf(request.session, request.seq));
    session.finishHead();
    session.wakeAtMs = undefined;
    session.finishedAtMs = this.#now();
    if (request.settings) session.settings = structuredClone(request.settings);
    const deliver = request.outbox && this.#send(request.outbox);
    return structuredClone({ ...this.#afterCommit(session, request.more), ...(deliver && { deliver }) });
  }

  /** The end of a turn: nobody waits for its calls and questions any more. */
  #closeCalls(session: MemorySession, turnId?: string): void {
    for (const call of session.ledger.values()) {
      if (call.state === "done") continue;
      const result = call.state === "started" ? "unknown" : "cancelled";
      this.#recordCall(session, call, { kind: "call_ended", result });
    }
    this.approvals.cancelAll(session.key, turnId);
  }

  async reset(key: SessionKey, { by, replyOf }: ResetOptions): Promise<ResetResult> {
    const head = this.#sessions.get(key)?.inbox[0];
    const hasCards = head !== undefined && this.cards.knows(key, turnIdOf(key, head.seq));
    const reply = head && (await replyOf(turnIdOf(key, head.seq), head.message, hasCards));
    const session = this.#open(key);
    const isSame = session.inbox[0] === head && (!head || hasCards === this.cards.knows(key, turnIdOf(key, head.seq)));
    if (!isSame) return await this.reset(key, { by, replyOf });
    for (const { head: waiting } of session.setAside) {
      const turnId = turnIdOf(key, waiting.seq);
      const told = await replyOf(turnId, waiting.message, this.cards.knows(key, turnId));
      this.#events.add(key, [{ runId: turnId, event: cancelledRun }]);
      if (told !== undefined) this.#outboxes.push(structuredClone(told));
    }
    const atWork = [...session.ledger.values()].flatMap(({ state, facts }) =>
      state === "done" || facts.runner === undefined ? [] : [facts.runner],
    );
    this.#closeCalls(session);
    const { ended, wakeGen } = session.reset(this.#now());
    const about = ended === undefined ? {} : { turnId: turnIdOf(key, ended.seq) };
    this.#audit.write({ kind: "session_reset", session: key, userId: by, ...about });
    if (about.turnId !== undefined) this.#events.add(key, [{ runId: about.turnId, event: cancelledRun }]);
    if (about.turnId !== undefined && reply !== undefined) this.#outboxes.push(structuredClone(reply));
    const runners = ended === undefined || atWork.length === 0 ? {} : { runners: [...new Set(atWork)] };
    return withWake({ ...about, ...runners }, wakeGen);
  }

  #afterCommit(session: MemorySession, more: boolean): CommitResult {
    const next = session.afterEnd();
    const head = session.inbox[0];
    if (next === "idle") return { state: "idle" };
    if (next === "requeue" || !more || !head) return { state: "requeue", wakeGen: session.wake(this.#now()) };
    session.startHead(head.seq);
    return { state: "next", head, control: session.control };
  }

  async emit(write: Pick<FencedWrite, "session" | "epoch" | "events">): Promise<boolean> {
    const session = this.#held(write);
    if (session) this.#events.add(session.key, write.events);
    return session !== undefined;
  }

  async report(...[key, callId, happened, handed]: Parameters<SessionStore["report"]>): Promise<boolean> {
    const entry = this.#sessions.get(key)?.ledger.get(callId);
    if (this.#handoffs.refusal(entry, handed) !== undefined) return false;
    if (!entry || entry.state === "done") return false;
    this.#events.add(key, [happened]);
    return true;
  }

  async begin(...[key, callId, effect, by = {}]: Parameters<SessionStore["begin"]>): Promise<BeginResult> {
    const { handed, runner = handed?.runner, ask } = by;
    const session = this.#sessions.get(key);
    const entry = session?.ledger.get(callId);
    const refusal = this.#handoffs.refusal(entry, handed);
    if (refusal !== undefined) return refusal;
    const known = ask === undefined ? undefined : this.#asked.get(ask);
    if (known !== undefined) return known;
    const answer = this.#start(session, entry, { effect, runner });
    if (ask !== undefined) this.#asked.set(ask, answer);
    return answer;
  }

  #start(
    session: MemorySession | undefined,
    entry: LedgerEntry | undefined,
    { effect, runner }: { effect: ToolEffect; runner: string | undefined },
  ): BeginResult {
    if (!session || !entry || entry.state === "done") return "closed";
    if (entry.state === "started" && effect === "once") return "started_before";
    entry.state = "started";
    this.#recordCall(session, entry, { kind: "call_started", ...(runner !== undefined && { runner }) });
    return "run";
  }

  async giveBack(...[key, callId, { handed, ask }]: Parameters<SessionStore["giveBack"]>): Promise<boolean> {
    const entry = this.#sessions.get(key)?.ledger.get(callId);
    if (this.#handoffs.refusal(entry, handed) !== undefined) return false;
    if (entry?.state !== "started" || this.#asked.get(ask) !== "run") return false;
    this.#asked.set(ask, "closed");
    entry.state = "open";
    return true;
  }

  async history(key: SessionKey): Promise<Message[]> {
    return structuredClone(this.#sessions.get(key)?.history ?? []);
  }

  async summary(key: SessionKey): Promise<SessionSummary> {
    return (this.#sessions.get(key) ?? new MemorySession(key)).summary(
      this.#outboxes.count(key),
      this.#events.lastSeq(key),
    );
  }

  async dueDeadlines(nowMs: number, limit: number): Promise<{ session: SessionKey; callId: string }[]> {
    const due = [...this.#sessions.values()].flatMap((session) => session.dueCalls(nowMs));
    due.sort((a, b) => a.deadlineMs - b.deadlineMs);
    return due.slice(0, limit).map(({ session, callId }) => ({ session, callId }));
  }

  async wakeDue(key: SessionKey): Promise<DeliverResult> {
    const session = this.#sessions.get(key);
    if (session === undefined) return { accepted: false };
    session.wakeAtMs = undefined;
    if (session.state !== "suspended") return { accepted: false };
    return withWake({ accepted: true }, this.#wakeIfResting(session));
  }

  async stale(beforeMs: number, limit: number): Promise<StaleSession[]> {
    return [...this.#sessions.values()]
      .filter((session) => session.isMoving() && session.touchedAtMs < beforeMs)
      .sort((a, b) => a.touchedAtMs - b.touchedAtMs)
      .slice(0, limit)
      .map((session) => session.asStale());
  }

  async touch(key: SessionKey): Promise<void> {
    const session = this.#sessions.get(key);
    if (session) session.touchedAtMs = this.#now();
  }

  async heal(key: SessionKey, deadGen: number): Promise<number | undefined> {
    return this.#sessions.get(key)?.heal(deadGen, this.#now());
  }

  async pushOutbox(record: OutboxRecord, messageId: string, parked?: InboundMessage): Promise<OutboxLease | undefined> {
    const id = keyOf(record.session, record.target.app, messageId);
    const nowMs = this.#now();
    if (this.#messageIds.get(id, nowMs) !== undefined) return undefined;
    this.#messageIds.set(id, 0, nowMs);
    if (parked) this.#parked.set(keyOf(record.session, messageId), structuredClone(parked), nowMs);
    return structuredClone(this.#send(record));
  }

  async parked(session: SessionKey, messageId: string): Promise<InboundMessage | undefined> {
    return structuredClone(this.#parked.get(keyOf(session, messageId), this.#now()));
  }

  async release(key: SessionKey, messageId: string, action: "append" | "drop"): Promise<AppendResult | undefined> {
    const parked = this.#parked.get(keyOf(key, messageId), this.#now());
    if (!parked) return undefined;
    const released: AppendResult =
      action === "drop"
        ? { result: "accepted", seq: 0, ahead: 0 }
        : this.#enqueue(this.#open(key), parked, this.#maxWaiting);
    if (released.result === "accepted") this.#parked.delete(keyOf(key, messageId));
    return released;
  }

  #send(record: OutboxRecord): OutboxLease | undefined {
    this.#outboxes.push(structuredClone(record));
    return this.#outboxes.lease(record.session);
  }

  async leaseOutbox(session: SessionKey): Promise<OutboxLease | undefined> {
    return structuredClone(this.#outboxes.lease(session));
  }

  async ackOutbox(session: SessionKey, token: string): Promise<OutboxLease | undefined> {
    const { sent, next } = this.#outboxes.ack(session, token);
    if (sent) this.cards.remove(session, sent.id);
    return structuredClone(next);
  }

  async retryOutbox(lease: OutboxLease, retryAtMs: number): Promise<void> {
    this.#outboxes.retry(structuredClone(lease), retryAtMs);
  }

  async dueOutboxes(nowMs: number, limit: number): Promise<SessionKey[]> {
    return this.#outboxes.due(nowMs, limit);
  }

  #open(key: SessionKey): MemorySession {
    const session = this.#sessions.get(key) ?? this.retention.begin(key);
    this.#sessions.set(key, session);
    return session;
  }

  /** The session, if the epoch may still write to it. */
  #held({ session: key, epoch }: Pick<FencedWrite, "session" | "epoch">): MemorySession | undefined {
    const session = this.#sessions.get(key);
    return session?.isHeldBy(epoch) ? session : undefined;
  }

  /** What all fenced writes have in common. */
  #write(session: MemorySession, { history, events, consumed, context }: FencedWrite): void {
    session.control.splice(0, consumed);
    session.history.push(...structuredClone(history));
    if (context) session.setContext(structuredClone(context));
    session.touchedAtMs = this.#now();
    this.#events.add(session.key, events);
  }
}

function keyOf(...names: string[]): string {
  return JSON.stringify(names);
}

function withWake<T extends object>(result: T, wakeGen: number | undefined): T & { wakeGen?: number } {
  return wakeGen === undefined ? result : { ...result, wakeGen };
}
