import type { BatchObservableResult, Logger, Metrics } from "@larkline/process/telemetry";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import type { QueueCatalog } from "@larkline/store/queues";
import type { DeadLetters } from "@larkline/store";
import type { GateState, Presence, ServerState, SessionIndex } from "@larkline/store/operations";
import type { RunnerDirectory } from "@larkline/store/runners";
import type { RateGovernor } from "@larkline/store/platform";
import type { QueueList } from "./queue-list.ts";

/** The metrics of this process. */
export function createCounters(metrics: Metrics) {
  return {
    signIns: metrics.createCounter("larkline_console_sign_ins_total"),
    actions: metrics.createCounter("larkline_console_actions_total"),
  };
}

export type ConsoleCounters = ReturnType<typeof createCounters>;

export interface StateMetricsDeps {
  metrics: Metrics;
  queues: Pick<QueueList, "names">;
  catalog: Pick<QueueCatalog, "depth">;
  index: Pick<SessionIndex, "gateState">;
  presence: Pick<Presence, "members">;
  directory: Pick<RunnerDirectory, "runners">;
  governor: Pick<RateGovernor, "callsOf">;
  letters: Pick<DeadLetters, "count">;
  /** Apps of the platform whose quota is looked at. */
  apps: readonly string[];
  /** Calls a month that the edition of an app allows; null without that setting. */
  quotaOf: (app: string) => number | null;
  logger: Logger;
  clock: Clock;
  /** Readings are not repeated within this time, ms. Default 5000. */
  freshMs?: number;
  /** How long one reading may take, ms. Default 2000. */
  deadlineMs?: number;
}

const queueStates = ["waiting", "active", "delayed", "failed"] as const;

function createGauges(metrics: Metrics) {
  return {
    jobs: metrics.createObservableGauge("larkline_queue_jobs"),
    oldestJob: metrics.createObservableGauge("larkline_queue_oldest_seconds"),
    sessions: metrics.createObservableGauge("larkline_sessions"),
    oldestMessage: metrics.createObservableGauge("larkline_message_oldest_seconds"),
    outboxes: metrics.createObservableGauge("larkline_outbox_sessions"),
    oldestReply: metrics.createObservableGauge("larkline_outbox_oldest_seconds"),
    calls: metrics.createObservableGauge("larkline_calls_open"),
    approvals: metrics.createObservableGauge("larkline_approvals_open"),
    workers: metrics.createObservableGauge("larkline_workers"),
    runners: metrics.createObservableGauge("larkline_runners"),
    monthCalls: metrics.createObservableGauge("larkline_feishu_month_calls"),
    monthLimit: metrics.createObservableGauge("larkline_feishu_month_limit"),
    letters: metrics.createObservableGauge("larkline_dead_letters"),
  };
}

type Gauges = ReturnType<typeof createGauges>;
type Shown = BatchObservableResult;

function ageSeconds(nowMs: number, atMs: number | undefined): number {
  return atMs === undefined ? 0 : Math.max(0, nowMs - atMs) / 1_000;
}

function showGate(
  result: Shown,
  gauges: Gauges,
  { state, nowMs }: { state: GateState; nowMs: number },
): void {
  for (const [name, count] of Object.entries(state.sessions)) {
    result.observe(gauges.sessions, count, { state: name });
  }
  for (const name of ["queued", "running"] as const) {
    result.observe(gauges.oldestMessage, ageSeconds(nowMs, state.oldestMessageAtMs[name]), {
      state: name,
    });
  }
  result.observe(gauges.outboxes, state.outboxes);
  result.observe(gauges.oldestReply, ageSeconds(nowMs, state.oldestReplyAtMs));
  result.observe(gauges.calls, state.openCalls);
  result.observe(gauges.approvals, state.openApprovals);
}

/** What is read at once, so that all of it is of the same moment. */
async function readAll({
  queues,
  catalog,
  index,
  presence,
  directory,
  governor,
  letters,
  apps,
  quotaOf,
  clock,
}: StateMetricsDeps) {
  const names = await queues.names();
  // The quota follows the calendar of the platform's own time zone.
  const month = new Date(clock.now() + 8 * 3_600_000).toISOString().slice(0, 7);
  const [depths, state, workers, runners, dead, calls] = await Promise.all([
    Promise.all(names.map(async (name) => ({ name, ...(await catalog.depth(name)) }))),
    index.gateState(),
    presence.members(),
    directory.runners(),
    letters.count(),
    Promise.all(
      apps.map(async (app) => ({
        app,
        quota: quotaOf(app),
        calls: await governor.callsOf(app, month),
      })),
    ),
  ]);
  return { depths, state, workers, runners, dead, calls, nowMs: clock.now() };
}

function show(result: Shown, gauges: Gauges, all: Awaited<ReturnType<typeof readAll>>): void {
  const { depths, state, workers, runners, dead, calls } = all;
  const { nowMs } = all;
  for (const { name, oldestAtMs, ...depth } of depths) {
    for (const job of queueStates) {
      result.observe(gauges.jobs, depth[job], { queue: name, state: job });
    }
    result.observe(gauges.oldestJob, ageSeconds(nowMs, oldestAtMs), { queue: name });
  }
  showGate(result, gauges, { state, nowMs });
  result.observe(gauges.workers, workers.length);
  result.observe(gauges.letters, dead);
  const instances = new Map<string, number>();
  for (const { runner } of runners) instances.set(runner, (instances.get(runner) ?? 0) + 1);
  for (const [runner, count] of instances) result.observe(gauges.runners, count, { runner });
  for (const { app, quota, calls: count } of calls) {
    result.observe(gauges.monthCalls, count, { app });
    if (quota !== null) result.observe(gauges.monthLimit, quota, { app });
  }
}

/**
 * Shows what is in Redis: it is read for a scrape, and not again within five seconds. What could
 * not be read is absent, so that an old value is not taken for a new one.
 */
export function showState(deps: StateMetricsDeps): void {
  const { metrics, logger, clock, freshMs = 5_000, deadlineMs = 2_000 } = deps;
  const gauges = createGauges(metrics);
  const up = metrics.createObservableGauge("larkline_state_up");
  let readAtMs = Number.NEGATIVE_INFINITY;
  let last: Awaited<ReturnType<typeof readAll>> | undefined;
  let reading: Promise<void> | undefined;

  const read = async (): Promise<void> => {
    try {
      last = await withDeadline(clock, readAll(deps), deadlineMs);
    } catch (error) {
      last = undefined;
      logger.debug({ error }, "the state could not be read for a scrape");
    }
    readAtMs = clock.monotonic();
  };
  const refresh = async (result: Shown): Promise<void> => {
    if (clock.monotonic() - readAtMs >= freshMs) {
      await (reading ??= read().finally(() => (reading = undefined)));
    }
    result.observe(up, last === undefined ? 0 : 1);
    if (last !== undefined) show(result, gauges, last);
  };
  metrics.addBatchObservableCallback(refresh, [up, ...Object.values(gauges)]);
}

/** How long Redis may take to answer a scrape, ms. */
const deadlineMs = 2_000;

/** Shows how the servers of Redis are, read for each scrape; absent while one of them does not answer. */
export function showRedis(
  metrics: Metrics,
  clock: Clock,
  read: () => Promise<readonly ServerState[]>,
): void {
  const memory = metrics.createObservableGauge("larkline_redis_memory_bytes");
  const limit = metrics.createObservableGauge("larkline_redis_memory_limit_bytes");
  const persists = metrics.createObservableGauge("larkline_redis_persists");
  const refresh = async (result: Shown): Promise<void> => {
    const states = await withDeadline(clock, read(), deadlineMs).catch(() => []);
    for (const { node, memoryBytes, memoryLimitBytes, persists: isSafe } of states) {
      result.observe(memory, memoryBytes, { node });
      result.observe(limit, memoryLimitBytes, { node });
      result.observe(persists, isSafe ? 1 : 0, { node });
    }
  };
  metrics.addBatchObservableCallback(refresh, [memory, limit, persists]);
}
