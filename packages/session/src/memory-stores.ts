import type { ApprovalStore, AuditLog, PermissionRules } from "./approval-store.ts";
import type { CardLedger } from "./card-ledger.ts";
import { MemoryAuditLog } from "./memory-audit-log.ts";
import { MemoryEventLog } from "./memory-event-log.ts";
import { MemoryPermissionRules } from "./memory-permission-rules.ts";
import { MemorySessionStore, type MemorySessionStoreOptions } from "./memory-session-store.ts";
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
} {
  const now = options.now ?? Date.now;
  const events = new MemoryEventLog();
  const audit = new MemoryAuditLog(now);
  const store = new MemorySessionStore(events, audit, options);
  const rules = new MemoryPermissionRules(now, audit);
  return { store, events, cards: store.cards, approvals: store.approvals, rules, audit };
}
