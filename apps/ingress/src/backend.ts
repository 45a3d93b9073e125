import type {
  ApprovalStore,
  BudgetStore,
  CardLedger,
  EventLog,
  LookupCache,
  PermissionRules,
  SessionStore,
} from "@larkline/session";
import type { CancelPublisher, TurnWaker } from "./inbox.ts";

/** Where messages go to and events come from. */
export interface Backend {
  store: Pick<
    SessionStore,
    | "append"
    | "cancel"
    | "summary"
    | "seqOf"
    | "waiting"
    | "pushOutbox"
    | "parked"
    | "release"
    | "leaseOutbox"
    | "ackOutbox"
    | "retryOutbox"
  >;
  approvals: Pick<ApprovalStore, "find" | "decide" | "settle" | "pending">;
  rules: Pick<PermissionRules, "inForce" | "add" | "revoke">;
  budgets: Pick<BudgetStore, "spent">;
  log: EventLog;
  turns: TurnWaker;
  cancels: CancelPublisher;
  lookups: LookupCache;
  /** The cards of replies that an outbox delivery started here may have to finish. */
  ledger: CardLedger;
  /** Whether the backend can be reached, as far as is known without asking. */
  isReady(): boolean;
  /** Asks it. */
  ping(): Promise<boolean>;
}
