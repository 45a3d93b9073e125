import type {
  Approval,
  ApprovalDecision,
  ApprovalState,
  AuditRecord,
  PermissionRule,
  Sender,
  SessionKey,
} from "@larkline/protocol";

/** An approval and what has become of it. */
export interface ApprovalStatus {
  approval: Approval;
  state: ApprovalState;
  /** In the order they were taken. */
  decisions: ApprovalDecision[];
  /** Epoch ms; absent while pending. */
  settledAtMs?: number;
}

/**
 * What a decision did; `status` is how things stand afterwards. Whether the person may decide at all
 * is checked by the caller, before.
 */
export type DecideResult =
  /** It settled the approval; the session knows, and needs the wake-up `wakeGen`. */
  | { result: "settled"; status: ApprovalStatus; wakeGen?: number }
  /** It counts, and more people have to approve. */
  | { result: "counted"; status: ApprovalStatus }
  /** This person has approved before. */
  | { result: "repeated"; status: ApprovalStatus }
  /**
   * It had been settled, or its time was over: that much is settled now. Of `settle` also: too early.
   * `wakeGen` is there while the session waits for a wake-up, which may be lost.
   */
  | { result: "closed"; status: ApprovalStatus; wakeGen?: number }
  /** No approval of that id (any more), or none that this word decides. */
  | { result: "unknown" };

/** One card of an approval: the one in the chat, or a copy sent to one person. */
export interface ApprovalCard {
  /** Where it is: empty for the chat, otherwise the open_id of the person who got a copy. */
  to: string;
  /** The platform's id of the message; absent while it is not sent. */
  messageId?: string;
  /** What it shows: `pending`, a count of decisions such as `pending-1`, or the settled state. */
  shows?: string;
  /** Epoch ms of the first try whose outcome is unknown; 0 or absent if none. */
  uncertainSinceMs?: number;
  /** It could not be sent or updated, for good. */
  failed?: string;
}

/** The right to send and update the cards of one approval, until it expires. */
export interface ApprovalLease {
  token: string;
  status: ApprovalStatus;
  cards: ApprovalCard[];
  /** How many leases there were before this one since the cards were last to change. */
  attempts: number;
}

/**
 * Questions to people and their answers. They are created by {@link SessionStore.save}, together
 * with the turn that waits for them, or by `add`; an answer reaches the session's inbox in the same
 * step that takes it, exactly once. Kept for a week after they have expired.
 */
export interface ApprovalStore {
  /** Adds one that no turn waits for (`rule`). One that exists already stays as it is. */
  add(approval: Approval): Promise<void>;
  /** By id alone, which is all that a button carries. Undefined when it is not known or of another app. */
  find(app: string, approvalId: string): Promise<ApprovalStatus | undefined>;
  /**
   * Takes one person's decision, atomically: time, state and repetition are checked by the store's
   * own clock. `reject` and `abort` settle at once, any other word when `deciders.count` different
   * people have said it. Nothing reaches a session whose turn is over.
   */
  decide(session: SessionKey, approvalId: string, decision: Omit<ApprovalDecision, "atMs">): Promise<DecideResult>;
  /** Settles without a person: past its expiry by the store's clock, or because nobody could be asked. */
  settle(session: SessionKey, approvalId: string, state: "expired" | "undeliverable"): Promise<DecideResult>;
  /** Pending approvals of a session, oldest first. */
  pending(session: SessionKey): Promise<ApprovalStatus[]>;
  /** Approved questions about rules of a session whose cards are not done: their rules may not be written yet. Oldest first. */
  approvedRules(session: SessionKey): Promise<ApprovalStatus[]>;
  /** Pending ones past their expiry, oldest first. */
  dueExpiries(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]>;

  /** Approvals whose cards do not show their state yet and should be tried now. */
  dueCards(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]>;
  /** Takes the cards of one approval if nobody holds them and there is something to do. */
  leaseCards(session: SessionKey, approvalId: string): Promise<ApprovalLease | undefined>;
  /**
   * Writes down what the cards show, and ends the lease. `retryAtMs`: they are due again then; without
   * it they are done. If the state has changed since the lease they are due at once. False when the
   * lease is somebody else's by now.
   */
  saveCards(lease: ApprovalLease, retryAtMs?: number): Promise<boolean>;
}

/** Decisions that hold from now on. Writes are in the audit log. */
export interface PermissionRules {
  /** Rules of one chat that hold now, oldest first. */
  inForce(app: string, chatId: string): Promise<PermissionRule[]>;
  /** All rules of an app that hold now, oldest first. */
  list(app: string): Promise<PermissionRule[]>;
  /** Adds a rule; one whose id was ever added, even if it was revoked since, stays as it is. */
  add(rule: PermissionRule): Promise<void>;
  /** Undefined when there is no such rule in force; otherwise the rule as it was. */
  revoke(app: string, ruleId: string, by: Sender): Promise<PermissionRule | undefined>;
  /** All that are stored, those that are over too, which a person has left or which are about them. */
  ofPerson(app: string, person: string): Promise<PermissionRule[]>;
  /** Forgets a rule that is over: nothing is stored of it any more. One that holds has to be revoked before. */
  forget(rule: Pick<PermissionRule, "app" | "id" | "chatId">): Promise<void>;
  /** Counts an approval of one kind (chat, tool, pattern, person), each approval once; returns how many there are now. */
  approvedAgain(app: string, kind: string, approvalId: string): Promise<number>;
}

/** The append-only record of what was done for whom. */
export interface AuditLog {
  append(record: Omit<AuditRecord, "atMs">): Promise<void>;
  /** Records from `fromMs` to before `toMs`, by time. */
  export(fromMs: number, toMs: number): AsyncIterable<AuditRecord>;
}
