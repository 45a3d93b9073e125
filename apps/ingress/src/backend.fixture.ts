import type { SessionKey } from "@larkline/protocol";
import {
  createMemoryBudgetStore,
  createMemoryEventWatchReports,
  createMemoryInstanceDirectory,
  createMemoryLookupCache,
  createMemorySessionStore,
  type ApprovalStore,
  type BudgetStore,
  type CardLedger,
  type DeadLetters,
  type EventLog,
  type EventWatchReports,
  type InstanceDirectory,
  type LookupCache,
  type MemorySessionStoreOptions,
  type PermissionRules,
  type SessionStore,
} from "@larkline/store";
import type { Backend } from "./backend.ts";

// For tests: a backend in memory whose parts can be broken.

/** What stands in for Redis. */
export interface TestMemory {
  store: SessionStore;
  log: EventLog;
  cards: CardLedger;
  lookups: LookupCache;
  approvals: ApprovalStore;
  rules: PermissionRules;
  budgets: BudgetStore;
  letters: DeadLetters;
  instances: InstanceDirectory;
  watches: EventWatchReports;
}

export function createTestMemory(options?: MemorySessionStoreOptions): TestMemory {
  const { events: log, audit: _audit, ...rest } = createMemorySessionStore(options);
  return {
    ...rest,
    log,
    lookups: createMemoryLookupCache(),
    budgets: createMemoryBudgetStore(),
    instances: createMemoryInstanceDirectory(),
    watches: createMemoryEventWatchReports(),
  };
}

/** Steps of the way of a decision that never end, or fail. */
interface ApprovalTrouble {
  hangs?: "find" | "decide" | "wake";
  fails?: "decide";
}

/** What is broken at this moment. */
export type Trouble = {
  /** It has not been reached yet. */
  starting: boolean;
  notReady: boolean;
  /** It says no. */
  refuse: boolean;
  /** Stores what it is given, but its answer does not arrive. */
  silent: boolean;
  append: boolean;
  hang: boolean;
  wake: boolean;
  cancel: boolean;
} & ApprovalTrouble;

class Refusal extends Error {}

function failWhen(broken: boolean): void {
  if (broken) throw new Error("broken on purpose");
}

function faultyStore(store: SessionStore, trouble: Trouble): Backend["store"] {
  return {
    append: async (message, how) => {
      failWhen(trouble.append);
      if (trouble.refuse) throw new Refusal();
      if (trouble.hang) await new Promise(() => {});
      const appended = await store.append(message, how);
      failWhen(trouble.silent);
      return appended;
    },
    cancel: async (session, cancel) => {
      failWhen(trouble.cancel);
      return await store.cancel(session, cancel);
    },
    summary: async (session) => await store.summary(session),
    waiting: async (session, limit) => await store.waiting(session, limit),
    seqOf: async (session, app, messageId) => await store.seqOf(session, app, messageId),
    pushOutbox: async (record, dedupId, parked) => await store.pushOutbox(record, dedupId, parked),
    parked: async (session, messageId) => await store.parked(session, messageId),
    release: async (session, messageId, action) => await store.release(session, messageId, action),
    leaseOutbox: async (session) => await store.leaseOutbox(session),
    ackOutbox: async (session, token) => await store.ackOutbox(session, token),
    retryOutbox: async (lease, retryAtMs) => await store.retryOutbox(lease, retryAtMs),
    seen: async (session, app, messageId) => await store.seen(session, app, messageId),
  };
}

function faultyApprovals({ approvals, rules }: TestMemory, trouble: Trouble): Pick<Backend, "approvals" | "rules"> {
  const step = async <T>(name: NonNullable<ApprovalTrouble["hangs"]>, work: () => Promise<T>): Promise<T> => {
    failWhen(trouble.fails === name);
    if (trouble.hangs === name) await new Promise(() => {});
    return await work();
  };
  return {
    approvals: {
      find: async (app, id) => await step("find", async () => await approvals.find(app, id)),
      decide: async (...given) => await step("decide", async () => await approvals.decide(...given)),
      settle: async (...given) => await approvals.settle(...given),
      pending: async (session) => await step("find", async () => await approvals.pending(session)),
    },
    rules: {
      inForce: async (app, chatId) => await rules.inForce(app, chatId),
      revoke: async (...given) => await rules.revoke(...given),
    },
  };
}

/** Told of what is sent to workers. */
export interface TestListener {
  wake(session: SessionKey, gen: number): void;
  cancel(cancel: { session: SessionKey; turnId?: string }): void;
}

export function createTestBackend(shared: TestMemory, trouble: Trouble, listener: TestListener): Backend {
  return {
    store: faultyStore(shared.store, trouble),
    ...faultyApprovals(shared, trouble),
    lookups: shared.lookups,
    budgets: shared.budgets,
    ledger: shared.cards,
    letters: shared.letters,
    instances: shared.instances,
    watches: shared.watches,
    takeDuty: async () => true,
    log: shared.log,
    turns: {
      wake: async (session, gen) => {
        failWhen(trouble.wake);
        if (trouble.hangs === "wake") await new Promise(() => {});
        listener.wake(session, gen);
      },
    },
    cancels: { publish: async (cancel) => listener.cancel(cancel) },
    isReady: () => !trouble.notReady && !trouble.starting,
    wasReady: () => !trouble.starting,
    refused: (error) => error instanceof Refusal,
    ping: async () => !trouble.notReady,
    takesWrites: async () => true,
    clockProblem: () => undefined,
  };
}
