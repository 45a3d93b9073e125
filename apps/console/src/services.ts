import { createBudgetBook, type BudgetBook } from "@larkline/agent/budgets";
import { appIdsOf, type LarklineConfig } from "@larkline/process/config";
import {
  createClockLog,
  createOutageLog,
  type Logger,
  type Metrics,
} from "@larkline/process/telemetry";
import { apiApp } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import { createQueueCatalog, type QueueCatalog } from "@larkline/store/queues";
import {
  ApprovalStore,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  GrantBook,
  MemoryStore,
  PermissionRules,
  ScheduleStore,
  SessionStore,
} from "@larkline/store";
import { closeRedis, connectRedis, ServerClock, takesWrites } from "@larkline/store/redis";
import { rightsProblem } from "@larkline/store/rights";
import {
  AddedProviders,
  AgentVersions,
  EventWatchReports,
  InstanceDirectory,
  OperatorOrders,
  Presence,
  readServerStates,
  NameBook,
  RatingStore,
  Pauses,
  RunLog,
  type ServerState,
  SessionIndex,
  TraceLog,
  UsageStore,
} from "@larkline/store/operations";
import { RunnerDirectory } from "@larkline/store/runners";
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import type { ConsoleConfig } from "./config.ts";
import { createCounters, type ConsoleCounters } from "./metrics.ts";
import { QueueList } from "./queue-list.ts";
import { SignIns } from "./sign-ins.ts";

/** What everything in this process shares. Made once, in `startConsole`, and passed whole. */
export interface Services extends Stores {
  config: ConsoleConfig;
  settings: LarklineConfig;
  clock: Clock;
  random: Random;
  log: Logger;
  /** All metrics of the process; those of the console itself are `counters`. */
  metrics: Metrics;
  counters: ConsoleCounters;
  /** The bots' app ids. */
  bots: readonly string[];
  /** Everything that sessions and rules belong to: the bots, and the HTTP API. */
  apps: readonly string[];
  /** Who may spend what. */
  budgetBook: BudgetBook;
  queues: QueueList;
  /** Absent without passwords: everybody on this machine is an operator. */
  signIns: SignIns | undefined;
}

/** Everything that the console looks at and acts upon, in Redis. It holds nothing itself. */
export interface Stores {
  /** What was done for each message. */
  traces: TraceLog;
  /** How runs have ended. */
  runs: RunLog;
  /** What they have used, by time. */
  usage: UsageStore;
  /** What people and chats are called. */
  names: NameBook;
  ratings: RatingStore;
  eventLog: EventLog;
  store: SessionStore;
  /** The way to have something done: workers look at orders, do them and keep a record. */
  orders: OperatorOrders;
  /** Agents and tools that operators have paused; only workers write it. */
  pauses: Pick<Pauses, "list">;
  /** What operators have changed of agents; only workers write it. */
  agentVersions: Pick<AgentVersions, "list">;
  /** Servers of models that operators have added, without their keys; only workers write them. */
  addedProviders: Pick<AddedProviders, "list">;
  index: SessionIndex;
  /** What was given up. */
  letters: DeadLetters;
  instances: InstanceDirectory;
  /** Looks for events that never came. */
  watches: EventWatchReports;
  tokens: TokenCache;
  approvals: ApprovalStore;
  /** What is known of the cards of replies that are not sent yet. */
  cards: Pick<CardLedger, "load">;
  rules: PermissionRules;
  schedules: ScheduleStore;
  /** What people let bots do as them, without tokens. */
  grants: GrantBook;
  /** Counted, and not read. */
  memories: Pick<MemoryStore, "count">;
  budgets: BudgetStore;
  directory: RunnerDirectory;
  presence: Presence;
  /** How the servers of Redis are. */
  servers: () => Promise<ServerState[]>;
  lookups: LookupCache;
  governor: RateGovernor;
  catalog: QueueCatalog;
  ping(): Promise<boolean>;
  /** Whether it takes what is written: it is not full, not read-only, and can write its disk. */
  takesWrites(): Promise<boolean | string>;
  /** What Redis does not let the console do, in one sentence. */
  rightsProblem(): Promise<string | undefined>;
  /** It knows which clocks differ. */
  serverClock: ServerClock;
  close(): Promise<void>;
}

/** What a console is made from. */
export interface ServiceOptions {
  config: ConsoleConfig;
  settings: LarklineConfig;
  metrics: Metrics;
  log: Logger;
  clock: Clock;
  random: Random;
}

const dayMs = 86_400_000;

/** Makes everything that the process shares. Resolves at once: until Redis answers the console is not ready. */
export function openServices(options: ServiceOptions): Services {
  const { config, settings, metrics, log, clock, random } = options;
  const stores = openStores(options);
  const bots = appIdsOf(settings, config.appId);
  return {
    ...stores,
    config,
    settings,
    clock,
    random,
    log,
    metrics,
    counters: createCounters(metrics),
    bots,
    apps: [...bots, apiApp],
    budgetBook: createBudgetBook(settings.budgets),
    queues: new QueueList(stores, log, clock),
    signIns: config.passwords && new SignIns(config.passwords, stores, clock),
  };
}

/** Opens the one connection of the process. */
function openStores({ config, settings, log: logger, clock, random }: ServiceOptions): Stores {
  const { redisUrl, namespace } = config;
  const { failed: onError, back } = createOutageLog(logger, "Redis");
  const redis = connectRedis(redisUrl, { onError, clock });
  const on = { redis, namespace, clock, random };
  redis.on("ready", back);
  const serverClock = new ServerClock(redis, createClockLog(logger), clock);
  const eventLog = new EventLog(on);
  const catalog = createQueueCatalog({
    connection: redis,
    prefix: `{${namespace}}`,
    onError,
    clock,
  });
  return {
    traces: new TraceLog({ ...on, ttlMs: settings.retention.traceDays * dayMs }),
    usage: new UsageStore({ ...on, timeZone: settings.budgets.timeZone }),
    names: new NameBook(on),
    ratings: new RatingStore(on),
    runs: new RunLog({ ...on, ttlMs: settings.retention.traceDays * dayMs }),
    eventLog,
    store: new SessionStore(on),
    orders: new OperatorOrders(on),
    pauses: new Pauses(on),
    agentVersions: new AgentVersions(on),
    addedProviders: new AddedProviders(on),
    index: new SessionIndex(on),
    letters: new DeadLetters(on),
    instances: new InstanceDirectory(on),
    watches: new EventWatchReports(on),
    tokens: new TokenCache(on),
    approvals: new ApprovalStore(on),
    cards: new CardLedger(on),
    rules: new PermissionRules(on),
    schedules: new ScheduleStore(on),
    grants: new GrantBook(on),
    memories: new MemoryStore(on),
    budgets: new BudgetStore(on),
    directory: new RunnerDirectory(on),
    presence: new Presence(on),
    servers: async () => await readServerStates(redis),
    lookups: new LookupCache({ ...on, owner: "console" }),
    governor: new RateGovernor(on),
    catalog,
    ping: async () => (await redis.ping()) === "PONG",
    takesWrites: async () => await takesWrites(redis),
    rightsProblem: async () => await rightsProblem(redis, "console", { namespace }),
    serverClock,
    async close() {
      serverClock.close();
      eventLog.close();
      await catalog.close();
      await closeRedis(redis, clock);
    },
  };
}
