import type { ApprovalStore } from "./approval-store.ts";
import type { AuditLog } from "./audit-log.ts";
import type { CardLedger } from "./outbox.ts";
import type { DeadLetters } from "./dead-letters.ts";
import type { EventLog } from "./event-log.ts";
import type { PermissionRules } from "./permission-rules.ts";
import type { SessionRetention } from "./retention.ts";
import type { SessionIndex } from "./session-index.ts";
import type { SessionStore } from "./session-store.ts";

/** An adapter under test with storage of its own, as the contract suites see it. */
export interface SessionStoreHarness {
  store: SessionStore;
  events: EventLog;
  /** The ledger that obeys the store's fences. */
  cards: CardLedger;
  approvals: ApprovalStore;
  rules: PermissionRules;
  /** The same approvals and rules as another process sees them. */
  elsewhere: { approvals: ApprovalStore; rules: PermissionRules };
  /** Holds what all of the above has written. */
  audit: AuditLog;
  letters: DeadLetters;
  /** Finds the sessions of the store. */
  index: SessionIndex;
  /** Looks after the sessions of the store. */
  retention: SessionRetention;
  auditRetention: AuditLog;
  /** How long the right to send from an outbox lasts. */
  leaseMs: number;
  /** How long the right to update the cards of an approval lasts. */
  cardsLeaseMs: number;
  /** How long message ids are remembered and parked messages are kept. */
  dedupTtlMs: number;
  /** The store's clock, epoch ms. */
  now(): number;
  /** Returns when the store's clock has moved on by at least `ms`: at once with a clock of its own, else by waiting. */
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

export interface SessionStoreDemands {
  /** How many messages may wait in a session; 1,000 if absent. */
  maxWaiting?: number;
  /** How many approvals of a session are kept; 200 if absent. */
  maxApprovals?: number;
}

/** Makes an adapter with storage of its own. */
export type MakeSessionStore = (demands: SessionStoreDemands) => Promise<SessionStoreHarness>;
