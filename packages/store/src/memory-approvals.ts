import {
  stateAfter,
  type Approval,
  type ApprovalDecision,
  type AuditKind,
  type ControlEntry,
  type SessionKey,
  type SettledState,
} from "@larkline/protocol";
import type { ApprovalCard, ApprovalLease, ApprovalStatus, ApprovalStore, DecideResult } from "./approval-store.ts";
import { approvalFactsOf } from "./audit-facts.ts";
import { answersKind, settlesAlone } from "./decision-words.ts";
import type { MemoryAuditLog } from "./memory-audit-log.ts";

/** The sessions as their approvals see them. */
interface ApprovalInbox {
  isRunning(session: SessionKey, turnId: string): boolean;
  /** Adds an entry for the running turn; returns the wake-up that it needs. */
  tell(session: SessionKey, entry: ControlEntry): number | undefined;
  lostWake(session: SessionKey): number | undefined;
}

interface MemoryApprovalsOptions {
  now: () => number;
  inbox: ApprovalInbox;
  audit: MemoryAuditLog;
  cardsLeaseMs: number;
  /** How many approvals of one session are kept. */
  maxKept: number;
}

interface Entry {
  status: ApprovalStatus;
  cards: ApprovalCard[];
  /** Counts what the cards are to show. */
  version: number;
  attempts: number;
  /** When the cards should be tried; absent when there is nothing to do. */
  cardsDueAtMs?: number;
  lease?: { token: string; untilMs: number; version: number };
}

const weekMs = 7 * 24 * 60 * 60 * 1_000;

/** Nothing is left to do for it. */
function isFinished({ status, cardsDueAtMs }: Entry): boolean {
  return status.state !== "pending" && cardsDueAtMs === undefined;
}

/** The approvals of a memory store. Atomic because no method awaits; what goes in and comes out is a copy. */
export class MemoryApprovals implements ApprovalStore {
  readonly #entries = new Map<string, Entry>();
  readonly #options: MemoryApprovalsOptions;
  #leases = 0;

  constructor(options: MemoryApprovalsOptions) {
    this.#options = options;
  }

  async add(approval: Approval): Promise<void> {
    this.create(approval);
  }

  create(given: Approval): void {
    if (this.#entries.has(given.id)) return;
    this.#prune(given.session);
    const approval = structuredClone(given);
    const entry: Entry = {
      status: { approval, state: "pending", decisions: [] },
      cards: [],
      version: 0,
      attempts: 0,
    };
    if (approval.target.channel !== "none") entry.cardsDueAtMs = this.#options.now();
    this.#entries.set(approval.id, entry);
    this.#record("approval_requested", approval);
  }

  /** Makes room for one more by forgetting old ones. */
  #prune(session: SessionKey): void {
    const kept = this.#of(session);
    const tooMany = Math.max(0, kept.length + 1 - this.#options.maxKept);
    for (const { status } of kept.filter(isFinished).slice(0, tooMany)) this.#entries.delete(status.approval.id);
  }

  #of(session: SessionKey): Entry[] {
    return [...this.#entries.values()].filter(({ status }) => status.approval.session === session);
  }

  #record(kind: AuditKind, approval: Approval, result?: { result: string; userId?: string }): void {
    const { session, callId } = approval;
    this.#options.audit.write({ kind, session, callId, ...approvalFactsOf(approval), ...result });
  }

  #get(session: SessionKey, approvalId: string): Entry | undefined {
    const entry = this.#entries.get(approvalId);
    if (entry === undefined || entry.status.approval.session !== session) return undefined;
    const { settledAtMs, approval } = entry.status;
    const isForgotten =
      settledAtMs !== undefined && Math.max(settledAtMs, approval.expiresAtMs) + weekMs <= this.#options.now();
    if (!isForgotten) return entry;
    this.#entries.delete(approvalId);
    return undefined;
  }

  async find(app: string, approvalId: string): Promise<ApprovalStatus | undefined> {
    const session = this.#entries.get(approvalId)?.status.approval.session ?? "";
    const status = this.#get(session, approvalId)?.status;
    return status?.approval.app === app ? structuredClone(status) : undefined;
  }

  async decide(...given: Parameters<ApprovalStore["decide"]>): Promise<DecideResult> {
    const [session, approvalId, decision] = given;
    const entry = this.#get(session, approvalId);
    if (entry === undefined || !answersKind(decision.decision, entry.status.approval.kind)) {
      return { result: "unknown" };
    }
    const isExpired = entry.status.approval.expiresAtMs <= this.#options.now();
    return structuredClone(
      this.#closed(entry) ?? (isExpired ? this.#lateDecision(entry) : this.#take(entry, decision)),
    );
  }

  /** Nothing to decide any more; a question whose turn is over is settled by that. */
  #closed(entry: Entry): DecideResult | undefined {
    const { status } = entry;
    const { session, kind, turnId } = status.approval;
    const { inbox } = this.#options;
    const isOver = status.state === "pending" && kind !== "rule" && !inbox.isRunning(session, turnId);
    if (isOver) this.#become(entry, "cancelled");
    if (status.state === "pending") return undefined;
    return withWake({ result: "closed", status } as const, inbox.lostWake(session));
  }

  #lateDecision(entry: Entry): DecideResult {
    return withWake({ result: "closed", status: entry.status } as const, this.#settle(entry, "expired"));
  }

  #take(entry: Entry, given: Omit<ApprovalDecision, "atMs">): DecideResult {
    const { status } = entry;
    const { decision, by } = given;
    const before = status.decisions.filter((each) => each.decision === decision);
    if (before.some((each) => each.by.id === by.id)) return { result: "repeated", status };
    const atMs = this.#options.now();
    status.decisions.push({ ...structuredClone(given), atMs });
    this.#record("approval_decided", status.approval, { result: decision, userId: by.id });
    if (!settlesAlone(decision) && before.length + 1 < status.approval.deciders.count) {
      this.#changeCards(entry);
      return { result: "counted", status };
    }
    return withWake({ result: "settled", status } as const, this.#settle(entry, stateAfter[decision], atMs));
  }

  async settle(session: SessionKey, approvalId: string, state: "expired" | "undeliverable"): Promise<DecideResult> {
    const entry = this.#get(session, approvalId);
    if (entry === undefined) return { result: "unknown" };
    const closed = this.#closed(entry);
    const { status } = entry;
    const isEarly = state === "expired" && status.approval.expiresAtMs > this.#options.now();
    if (closed !== undefined || isEarly) return structuredClone(closed ?? { result: "closed", status });
    return structuredClone(withWake({ result: "settled", status } as const, this.#settle(entry, state)));
  }

  /** Settles and tells the session, if its turn waits for it. */
  #settle(entry: Entry, state: SettledState, atMs = this.#options.now()): number | undefined {
    this.#become(entry, state, atMs);
    const { approval, decisions } = entry.status;
    if (approval.kind === "rule") {
      // The worker that looks after its cards writes the rule, also where it has none.
      if (state === "approved" && approval.target.channel === "none") entry.cardsDueAtMs = this.#options.now();
      return undefined;
    }
    const told: ControlEntry = {
      type: "decision",
      turnId: approval.turnId,
      approvalId: approval.id,
      argumentsHash: approval.argumentsHash,
      state,
      decisions: structuredClone(decisions),
    };
    return this.#options.inbox.tell(approval.session, told);
  }

  #become(entry: Entry, state: SettledState, atMs = this.#options.now()): void {
    entry.status.state = state;
    entry.status.settledAtMs = atMs;
    this.#changeCards(entry);
    this.#record("approval_settled", entry.status.approval, { result: state });
  }

  /** The end of a turn: nobody waits for its questions any more. */
  /** Of one turn, or of all if none is named. */
  cancelAll(session: SessionKey, turnId?: string): void {
    for (const entry of this.#of(session)) {
      const { state, approval } = entry.status;
      const isMeant = turnId === undefined || approval.turnId === turnId;
      if (state === "pending" && approval.kind !== "rule" && isMeant) this.#become(entry, "cancelled");
    }
  }

  remove(session: SessionKey, isMeant: (status: ApprovalStatus) => boolean): void {
    for (const { status } of this.#of(session)) if (isMeant(status)) this.#entries.delete(status.approval.id);
  }

  async pending(session: SessionKey): Promise<ApprovalStatus[]> {
    const pending = this.#of(session).flatMap(({ status }) => (status.state === "pending" ? [status] : []));
    return structuredClone(pending.sort((one, other) => one.approval.createdAtMs - other.approval.createdAtMs));
  }

  async approvedRules(session: SessionKey): Promise<ApprovalStatus[]> {
    const open = this.#of(session).filter(({ cardsDueAtMs }) => cardsDueAtMs !== undefined);
    const approved = open.filter(({ status }) => status.approval.kind === "rule" && status.state === "approved");
    return structuredClone(approved.map(({ status }) => status));
  }

  async dueExpiries(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]> {
    return this.#due(nowMs, limit, ({ status }) =>
      status.state === "pending" ? status.approval.expiresAtMs : undefined,
    );
  }

  async dueCards(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]> {
    return this.#due(nowMs, limit, ({ cardsDueAtMs }) => cardsDueAtMs);
  }

  #due(nowMs: number, limit: number, atMs: (entry: Entry) => number | undefined) {
    return [...this.#entries.values()]
      .flatMap((entry) => ({ approval: entry.status.approval, dueAtMs: atMs(entry) ?? Infinity }))
      .filter(({ dueAtMs }) => dueAtMs <= nowMs)
      .sort((one, other) => one.dueAtMs - other.dueAtMs)
      .slice(0, limit)
      .map(({ approval: { session, id } }) => ({ session, approvalId: id }));
  }

  /** Whoever holds the cards learns of it when they write; otherwise they are due at once. */
  #changeCards(entry: Entry): void {
    if (entry.status.approval.target.channel === "none") return;
    const nowMs = this.#options.now();
    entry.version += 1;
    entry.attempts = 0;
    if (entry.lease === undefined || entry.lease.untilMs <= nowMs) entry.cardsDueAtMs = nowMs;
  }

  async leaseCards(session: SessionKey, approvalId: string): Promise<ApprovalLease | undefined> {
    const entry = this.#get(session, approvalId);
    const nowMs = this.#options.now();
    if (entry === undefined || (entry.cardsDueAtMs ?? Infinity) > nowMs) return undefined;
    this.#leases += 1;
    const token = `cards-${this.#leases}`;
    const untilMs = nowMs + this.#options.cardsLeaseMs;
    entry.lease = { token, untilMs, version: entry.version };
    entry.cardsDueAtMs = untilMs;
    const { status, cards, attempts } = entry;
    entry.attempts += 1;
    return structuredClone({ token, status, cards, attempts });
  }

  async saveCards({ token, status, cards }: ApprovalLease, retryAtMs?: number): Promise<boolean> {
    const entry = this.#get(status.approval.session, status.approval.id);
    if (entry === undefined || entry.lease?.token !== token) return false;
    entry.cards = structuredClone(cards);
    const dueAtMs = entry.lease.version === entry.version ? retryAtMs : this.#options.now();
    delete entry.lease;
    delete entry.cardsDueAtMs;
    if (dueAtMs !== undefined) entry.cardsDueAtMs = dueAtMs;
    return true;
  }
}

function withWake<T extends object>(result: T, wakeGen: number | undefined): T & { wakeGen?: number } {
  return wakeGen === undefined ? result : { ...result, wakeGen };
}
