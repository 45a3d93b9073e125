import { randomUUID } from "node:crypto";
import { createBudgetBook } from "@larkline/budgets";
import { createReactionDesk, type ReactionDesk } from "@larkline/feishu";
import { botOfApp, type BotAccess, type LarklineConfig } from "@larkline/config";
import { errorCodes, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { createTurnWorker, type JobWorker } from "@larkline/queue";
import { startAnnouncing } from "@larkline/session";
import type { Logger, Observation } from "@larkline/telemetry";
import manifest from "../package.json" with { type: "json" };
import type { WorkerConfig } from "./config.ts";
import { openConnections, type Connections } from "./connections.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { createAgentSides, limitsOf } from "./agent-side.ts";
import { sweepApprovalCards } from "./approval-sweep.ts";
import { createBuiltInTools, type BuiltInTools } from "./built-in-tools.ts";
import { createCallSigner } from "./call-signer.ts";
import { startDataKeeper } from "./data-keeper.ts";
import { sweepCards } from "./card-sweep.ts";
import { createGivenUp } from "./given-up.ts";
import { createMessagePreparer } from "./message-preparer.ts";
import type { AgentModels } from "./models.ts";
import { RunningTurns } from "./running-turns.ts";
import { createSessionRunner, type SessionRunnerOptions } from "./session-runner.ts";
import { startSweeper } from "./sweeper.ts";
import { createToolCatalog, type ToolCatalog } from "./tool-catalog.ts";
import { dispatchCalls } from "./tool-dispatch.ts";
import { tellLate, watchBuiltIns } from "./turn-watch.ts";
import { createTurnApprovals, type TurnApprovals } from "./turn-approvals.ts";
import type { Dispatch } from "./turn-options.ts";
import { wakeAfter } from "./wake-after.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

export interface WorkerSetup {
  config: WorkerConfig;
  settings: LarklineConfig;
  /** The bots as which it speaks. */
  bots: readonly BotAccess[];
  models: AgentModels;
  metrics: WorkerMetrics;
  logger: Logger;
  observation: Observation;
}

export interface AgentWorker {
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean>>;
  /** Hands running turns over and closes everything. Idempotent. */
  close(): Promise<void>;
}

/** Crashes of one message after which it is given up. */
const maxTries = 5;
// Shorter than BullMQ's defaults: a wake-up whose worker died before it claimed, or between saving and
// handing out calls, has no other way back. A job that is taken away too early is fenced.
const lockDurationMs = 5_000;
const stalledIntervalMs = 1_500;
/** Messages of one session taken in a row before others get their turn. */
const maxInRow = 8;

/** Longer than any writer pauses while its turn runs; suspended turns are looked at and left alone. */
const untouchedCardMs = 15 * 60_000;

interface WorkerParts extends WorkerSetup {
  owner: string;
  connections: Connections;
  catalog: ToolCatalog;
  running: RunningTurns;
}

/** Opens every connection and starts to work. */
export async function startWorker(setup: WorkerSetup): Promise<AgentWorker> {
  const { config, logger } = setup;
  const owner = `worker-${randomUUID()}`;
  const onError = (error: unknown): void => logger.warn({ error }, "background error");
  const stopping = new AbortController();
  const { settings, bots, metrics, observation } = setup;
  const connections = openConnections({ config, settings, bots, logger, observation, onFrame: metrics.frame });
  const { directory, presence, bus, wakes, turns } = connections;
  const catalog = await createToolCatalog({ directory, signal: stopping.signal, onError });
  const running = new RunningTurns();
  await bus.subscribe(({ session, turnId }) => running.cancel(session, turnId), stopping.signal);
  await wakes.subscribe(({ session, gen }) => void turns.wake(session, gen).catch(onError), stopping.signal);
  const heartbeat = await startHeartbeat({ presence, owner, onError });
  const announcer = announcing(owner, connections, onError);
  const parts: WorkerParts = { ...setup, owner, connections, catalog, running };
  const worker = startTurns(parts);
  const sweeper = startSweeping(parts);
  const keeper = startKeeping(parts);
  const close = async (): Promise<void> => {
    // Together: each lets what is on its way end for some seconds, and a stop must not add them up.
    const sweeps = [sweeper.close(), keeper.close()];
    await Promise.all([worker.close({ deadlineMs: 5_000 }), ...sweeps, connections.approvalCards.close()]);
    stopping.abort();
    await Promise.all([heartbeat.close(), announcer.close()]);
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({ redis: await connections.redisAnswers(), queue: worker.isRunning() }),
    close: async () => await (closed ??= close()),
  };
}

/** For people who look: who this is. What is decided by, is the heartbeat. */
function announcing(id: string, { instances, apis }: Connections, onError: (error: unknown) => void) {
  const { version } = manifest;
  const apps = [...apis.keys()];
  return startAnnouncing({ directory: instances, id, service: "agent-worker", version, apps, onError });
}

/** Hands calls out, or runs those of built-in tools. */
function dispatcher({ config, connections, observation }: WorkerParts, builtIns: BuiltInTools): Dispatch {
  const { store, turns, tools: queues } = connections;
  const sign = createCallSigner(config.callSigningKey);
  const wake = wakeAfter.bind(undefined, turns);
  const watched = watchBuiltIns(observation, builtIns);
  return async (turn, calls) => await dispatchCalls({ queues, store, wake, sign, builtIns: watched }, turn, calls);
}

function approvalsDesk({ settings, connections, metrics, observation, logger }: WorkerParts): TurnApprovals {
  const { approvals, rules, approvalCards } = connections;
  const workCards = approvalCards.work.bind(approvalCards);
  const policy = settings.permissions;
  return createTurnApprovals({ approvals, rules, policy, workCards, metrics, observation, logger });
}

function startTurns(parts: WorkerParts): JobWorker {
  const { config, settings, metrics, logger, connections, owner, running } = parts;
  const { store, turns, sender, queue, blobs, lookups } = connections;
  const prepare = createMessagePreparer({ ...connections, limits: settings.limits, logger });
  const budgets = { book: createBudgetBook(settings.budgets), store: connections.budgets };
  const builtIns = createBuiltInTools({
    desk: { blobs, lookups },
    limits: limitsOf(settings, settings.agents.default),
    logger,
  });
  return createTurnWorker({
    ...queue,
    concurrency: config.concurrency,
    lockDurationMs,
    stalledIntervalMs,
    handle: createSessionRunner({
      store,
      turns,
      serves: serving(connections, logger),
      agent: createAgentSides({ ...connections, ...parts, budgets, builtIns, prepare }),
      dispatch: dispatcher(parts, builtIns),
      approvals: approvalsDesk(parts),
      running,
      deliver: (lease, ready) => void ready.then(async () => await sender.deliver(lease)),
      onGivenUp: createGivenUp({ ...connections, logger }),
      onMessage: signsOfLife(settings, { ...connections, logger }),
      owner,
      maxTries,
      maxInRow,
      observation: parts.observation,
      onTurn: (end) => {
        metrics.turn(end.outcome, end.seconds);
        logTurn(logger, end);
      },
    }),
    onFailed: async ({ session, gen }, error) => {
      logger.error({ session, error }, "a wake-up failed; the session is woken again");
      parts.observation.error(error, { session });
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
    if (!unknown.has(app))
      logger.warn({ app }, "no credentials for an app: its sessions wait for a worker that has them");
    unknown.add(app);
    return false;
  };
}

/** A turn that failed is somebody's business who can mend the cause: its person cannot. */
function logTurn(logger: Logger, { turnId, outcome, seconds }: Parameters<SessionRunnerOptions["onTurn"]>[0]): void {
  const [, failure] = Object.entries(errorCodes).find(([code]) => code === outcome) ?? [];
  if (failure === undefined) logger.debug({ turnId, outcome, seconds }, "turn");
  else logger.warn({ turnId, code: outcome, suggestion: failure.suggestion, seconds }, "a turn failed");
}

/** Takes back the reactions that ingress has put on a message, when they stop being true. */
function signsOfLife(
  settings: LarklineConfig,
  { apis, lookups, logger }: Pick<Connections, "apis" | "lookups"> & { logger: Logger },
): (message: InboundMessage, what: "begins" | "ends") => void {
  const desks = new Map<string, ReactionDesk>();
  for (const [app, api] of apis) desks.set(app, createReactionDesk({ api, lookups, logger }));
  return ({ app, reply }, what) => {
    if (reply.channel !== "feishu" || reply.messageId === "") return;
    const { feishu } = botOfApp(settings, app);
    if (what === "begins" && feishu.queueNotice === "reaction") void desks.get(app)?.remove(reply.messageId, "queued");
    if (what === "ends" && feishu.typing) void desks.get(app)?.remove(reply.messageId, "typing");
  };
}

function startSweeping({ owner, connections, metrics, observation, logger }: WorkerParts): { close(): Promise<void> } {
  const { store, approvals, approvalCards, sender } = connections;
  const workCards = approvalCards.work.bind(approvalCards);
  const onHealed = (what: string, count: number): void => {
    metrics.healed(what, count);
    logger.info({ what, count }, "healed");
  };
  return startSweeper({
    ...connections,
    owner,
    cardSweeps: [
      async (signal) => await sweepCards({ ...connections, untouchedMs: untouchedCardMs, signal, onHealed }),
      async (signal) => await sweepApprovalCards({ approvals, workCards, signal }),
    ],
    intervalMs: 1_000,
    staleMs: 3_000,
    deliverOutbox: async (session) => {
      const lease = await store.leaseOutbox(session);
      if (lease !== undefined) void sender.deliver(lease);
    },
    onHealed,
    onLate: (turn, call) => tellLate(observation, turn, call),
    onError: (error) => logger.warn({ error }, "sweep"),
  });
}

/** How often stored data is looked after. */
const keepEveryMs = 10_000;

function startKeeping({ owner, settings, connections, metrics, logger }: WorkerParts): { close(): Promise<void> } {
  return startDataKeeper({
    ...connections,
    owner,
    bounds: settings.retention,
    intervalMs: keepEveryMs,
    now: Date.now,
    onKept: metrics.keeper.kept,
    onRound: metrics.keeper.round,
    onError: (error) => logger.warn({ error }, "stored data was not looked after; it stays until it can be"),
  });
}
