import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { createBudgetBook } from "@larkline/agent/budgets";
import { StatusReactions } from "@larkline/feishu";
import { botOfApp, type BotAccess, type LarklineConfig } from "@larkline/process/config";
import { errorCodes, runnerKeyOf, type InboundMessage, type SessionKey, sharedNow } from "@larkline/protocol";
import { createTurnWorker, type JobWorker } from "@larkline/queue";
import {
  HandoffImport,
  type InstanceDirectory,
  type Presence,
  Renewals,
  startAnnouncing,
  type StateMigration,
  stateVersion,
} from "@larkline/store";
import { scrubText, type Logger, type Telemetry } from "@larkline/process/telemetry";
import manifest from "../package.json" with { type: "json" };
import type { WorkerConfig } from "./config.ts";
import { openConnections, type Connections, type WorkerCounters } from "./services.ts";
import { hasDied } from "./heartbeat.ts";
import { createAgentSides, limitsOf, type AgentModels } from "./agents.ts";
import { sweepApprovalCards, sweepCards, startOperatorDesk, startSweeper } from "./background-jobs.ts";
import {
  createBuiltInTools,
  type BuiltInTools,
  createCallSigner,
  createToolCatalog,
  type ToolCatalog,
  dispatchCalls,
  warnOfUnknownTools,
} from "./tools.ts";
import { startDataKeeper } from "./data-keeping.ts";
import { createGivenUp, RunningTurns, createSessionRunner, type SessionRunnerOptions } from "./session-runner.ts";
import { createMessagePreparer } from "./prepare.ts";
import { TurnHolds, wakeAfter } from "./turn-holds.ts";
import { tellLate, watchBuiltIns } from "./turn-watch.ts";
import { createTurnApprovals, type TurnApprovals } from "./approvals.ts";
import type { Dispatch, StopCalls } from "./turn-run.ts";

export interface WorkerSetup {
  config: WorkerConfig;
  settings: LarklineConfig;
  /** The bots as which it speaks. */
  bots: readonly BotAccess[];
  models: AgentModels;
  counters: WorkerCounters;
  logger: Logger;
  telemetry: Telemetry;
}

interface AgentWorker {
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean | string>>;
  /** Hands running turns over and closes everything. Idempotent. */
  close(): Promise<void>;
}

/** Errors of one message after which it is given up. */
const maxTries = 5;
// Shorter than BullMQ's default: a wake-up whose worker died before it claimed, or between saving and
// handing out calls, has no other way back. A job that is taken away too early is fenced.
const stalledIntervalMs = 500;
/** Messages of one session taken in a row before others get their turn. */
const maxInRow = 8;

/** Longer than any writer pauses while its turn runs; suspended turns are looked at and left alone. */
const untouchedCardMs = 15 * 60_000;

interface WorkerParts extends WorkerSetup {
  owner: string;
  connections: Connections;
  catalog: ToolCatalog;
  running: RunningTurns;
  holds: TurnHolds;
  renewals: Renewals;
  handoffs: HandoffImport;
}

/** Opens every connection and starts to work. */
export async function startWorker(setup: WorkerSetup): Promise<AgentWorker> {
  const { config, logger } = setup;
  const owner = `worker-${randomUUID()}`;
  const onError = (error: unknown): void => logger.warn({ error }, "background error");
  const stopping = new AbortController();
  const { settings, bots, counters, telemetry } = setup;
  const connections = openConnections({ config, settings, bots, logger, telemetry, counters });
  const { directory, presence, bus } = connections;
  await connections.clock.followed;
  const catalog = await createToolCatalog({ directory, signal: stopping.signal, onError });
  const running = new RunningTurns();
  await bus.subscribe(({ session, turnId }) => running.cancel(session, turnId), stopping.signal);
  const holds = new TurnHolds({
    holdMs: config.holdMs,
    slots: config.concurrency,
    onEnd: (end) => counters.turnHolds.add(1, { end }),
  });
  const handoffs = openHandoffs(setup, owner, { connections, holds });
  await handoffs.listen(stopping.signal);
  const { redisUrl, namespace } = config;
  const renewals = await Renewals.start({ redisUrl, namespace, owner, onError });
  const announcer = announcing(owner, connections, onError);
  const parts: WorkerParts = { ...setup, owner, connections, catalog, running, holds, renewals, handoffs };
  let work: Work | undefined;
  const waiting = new AbortController();
  const takeover = { ...connections, owner, logger, signal: waiting.signal };
  const begin = (isTakenOver: boolean): void => {
    if (isTakenOver) work = startWork(parts);
  };
  begin(await takeOverState(takeover));
  warnOfUnknownTools({ catalog, builtIns: createBuiltIns(parts), logger }, settings.agents, stopping.signal);
  const begun = work === undefined ? untilStateIsTakenOver(takeover).then(begin) : undefined;
  const close = async (): Promise<void> => {
    waiting.abort();
    await begun;
    await Promise.all([work?.close(), connections.approvalCards.close()]);
    stopping.abort();
    await handoffs.settled();
    await Promise.all([renewals.close(), announcer.close()]);
    await presence.leave(owner).catch(onError);
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({
      ...(await connections.checkRedis()),
      clock: connections.clock.problem() ?? true,
      queue: (work?.worker.isRunning() ?? false) && connections.hearsOfJobs(),
      state: work !== undefined,
    }),
    close: async () => await (closed ??= close()),
  };
}

/** What a worker does once it may believe what is stored. */
interface Work {
  worker: JobWorker;
  close(): Promise<void>;
}

function startWork(parts: WorkerParts): Work {
  const worker = startTurns(parts);
  const sweeper = startSweeping(parts);
  const keeper = startKeeping(parts);
  const { orders, store, letters, rules, auditLog: audit, turns, bus } = parts.connections;
  const wake = turns.wake.bind(turns);
  const stop = bus.publish.bind(bus);
  const stopCalls = callStopper(parts);
  const { logger } = parts;
  const desk = startOperatorDesk({ orders, store, letters, rules, audit, wake, stop, stopCalls, logger });
  return {
    worker,
    close: async () => {
      // Together: each lets what is on its way end for some seconds, and a stop must not add them up.
      await Promise.all([worker.close({ deadlineMs: 5_000 }), sweeper.close(), keeper.close(), desk.close()]);
    },
  };
}

/** What runners hand in about calls is carried over into sessions. */
function openHandoffs(
  { config, logger }: WorkerSetup,
  worker: string,
  { connections, holds }: Pick<WorkerParts, "connections" | "holds">,
): HandoffImport {
  const { redis, store, lookups, turns } = connections;
  const keys = new Map<string, string>();
  return new HandoffImport({
    redis,
    namespace: config.namespace,
    worker,
    runnerKeyOf: (runner) => {
      const key = keys.get(runner) ?? runnerKeyOf(config.callSigningKey, runner);
      if (keys.size < 1_000) keys.set(runner, key);
      return key;
    },
    store,
    lookups,
    delivered: async (session, delivered) => await wakeAfter({ turns, holds }, session, delivered),
    onRefused: (refused) => logger.warn({ ...refused }, "what a runner has handed in is refused"),
    onError: (error) => logger.warn({ error }, "what a runner has handed in waits"),
  });
}

/** For people who look: who this is. What is decided by, is the heartbeat. */
function announcing(id: string, { instances, apis, clock }: Connections, onError: (error: unknown) => void) {
  const { version } = manifest;
  const apps = [...apis.keys()];
  const { problem: clockProblem } = clock;
  return startAnnouncing({ directory: instances, id, service: "agent-worker", version, apps, clockProblem, onError });
}

/** Hands calls out, or runs those of built-in tools. */
function dispatcher(parts: WorkerParts, builtIns: BuiltInTools): Dispatch {
  const { config, connections, telemetry, owner: worker, handoffs, holds } = parts;
  const { store, turns, tools: queues, authorities } = connections;
  const expect = handoffs.expect.bind(handoffs);
  const sign = createCallSigner(config.callSigningKey);
  const wake = wakeAfter.bind(undefined, { turns, holds });
  const watched = watchBuiltIns(telemetry, builtIns);
  return async (turn, calls) =>
    await dispatchCalls({ queues, worker, expect, store, wake, sign, authorities, builtIns: watched }, turn, calls);
}

/** A runner that is not told ends the call by itself, at its deadline at the latest. */
function callStopper({ connections, logger }: Pick<WorkerParts, "connections" | "logger">): StopCalls {
  return async (runner, cancel) => {
    try {
      await connections.stopCalls(runner, cancel);
    } catch (error) {
      logger.warn({ error, runner, ...cancel }, "a runner could not be told to stop its calls");
    }
  };
}

function approvalsDesk({ settings, connections, counters, telemetry, logger }: WorkerParts): TurnApprovals {
  const { approvals, rules, approvalCards, authorities } = connections;
  const workCards = approvalCards.work.bind(approvalCards);
  const policy = settings.permissions;
  return createTurnApprovals({ approvals, rules, authorities, policy, workCards, counters, telemetry, logger });
}

function createBuiltIns({ settings, connections: { blobs, lookups }, logger }: WorkerParts): BuiltInTools {
  return createBuiltInTools({ desk: { blobs, lookups }, limits: limitsOf(settings, settings.agents.default), logger });
}

function startTurns(parts: WorkerParts): JobWorker {
  const { config, settings, counters, logger, connections, owner, running, holds, renewals } = parts;
  const { store, turns, sender, queue } = connections;
  const prepare = createMessagePreparer({ ...connections, limits: settings.limits, logger });
  const budgets = { book: createBudgetBook(settings.budgets), store: connections.budgets };
  const builtIns = createBuiltIns(parts);
  return createTurnWorker({
    redact: scrubText,
    ...queue,
    concurrency: config.concurrency,
    renewals,
    stalledIntervalMs,
    handle: createSessionRunner({
      store,
      log: connections.log,
      turns,
      serves: serving(connections, logger),
      agent: createAgentSides({ ...connections, ...parts, budgets, builtIns, prepare }),
      dispatch: dispatcher(parts, builtIns),
      stopCalls: callStopper(parts),
      approvals: approvalsDesk(parts),
      running,
      holds,
      deliver: (lease, ready) => void ready.then(async () => await sender.deliver(lease)),
      onGivenUp: createGivenUp({ ...connections, logger }),
      onMessage: signsOfLife(settings, { ...connections, logger }),
      onRefused: tellRefused(logger),
      onTrouble: (session, error) => logger.warn({ session, error }, "Redis failed a turn; it goes on when Redis does"),
      onLost: (session, lost) => {
        for (const facts of lost) logger.error({ session, ...facts }, "stored state cannot be read and is replaced");
      },
      owner,
      hasDied: async (other) => await hasDied({ presence: connections.presence, renewals }, other),
      presence: connections.presence,
      maxTries,
      maxInRow,
      telemetry: parts.telemetry,
      onTurn: (end) => {
        counters.turnRuns.add(1, { outcome: end.outcome });
        counters.turnRunSeconds.record(end.seconds, { outcome: end.outcome });
        logTurn(logger, end);
      },
    }),
    onFailed: async ({ session, gen }, error) => {
      logger.error({ session, error }, "a wake-up failed; the session is woken again");
      parts.telemetry.events.emit({ exception: error, attributes: { session } });
      const healed = await store.heal(session, gen);
      if (healed !== undefined) await turns.ensure(session, healed);
    },
  });
}

/** Stands in session keys where those of a bot have its app id. */
const apiApp = "api";

/** Sessions of a bot that this process has no credentials for wait for a worker that has. */
function serving({ apis }: Pick<Connections, "apis">, logger: Logger): (session: SessionKey) => boolean {
  const unknown = new Set<string>();
  return (session) => {
    const [app = ""] = session.split(".", 1);
    if (app === apiApp || apis.has(app)) return true;
    if (!unknown.has(app)) {
      logger.warn({ app }, "no credentials for an app: its sessions wait for a worker that has them");
    }
    unknown.add(app);
    return false;
  };
}

/** A session may come again and again until a newer process takes it: what it needs is told once. */
function tellRefused(logger: Logger): NonNullable<SessionRunnerOptions["onRefused"]> {
  const told = new Set<string>();
  return (session, { reason, message }) => {
    if (reason === "alone") logger.warn({ session }, "its worker died twice: its message runs with no other beside it");
    else if (!told.has(message)) logger.warn({ session }, `left to newer workers: ${message}`);
    told.add(message);
  };
}

/** A turn that failed is somebody's business who can mend the cause: its person cannot. */
function logTurn(
  logger: Logger,
  { turnId, outcome, seconds, failure }: Parameters<SessionRunnerOptions["onTurn"]>[0],
): void {
  const [, known] = Object.entries(errorCodes).find(([code]) => code === outcome) ?? [];
  if (known === undefined) return logger.debug({ turnId, outcome, seconds }, "turn");
  const { message, requestId } = failure?.vendor ?? {};
  const vendor = message === undefined ? {} : { vendor: scrubText(message), requestId };
  const suggestion = failure?.suggestion ?? known.suggestion;
  logger.warn({ turnId, code: outcome, suggestion, seconds, ...vendor }, "a turn failed");
}

/** Takes back the reactions that ingress has put on a message, when they stop being true. */
function signsOfLife(
  settings: LarklineConfig,
  { apis, lookups, logger }: Pick<Connections, "apis" | "lookups"> & { logger: Logger },
): (message: InboundMessage, what: "begins" | "ends") => void {
  const desks = new Map<string, StatusReactions>();
  for (const [app, api] of apis) desks.set(app, new StatusReactions({ api, lookups, logger }));
  return ({ app, reply }, what) => {
    if (reply.channel !== "feishu" || reply.messageId === "") return;
    const { feishu } = botOfApp(settings, app);
    if (what === "begins" && feishu.queueNotice === "reaction") void desks.get(app)?.remove(reply.messageId, "queued");
    if (what === "ends" && feishu.typing) void desks.get(app)?.remove(reply.messageId, "typing");
  };
}

function startSweeping({ owner, connections, counters, telemetry, logger, handoffs, renewals }: WorkerParts): {
  close(): Promise<void>;
} {
  const { store, approvals, approvalCards, sender } = connections;
  const workCards = approvalCards.work.bind(approvalCards);
  const onHealed = (what: string, count: number): void => {
    counters.healed.add(count, { what });
    logger.info({ what, count }, "healed");
  };
  return startSweeper({
    ...connections,
    owner,
    cardSweeps: [
      async (signal) => await sweepCards({ ...connections, untouchedMs: untouchedCardMs, signal, onHealed }),
      async (signal) => await sweepApprovalCards({ approvals, workCards, signal }),
    ],
    handoffs,
    renewals,
    intervalMs: 1_000,
    staleMs: 3_000,
    deliverOutbox: async (session) => {
      const lease = await store.leaseOutbox(session);
      if (lease !== undefined) void sender.deliver(lease);
    },
    onHealed,
    onLate: (turn, call) => tellLate(telemetry, turn, call),
    onError: (error) => logger.warn({ error }, "sweep"),
  });
}

/** How often stored data is looked after. */
const keepEveryMs = 10_000;

function startKeeping({ owner, settings, connections, counters, logger }: WorkerParts): { close(): Promise<void> } {
  return startDataKeeper({
    ...connections,
    owner,
    bounds: settings.retention,
    intervalMs: keepEveryMs,
    now: sharedNow,
    onKept: (what, count) => {
      if (count > 0) counters.dataKept.add(count, { what });
    },
    onRound: ({ waiting, isWhole }) => {
      counters.dataWaiting.record(waiting);
      counters.dataRounds.add(1, { outcome: isWhole ? "ok" : "failed" });
    },
    onError: (error) => logger.warn({ error }, "stored data was not looked after; it stays until it can be"),
  });
}

interface StateTakeoverOptions {
  migration: Pick<StateMigration, "isDone" | "run">;
  instances: Pick<InstanceDirectory, "instances">;
  presence: Pick<Presence, "takeDuty">;
  owner: string;
  logger: Logger;
  signal: AbortSignal;
}

/** How long one worker may take before another one moves the state, too: that does no harm. */
const dutyMs = 60_000;
const pauseMs = 500;

/**
 * One try to take over what the version before has stored: false while one of its processes lives, or while
 * another worker is at it. Until it is taken over no worker may take jobs.
 */
export async function takeOverState(options: StateTakeoverOptions): Promise<boolean> {
  const { migration, instances, presence, owner, logger, signal } = options;
  if (await migration.isDone()) return true;
  const nowMs = sharedNow();
  const old = (await instances.instances()).filter(
    ({ stateVersion: version = 1, expiresAtMs }) => version < stateVersion && expiresAtMs > nowMs,
  );
  if (old.length > 0) {
    const processes = old.map(({ service, host, id }) => `${service} ${host} ${id}`);
    logger.warn({ processes }, "processes of the version before still run: no jobs are taken until all have stopped");
    return false;
  }
  if (!(await presence.takeDuty("migrate-state", owner, dutyMs))) return await migration.isDone();
  const sessions = await migration.run(signal);
  logger.info({ sessions }, "what the version before has stored is sealed");
  return true;
}

/** Tries until it is taken over, or `signal` aborts. Never rejects; false when aborted. */
export async function untilStateIsTakenOver(options: StateTakeoverOptions): Promise<boolean> {
  const { logger, signal } = options;
  while (!signal.aborted) {
    try {
      if (await takeOverState(options)) return true;
    } catch (error) {
      if (!signal.aborted) logger.warn({ error }, "what the version before has stored is not taken over yet");
    }
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
  }
  return false;
}
