import type { GrantsApi } from "@larkline/feishu";
import {
  ApprovalCards,
  CardHandover,
  LiveReplies,
  OutboxSender,
  createImageResolver,
} from "@larkline/feishu";
import { botOfApp, type LarklineConfig, type Transcription } from "@larkline/process/config";
import { SchemaChecks } from "@larkline/process/schemas";
import { watchPlatform, type Logger, type Telemetry } from "@larkline/process/telemetry";
import type { Clock, Random } from "@larkline/protocol/clock";
import type { OwnPresence } from "@larkline/store/redis";
import { type RedisConnection } from "@larkline/store/redis";
import { HandoffImport } from "@larkline/store/runners";
import { LRUCache } from "lru-cache";
import type { GrantOwner } from "@larkline/store";
import { asInFile } from "./agent-versions.ts";
import { type AgentModels, HelperReadiness } from "./agent.ts";
import { type TextExtractor } from "./attachments/text-extractor.ts";
import type { Bot } from "./bot.ts";
import { TokenBroker } from "./call-identities.ts";
import { keepRule } from "./approvals.ts";
import type { WorkerConfig } from "./config.ts";
import { reportMissingScopes } from "./grants.ts";
import { Consents } from "./consents.ts";
import { PersonTokens } from "./person-tokens.ts";
import { MessagePreparer } from "./prepare.ts";
import { remoteImages } from "./remote-images.ts";
import { RunRecords } from "./run-records.ts";
import { RunningTurns, TurnHolds } from "./running-turns.ts";
import { watchSchedules } from "./schedules.ts";
import type { Services, WorkerCounters } from "./services.ts";
import { type Queues, type Stores } from "./stores.ts";
import { RunnerKeys, ToolCatalog } from "./tool-catalog.ts";
import { wakeAfter } from "./tools.ts";

// What a worker works with, made once from its connections: the object that holds all of it.

/** What `startWorkerApp` has made before. */
export interface ServiceParts {
  config: WorkerConfig;
  settings: LarklineConfig;
  owner: string;
  models: AgentModels;
  /**
   * Writes down voice messages; absent: those that the platform has not written down are not read.
   */
  transcription?: Transcription | undefined;
  log: Logger;
  counters: WorkerCounters;
  telemetry: Telemetry;
  clock: Clock;
  random: Random;
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

/** How many sessions a worker remembers whose files it has gone without, and for how long, ms. */
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
          changed: async (owner) => await stores.subscriptions.grantChanged(owner, clock.now()),
          clock,
          random,
        });
  const toolCatalog = new ToolCatalog(stores.runners, clock, log, {
    mayActAsPeople: tokens !== undefined,
    titles: settings.toolTitles,
  });
  const used = async (owner: GrantOwner, tool: string): Promise<void> => {
    const title = toolCatalog.titleOf(tool);
    const named = title === undefined ? {} : { title };
    await grants?.noteUse(owner, { tool, ...named, atMs: clock.now() });
  };
  const lacks = async (owner: Pick<GrantOwner, "app" | "openId">, scopes: readonly string[]) =>
    await reportMissingScopes(services, owner, scopes);
  const { timeZone } = settings.budgets;
  const runs = new RunRecords({
    ...stores,
    apis,
    timeZone,
    keepsQuestions: settings.keepsQuestions,
    clock,
    random,
    logger: log,
  });
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
      identities: new TokenBroker({ bots, tokens, used, lacks }),
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
      outbox: store.outbox,
      letters,
      ledger,
      handover,
      apis,
      imageOf,
      watch: watchSchedules(
        [...bots.values()].reduce(
          (watch, { reactions }) => reactions.watchLines(watch),
          runs.watch(deliveries),
        ),
        () => services,
      ),
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
              lacks,
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
