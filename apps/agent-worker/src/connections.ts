import {
  ApprovalCards,
  CardHandover,
  FeishuApi,
  GrantsApi,
  LiveReplies,
  OutboxSender,
  createImageResolver,
} from "@larkline/feishu";
import { StartError } from "@larkline/process/app";
import {
  botOfApp,
  type BotAccess,
  type LarklineConfig,
  type Transcription,
} from "@larkline/process/config";
import { SchemaChecks } from "@larkline/process/schemas";
import {
  createClockLog,
  watchPlatform,
  type Logger,
  type Telemetry,
} from "@larkline/process/telemetry";
import { stateKeyOf, type Clock, type Random } from "@larkline/protocol";
import {
  ApprovalStore,
  AuditLog,
  BudgetStore,
  CardLedger,
  DeadLetters,
  EventLog,
  GrantEnds,
  ConsentStore,
  GrantStore,
  type GrantOwner,
  MemoryStore,
  ScheduleStore,
  SessionFiles,
  PermissionRules,
  RedisBlobStore,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
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
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import {
  cancelChannelOf,
  createCancelBus,
  ToolQueues,
  TurnQueue,
  type QueueOptions,
} from "@larkline/store/queues";
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
import { HandoffImport, RunnerDirectory } from "@larkline/store/runners";
import { StallNotes } from "@larkline/store/stall-notes";
import { LRUCache } from "lru-cache";
import { asInFile } from "./agent-versions.ts";
import type { AgentModels } from "./agent.ts";
import { createTextExtractor, type TextExtractor } from "./attachments/text-extractor.ts";
import { Bot } from "./bot.ts";
import { TokenBroker } from "./call-identities.ts";
import { keepRule } from "./approvals.ts";
import type { WorkerConfig } from "./config.ts";
import { HelperReadiness } from "./helper-readiness.ts";
import { Consents } from "./consents.ts";
import { PersonTokens } from "./person-tokens.ts";
import { MessagePreparer } from "./prepare.ts";
import { remoteImages } from "./remote-images.ts";
import { RunRecords } from "./run-records.ts";
import { RunningTurns } from "./running-turns.ts";
import { watchSchedules } from "./schedules.ts";
import type { Services, Stores, Queues, WorkerCounters } from "./services.ts";
import { RunnerKeys, ToolCatalog } from "./tool-catalog.ts";
import { wakeAfter } from "./tools.ts";
import { TurnHolds } from "./turn-holds.ts";

// Opens what a worker works with, once: connections, stores, queues, and the object that holds all of it.

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
export async function connect(
  parts: ServiceParts,
  accesses: readonly BotAccess[],
): Promise<Connections> {
  const { config, settings, owner, log, telemetry, clock, random } = parts;
  const onError = (error: unknown): void => log.warn({ error }, "Redis connection");
  const redis = connectRedis(config.redisUrl, { onError, clock });
  const queueRedis = connectRedis(config.redisUrl, { role: "worker", onError, clock });
  const serverClock = new ServerClock(redis, createClockLog(log), clock);
  const stores = openStores(parts, redis);
  const queue: QueueOptions = {
    connection: queueRedis,
    prefix: `{${config.namespace}}`,
    onError,
    clock,
  };
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
    await Promise.all([
      queues.turns.close(),
      queues.tools.close(),
      closeRedis(redis),
      closeRedis(queueRedis),
    ]);
    throw new StartError(problem);
  }
  const presence = await OwnPresence.start({
    redisUrl,
    namespace,
    id: owner,
    group: workersGroup,
    onError,
    clock,
  });
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
    await Promise.all([
      services.outboxSender.close(),
      services.approvalCards.close(),
      services.runs.close(),
    ]);
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
    checkRedis: async () => ({
      redis: (await redis.ping()) === "PONG",
      writes: await takesWrites(redis, queueRedis),
    }),
    isQueueAnswering: () => isAnswered(queueRedis),
    close: async () => await (closed ??= close()),
  };
}

export function openStores(
  {
    config,
    settings,
    clock,
    random,
  }: Pick<ServiceParts, "config" | "settings" | "clock" | "random">,
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
    grants:
      config.grantKeys === undefined
        ? undefined
        : new GrantStore({ ...on, grantKeys: config.grantKeys }),
    consents:
      config.grantKeys === undefined
        ? undefined
        : new ConsentStore({ ...on, grantKeys: config.grantKeys }),
    retention: new SessionRetention(on),
    archive:
      url === undefined ? undefined : createPostgresArchive({ url, schema: namespace, clock }),
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

function openQueues(
  { namespace }: WorkerConfig,
  redis: RedisConnection,
  queue: QueueOptions,
): Queues {
  return {
    turns: new TurnQueue(queue),
    tools: new ToolQueues(queue),
    cancels: createCancelBus({ connection: redis, channel: cancelChannelOf(namespace) }),
    runnerCancels: {
      publish: async (runner, cancel) =>
        await createCancelBus({
          connection: redis,
          channel: cancelChannelOf(namespace, runner),
        }).publish(cancel),
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

/** For how many sessions, and for how long, a worker remembers that it has gone without their files, ms. */
const filesGivenUp = { max: 10_000, ttl: 86_400_000 };

export function createServices({
  stores,
  queues,
  redis,
  models,
  extractor,
  ...parts
}: OpenedParts): Services {
  const { config, settings, log, counters, clock, random } = parts;
  const bots = new Map(parts.bots.map((bot) => [bot.app, bot]));
  const apis = new Map(parts.bots.map(({ app, api }) => [app, api]));
  const { store, cards: ledger, deadLetters: letters, approvals } = stores;
  const imageOf = createImageResolver(stores.blobs, stores.lookups, {
    clock,
    remote: remoteImages(),
  });
  const handover = new CardHandover();
  const { deliveries } = watchPlatform(parts.telemetry, clock);
  const runnerKeys = new RunnerKeys(config.callSigningKey);
  const { grants, consents } = stores;
  const wake = async (session: string, gen: number): Promise<void> =>
    await queues.turns.wake(session, gen);
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
  const toolCatalog = new ToolCatalog(stores.runners, clock, log, {
    mayActAsPeople: tokens !== undefined,
  });
  const used = async (owner: GrantOwner, tool: string): Promise<void> => {
    const title = toolCatalog.titleOf(tool);
    const named = title === undefined ? {} : { title };
    await grants?.noteUse(owner, { tool, ...named, atMs: clock.now() });
  };
  const { timeZone } = settings.budgets;
  const runs = new RunRecords({ ...stores, apis, timeZone, clock, random, logger: log });
  const services: Services = {
    ...parts,
    ...stores,
    ...queues,
    bots,
    ...asInFile(settings, models),
    helperReadiness: new HelperReadiness(),
    toolCatalog,
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
      identities: new TokenBroker({ bots, tokens, used }),
      random,
      lookups: stores.lookups,
      delivered: async (session, delivered) => await wakeAfter(services, session, delivered),
      onProgress: ({ turnId, callId, ...progress }) =>
        services.liveReplies.progress(turnId, callId, progress),
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
      consents:
        grants === undefined || consents === undefined || tokens === undefined
          ? undefined
          : new Consents({
              consents,
              grants,
              tokens,
              apiOf,
              redirectOf: (app) => botOfApp(settings, app).feishu.consentUrl ?? undefined,
              approvals,
              wake,
              clock,
              log,
            }),
      keepRule: async (status) => await keepRule(services, status),
      roles: settings.permissions.roles,
      wake,
      logger: log,
      clock,
      random,
    }),
  };
  return services;
}
