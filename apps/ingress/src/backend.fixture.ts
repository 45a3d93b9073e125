import type { SessionKey } from "@larkline/protocol";
import type {
  ConsentCallbacks,
  GrantBook,
  GrantEnds,
  GrantStore,
  ApprovalStore,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  MemoryStore,
  ScheduleStore,
  SubscriptionStore,
  PermissionRules,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import type {
  AgentVersions,
  EventWatchReports,
  InstanceDirectory,
  RatingStore,
} from "@larkline/store/operations";
import type { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import type { Stores } from "./services.ts";

// For tests: stores that can be broken.

/** What replicas share, in Redis. */
export interface TestMemory {
  store: SessionStore;
  sessions: SessionRetention;
  log: EventLog;
  cards: CardLedger;
  lookups: LookupCache;
  grants: GrantBook;
  /** The store of grants, as workers have it. */
  grantStore: GrantStore;
  grantEnds: GrantEnds;
  consentCallbacks: ConsentCallbacks;
  approvals: ApprovalStore;
  rules: PermissionRules;
  schedules: ScheduleStore;
  subscriptions: SubscriptionStore;
  memories: MemoryStore;
  ratings: RatingStore;
  budgets: BudgetStore;
  agentVersions: AgentVersions;
  letters: DeadLetters;
  instances: InstanceDirectory;
  watches: EventWatchReports;
  tokenCache: TokenCache;
  governor: RateGovernor;
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

/** The same with some methods replaced. */
export function replacing<T extends object>(whole: T, replaced: Partial<T>): T {
  return new Proxy(whole, {
    get(target, name) {
      const own: unknown = Reflect.get(replaced, name);
      const value: unknown = own ?? Reflect.get(target, name);
      return typeof value === "function"
        ? value.bind(own === undefined ? target : replaced)
        : value;
    },
  });
}

function faultyStore(store: SessionStore, trouble: Trouble): SessionStore {
  return replacing(store, {
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
  });
}

function faultyApprovals(approvals: ApprovalStore, trouble: Trouble): ApprovalStore {
  const step = async <T>(
    name: NonNullable<ApprovalTrouble["hangs"]>,
    work: () => Promise<T>,
  ): Promise<T> => {
    failWhen(trouble.fails === name);
    if (trouble.hangs === name) await new Promise(() => {});
    return await work();
  };
  return replacing(approvals, {
    find: async (app, id) => await step("find", async () => await approvals.find(app, id)),
    decide: async (...given) => await step("decide", async () => await approvals.decide(...given)),
    pending: async (session) => await step("find", async () => await approvals.pending(session)),
  });
}

/** Called with what is sent to workers. */
export interface TestListener {
  wake(session: SessionKey, gen: number): void;
  cancel(cancel: { session: SessionKey; turnId?: string }): void;
}

export function createTestStores(
  shared: TestMemory,
  trouble: Trouble,
  listener: TestListener,
): Stores {
  const { log: eventLog, letters: deadLetters, watches: eventWatches, ...rest } = shared;
  return {
    ...rest,
    store: faultyStore(shared.store, trouble),
    approvals: faultyApprovals(shared.approvals, trouble),
    eventLog,
    deadLetters,
    eventWatches,
    turns: {
      wake: async (session, gen) => {
        failWhen(trouble.wake);
        if (trouble.hangs === "wake") await new Promise(() => {});
        listener.wake(session, gen);
      },
    },
    cancels: { publish: async (cancel) => listener.cancel(cancel) },
    redis: {
      isReady: () => !trouble.notReady && !trouble.starting,
      wasReady: () => !trouble.starting,
      refused: (error) => error instanceof Refusal,
      ping: async () => !trouble.notReady,
      takesWrites: async () => true,
      serverClock: { problem: undefined },
      takeDuty: async () => true,
    },
  };
}
