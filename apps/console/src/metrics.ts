import type { Metrics, Logger } from "@larkline/process/telemetry";
import { sharedNow, systemClock, withDeadline } from "@larkline/protocol";
import type { QueueCatalog } from "@larkline/queue";
import type { DeadLetters, GateState, Presence, RateGovernor, RunnerDirectory, ServerState } from "@larkline/store";
import type { QueueList } from "./queue-board.ts";

/** The metrics of this process. */
export function createCounters(metrics: Metrics) {
  return {
    signIns: metrics.counter({
      name: "larkline_console_sign_ins_total",
      help: "Tries to sign in by what became of them (signed_in, wrong, too_many).",
      labels: ["outcome"],
    }),
    actions: metrics.counter({
      name: "larkline_console_actions_total",
      help: "What operators did (content_shown, rule_revoked, turn_cancelled, and actions on queues such as retry).",
      labels: ["action"],
    }),
  };
}

export type ConsoleCounters = ReturnType<typeof createCounters>;

export interface StateMetricsDeps {
  metrics: Metrics;
  queues: Pick<QueueList, "names">;
  catalog: Pick<QueueCatalog, "depth">;
  gate: () => Promise<GateState>;
  presence: Pick<Presence, "members">;
  directory: Pick<RunnerDirectory, "runners">;
  governor: Pick<RateGovernor, "callsOf">;
  letters: Pick<DeadLetters, "count">;
  /** Apps of the platform whose quota is looked at. */
  apps: readonly string[];
  /** Calls a month that the edition of an app allows; null without that setting. */
  quotaOf: (app: string) => number | null;
  logger: Logger;
  /** Readings are not repeated within this time, ms. Default 5000. */
  freshMs?: number;
  /** How long one reading may take, ms. Default 2000. */
  deadlineMs?: number;
}

const queueStates = ["waiting", "active", "delayed", "failed"] as const;

function createGauges({ gauge }: Metrics) {
  return {
    jobs: gauge({
      name: "larkline_queue_jobs",
      help: "Jobs of a queue by their state.",
      labels: ["queue", "state"],
    }),
    oldestJob: gauge({
      name: "larkline_queue_oldest_seconds",
      help: "Age of the oldest waiting job; 0 when none waits.",
      labels: ["queue"],
    }),
    sessions: gauge({ name: "larkline_sessions", help: "Sessions by their state.", labels: ["state"] }),
    oldestMessage: gauge({
      name: "larkline_message_oldest_seconds",
      help: "Age of the oldest message that is being answered, by the state of its session; 0 when there is none.",
      labels: ["state"],
    }),
    outboxes: gauge({
      name: "larkline_outbox_sessions",
      help: "Sessions with replies that the platform has not confirmed.",
    }),
    oldestReply: gauge({
      name: "larkline_outbox_oldest_seconds",
      help: "Age of the oldest reply that the platform has not confirmed; 0 when there is none.",
    }),
    calls: gauge({ name: "larkline_calls_open", help: "Tool calls without an outcome." }),
    approvals: gauge({ name: "larkline_approvals_open", help: "Questions to people that are open." }),
    workers: gauge({ name: "larkline_workers", help: "Living workers." }),
    runners: gauge({ name: "larkline_runners", help: "Living instances of a runner.", labels: ["runner"] }),
    monthCalls: gauge({
      name: "larkline_feishu_month_calls",
      help: "Calls of the platform this month that count against its quota.",
      labels: ["app"],
    }),
    monthLimit: gauge({
      name: "larkline_feishu_month_limit",
      help: "Calls of the platform that an app may make in a month, where the configuration says so.",
      labels: ["app"],
    }),
    letters: gauge({ name: "larkline_dead_letters", help: "Dead letters: messages, replies, questions." }),
  };
}

type Gauges = ReturnType<typeof createGauges>;

function ageSeconds(nowMs: number, atMs: number | undefined): number {
  return atMs === undefined ? 0 : Math.max(0, nowMs - atMs) / 1_000;
}

function showGate(gauges: Gauges, state: GateState, nowMs: number): void {
  for (const [name, count] of Object.entries(state.sessions)) gauges.sessions.set({ state: name }, count);
  for (const name of ["queued", "running"] as const) {
    gauges.oldestMessage.set({ state: name }, ageSeconds(nowMs, state.oldestMessageAtMs[name]));
  }
  gauges.outboxes.set({}, state.outboxes);
  gauges.oldestReply.set({}, ageSeconds(nowMs, state.oldestReplyAtMs));
  gauges.calls.set({}, state.openCalls);
  gauges.approvals.set({}, state.openApprovals);
}

/** What is read at once, so that all of it is of the same moment. */
async function readAll({
  queues,
  catalog,
  gate,
  presence,
  directory,
  governor,
  letters,
  apps,
  quotaOf,
}: StateMetricsDeps) {
  const names = await queues.names();
  // The quota follows the calendar of the platform's own time zone.
  const month = new Date(sharedNow() + 8 * 3_600_000).toISOString().slice(0, 7);
  const [depths, state, workers, runners, dead, calls] = await Promise.all([
    Promise.all(names.map(async (name) => ({ name, ...(await catalog.depth(name)) }))),
    gate(),
    presence.members(),
    directory.runners(),
    letters.count(),
    Promise.all(apps.map(async (app) => ({ app, quota: quotaOf(app), calls: await governor.callsOf(app, month) }))),
  ]);
  return { depths, state, workers, runners, dead, calls };
}

function show(gauges: Gauges, all: Awaited<ReturnType<typeof readAll>>): void {
  const { depths, state, workers, runners, dead, calls } = all;
  const nowMs = sharedNow();
  for (const { name, oldestAtMs, ...depth } of depths) {
    for (const job of queueStates) gauges.jobs.set({ queue: name, state: job }, depth[job]);
    gauges.oldestJob.set({ queue: name }, ageSeconds(nowMs, oldestAtMs));
  }
  showGate(gauges, state, nowMs);
  gauges.workers.set({}, workers.length);
  gauges.letters.set({}, dead);
  const instances = new Map<string, number>();
  for (const { runner } of runners) instances.set(runner, (instances.get(runner) ?? 0) + 1);
  for (const [runner, count] of instances) gauges.runners.set({ runner }, count);
  for (const { app, quota, calls: count } of calls) {
    gauges.monthCalls.set({ app }, count);
    if (quota !== null) gauges.monthLimit.set({ app }, quota);
  }
}

/**
 * Shows what is in Redis: it is read when somebody scrapes, and not again within five seconds. What could
 * not be read is absent, so that an old value is not taken for a new one.
 */
export function showState(deps: StateMetricsDeps): void {
  const { metrics, logger, freshMs = 5_000, deadlineMs = 2_000 } = deps;
  const gauges = createGauges(metrics);
  const up = metrics.gauge({ name: "larkline_state_up", help: "Whether Redis could be read (1 or 0)." });
  let readAtMs = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;

  const read = async (): Promise<void> => {
    try {
      const all = await withDeadline(systemClock, readAll(deps), deadlineMs);
      for (const gauge of Object.values(gauges)) gauge.clear();
      show(gauges, all);
      up.set({}, 1);
    } catch (error) {
      for (const gauge of Object.values(gauges)) gauge.clear();
      up.set({}, 0);
      logger.debug({ error }, "the state could not be read for a scrape");
    }
    readAtMs = performance.now();
  };
  metrics.onScrape(async () => {
    if (performance.now() - readAtMs < freshMs) return;
    await (reading ??= read().finally(() => (reading = undefined)));
  });
}

/** How long Redis may take to answer a scrape, ms. */
const deadlineMs = 2_000;

/** Shows how the servers of Redis are, each time somebody scrapes; absent while one of them does not answer. */
export function showRedis(metrics: Metrics, read: () => Promise<readonly ServerState[]>): void {
  const labels = ["node"] as const;
  const memory = metrics.gauge({ name: "larkline_redis_memory_bytes", help: "Memory that Redis takes.", labels });
  const limit = metrics.gauge({
    name: "larkline_redis_memory_limit_bytes",
    help: "Memory that Redis may take.",
    labels,
  });
  const persists = metrics.gauge({
    name: "larkline_redis_persists",
    help: "Whether Redis keeps an append-only file and can write it (1 or 0).",
    labels,
  });
  metrics.onScrape(async () => {
    const states = await withDeadline(systemClock, read(), deadlineMs).catch(() => []);
    for (const gauge of [memory, limit, persists]) gauge.clear();
    for (const { node, memoryBytes, memoryLimitBytes, persists: isSafe } of states) {
      memory.set({ node }, memoryBytes);
      limit.set({ node }, memoryLimitBytes);
      persists.set({ node }, isSafe ? 1 : 0);
    }
  });
}
