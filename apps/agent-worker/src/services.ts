import { createTextExtractor, type TextExtractor } from "./attachments/text-extractor.ts";
import type { BudgetBook } from "@larkline/agent/budgets";
import {
  ApprovalCards,
  CardHandover,
  FeishuApi,
  GrantsApi,
  GroupLookup,
  LiveReplies,
  OutboxSender,
  StatusReactions,
  createImageResolver,
} from "@larkline/feishu";
import { StartError } from "@larkline/process/app";
import {
  botOfApp,
  groupsAtBot,
  type BotAccess,
  type BotConfig,
  type LarklineConfig,
  type Transcription,
} from "@larkline/process/config";
import { createClockLog, watchPlatform, type Logger, type Metrics, type Telemetry } from "@larkline/process/telemetry";
import { stateKeyOf, type Clock, type Random, type SessionKey } from "@larkline/protocol";
import {
  cancelChannelOf,
  createCancelBus,
  ToolQueues,
  TurnQueue,
  type Cancellation,
  type CancelBus,
  type QueueOptions,
} from "@larkline/store/queues";
import {
  ApprovalStore,
  type Archive,
  AuditLog,
  type BlobStore,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  GrantEnds,
  GrantStore,
  MemoryStore,
  ScheduleStore,
  SessionFiles,
  PermissionRules,
  RedisBlobStore,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  isAnswered,
  type RedisConnection,
  OwnPresence,
  ServerClock,
  takesWrites,
  workersGroup,
} from "@larkline/store/redis";
import { rightsProblem } from "@larkline/store/rights";
import {
  AgentVersions,
  InstanceDirectory,
  NameBook,
  RatingStore,
  OperatorOrders,
  Pauses,
  RunLog,
  StateMigration,
  UsageStore,
} from "@larkline/store/operations";
import { SchemaChecks } from "@larkline/process/schemas";
import { StallNotes } from "@larkline/store/stall-notes";
import { HandoffImport, RunnerDirectory } from "@larkline/store/runners";
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { LRUCache } from "lru-cache";
import { HelperReadiness } from "./helpers.ts";
import { asInFile, type ChangedAgents } from "./agent-versions.ts";
import type { Agent, AgentModels } from "./agents.ts";
import { keepRule } from "./call-policy.ts";
import { TokenBroker } from "./call-identities.ts";
import type { WorkerConfig } from "./config.ts";
import { PersonTokens } from "./person-tokens.ts";
import { MessagePreparer } from "./prepare.ts";
import { remoteImages } from "./remote-images.ts";
import { RunRecords } from "./run-records.ts";
import { watchSchedules } from "./schedules.ts";
import { RunningTurns } from "./session-runner.ts";
import { RunnerKeys, ToolCatalog, TurnHolds, wakeAfter } from "./tools.ts";

/** For how many sessions, and for how long, a worker remembers that it has gone without their files, ms. */
const filesGivenUp = { max: 10_000, ttl: 86_400_000 };

/** Everything that the parts of this process share. Made once, in `startWorkerApp`, and passed whole. */
export interface Services extends Stores, Queues {
  config: WorkerConfig;
  settings: LarklineConfig;
  /** Name of this worker: in its heartbeat, in claims, and in the jobs of the calls that it hands out. */
  owner: string;
  clock: Clock;
  random: Random;
  log: Logger;
  counters: WorkerCounters;
  telemetry: Telemetry;
  /** By app id. */
  bots: ReadonlyMap<string, Bot>;
  /** By name. */
  agents: ReadonlyMap<string, Agent>;
  budgetBook: BudgetBook;
  /** Of the agents and budgets: how often operators had changed agents by then. 0: they are those of the file. */
  revision: number;
  changedAgents: ChangedAgents;
  helperReadiness: HelperReadiness;
  toolCatalog: ToolCatalog;
  /** The turns that run in this process. */
  runningTurns: RunningTurns;
  /** Those of them that keep their slots while their calls run. */
  turnHolds: TurnHolds;
  /** Attempts of built-in tools that run now, until their answers are stored. */
  builtInsAtWork: Map<string, Promise<void>>;
  /** Sessions whose stored files this worker has waited for in vain, until it can read them. */
  filesGivenUp: LRUCache<SessionKey, true>;
  /** That of this worker, with the locks of its jobs; and what has become of other processes. */
  presence: OwnPresence;
  runnerKeys: RunnerKeys;
  /** Tokens of people; absent where there are no `grants`. */
  personTokens: PersonTokens | undefined;
  /** Moves entries that runners have handed in to their sessions. */
  handoffs: HandoffImport;
  extractor: TextExtractor;
  preparer: MessagePreparer;
  /** Checks values by schemas that others wrote, in a thread. */
  schemas: SchemaChecks;
  /** The cards of replies while their turns run. */
  liveReplies: LiveReplies;
  /** Sends what is in outboxes. */
  outboxSender: OutboxSender;
  approvalCards: ApprovalCards;
  /** Writes down how runs have ended. */
  runs: RunRecords;
}

/** Everything durable. It is in Redis, but for blobs and the archive where those are configured. */
export interface Stores {
  store: SessionStore;
  eventLog: EventLog;
  approvals: ApprovalStore;
  rules: PermissionRules;
  /** What people and chats want remembered. */
  memories: MemoryStore;
  /** What agents do for people at a time. */
  schedules: ScheduleStore;
  /** Working folders of sessions. */
  files: SessionFiles;
  budgets: BudgetStore;
  cards: CardLedger;
  deadLetters: DeadLetters;
  blobs: BlobStore;
  lookups: LookupCache;
  auditLog: AuditLog;
  /** What people let bots do as them. Absent: there is no `GRANT_KEY`. */
  grants: GrantStore | undefined;
  /** Of these, the ends that ingress has read in events of the platform. */
  grantEnds: GrantEnds;
  /** Bounds, archives and expires what sessions have stored. */
  retention: SessionRetention;
  /** Absent: nothing is archived. */
  archive: Archive | undefined;
  /** What operators want done. */
  orders: OperatorOrders;
  /** Agents and tools that operators have paused. */
  pauses: Pauses;
  /** What operators have changed of agents. */
  agentVersions: AgentVersions;
  /** The runners that live, and their tools. */
  runners: RunnerDirectory;
  /** Heartbeats of the workers, and who has which duty. */
  /** Why workers have died. */
  stallNotes: StallNotes;
  /** Announces this process to the others. */
  instances: InstanceDirectory;
  /** Takes over what the version before has stored. */
  migration: StateMigration;
  tokenCache: TokenCache;
  governor: RateGovernor;
  /** Records of ended runs, for the console. */
  runLog: RunLog;
  /** What they have used, by time. */
  usage: UsageStore;
  /** What people and chats are called. */
  names: NameBook;
  ratings: RatingStore;
}

/** The queues, and the channels between processes. */
export interface Queues {
  turns: TurnQueue;
  tools: ToolQueues;
  /** Asks every worker to stop a turn. */
  cancels: CancelBus;
  /** Asks a runner to stop its calls of a turn. Best effort: without it a call ends at its deadline. */
  runnerCancels: { publish(runner: string, cancel: Cancellation): Promise<void> };
}

/** One bot: how this process reaches the platform on its behalf. */
export class Bot {
  readonly app: string;
  readonly settings: BotConfig;
  readonly api: FeishuApi;
  /** Consent of people, and their tokens. */
  readonly grantsApi: GrantsApi | undefined;
  readonly log: Logger;
  readonly reactions: StatusReactions;
  readonly #groups: GroupLookup;

  constructor(
    settings: LarklineConfig,
    api: FeishuApi,
    { lookups, clock, grantsApi }: { lookups: LookupCache; clock: Clock; grantsApi?: GrantsApi },
    log: Logger,
  ) {
    this.app = api.appId;
    this.grantsApi = grantsApi;
    this.settings = botOfApp(settings, api.appId);
    this.api = api;
    this.log = log.child({ bot: this.settings.name });
    this.reactions = new StatusReactions({ api, lookups, logger: log });
    this.#groups = new GroupLookup({ api, lookups, clock });
  }

  /** The person's user groups on the bot's own platform. Rejects when they cannot be found out. */
  async groupsOf(openId: string): Promise<readonly string[]> {
    return groupsAtBot(this.settings, await this.#groups.groupsOf(openId));
  }
}

/** What `startWorkerApp` has made before. */
export interface ServiceParts {
  config: WorkerConfig;
  settings: LarklineConfig;
  owner: string;
  models: AgentModels;
  /** Absent: voice messages that the platform has not written down are not read. */
  transcription?: Transcription | undefined;
  log: Logger;
  counters: WorkerCounters;
  telemetry: Telemetry;
  clock: Clock;
  random: Random;
}

/** The connections of the process, and what only starting and closing it needs. */
export interface Connections {
  services: Services;
  /** For the queue worker, which waits for jobs on this connection. */
  queue: QueueOptions;
  /** It knows which clocks differ. */
  serverClock: ServerClock;
  /** Whether Redis answers, and takes what is written. */
  checkRedis(): Promise<{ redis: boolean; writes: boolean | string }>;
  /** Whether the connection that waits for jobs is answered. */
  isQueueAnswering(): boolean;
  /** Idempotent. */
  close(): Promise<void>;
}

/** Opens all connections. Rejects when Redis does not answer. */
export async function connect(parts: ServiceParts, accesses: readonly BotAccess[]): Promise<Connections> {
  const { config, settings, owner, log, telemetry, clock, random } = parts;
  const onError = (error: unknown): void => log.warn({ error }, "Redis connection");
  const redis = connectRedis(config.redisUrl, { onError, clock });
  const queueRedis = connectRedis(config.redisUrl, { role: "worker", onError, clock });
  const serverClock = new ServerClock(redis, createClockLog(log), clock);
  const stores = openStores(parts, redis);
  const queue: QueueOptions = { connection: queueRedis, prefix: `{${config.namespace}}`, onError, clock };
  const queues = openQueues(config, redis, queue);
  const { governor, tokenCache, lookups } = stores;
  const { calls } = watchPlatform(telemetry, clock);
  const watch: typeof calls = {
    ...calls,
    waited: (call, ms, left) => {
      calls.waited(call, ms, left);
      services.runs.waited(ms);
    },
  };
  const bots = accesses.map(({ appId, appSecret, domain }) => {
    const { monthlyCalls, rateLimits } = botOfApp(settings, appId).feishu;
    const limiter = rateLimits ? { governor } : {};
    const shared = { ...limiter, tokenCache, monthlyCalls, watch, logger: log, clock, random };
    const api = new FeishuApi({ appId, appSecret, domain, ...shared });
    const grantsApi = new GrantsApi({ appId, appSecret, domain, clock });
    return new Bot(settings, api, { lookups, clock, grantsApi }, log);
  });
  await serverClock.followed;
  const { redisUrl, namespace } = config;
  const problem = await rightsProblem(redis, "agent-worker", { namespace });
  if (problem !== undefined) {
    serverClock.close();
    await Promise.all([queues.turns.close(), queues.tools.close(), closeRedis(redis), closeRedis(queueRedis)]);
    throw new StartError(problem);
  }
  const presence = await OwnPresence.start({ redisUrl, namespace, id: owner, group: workersGroup, onError, clock });
  const extractor = createTextExtractor({
    maxBytes: settings.limits.attachmentBytes,
    cpuMs: settings.limits.attachmentCpuMs,
    deadlineMs: Math.max(20_000, 4 * settings.limits.attachmentCpuMs),
    clock,
  });
  const services = createServices({ ...parts, stores, queues, redis, bots, presence, extractor });
  const close = async (): Promise<void> => {
    serverClock.close();
    services.liveReplies.close();
    await Promise.all([services.outboxSender.close(), services.approvalCards.close(), services.runs.close()]);
    await Promise.all([extractor.close(), services.schemas.close(), presence.close()]);
    for (const { api } of bots) api.close();
    await Promise.all([queues.turns.close(), queues.tools.close(), stores.archive?.close()]);
    await Promise.all([closeRedis(redis, clock), closeRedis(queueRedis, clock)]);
  };
  let closed: Promise<void> | undefined;
  return {
    services,
    queue,
    serverClock,
    checkRedis: async () => ({ redis: (await redis.ping()) === "PONG", writes: await takesWrites(redis, queueRedis) }),
    isQueueAnswering: () => isAnswered(queueRedis),
    close: async () => await (closed ??= close()),
  };
}

export function openStores(
  { config, settings, clock, random }: Pick<ServiceParts, "config" | "settings" | "clock" | "random">,
  redis: RedisConnection,
): Stores {
  const { namespace, blobDirectory: directory, archiveUrl: url } = config;
  const on = { redis, namespace, clock, random };
  const stateKey = stateKeyOf(config.callSigningKey);
  const ttlMs = settings.retention.blobDays * 86_400_000;
  return {
    store: new SessionStore({ ...on, stateKey }),
    eventLog: new EventLog(on),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    schedules: new ScheduleStore(on),
    memories: new MemoryStore({ ...on, ttlMs: settings.retention.memoryDays * 86_400_000 }),
    files: new SessionFiles(on),
    budgets: new BudgetStore(on),
    cards: new CardLedger(on),
    deadLetters: new DeadLetters(on),
    blobs:
      directory === undefined
        ? new RedisBlobStore({ ...on, ttlMs })
        : createFileBlobStore({ directory, ttlMs, random }),
    lookups: new LookupCache({ ...on, owner: "worker" }),
    auditLog: new AuditLog(on),
    grantEnds: new GrantEnds(on),
    grants: config.grantKeys === undefined ? undefined : new GrantStore({ ...on, grantKeys: config.grantKeys }),
    retention: new SessionRetention(on),
    archive: url === undefined ? undefined : createPostgresArchive({ url, schema: namespace, clock }),
    orders: new OperatorOrders(on),
    pauses: new Pauses(on),
    agentVersions: new AgentVersions({ ...on, stateKey }),
    runners: new RunnerDirectory({
      ...on,
      runnerKeys: new RunnerKeys(config.callSigningKey),
      owners: settings.toolOwners,
    }),
    stallNotes: new StallNotes(on),
    instances: new InstanceDirectory(on),
    migration: new StateMigration(on),
    tokenCache: new TokenCache(on),
    governor: new RateGovernor(on),
    runLog: new RunLog({ ...on, ttlMs: settings.retention.traceDays * 86_400_000 }),
    usage: new UsageStore({ ...on, timeZone: settings.budgets.timeZone }),
    names: new NameBook(on),
    ratings: new RatingStore(on),
  };
}

function openQueues({ namespace }: WorkerConfig, redis: RedisConnection, queue: QueueOptions): Queues {
  return {
    turns: new TurnQueue(queue),
    tools: new ToolQueues(queue),
    cancels: createCancelBus({ connection: redis, channel: cancelChannelOf(namespace) }),
    runnerCancels: {
      publish: async (runner, cancel) =>
        await createCancelBus({ connection: redis, channel: cancelChannelOf(namespace, runner) }).publish(cancel),
    },
  };
}

/** What {@link createServices} puts together. */
export interface OpenedParts extends ServiceParts {
  stores: Stores;
  queues: Queues;
  redis: RedisConnection;
  bots: readonly Bot[];
  presence: OwnPresence;
  extractor: TextExtractor;
}

export function createServices({ stores, queues, redis, models, extractor, ...parts }: OpenedParts): Services {
  const { config, settings, log, counters, clock, random } = parts;
  const bots = new Map(parts.bots.map((bot) => [bot.app, bot]));
  const apis = new Map(parts.bots.map(({ app, api }) => [app, api]));
  const { store, cards: ledger, deadLetters: letters, approvals } = stores;
  const imageOf = createImageResolver(stores.blobs, stores.lookups, { clock, remote: remoteImages() });
  const handover = new CardHandover();
  const { deliveries } = watchPlatform(parts.telemetry, clock);
  const runnerKeys = new RunnerKeys(config.callSigningKey);
  const { grants } = stores;
  const apiOf = (app: string): GrantsApi => {
    const api = bots.get(app)?.grantsApi;
    if (api === undefined) throw new Error(`there is no bot ${app}`); // calls of other bots are refused before
    return api;
  };
  const tokens =
    grants === undefined
      ? undefined
      : new PersonTokens({
          grants,
          apiOf,
          audit: async (record) => await stores.auditLog.append(record),
          clock,
          random,
        });
  const { timeZone } = settings.budgets;
  const runs = new RunRecords({ ...stores, apis, timeZone, clock, random, logger: log });
  const services: Services = {
    ...parts,
    ...stores,
    ...queues,
    bots,
    ...asInFile(settings, models),
    helperReadiness: new HelperReadiness(),
    toolCatalog: new ToolCatalog(stores.runners, clock, log, { mayActAsPeople: tokens !== undefined }),
    runningTurns: new RunningTurns(clock),
    builtInsAtWork: new Map(),
    filesGivenUp: new LRUCache(filesGivenUp),
    turnHolds: new TurnHolds({
      clock,
      holdMs: config.holdMs,
      slots: config.concurrency,
      onEnd: (end) => counters.turnHolds.add(1, { end }),
    }),
    runnerKeys,
    personTokens: tokens,
    handoffs: new HandoffImport({
      redis,
      namespace: config.namespace,
      worker: parts.owner,
      runnerKeys,
      store,
      identities: new TokenBroker({ bots, tokens }),
      random,
      lookups: stores.lookups,
      delivered: async (session, delivered) => await wakeAfter(services, session, delivered),
      onProgress: ({ turnId, callId, ...progress }) => services.liveReplies.progress(turnId, callId, progress),
      onRefused: (refused) => log.warn({ ...refused }, "what a runner has handed in is refused"),
      onError: (error) => log.warn({ error }, "what a runner has handed in waits"),
    }),
    schemas: new SchemaChecks({ clock, log }),
    extractor,
    preparer: new MessagePreparer(bots, { ...stores, clock }, settings.limits, {
      extractor,
      transcription: parts.transcription,
    }),
    liveReplies: new LiveReplies({
      apis,
      ledger,
      handover,
      imageOf,
      logger: log,
      clock,
      random,
      onFrame: (sinceStartMs, isFirst) => {
        counters.cardFrames.add(1);
        if (isFirst) counters.firstFrameSeconds.record(sinceStartMs / 1_000);
      },
    }),
    outboxSender: new OutboxSender({
      store,
      letters,
      ledger,
      handover,
      apis,
      imageOf,
      watch: watchSchedules(runs.watch(deliveries), () => services),
      logger: log,
      clock,
      random,
    }),
    runs,
    approvalCards: new ApprovalCards({
      apis,
      letters,
      approvals,
      keepRule: async (status) => await keepRule(services, status),
      roles: settings.permissions.roles,
      wake: async (session, gen) => await queues.turns.wake(session, gen),
      logger: log,
      clock,
      random,
    }),
  };
  return services;
}

/** What a worker counts. */
export function createCounters(metrics: Metrics) {
  return {
    turnRuns: metrics.createCounter("larkline_turn_runs_total"),
    turnRunSeconds: metrics.createHistogram("larkline_turn_run_seconds"),
    turnHolds: metrics.createCounter("larkline_turn_holds_total"),
    healed: metrics.createCounter("larkline_healed_total"),
    largeResults: metrics.createCounter("larkline_large_results_total"),
    cardFrames: metrics.createCounter("larkline_card_frames_total"),
    firstFrameSeconds: metrics.createHistogram("larkline_card_first_frame_seconds"),
    approvalsAsked: metrics.createCounter("larkline_approvals_asked_total"),
    approvalsSettled: metrics.createCounter("larkline_approvals_settled_total"),
    approvalWaitSeconds: metrics.createHistogram("larkline_approval_wait_seconds"),
    budgetRefusals: metrics.createCounter("larkline_budget_refusals_total"),
    budgetWarnings: metrics.createCounter("larkline_budget_warnings_total"),
    dataKept: metrics.createCounter("larkline_data_kept_total"),
    dataWaiting: metrics.createGauge("larkline_data_waiting_sessions"),
    dataRounds: metrics.createCounter("larkline_data_rounds_total"),
  };
}

export type WorkerCounters = ReturnType<typeof createCounters>;
