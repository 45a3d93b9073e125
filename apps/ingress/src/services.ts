import type { ServerResponse } from "node:http";
import { createBudgetBook, type BudgetBook } from "@larkline/agent/budgets";
import type { LarklineConfig } from "@larkline/process/config";
import {
  createClockLog,
  createOutageLog,
  type Logger,
  type Metrics,
  type Telemetry,
} from "@larkline/process/telemetry";
import { SchemaChecks } from "@larkline/process/schemas";
import { apiApp, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import { cancelChannelOf, createCancelBus, TurnQueue } from "@larkline/store/queues";
import {
  ConsentCallbacks,
  GrantBook,
  GrantEnds,
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
  WarmUpLookups,
  WarmUpStore,
} from "@larkline/store";
import { closeRedis, connectRedis, ServerClock, takesWrites } from "@larkline/store/redis";
import {
  AgentVersions,
  EventWatchReports,
  InstanceDirectory,
  Presence,
  RatingStore,
} from "@larkline/store/operations";
import { rightsProblem } from "@larkline/store/rights";
import { LookupCache, RateGovernor, TokenCache } from "@larkline/store/platform";
import { RequestLimits } from "./callers.ts";
import type { IngressConfig } from "./config.ts";
import { OtherEvents, type EventConsumer } from "./other-events.ts";

/** Everything that the parts of this process share. Made once, in `startIngressApp`, and passed whole. */
export interface Services extends Stores {
  config: IngressConfig;
  settings: LarklineConfig;
  clock: Clock;
  random: Random;
  log: Logger;
  /** All metrics of the process; those of ingress itself are `counters`. */
  metrics: Metrics;
  counters: IngressCounters;
  telemetry: Telemetry;
  budgetBook: BudgetBook;
  /** Gets the events and clicks that are not for Larkline itself. */
  otherEvents: OtherEvents;
  /** The HTTP API as a place where messages come from. */
  apiChannel: Channel;
  streams: OpenStreams;
  /** Looks at schemas that callers bring, in a thread. */
  schemas: SchemaChecks;
  requestLimits: RequestLimits;
  /** The secrets of each trigger, by its name. */
  triggerSecrets: ReadonlyMap<string, readonly string[]>;
}

/** Everything durable, in Redis, and the queues behind it. */
export interface Stores {
  store: SessionStore;
  /** Reads conversations. */
  sessions: SessionRetention;
  approvals: ApprovalStore;
  rules: PermissionRules;
  /** What people and chats want remembered. */
  schedules: ScheduleStore;
  /** Where subscriptions of people stand. */
  subscriptions: Pick<SubscriptionStore, "ofPerson">;
  memories: MemoryStore;
  /** What people say of answers. */
  ratings: RatingStore;
  budgets: BudgetStore;
  /** What operators have changed of agents. */
  agentVersions: Pick<AgentVersions, "list">;
  lookups: LookupCache;
  /** What people let bots do as them, without tokens. */
  grants: GrantBook;
  /** Ends of grants, for workers. */
  grantEnds: GrantEnds;
  /** The callbacks of consents of the code flow. */
  consentCallbacks: ConsentCallbacks;
  eventLog: EventLog;
  /** The cards of replies that an outbox delivery started here may have to finish. */
  cards: CardLedger;
  deadLetters: DeadLetters;
  /** Announces this process to the others. */
  instances: InstanceDirectory;
  eventWatches: EventWatchReports;
  tokenCache: TokenCache;
  governor: RateGovernor;
  /** Adds wake-up jobs. Waking a session that is awake already is harmless. */
  turns: { wake(session: SessionKey, gen: number): Promise<void> };
  /** Asks every worker to stop a turn. */
  cancels: { publish(cancel: { session: SessionKey; turnId?: string }): Promise<void> };
  redis: RedisHealth;
}

/** Take the place of the real ones while the process warms up. */
export interface WarmUpStores {
  store: WarmUpStore;
  lookups: WarmUpLookups;
}

/** What is known about the connection to Redis. */
export interface RedisHealth {
  /** Whether Redis can be reached, as far as is known without asking. */
  isReady(): boolean;
  /** Whether Redis has ever been reached: until then the process starts. */
  wasReady(): boolean;
  /** Whether this error is Redis's own answer to a write, which then was not done. */
  refused(error: unknown): boolean;
  /** Asks Redis. */
  ping(): Promise<boolean>;
  /** Whether Redis takes writes: it is not full, not read-only, and can write its disk. */
  takesWrites(): Promise<boolean | string>;
  /** It knows which clocks differ. */
  serverClock: Pick<ServerClock, "problem">;
  /** Takes a periodic duty for `ttlMs`; false when another process has it. */
  takeDuty(duty: string, ttlMs: number): Promise<boolean>;
}

/** Where messages come from: a bot of Feishu, or the HTTP API. Both take the same commands and decisions. */
export interface Channel {
  /** The bot's app id, or `api`: first part of its session keys, and part of every remembered fact. */
  readonly app: string;
  /** How long one write to Redis may take. */
  readonly storeDeadlineMs: number;
  /** How long the language of a person is kept after their last message with words. */
  readonly languageKeptMs: number;
  readonly log: Logger;
  /** Names of people by open_id, as far as they are known in time. Never rejects. */
  namesOf(openIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** User groups that a person belongs to. Rejects when that cannot be found out. */
  groupsOf(openId: string): Promise<readonly string[]>;
  /** Shows a person something where no other person reads it. Absent: callers of the API are alone. */
  tellAlone?(openId: string, notice: AloneNotice): Promise<void>;
}

/** What a person reads about a message of theirs; `text` where the card cannot be sent. */
export interface AloneNotice {
  message: InboundMessage;
  text: string;
  card?: Record<string, unknown>;
}

/** One person uses a session of the API and decides about everything in it; the platform knows no name of theirs. */
function createApiChannel(log: Logger): Channel {
  return {
    app: apiApp,
    // Clients wait longer than the platform: after this time they get the answer `uncertain`.
    storeDeadlineMs: 8_000,
    // There are as many sessions as clients begin.
    languageKeptMs: 7 * 24 * 3_600_000,
    log,
    namesOf: async () => new Map(),
    groupsOf: async () => [],
  };
}

/** What the caller of {@link createServices} has made before. */
export interface ServiceParts {
  config: IngressConfig;
  settings: LarklineConfig;
  stores: Stores;
  metrics: Metrics;
  log: Logger;
  telemetry: Telemetry;
  consumers: readonly EventConsumer[];
  triggerSecrets: ReadonlyMap<string, readonly string[]>;
  clock: Clock;
  random: Random;
}

export function createServices(given: ServiceParts): Services {
  const { stores, consumers, clock, random, ...parts } = given;
  const { config, settings, metrics, log } = parts;
  const counters = createCounters(metrics);
  const { maxStreams, maxStreamsPerCaller, requestsPerMinute } = config.api;
  const streams = new OpenStreams(maxStreams, maxStreamsPerCaller);
  const open = metrics.createObservableGauge("larkline_ingress_streams");
  open.addCallback((result) => result.observe(streams.count()));
  return {
    ...stores,
    ...parts,
    clock,
    random,
    counters,
    streams,
    schemas: new SchemaChecks({ clock, log }),
    requestLimits: new RequestLimits({
      clock,
      governor: stores.governor,
      isReady: stores.redis.isReady,
      perMinute: requestsPerMinute,
    }),
    budgetBook: createBudgetBook(settings.budgets),
    otherEvents: new OtherEvents(consumers, { clock, counters, log }),
    apiChannel: createApiChannel(log),
  };
}

function createCounters(metrics: Metrics) {
  return {
    messages: metrics.createCounter("larkline_ingress_messages_total"),
    events: metrics.createCounter("larkline_ingress_events_total"),
    otherEvents: metrics.createCounter("larkline_ingress_other_events_total"),
    refused: metrics.createCounter("larkline_ingress_webhook_refused_total"),
    ackSeconds: metrics.createHistogram("larkline_ingress_ack_seconds"),
  };
}

export type IngressCounters = ReturnType<typeof createCounters>;

/** The event streams that this process serves at the moment. */
export class OpenStreams {
  readonly #max: number;
  readonly #maxPerCaller: number;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<void>>();
  /** The streams that each caller has open. */
  readonly #reserved = new Map<string, number>();
  #all = 0;

  constructor(max: number, maxPerCaller = max) {
    this.#max = max;
    this.#maxPerCaller = maxPerCaller;
  }

  /** Aborts when the process stops: streams end so that their clients resume elsewhere. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Takes a place until `response` is closed. Otherwise there is none left: at all, or for this caller. */
  reserve(response: ServerResponse, caller: string): "taken" | "full" | "caller_full" {
    const theirs = this.#reserved.get(caller) ?? 0;
    if (this.#all >= this.#max || this.#closing.signal.aborted) return "full";
    if (theirs >= this.#maxPerCaller) return "caller_full";
    this.#all += 1;
    this.#reserved.set(caller, theirs + 1);
    response.once("close", () => this.#release(caller));
    return "taken";
  }

  #release(caller: string): void {
    const left = (this.#reserved.get(caller) ?? 1) - 1;
    this.#all -= 1;
    if (left === 0) this.#reserved.delete(caller);
    else this.#reserved.set(caller, left);
  }

  /** Streams of runs. */
  count(): number {
    return this.#running.size;
  }

  /** Counts a stream until `serving` settles, and lets `close` wait for it. */
  async run(serving: Promise<void>): Promise<void> {
    this.#running.add(serving);
    await serving.finally(() => this.#running.delete(serving));
  }

  /** Ends all streams; their runs continue. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#running);
  }
}

/** Opens the connections of the process. Returns at once: until Redis answers, `redis.isReady()` is false. */
export function connectStores(
  { redisUrl, namespace }: IngressConfig,
  { log, clock, random }: { log: Logger; clock: Clock; random: Random },
): Stores & {
  warmUp: WarmUpStores;
  rightsProblem(): Promise<string | undefined>;
  close(): Promise<void>;
} {
  const { failed: onError, back } = createOutageLog(log, "Redis");
  const redis = connectRedis(redisUrl, { onError, clock });
  const on = { redis, namespace, clock, random };
  let wasReady = redis.status === "ready";
  redis.on("ready", () => {
    wasReady = true;
    back();
  });
  const serverClock = new ServerClock(redis, createClockLog(log), clock);
  const eventLog = new EventLog(on);
  const presence = new Presence(on);
  const holder = `ingress-${random.uuid()}`;
  const turns = new TurnQueue({ connection: redis, prefix: `{${namespace}}`, onError, clock });
  return {
    store: new SessionStore(on),
    sessions: new SessionRetention(on),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    schedules: new ScheduleStore(on),
    subscriptions: new SubscriptionStore(on),
    memories: new MemoryStore(on),
    ratings: new RatingStore(on),
    budgets: new BudgetStore(on),
    agentVersions: new AgentVersions(on),
    lookups: new LookupCache({ ...on, owner: "ingress" }),
    grants: new GrantBook(on),
    grantEnds: new GrantEnds(on),
    consentCallbacks: new ConsentCallbacks(on),
    warmUp: {
      store: new WarmUpStore(on),
      lookups: new WarmUpLookups({ ...on, owner: "ingress" }),
    },
    eventLog,
    cards: new CardLedger(on),
    deadLetters: new DeadLetters(on),
    instances: new InstanceDirectory(on),
    eventWatches: new EventWatchReports(on),
    tokenCache: new TokenCache(on),
    governor: new RateGovernor(on),
    turns,
    cancels: createCancelBus({ connection: redis, channel: cancelChannelOf(namespace) }),
    redis: {
      isReady: () => redis.status === "ready",
      wasReady: () => wasReady,
      refused: isRefusedWrite,
      ping: async () => (await redis.ping()) === "PONG",
      takesWrites: async () => await takesWrites(redis),
      serverClock,
      takeDuty: async (duty, ttlMs) => await presence.takeDuty(duty, holder, ttlMs),
    },
    rightsProblem: async () => await rightsProblem(redis, "ingress", { namespace }),
    async close() {
      serverClock.close();
      eventLog.close();
      await turns.close();
      await closeRedis(redis, clock);
    },
  };
}

/** Answers of Redis that come before anything is written: full, read-only, still loading, without a master. */
const refusals =
  /^(?:OOM|READONLY|MISCONF|LOADING|MASTERDOWN|CLUSTERDOWN|NOREPLICAS|NOPERM|NOAUTH)\b/;

function isRefusedWrite(error: unknown): boolean {
  return error instanceof Error && error.name === "ReplyError" && refusals.test(error.message);
}
