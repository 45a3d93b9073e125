import { totalmem } from "node:os";
import { createHash } from "node:crypto";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { StartError } from "@larkline/process/app";
import type { Env, McpServerConfig } from "@larkline/process/config";
import {
  cancelChannelOf,
  createCancelBus,
  ToolQueues,
  createToolWorker,
  type JobWorker,
} from "@larkline/store/queues";
import { type BlobStore, defaultBlobTtlMs, RedisBlobStore } from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  isAnswered,
  type RedisConnection,
  heartbeatMs,
  OwnPresence,
  runnerGroup,
  ServerClock,
  takesWrites,
} from "@larkline/store/redis";
import { rightsProblem } from "@larkline/store/rights";
import {
  RunnerDirectory,
  RunnerHandoff,
  RunnerLocks,
  type RunnerInstance,
} from "@larkline/store/runners";
import { systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol/clock";
import type { ToolJob } from "@larkline/protocol/runner";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import {
  createClockLog,
  scrubText,
  type Logger,
  type Metrics,
  type Telemetry,
} from "@larkline/process/telemetry";
import { announcementOf, type Tool } from "@larkline/tool-kit";
import {
  CallHandler,
  createFileStore,
  digestOf,
  RunningCalls,
  createRunnerMetrics,
  type RunnerMetrics,
} from "./call.ts";
import { CallHandoff } from "./call-handoff.ts";
import { IsolationRefusedError, openLevels, type Levels } from "./levels.ts";
import { openMcpMounts, type McpMounts } from "./mcp/mounts.ts";
import type { RunnerConfig } from "./runner-config.ts";
import type { LoadedTools } from "./tool-modules.ts";

export type RunnerSettings = Omit<
  RunnerConfig,
  "drainMs" | "configFile" | "host" | "port" | "logLevel"
>;

export interface RunnerSetup {
  config: RunnerSettings;
  loaded: LoadedTools;
  /** MCP servers whose tools this runner offers. Default: none. */
  mcpServers?: readonly McpServerConfig[];
  /** Whether a sandbox is accepted in which programs get far more memory than they may have. Default: no. */
  allowUnboundedMemory?: boolean;
  /** The variables of which tools get those that they name. Default: none. */
  environment?: Env;
  logger: Logger;
  metrics: Metrics;
  telemetry: Telemetry;
  /**
   * It must stop: another one now offers its tools with other definitions, because it counted as dead, or a tool cannot be
   * loaded where it is to run.
   */
  onRefused: (conflict: string) => void;
  /** How long files are kept after they were last stored, ms. Default 7 days. */
  blobTtlMs?: number;
  /** How long running calls may continue after `close`, in ms. Default 8 s. */
  graceMs?: number;
  /** Default: those of the machine. */
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** With the clock and the chance that it has. */
type Setup = RunnerSetup & { clock: Clock; random: Random };

export interface ToolRunner {
  ready(): Promise<Record<string, boolean | string>>;
  /**
   * Withdraws first, so that workers stop choosing this runner; lets running calls finish for the
   * grace period, then gives repeatable ones back to the queue and answers `once` ones as unknown.
   * What is left in the queue waits for another instance, up to its deadline. Idempotent.
   */
  close(): Promise<void>;
  /** Attacks the sandbox again, where there is one; also done every hour. */
  recheck(): Promise<void>;
}

/**
 * Opens the levels of isolation that the tools ask for, announces the tools and starts to work. Throws an
 * IsolationRefusedError, an AnnouncementRefusedError, or why Redis cannot be reached.
 */
export async function startRunner(given: RunnerSetup): Promise<ToolRunner> {
  const setup = {
    ...given,
    clock: given.clock ?? systemClock,
    random: given.random ?? systemRandom,
  };
  const { logger } = setup;
  const calls = new RunningCalls();
  const metrics = createRunnerMetrics(setup.metrics, () => calls.count);
  let started = false;
  let problem: unknown;
  const onError = (error: unknown): void => {
    problem = error; // the caller reports it in one line
    if (started) logger.warn({ error }, "background error");
  };
  const connections = await openConnections(setup, onError).catch((error: unknown) => {
    throw error instanceof StartError ? error : (problem ?? error);
  });
  let levels: Levels | undefined;
  let opened: OpenedMounts | undefined;
  try {
    levels = await openRunnerLevels(setup, metrics);
    opened = openMounts(setup, levels);
    const announced = await announceTools(setup, connections, levels, opened);
    const working = await work(
      { setup, connections, levels, mounts: opened.mounts, metrics, calls },
      announced,
    );
    started = true;
    const stop = prepareSoon(setup, levels, opened.mounts);
    return {
      ...working,
      close: async () => {
        stop();
        await working.close();
      },
    };
  } catch (error) {
    await opened?.mounts.close();
    await Promise.all([connections.close(), levels?.close()]);
    const isRefused =
      error instanceof AnnouncementRefusedError || error instanceof IsolationRefusedError;
    throw isRefused ? error : (problem ?? error);
  }
}

/** By then those who wait until this process is ready know it. */
const prepareAfterMs = 250;

/** What takes time and is not needed for a start: MCP servers are mounted, children of tools wait for their first call. */
function prepareSoon(
  { clock, onRefused }: Setup,
  levels: Pick<Levels, "warm">,
  mounts: Pick<McpMounts, "start">,
): () => void {
  let isOver = false;
  const cancel = clock.after(prepareAfterMs, () => {
    mounts.start();
    void levels.warm().catch((error: unknown) => {
      if (!isOver) onRefused(error instanceof Error ? error.message : String(error));
    });
  });
  return () => {
    isOver = true;
    cancel();
  };
}

interface Connections {
  /** Fails fast: for commands that a call waits for. */
  redis: RedisConnection;
  /** Waits for Redis without limit, as queue workers must. */
  queueRedis: RedisConnection;
  serverClock: ServerClock;
  presence: OwnPresence;
  /** The name of this instance, in the directory and at the end of the id of its presence. */
  instance: string;
  /** Aborts when the connections close. */
  closing: AbortSignal;
  onError: (error: unknown) => void;
  close(): Promise<void>;
}

async function openConnections(
  { config: { redisUrl, namespace, runner }, logger, clock, random }: Setup,
  onError: (error: unknown) => void,
): Promise<Connections> {
  const redis = connectRedis(redisUrl, { onError, clock });
  const queueRedis = connectRedis(redisUrl, { role: "worker", onError, clock });
  const serverClock = new ServerClock(redis, createClockLog(logger), clock);
  const closing = new AbortController();
  const close = async (): Promise<void> => {
    closing.abort();
    serverClock.close();
    await Promise.all([closeRedis(redis, clock), closeRedis(queueRedis, clock)]);
  };
  const group = runnerGroup(runner);
  const instance = random.uuid();
  const id = `${group}:${instance}`;
  const presence = await serverClock.followed
    .then(async () => {
      const problem = await rightsProblem(redis, "tool-runner", { namespace, runner });
      if (problem !== undefined) throw new StartError(problem);
      return await OwnPresence.start({ redisUrl, namespace, id, group, onError, clock });
    })
    .catch(async (error: unknown) => {
      await close();
      throw error;
    });
  return {
    redis,
    queueRedis,
    serverClock,
    presence,
    instance,
    closing: closing.signal,
    onError,
    close: async () => {
      await Promise.all([presence.close(), close()]);
    },
  };
}

async function openRunnerLevels(setup: Setup, metrics: RunnerMetrics): Promise<Levels> {
  const { config, loaded, logger, environment = {}, allowUnboundedMemory = false } = setup;
  return await openLevels({
    loaded,
    environment,
    concurrency: callsAtOnce(setup),
    childrenAtMost: childrenAtMost(config.childMb, callsAtOnce(setup)),
    tiers: config.sandboxTiers,
    allowUnboundedMemory,
    clock: setup.clock,
    random: setup.random,
    onLine: (line, stream) => logger.info({ stream }, line),
    onDropped: (tool, reason) => {
      metrics.dropped.add(1, { tool });
      logger.warn({ tool, reason }, "a message of a tool's process is dropped");
    },
    onSandboxEvent: ({ event, detail }) => logger.warn({ event, detail }, "sandbox"),
    onFinding: ({ tier, holds, reason }) => {
      metrics.sandbox.record(holds ? 1 : 0, { tier });
      if (holds && reason === "") logger.info({ tier }, "the sandbox holds");
      else if (holds) logger.warn({ tier, reason }, "the sandbox holds, but for what is allowed");
      else logger.error({ tier, reason }, "the sandbox does not hold");
    },
  });
}

/** Over all workers of this process. */
function callsAtOnce({ config: { concurrency }, loaded }: Setup): number {
  const limited = loaded.registry.tools().filter(({ limits }) => limits !== undefined);
  return limited.reduce((sum, tool) => sum + limitedConcurrency(tool, concurrency), concurrency);
}

/** How many calls of a tool run at once: its limit, and at most `most`. */
function limitedConcurrency({ limits }: Tool, most: number): number {
  return Math.min(most, limits?.concurrency ?? most);
}

/** What the runner itself takes, and its warm children, in MB. */
const ownMb = 384;

/** As many children as fit into the memory of this process: that of its control group, or of the machine. */
function childrenAtMost(childMb: number | undefined = 80, most: number): number {
  const limit = process.constrainedMemory();
  const bytes = limit > 0 && limit < totalmem() ? limit : totalmem();
  const fit = Math.floor((bytes / 1_048_576 - ownMb) / childMb);
  return Math.max(1, Math.min(most, fit));
}

interface OpenedMounts {
  mounts: McpMounts;
  /** Called when the list changes. */
  follow(listener: () => void): void;
}

function openMounts(
  { mcpServers = [], environment = {}, logger, clock, random }: Setup,
  levels: Levels,
): OpenedMounts {
  let announce: (() => void) | undefined;
  const mounts = openMcpMounts({
    servers: mcpServers,
    environment,
    clock,
    random,
    openSession: async (command) => await levels.start(command),
    onChange: () => announce?.(),
    onEvent: ({ type, ...facts }) => {
      if (type === "connected") logger.info(facts, "MCP server connected");
      else {
        logger.warn(
          facts,
          type === "disconnected" ? "MCP server is away" : "MCP tool is not mounted",
        );
      }
    },
  });
  return { mounts, follow: (listener) => (announce = listener) };
}

interface Announced {
  announcement: Announcement;
  generation: GenerationState;
  /** Whether another living process of this runner offers the tool that a call was made for. */
  isOffered(job: ToolJob): Promise<boolean>;
}

/** A mounted tool that cannot be offered is left out for a while; without its own tools a runner must stop. */
async function announceTools(
  setup: Setup,
  { redis, serverClock, instance, closing, onError }: Connections,
  levels: Levels,
  { mounts, follow }: OpenedMounts,
): Promise<Announced> {
  const { config, logger, onRefused } = setup;
  const { runner, runtimeClass } = config;
  const tier = levels.sandbox()?.tier;
  const sandbox =
    tier === undefined ? {} : { sandbox: { tier, ...(runtimeClass && { runtimeClass }) } };
  const directory = new RunnerDirectory({
    redis,
    namespace: config.namespace,
    runnerKey: config.runnerKey,
    clock: setup.clock,
  });
  const generation = new GenerationState();
  const announcement = await startAnnouncement({
    directory,
    instance: { runner, instance, generation: generationOf(setup), ...sandbox },
    tools: () => offered(setup, mounts),
    serverClock,
    clock: setup.clock,
    onError,
    onCurrent: (isCurrent) => {
      generation.set(isCurrent);
      if (isCurrent) logger.info({}, "this runner takes calls again: the newer generation is gone");
      else {
        logger.warn(
          {},
          "a newer generation of this runner has started: this one takes no more calls",
        );
      }
    },
    onRefused: (conflict, tool) => {
      if (!mounts.exclude(tool)) return onRefused(conflict);
      logger.warn({ tool, conflict }, "MCP tool is not offered for now");
      announcement.changed();
    },
  });
  follow(announcement.changed);
  // A new generation of this runner is learned of at once, not with the next renewal.
  await directory.watch(announcement.changed, closing);
  const isOffered = async ({ name, toolDigest }: ToolJob): Promise<boolean> => {
    const others = (await directory.runners()).filter(
      (each) => each.runner === runner && each.instance !== instance,
    );
    const offers = others.flatMap(({ tools }) => tools.filter(({ spec }) => spec.name === name));
    return offers.some(({ digest }) => toolDigest === undefined || digest === toolDigest);
  };
  return { announcement, generation, isOffered };
}

/** What a runner offers: its own tools, and those of mounted servers whose names are not taken. */
function offered({ loaded }: Setup, mounts: McpMounts): ToolAnnouncement[] {
  const own = loaded.registry.tools();
  const names = new Set(own.map(({ name }) => name));
  const tools = [...own, ...mounts.tools().filter(({ name }) => !names.has(name))];
  return tools.map((tool) => {
    const mcp = names.has(tool.name) ? undefined : mounts.serverOf(tool.name);
    return {
      ...announcementOf(tool),
      ...(mcp === undefined ? {} : { mcp }),
      digest: digestOf(tool),
    };
  });
}

/** Names this build of the runner. Mounted tools come and go while it runs, so they are no part of it. */
function generationOf({ loaded }: Setup): string {
  const tools = loaded.registry.tools().map((tool) => {
    const { spec, effect, requiresApproval, limits = {}, identity } = announcementOf(tool);
    return [
      spec.name,
      spec.inputSchema,
      effect,
      requiresApproval,
      limits,
      ...(identity ? [identity] : []),
    ];
  });
  const inOrder = tools.toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  return createHash("sha256").update(JSON.stringify(inOrder)).digest("base64url").slice(0, 22);
}

/**
 * Whether this instance is of the runner's current generation; changes are possible before and after it takes calls.
 */
class GenerationState {
  #isCurrent = true;
  #listener: ((isCurrent: boolean) => void) | undefined;

  set(isCurrent: boolean): void {
    this.#isCurrent = isCurrent;
    this.#listener?.(isCurrent);
  }

  /** Calls the listener now, if this instance is superseded, and at each change. Returns a function for the present state. */
  follow(listener: (isCurrent: boolean) => void): () => boolean {
    this.#listener = listener;
    if (!this.#isCurrent) listener(false);
    return () => this.#isCurrent;
  }
}

interface Announcement {
  /** Announces at once what is offered now. */
  changed(): void;
  /** Takes the instance out of the directory; returns whether it was the runner's last. Idempotent. */
  withdraw(): Promise<{ last: boolean }>;
}

interface AnnouncementOptions {
  directory: Pick<RunnerDirectory, "announce" | "withdraw">;
  instance: Omit<RunnerInstance, "tools" | "clock">;
  clock?: Clock | undefined;
  /** It knows which clocks differ. */
  serverClock?: Pick<ServerClock, "problem">;
  /** What is offered now. */
  tools(): ToolAnnouncement[];
  /** Default 2 s. */
  intervalMs?: number;
  /** Default {@link heartbeatMs}: how long workers believe in a runner that fell silent while its connection stands. */
  ttlMs?: number;
  onError: (error: unknown) => void;
  /**
   * Called when it changes whether this instance is of the runner's current generation: a superseded one finishes
   * its calls and takes no new ones. Not called at the start if it is.
   */
  onCurrent: (isCurrent: boolean) => void;
  /**
   * The announcement was refused after it had been accepted, because of this tool: this runner was
   * silent for too long, and another one offers the tool now.
   */
  onRefused: (conflict: string, tool: string) => void;
}

/** The announcement was refused: another living runner offers the same tool in another way. */
export class AnnouncementRefusedError extends Error {
  override readonly name = "AnnouncementRefusedError";
}

/** Announces an instance and keeps renewing. Throws {@link AnnouncementRefusedError}. */
export async function startAnnouncement(options: AnnouncementOptions): Promise<Announcement> {
  const {
    directory,
    instance,
    tools,
    serverClock,
    intervalMs = 2_000,
    ttlMs = heartbeatMs,
  } = options;
  const { onError, onCurrent, onRefused } = options;
  const announce = async () =>
    await directory.announce({ ...instance, tools: tools(), clock: serverClock?.problem }, ttlMs);
  const first = await announce();
  if (!first.ok) throw new AnnouncementRefusedError(first.conflict);
  let isCurrent = true;
  const tell = (now: boolean): void => {
    if (isCurrent !== now) onCurrent(now);
    isCurrent = now;
  };
  tell(first.isCurrent);
  let beating: Promise<void> = Promise.resolve();
  let state: "idle" | "busy" | "again" | "over" = "idle";
  const beat = async (): Promise<void> => {
    const renewed = await announce();
    if (renewed.ok) tell(renewed.isCurrent);
    else onRefused(renewed.conflict, renewed.tool);
  };
  const renew = (): void => {
    if (state !== "idle") return;
    state = "busy";
    beating = beat()
      .catch(onError)
      .finally(() => {
        const isBehind = state === "again";
        if (state !== "over") state = "idle";
        if (isBehind) renew();
      });
  };
  const stopRenewing = (options.clock ?? systemClock).every(intervalMs, renew);
  let withdrawn: Promise<{ last: boolean }> | undefined;
  return {
    changed: () => {
      if (state === "busy") state = "again";
      else renew();
    },
    withdraw: async () => {
      stopRenewing();
      state = "over";
      await beating; // a late renewal would bring the instance back
      return await (withdrawn ??= directory.withdraw(instance.runner, instance.instance));
    },
  };
}

/** Everything that calls are handled with; it is there before the first one is taken. */
interface Parts {
  setup: Setup;
  connections: Connections;
  levels: Levels;
  mounts: McpMounts;
  metrics: RunnerMetrics;
  calls: RunningCalls;
}

/** Takes calls from the runner's queues. `close` ends everything, connections included. */
async function work(parts: Parts, announced: Announced): Promise<ToolRunner> {
  const { announcement, generation } = announced;
  const { setup, connections, levels, mounts, calls } = parts;
  const { config, graceMs = 8_000 } = setup;
  const { redis, serverClock, closing, onError } = connections;
  const bus = createCancelBus({
    connection: redis,
    channel: cancelChannelOf(config.namespace, config.runner),
  });
  await bus.subscribe(({ session, turnId }) => calls.cancel(session, turnId), closing);
  const workers = await startWorkers(parts, await openHandler(parts, announced));
  const takesCalls = generation.follow((isCurrent) => void workers.take(isCurrent).catch(onError));
  const sandboxWatch = watchSandbox(levels, setup.clock, onError);

  const close = async (): Promise<void> => {
    sandboxWatch.stop();
    await workers.take(false).catch(onError); // first, so that no call that is sent after the withdrawal runs here
    await withdrawQuietly(announcement, onError);
    const cancel = setup.clock.after(graceMs, () => {
      calls.stop();
      void levels.close().catch(onError);
    });
    await workers.close(graceMs + settleMs);
    cancel();
    await mounts.close();
    await levels.close();
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({
      redis: (await redis.ping()) === "PONG",
      writes: await takesWrites(redis, connections.queueRedis),
      clock: serverClock.problem ?? true,
      worker: (workers.isRunning() && isAnswered(connections.queueRedis)) || !takesCalls(),
      ...sandboxCheck(levels),
    }),
    recheck: sandboxWatch.recheck,
    close: async () => await (closed ??= close()),
  };
}

/** Calls of dead instances are put back when their deaths are noticed; this finds the rest. */
const stalledIntervalMs = 5_000;

/** How long a call rests that is meant for another process of this runner. */
const givenBackMs = 250;

/** Room for answering or giving back calls after the grace period. */
const settleMs = 1_000;

const recheckMs = 3_600_000;

/** Attacked again sooner while the sandbox does not hold: on a busy machine the attack may have run out of time. */
const repairMs = 60_000;

interface Workers {
  isRunning(): boolean;
  take(jobs: boolean): Promise<void>;
  close(deadlineMs: number): Promise<void>;
}

/** One worker for the runner's queue, and one for each tool that has limits. */
async function startWorkers({ setup, connections }: Parts, handler: CallHandler): Promise<Workers> {
  const { runner, concurrency, namespace } = setup.config;
  const { queueRedis: connection, onError } = connections;
  const queueOptions = { connection, prefix: `{${namespace}}`, onError, clock: setup.clock };
  const queues = new ToolQueues(queueOptions);
  const worker = (limited: { limitedTool?: string; concurrency: number }): JobWorker =>
    createToolWorker({
      redact: scrubText,
      ...queueOptions,
      ...limited,
      runner,
      presence: connections.presence,
      stalledIntervalMs,
      postponeMs: givenBackMs,
      handle: async (job, signal) => await handler.handle(job, signal),
      onFailed: async (job, error) => await handler.fail(job, error),
    });
  const workers = [worker({ concurrency })];
  for (const tool of setup.loaded.registry.tools()) {
    if (tool.limits === undefined) continue;
    await queues.limit(runner, tool.name, tool.limits);
    workers.push(
      worker({ limitedTool: tool.name, concurrency: limitedConcurrency(tool, concurrency) }),
    );
  }
  connections.presence.onEnded(() => {
    for (const each of workers) void each.recover().catch(onError);
  });
  return {
    isRunning: () => workers.every((each) => each.isRunning()),
    take: async (jobs) => {
      await Promise.all(workers.map(async (each) => await each.take(jobs)));
    },
    close: async (deadlineMs) => {
      await Promise.all(
        workers.map(async (each) => await each.close({ deadlineMs, abort: false })),
      );
      await queues.close();
    },
  };
}

async function openHandler(
  parts: Parts,
  { isOffered }: Pick<Announced, "isOffered">,
): Promise<CallHandler> {
  const { setup, connections, levels, metrics, calls } = parts;
  const { config, loaded, telemetry, logger } = setup;
  const { namespace, runner, runnerKey } = config;
  const { redis, closing, onError } = connections;
  const blobs = blobsOf(setup, redis);
  const { clock, random } = setup;
  const handoff = new CallHandoff({
    handoff: new RunnerHandoff({ redis, namespace, runner, runnerKey }),
    runner,
    onError,
    clock,
    random,
  });
  await handoff.open(closing);
  return new CallHandler({
    registry: { get: (name) => mountedTool(name, parts) ?? loaded.registry.get(name) },
    isElsewhere: async (job) => parts.mounts.awaits(job.name) || (await isOffered(job)),
    levels,
    envelope: { runner, runnerKey },
    handoff,
    locks: new RunnerLocks({ redis, namespace, runner, clock, random }),
    storeFile: createFileStore({ blobs, onError }),
    blobs,
    calls,
    metrics,
    telemetry,
    logger,
    clock,
    random,
  });
}

/** Where workers look for what tools save. */
function blobsOf(
  { config, random, blobTtlMs = defaultBlobTtlMs }: Setup,
  redis: RedisConnection,
): BlobStore {
  const { blobDirectory: directory, namespace } = config;
  const ttlMs = blobTtlMs;
  return directory === undefined
    ? new RedisBlobStore({ redis, namespace, ttlMs })
    : createFileBlobStore({ directory, ttlMs, random });
}

/** The runner's own tools come first, so that no server receives their calls through a tool of the same name. */
function mountedTool(
  name: string,
  { setup, mounts }: Pick<Parts, "setup" | "mounts">,
): Tool | undefined {
  const isOwn = setup.loaded.registry.tools().some((tool) => tool.name === name);
  return isOwn ? undefined : mounts.find(name);
}

/** Attacks the sandbox regularly, and on request. */
function watchSandbox(
  levels: Levels,
  clock: Clock,
  onError: (error: unknown) => void,
): { recheck(): Promise<void>; stop(): void } {
  let cancel: (() => void) | undefined;
  let stopped = false;
  const schedule = (): void => {
    cancel?.();
    if (stopped) return;
    const holds = levels.sandbox()?.holds !== false;
    cancel = clock.after(holds ? recheckMs : repairMs, () => void recheck());
  };
  const recheck = async (): Promise<void> => {
    await levels.recheck().catch(onError);
    schedule();
  };
  schedule();
  return {
    recheck,
    stop: () => {
      stopped = true;
      cancel?.();
    },
  };
}

function sandboxCheck(levels: Levels): Record<string, boolean> {
  const sandbox = levels.sandbox();
  return sandbox === undefined ? {} : { [`sandbox (${sandbox.tier})`]: sandbox.holds };
}

async function withdrawQuietly(
  announcement: Announcement,
  onError: (error: unknown) => void,
): Promise<void> {
  await announcement.withdraw().catch(onError); // it expires by itself
}
