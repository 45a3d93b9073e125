import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { createTextExtractor, type TextExtractor } from "@larkline/attachments";
import { ApprovalCards, FeishuApi, GroupLookup, CardHandover, LiveReplies, OutboxSender } from "@larkline/feishu";
import {
  cancelChannelOf,
  createCancelBus,
  createToolQueues,
  createTurnQueue,
  type Cancellation,
  type CancelBus,
  type QueueOptions,
  type ToolQueues,
  type TurnQueue,
} from "@larkline/queue";
import {
  ApprovalStore,
  type Archive,
  AuditLog,
  type BlobStore,
  BudgetStore,
  CardLedger,
  closeRedis,
  connectRedis,
  DeadLetters,
  EventLog,
  InstanceDirectory,
  isAnswered,
  LookupCache,
  OperatorOrders,
  PermissionRules,
  Presence,
  RateGovernor,
  RedisBlobStore,
  type RedisConnection,
  RunnerDirectory,
  ServerClock,
  SessionRetention,
  SessionStore,
  StateMigration,
  takesWrites,
  TokenCache,
} from "@larkline/store";
import { runnerKeyOf, stateKeyOf } from "@larkline/protocol";
import { createClockLog, watchPlatform, type Logger, type Metrics, type Telemetry } from "@larkline/process/telemetry";
import { botOfApp, groupsAtBot, type BotAccess, type LarklineConfig } from "@larkline/process/config";
import { Authorities, type JudgeDeps } from "./approvals.ts";
import type { WorkerConfig } from "./config.ts";
import { createImageResolver } from "./turn-reply.ts";

/** Sends replies that were committed. */
type ReplySender = OutboxSender;

/** Everything of a worker that talks to something outside. */
export interface Connections {
  store: SessionStore;
  log: Pick<EventLog, "read">;
  approvals: ApprovalStore;
  rules: PermissionRules;
  budgets: BudgetStore;
  presence: Presence;
  /** What operators want done. */
  orders: OperatorOrders;
  auditLog: AuditLog;
  /** Takes over what the version before has stored. */
  migration: StateMigration;
  directory: RunnerDirectory;
  turns: TurnQueue;
  tools: ToolQueues;
  bus: CancelBus;
  /** Tells a runner which of its calls are to stop; best effort. */
  stopCalls: (runner: string, cancel: Cancellation) => Promise<void>;
  sender: ReplySender;
  approvalCards: ApprovalCards;
  groupsOf: JudgeDeps["groupsOf"];
  /** What allows calls, looked up where it was decided. */
  authorities: Authorities;
  replies: LiveReplies;
  /** The bots, by app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: CardLedger;
  letters: DeadLetters;
  instances: InstanceDirectory;
  blobs: BlobStore;
  lookups: LookupCache;
  retention: SessionRetention;
  audit: AuditLog;
  /** Absent: nothing is archived. */
  archive: Archive | undefined;
  extractor: TextExtractor;
  queue: QueueOptions;
  clock: ServerClock;
  /** For requests: fails when Redis is away. */
  redis: RedisConnection;
  /** Whether Redis answers, and takes what is written. */
  checkRedis(): Promise<{ redis: boolean; writes: boolean }>;
  /** Whether the connection that waits for jobs is answered. */
  hearsOfJobs(): boolean;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  config: WorkerConfig;
  settings: LarklineConfig;
  bots: readonly BotAccess[];
  logger: Logger;
  telemetry: Telemetry;
  counters: WorkerCounters;
}

/** What is stored, and where. */
function openStores({ config, settings }: Pick<ConnectionOptions, "config" | "settings">, redis: RedisConnection) {
  const { namespace, blobDirectory: directory, archiveUrl: url } = config;
  const on = { redis, namespace };
  const stateKey = stateKeyOf(config.callSigningKey);
  const ttlMs = settings.retention.blobDays * 86_400_000;
  return {
    store: new SessionStore({ ...on, stateKey }),
    log: new EventLog(on),
    orders: new OperatorOrders(on),
    auditLog: new AuditLog(on),
    migration: new StateMigration({ ...on, stateKey }),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    budgets: new BudgetStore(on),
    ledger: new CardLedger(on),
    letters: new DeadLetters(on),
    instances: new InstanceDirectory(on),
    presence: new Presence(on),
    directory: new RunnerDirectory({ ...on, keyOf: (runner) => runnerKeyOf(config.callSigningKey, runner) }),
    lookups: new LookupCache({ ...on, owner: "worker" }),
    blobs: directory === undefined ? new RedisBlobStore({ ...on, ttlMs }) : createFileBlobStore({ directory, ttlMs }),
    retention: new SessionRetention(on),
    audit: new AuditLog(on),
    archive: url === undefined ? undefined : createPostgresArchive({ url, schema: namespace }),
  };
}

/** The bots, by app id. */
function openApis(
  { config, settings, bots, telemetry, logger }: ConnectionOptions,
  redis: RedisConnection,
): Map<string, FeishuApi> {
  const { namespace } = config;
  const tokenCache = new TokenCache({ redis, namespace });
  const governor = new RateGovernor({ redis, namespace });
  const watch = watchPlatform(telemetry).calls;
  return new Map(
    bots.map(({ appId, appSecret, domain }) => {
      const { monthlyCalls, rateLimits } = botOfApp(settings, appId).feishu;
      const limiter = rateLimits ? { governor } : {};
      const shared = { ...limiter, tokenCache, monthlyCalls, watch, logger };
      return [appId, new FeishuApi({ appId, appSecret, domain, ...shared })];
    }),
  );
}

/** Finds out user groups by asking the bot's own platform. */
function groupsBy(
  apis: ReadonlyMap<string, FeishuApi>,
  { settings, lookups }: { settings: LarklineConfig; lookups: LookupCache },
): JudgeDeps["groupsOf"] {
  const byApp = new Map([...apis].map(([app, api]) => [app, new GroupLookup({ api, lookups })]));
  return async (app, openId) => {
    const lookup = byApp.get(app);
    if (lookup === undefined) throw new Error(`no credentials for the app ${app}`);
    return groupsAtBot(botOfApp(settings, app), await lookup.groupsOf(openId));
  };
}

export function openConnections(options: ConnectionOptions): Connections {
  const { config, settings, logger, counters } = options;
  const onFrame = (sinceStartMs: number, isFirst: boolean): void => {
    counters.cardFrames.add(1);
    if (isFirst) counters.firstFrameSeconds.record(sinceStartMs / 1_000);
  };
  const { namespace } = config;
  const onError = (error: unknown): void => logger.warn({ error }, "Redis connection");
  const redis = connectRedis(config.redisUrl, { onError });
  const queueRedis = connectRedis(config.redisUrl, { role: "worker", onError });
  const clock = new ServerClock(redis, createClockLog(logger));
  const queue: QueueOptions = { connection: queueRedis, prefix: `{${namespace}}`, onError };
  const turns = createTurnQueue(queue);
  const tools = createToolQueues(queue);
  const stores = openStores(options, redis);
  const { store, approvals, rules, ledger, letters, blobs, lookups } = stores;
  const apis = openApis(options, redis);
  const extractor = createTextExtractor({
    maxBytes: settings.limits.attachmentBytes,
    cpuMs: settings.limits.attachmentCpuMs,
    deadlineMs: Math.max(20_000, 4 * settings.limits.attachmentCpuMs),
  });
  const imageOf = createImageResolver({ blobs, lookups });
  const { deliveries } = watchPlatform(options.telemetry);
  const handover = new CardHandover();
  const sender = new OutboxSender({ store, letters, ledger, handover, apis, imageOf, watch: deliveries, logger });
  const { roles } = settings.permissions;
  const groupsOf = groupsBy(apis, { settings, lookups });
  const authorities = new Authorities({ approvals, rules, policy: settings.permissions, groupsOf, logger });
  const keepRule = authorities.keepRule.bind(authorities);
  const wake = async (session: string, gen: number): Promise<void> => await turns.wake(session, gen);
  const approvalCards = new ApprovalCards({ apis, letters, approvals, keepRule, roles, wake, logger });
  const mayAppear = async (session: string): Promise<boolean> => await ledger.mayAppear(session);
  return {
    ...stores,
    apis,
    extractor,
    groupsOf,
    authorities,
    replies: new LiveReplies({ apis, ledger, handover, imageOf, mayAppear, logger, onFrame }),
    turns,
    tools,
    bus: createCancelBus({ connection: redis, channel: `{${namespace}}:cancel` }),
    stopCalls: async (runner, cancel) =>
      await createCancelBus({ connection: redis, channel: cancelChannelOf(namespace, runner) }).publish(cancel),
    sender,
    approvalCards,
    queue,
    clock,
    redis,
    checkRedis: async () => ({ redis: (await redis.ping()) === "PONG", writes: await takesWrites(redis) }),
    hearsOfJobs: () => isAnswered(queueRedis),
    close: async () => {
      clock.close();
      await Promise.all([sender.close(), approvalCards.close()]);
      await extractor.close();
      for (const api of apis.values()) api.close();
      await Promise.all([turns.close(), tools.close(), stores.archive?.close()]);
      await Promise.all([closeRedis(redis), closeRedis(queueRedis)]);
    },
  };
}

/** What a worker counts. */
export function createCounters(metrics: Metrics) {
  return {
    turnRuns: metrics.createCounter("larkline_turn_runs_total", {
      description: "Runs of turns by how they ended; a turn with slow tools has several.",
      labels: ["outcome"],
    }),
    turnRunSeconds: metrics.createHistogram("larkline_turn_run_seconds", {
      description: "Time a run held its slot.",
      labels: ["outcome"],
    }),
    turnHolds: metrics.createCounter("larkline_turn_holds_total", {
      description:
        "Times that a turn kept its slot while its calls ran, by how that ended: answered, or else it was suspended.",
      labels: ["end"],
    }),
    healed: metrics.createCounter("larkline_healed_total", {
      description: "What the sweeper found left lying and took up.",
      labels: ["what"],
    }),
    largeResults: metrics.createCounter("larkline_large_results_total", {
      description: "Results too large for their conversation: kept as a whole, or cut because they could not be kept.",
      labels: ["what"],
    }),
    cardFrames: metrics.createCounter("larkline_card_frames_total", {
      description: "Frames of cards that reached the platform while their turns ran.",
    }),
    firstFrameSeconds: metrics.createHistogram("larkline_card_first_frame_seconds", {
      description: "Time from the beginning of a turn until its card was visible.",
    }),
    approvalsAsked: metrics.createCounter("larkline_approvals_asked_total", {
      description:
        "Questions to people: may a call run, what becomes of an unknown outcome, may such calls always run.",
      labels: ["kind"],
    }),
    approvalsSettled: metrics.createCounter("larkline_approvals_settled_total", {
      description: "Questions of turns that are settled, by how.",
      labels: ["kind", "state"],
    }),
    approvalWaitSeconds: metrics.createHistogram("larkline_approval_wait_seconds", {
      description: "Time from a question of a turn until it was settled.",
      labels: ["kind", "state"],
      advice: { explicitBucketBoundaries: [...waitBuckets] },
    }),
    budgetRefusals: metrics.createCounter("larkline_budget_refusals_total", {
      description: "Turns that were refused a model call because a budget is spent.",
      labels: ["per", "period"],
    }),
    budgetWarnings: metrics.createCounter("larkline_budget_warnings_total", {
      description: "Turns that were warned because a budget is spent by 80 % or more.",
      labels: ["per", "period"],
    }),
    dataKept: metrics.createCounter("larkline_data_kept_total", {
      description: "Conversations that expired, messages trimmed or archived, audit records dropped or archived.",
      labels: ["what"],
    }),
    dataWaiting: metrics.createGauge("larkline_data_waiting_sessions", {
      description: "Sessions whose newest turns are not archived and bounded yet, as this worker last saw it.",
    }),
    dataRounds: metrics.createCounter("larkline_data_rounds_total", {
      description: "Rounds of looking after stored data, by whether all of it went well.",
      labels: ["outcome"],
    }),
  };
}

export type WorkerCounters = ReturnType<typeof createCounters>;

/** People take seconds or days. */
const waitBuckets = [1, 5, 15, 30, 60, 300, 900, 3_600, 14_400, 86_400, 604_800] as const;
