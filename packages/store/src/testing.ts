import { randomUUID } from "node:crypto";
import { type Clock, systemClock, followClock } from "@larkline/protocol/clock";
import { afterAll, inject } from "vitest";
import { ApprovalStore } from "./approval-store.ts";
import { AuditLog } from "./audit-log.ts";
import { BudgetStore } from "./budget-store.ts";
import { CardLedger } from "./outbox.ts";
import { closeRedis, connectRedis, mastersOf, type RedisConnection } from "./connection.ts";
import { moveScriptClock, runScript, script, stopScriptClock } from "./lua.ts";
import { DeadLetters } from "./dead-letters.ts";
import { EventLog } from "./event-log.ts";
import { EventWatchReports } from "./event-watch-reports.ts";
import { InstanceDirectory } from "./instance-directory.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";
import { LookupCache, TokenCache, RateGovernor } from "./platform.ts";
import { MemoryStore } from "./memory-store.ts";
import { ScheduleStore } from "./schedule-store.ts";
import { SubscriptionStore } from "./subscription-store.ts";
import { SessionFiles } from "./session-files.ts";
import { NameBook } from "./name-book.ts";
import { PermissionRules } from "./permission-rules.ts";
import { heartbeatMs, workersGroup } from "./presence.ts";
import { RedisBlobStore } from "./blob-store.ts";
import { SessionRetention } from "./retention.ts";
import { RatingStore, RunLog, type RunRecord } from "./runs.ts";
import { RunnerDirectory } from "./runner-directory.ts";
import { SessionIndex } from "./session-index.ts";
import { SessionStore } from "./session-store.ts";
import { TraceLog } from "./trace-log.ts";
import { UsageStore } from "./usage-store.ts";

export { stopScriptClock } from "./lua.ts";

/** How the stores of a test differ from those of production. */
export interface TestStoreOptions {
  /** See `SessionStore`. */
  maxWaiting?: number;
  dedupTtlMs?: number;
  outboxLeaseMs?: number;
  /** See `ApprovalStore`. */
  maxApprovals?: number;
  cardsLeaseMs?: number;
  /** Time passes only by `advance`, as scripts see it: for windows of a second, which a slow machine would leave. */
  isClockStill?: boolean;
}

/** A worker has beaten for the next `ms`, and Redis cannot see whether its connection stands. */
export async function noteBeat(
  { redis, namespace }: StoreOptions,
  id: string,
  ms: number,
): Promise<void> {
  const keys = createKeyspace(namespace);
  const atMs = Date.now() + ms - heartbeatMs;
  await redis.set(keys.aliveOf(id), `${atMs} `);
  await redis.zadd(keys.presentOf(workersGroup), String(atMs), id);
}

/** The store with some methods replaced, such as by ones that fail. */
export function replaced<Store extends object>(store: Store, methods: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      if (name in methods) return Reflect.get(methods, name);
      const real: unknown = Reflect.get(target, name);
      return typeof real === "function" ? real.bind(target) : real;
    },
  });
}

const opened = new Set<() => Promise<void>>();

afterAll(async () => {
  await Promise.all([...opened].map(async (close) => await close()));
});

/**
 * Everything durable on the Redis of the test run, under a namespace of its own and with a clock that the test moves.
 * The connection is closed after the last test of the file.
 */
export function openTestStores(
  options: TestStoreOptions = {},
  url: string = inject("redisUrl"),
): TestStores {
  return openStores(new TestClock(url, options.isClockStill), options);
}

/** The stores as another process sees them: over a connection of its own, with the same keys and the same clock. */
export function openElsewhere({ clock }: TestStores, options: TestStoreOptions = {}): TestStores {
  return openStores(clock, options);
}

export type TestStores = ReturnType<typeof openStores>;

function openStores(clock: TestClock, options: TestStoreOptions) {
  const { namespace } = clock;
  const redis = clock.connect();
  const here = { redis, namespace, clock };
  const events = new EventLog(here);
  const close = async (): Promise<void> => {
    if (!opened.delete(close)) return;
    events.close();
    await closeRedis(redis);
  };
  opened.add(close);
  return {
    store: new SessionStore({ ...here, stateKey: "0".repeat(64), ...options }),
    events,
    cards: new CardLedger(here),
    approvals: new ApprovalStore({ ...here, ...options }),
    rules: new PermissionRules(here),
    memories: new MemoryStore(here),
    schedules: new ScheduleStore(here),
    subscriptions: new SubscriptionStore(here),
    files: new SessionFiles(here),
    audit: new AuditLog(here),
    auditRetention: new AuditLog(here),
    letters: new DeadLetters({ ...here, ...options }),
    index: new SessionIndex(here),
    retention: new SessionRetention(here),
    lookups: new LookupCache({ ...here, owner: "worker" }),
    blobs: new RedisBlobStore(here),
    tokens: new TokenCache(here),
    budgets: new BudgetStore(here),
    traces: new TraceLog(here),
    runLog: new RunLog(here),
    usage: new UsageStore({ ...here, timeZone: "Asia/Shanghai" }),
    names: new NameBook(here),
    ratings: new RatingStore(here),
    governor: new RateGovernor(here),
    runners: new RunnerDirectory(here),
    instances: new InstanceDirectory(here),
    watches: new EventWatchReports(here),
    /** For stores with settings of their own. */
    redis,
    namespace,
    clock,
    now: clock.now,
    advance: clock.advance,
    close,
  };
}

const ageKeys = script("age-keys");

let isSharedClockMoved = false;

/** The clock of a namespace: real time, or the moment when it was made, and what the test has added to it. */
class TestClock implements Clock {
  readonly namespace = `test-${randomUUID()}`;
  readonly #url: string;
  readonly #connections: RedisConnection[] = [];
  /** When it was made, if it stands still since. */
  readonly #stillMs: number | undefined;
  #aheadMs = 0;

  constructor(url: string, isStill = false) {
    this.#url = url;
    this.#stillMs = isStill ? Date.now() : undefined;
    if (isSharedClockMoved) this.#tellProcess();
  }

  readonly monotonic = systemClock.monotonic;
  readonly after = systemClock.after;
  readonly every = systemClock.every;

  /** Epoch ms. */
  readonly now = (): number => (this.#stillMs ?? Date.now()) + this.#aheadMs;

  /**
   * Moves the clock of scripts and of this process, and what expires by itself: all of it for whatever is asked later
   * over the first connection, and for the rest when the promise is fulfilled.
   */
  readonly advance = async (ms: number): Promise<void> => {
    this.#aheadMs += ms;
    this.#tellProcess();
    for (const redis of this.#connections) this.#tellScripts(redis);
    const [redis] = this.#connections;
    const servers = redis === undefined || ms <= 0 ? [] : mastersOf(redis);
    await Promise.all(
      servers.map(
        async (server) =>
          await runScript(server, ageKeys, {}, { ms, pattern: `*${this.namespace}*` }),
      ),
    );
  };

  #tellScripts(redis: RedisConnection): void {
    if (this.#stillMs === undefined) moveScriptClock(redis, this.#aheadMs);
    else stopScriptClock(redis, this.now());
  }

  /** This process has one clock: that of the test that runs. */
  #tellProcess(): void {
    isSharedClockMoved = this.#aheadMs !== 0;
    followClock(this.now(), performance.now());
  }

  connect(): RedisConnection {
    const redis = connectRedis(this.#url);
    this.#tellScripts(redis);
    this.#connections.push(redis);
    return redis;
  }
}

/** The record of a run that was answered without tools. */
export function runOf(fields: Partial<RunRecord> = {}): RunRecord {
  return {
    turn: "cli_1.oc_1-1",
    trace: "0".repeat(32),
    message: "om_1",
    person: "ou_1",
    agent: "default",
    model: "scripted/model",
    outcome: "answered",
    endedAtMs: 1,
    ms: 1_200,
    queuedMs: 10,
    steps: 1,
    input: 100,
    output: 20,
    usd: 0.001,
    ...fields,
  };
}
