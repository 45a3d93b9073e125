import type {
  ApprovalStore,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  EventWatchReports,
  InstanceDirectory,
  LookupCache,
  PermissionRules,
  SessionStore,
} from "@larkline/store";
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
    | "seen"
  >;
  /** Keeps what is given up. */
  letters: Pick<DeadLetters, "bury">;
  /** Tells others about this process. */
  instances: Pick<InstanceDirectory, "announce" | "withdraw">;
  /** Looks for events that never came. */
  watches: EventWatchReports;
  /** Takes a duty for so long; false when another process has it. */
  takeDuty(duty: string, ttlMs: number): Promise<boolean>;
  approvals: Pick<ApprovalStore, "find" | "decide" | "settle" | "pending">;
  rules: Pick<PermissionRules, "inForce" | "revoke">;
  budgets: Pick<BudgetStore, "spent">;
  log: EventLog;
  turns: TurnWaker;
  cancels: CancelPublisher;
  lookups: LookupCache;
  /** The cards of replies that an outbox delivery started here may have to finish. */
  ledger: CardLedger;
  /** Whether the backend can be reached, as far as is known without asking. */
  isReady(): boolean;
  /** Whether it has ever been reached: until then the process starts. */
  wasReady(): boolean;
  /** Whether this error is its own answer to a write, which then was not done. */
  refused(error: unknown): boolean;
  /** Asks it. */
  ping(): Promise<boolean>;
  /** Whether it takes what is written: it is not full, not read-only, and can write its disk. */
  takesWrites(): Promise<boolean>;
  /** Which clocks differ, in English. */
  clockProblem(): string | undefined;
}
