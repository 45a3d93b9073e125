import type { LarklineConfig } from "@larkline/process/config";
import type { Clock, Random } from "@larkline/protocol/clock";
import { stateKeyOf } from "@larkline/protocol/runner";
import {
  ApprovalStore,
  AuditLog,
  BudgetStore,
  CardLedger,
  ConsentStore,
  DeadLetters,
  EventLog,
  GrantEnds,
  GrantStore,
  MemoryStore,
  PermissionRules,
  RedisBlobStore,
  ScheduleStore,
  SubscriptionStore,
  SessionFiles,
  SessionRetention,
  SessionStore,
  type BlobStore,
} from "@larkline/store";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
import {
  AddedProviders,
  AgentVersions,
  InstanceDirectory,
  NameBook,
  OperatorOrders,
  Pauses,
  RatingStore,
  RunLog,
  UsageStore,
} from "@larkline/store/operations";
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import {
  cancelChannelOf,
  createCancelBus,
  ToolQueues,
  TurnQueue,
  type Cancellation,
  type QueueOptions,
} from "@larkline/store/queues";
import type { RedisConnection } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import { StallNotes } from "@larkline/store/stall-notes";
import type { WorkerConfig } from "./config.ts";
import { RunnerKeys } from "./tool-catalog.ts";

// What is durable, and what goes between processes: the one list of the stores and queues of a worker.

/** Everything durable. It is in Redis, but for blobs and the archive where those are configured. */
export type Stores = ReturnType<typeof openStores>;

/** The queues, and the channels between processes. */
export type Queues = ReturnType<typeof openQueues>;

/** What decides about stores. */
interface StoreParts {
  readonly config: WorkerConfig;
  readonly settings: LarklineConfig;
  readonly clock: Clock;
  readonly random: Random;
}

export function openStores(
  { config, settings, clock, random }: StoreParts,
  redis: RedisConnection,
) {
  const { namespace, blobDirectory: directory, archiveUrl: url, grantKeys } = config;
  const on = { redis, namespace, clock, random };
  const stateKey = stateKeyOf(config.callSigningKey);
  const ttlMs = settings.retention.blobDays * dayMs;
  const blobs: BlobStore =
    directory === undefined
      ? new RedisBlobStore({ ...on, ttlMs })
      : createFileBlobStore({ directory, ttlMs, random });
  return {
    store: new SessionStore({ ...on, stateKey }),
    eventLog: new EventLog(on),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    /** What people and chats want remembered. */
    memories: new MemoryStore({ ...on, ttlMs: settings.retention.memoryDays * dayMs }),
    /** What agents do for people at a time. */
    schedules: new ScheduleStore(on),
    /** The events that these wait for. */
    subscriptions: new SubscriptionStore(on),
    /** Working folders of sessions. */
    files: new SessionFiles(on),
    budgets: new BudgetStore(on),
    cards: new CardLedger(on),
    deadLetters: new DeadLetters(on),
    blobs,
    lookups: new LookupCache({ ...on, owner: "worker" }),
    auditLog: new AuditLog(on),
    /** What people let bots do as them. Undefined: there is no `GRANT_KEY`. */
    grants: grantKeys === undefined ? undefined : new GrantStore({ ...on, grantKeys }),
    /** The ends of grants that ingress has read in events of the platform. */
    grantEnds: new GrantEnds(on),
    /** Consents that wait for their person; undefined without `grants`. */
    consents: grantKeys === undefined ? undefined : new ConsentStore({ ...on, grantKeys }),
    /** Bounds, archives and expires what sessions have stored. */
    retention: new SessionRetention(on),
    /** The archive; undefined: nothing is archived. */
    archive:
      url === undefined ? undefined : createPostgresArchive({ url, schema: namespace, clock }),
    /** What operators want done. */
    orders: new OperatorOrders(on),
    /** Agents and tools that operators have paused. */
    pauses: new Pauses(on),
    /** What operators have changed of agents. */
    agentVersions: new AgentVersions({ ...on, stateKey }),
    /** Servers of models that operators have added. */
    addedProviders: new AddedProviders({ ...on, stateKey, grantKeys }),
    /** The runners that live, and their tools. */
    runners: new RunnerDirectory({
      ...on,
      runnerKeys: new RunnerKeys(config.callSigningKey),
      owners: settings.toolOwners,
    }),
    /** Why workers have died. */
    stallNotes: new StallNotes(on),
    /** Announces this process to the others. */
    instances: new InstanceDirectory(on),
    tokenCache: new TokenCache(on),
    governor: new RateGovernor(on),
    /** Records of ended runs, for the console. */
    runLog: new RunLog({ ...on, ttlMs: settings.retention.traceDays * dayMs }),
    /** What they have used, by time. */
    usage: new UsageStore({ ...on, timeZone: settings.budgets.timeZone }),
    /** What people and chats are called. */
    names: new NameBook(on),
    ratings: new RatingStore(on),
  };
}

const dayMs = 86_400_000;

export function openQueues(
  { namespace }: WorkerConfig,
  redis: RedisConnection,
  queue: QueueOptions,
) {
  return {
    turns: new TurnQueue(queue),
    tools: new ToolQueues(queue),
    /** Asks every worker to stop a turn. */
    cancels: createCancelBus({ connection: redis, channel: cancelChannelOf(namespace) }),
    /** Asks a runner to stop its calls of a turn. Best effort: without it a call ends at its deadline. */
    runnerCancels: {
      publish: async (runner: string, cancel: Cancellation): Promise<void> => {
        const channel = cancelChannelOf(namespace, runner);
        await createCancelBus({ connection: redis, channel }).publish(cancel);
      },
    },
  };
}
