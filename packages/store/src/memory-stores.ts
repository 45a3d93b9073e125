import type { ApprovalStore, AuditLog, PermissionRules } from "./approval-store.ts";
import type { CardLedger } from "./card-ledger.ts";
import type { DeadLetters } from "./dead-letters.ts";
import { MemoryAuditLog } from "./memory-audit-log.ts";
import { MemoryEventLog } from "./memory-event-log.ts";
import { MemoryPermissionRules } from "./memory-permission-rules.ts";
import { MemorySessionStore, type MemorySessionStoreOptions } from "./memory-session-store.ts";
import type { AuditRetention, PersonalData, SessionRetention } from "./retention.ts";
import type { SessionIndex } from "./session-index.ts";
import type { EventLog, SessionStore } from "./session-store.ts";

/**
 * Sessions in the memory of this process: for tests and for trying things out, everything is
 * lost when the process ends. Atomic because no method awaits in the middle; what goes in and
 * comes out is a copy.
 */
export function createMemorySessionStore(options: MemorySessionStoreOptions = {}): {
  store: SessionStore;
  events: EventLog;
  cards: CardLedger;
  approvals: ApprovalStore;
  rules: PermissionRules;
  audit: AuditLog;
  letters: DeadLetters;
  index: SessionIndex;
  retention: SessionRetention & PersonalData;
  auditRetention: AuditRetention;
} {
  const now = options.now ?? Date.now;
  const events = new MemoryEventLog();
  const audit = new MemoryAuditLog(now);
  const store = new MemorySessionStore(events, audit, options);
  const rules = new MemoryPermissionRules(now, audit);
  const { cards, approvals, letters, index, retention } = store;
  return { store, events, cards, approvals, rules, audit, letters, index, retention, auditRetention: audit };
}
