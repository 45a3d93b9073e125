import { randomUUID } from "node:crypto";
import { createBudgetBook } from "@larkline/agent/budgets";
import { agentNamed, agentOfMessage, type EdgeAccess, type LarklineConfig } from "@larkline/process/config";
import type { FeishuApi } from "@larkline/feishu";
import { startAnnouncing } from "@larkline/store";
import type { Logger, Metrics, Observation } from "@larkline/process/telemetry";
import manifest from "../package.json" with { type: "json" };
import type { AccessRules } from "./access.ts";
import { apiApp } from "./api-request.ts";
import { createApprovalDesk } from "./approval-desk.ts";
import type { ApprovalRoutesDeps } from "./approval-routes.ts";
import type { Backend } from "./backend.ts";
import type { ChatRoutesDeps } from "./chat-routes.ts";
import { createCommandDesk, type CommandDesk } from "./command-desk.ts";
import type { IngressConfig } from "./config.ts";
import { createConnectionCheck } from "./connection-check.ts";
import { createFeishuEdge, type FeishuEdge } from "./feishu-edge.ts";
import { createInbox, type Inbox } from "./inbox.ts";
import { createIngressMetrics, type IngressMetrics } from "./ingress-metrics.ts";
import { createOtherEvents, type EventConsumer, type OtherEvents } from "./other-events.ts";
import { createRuleDesk } from "./rule-desk.ts";
import { createServer } from "./server.ts";
import { createStreamHub, type StreamHub } from "./stream-hub.ts";
import { createTurnStopper } from "./turn-stopper.ts";
import { PersonLanguages } from "./person-language.ts";

/** A bot that people can write to. */
export interface ReachableBot {
  access: EdgeAccess;
  /** Speaks as the bot. */
  api: FeishuApi;
}

export interface IngressParts {
  config: IngressConfig;
  settings: LarklineConfig;
  backend: Backend;
  bots: readonly ReachableBot[];
  metrics: Metrics;
  logger: Logger;
  observation: Observation;
  /** Get the events and clicks that are not for Larkline itself. */
  consumers: readonly EventConsumer[];
}

export interface Ingress {
  /** The port in use. */
  port: number;
  /** Takes nothing new, finishes what is under way, ends streams so that clients resume elsewhere. Idempotent. */
  close(): Promise<void>;
}

/** Storing and waking each get less, so that both together stay below the acknowledgement's deadline. */
const storeDeadlineMs = 1_200;
/** Clients of the API wait longer than the platform: after this time they are told that it is uncertain. */
const apiStoreDeadlineMs = 8_000;
/** Finding out and taking a decision together: below the 3 s in which a click has to be answered. */
const decisionDeadlineMs = 2_000;
/** How long `close` waits for clients that do not read their last bytes. */
const drainMs = 5_000;

interface Shared extends IngressParts {
  inbox: Inbox;
  /** That of the HTTP API. */
  apiInbox: Inbox;
  counters: IngressMetrics;
  otherEvents: OtherEvents;
}

function createEdges(shared: Shared): FeishuEdge[] {
  const { model } = shared.config;
  return shared.bots.map((bot) =>
    createFeishuEdge({ ...shared, ...bot, model, drainMs, storeDeadlineMs, decisionDeadlineMs }),
  );
}

/** There are as many sessions as clients begin. */
const apiLanguageMs = 7 * 24 * 3_600_000;

function accessRules({ api }: IngressConfig): AccessRules {
  return { token: api.token, corsOrigins: api.corsOrigins };
}

/** Callers of the HTTP API have no names. */
async function namesOf(): Promise<ReadonlyMap<string, string>> {
  return new Map();
}

/** What the orders of people over HTTP reach. There is one person, who decides about everything of a session. */
function apiCommands({ config, settings, backend, apiInbox: inbox }: Shared): CommandDesk {
  const { store, lookups, rules } = backend;
  return createCommandDesk({
    agents: { of: (message) => agentOfMessage(settings, message) },
    model: config.model,
    store,
    approvals: backend.approvals,
    namesOf,
    stop: createTurnStopper({ app: apiApp, store, inbox, lookups, deadlineMs: apiStoreDeadlineMs }),
    rules: createRuleDesk({
      app: apiApp,
      rules,
      policy: settings.permissions,
      lookups,
      groupsOf: async () => [],
      namesOf,
    }),
    budgets: { book: createBudgetBook(settings.budgets), store: backend.budgets },
  });
}

function chatDeps(shared: Shared, streams: StreamHub): ChatRoutesDeps {
  const { config, settings, backend, apiInbox: inbox, counters, observation, logger } = shared;
  return {
    store: backend.store,
    inbox,
    streams,
    runs: backend,
    commands: apiCommands(shared),
    languages: new PersonLanguages({ app: apiApp, lookups: backend.lookups, keptMs: apiLanguageMs, logger }),
    maxChars: settings.limits.messageChars,
    rules: accessRules(config),
    onDisconnect: config.api.onDisconnect,
    agentNamed: (name) => agentNamed(settings, name),
    isReady: () => backend.isReady(),
    wasReady: () => backend.wasReady(),
    refused: (error) => backend.refused(error),
    count: (outcome) => counters.messages.add({ channel: "api", outcome }),
    observation,
    logger,
  };
}

function approvalDeps({ config, settings, backend, inbox, logger }: Shared): ApprovalRoutesDeps {
  const { approvals } = backend;
  const decide = createApprovalDesk({
    approvals,
    inbox,
    policy: settings.permissions,
    // Nobody of the API is in a group of the platform.
    groupsOf: async () => [],
    deadlineMs: decisionDeadlineMs,
    logger,
  });
  return { approvals, decide, rules: accessRules(config), deadlineMs: decisionDeadlineMs, logger };
}

/** Starts everything that takes messages. Rejects when the port is taken or the app id cannot be one. */
export async function startIngress(parts: IngressParts): Promise<Ingress> {
  const { config, backend, metrics, logger } = parts;
  const inbox = createInbox({ ...backend, observation: parts.observation, deadlineMs: storeDeadlineMs });
  const { heartbeatMs, maxStreams } = config.api;
  const apiInbox = createInbox({ ...backend, observation: parts.observation, deadlineMs: apiStoreDeadlineMs });
  const streams = createStreamHub({ log: backend.log, inbox: apiInbox, logger, heartbeatMs, maxStreams });
  const counters = createIngressMetrics(metrics, streams.count);
  const otherEvents = createOtherEvents({ consumers: parts.consumers, outcomes: counters.otherEvents, logger });
  const shared: Shared = { ...parts, inbox, apiInbox, counters, otherEvents };
  const edges = createEdges(shared);
  const connections = createConnectionCheck(edges);
  let closing = false;

  const ready = async () => ({
    redis: await backend.ping(),
    writes: await backend.takesWrites(),
    clock: backend.clockProblem() ?? true,
    accepting: !closing,
    ...connections(),
  });
  const server = await createServer({
    ops: { metrics, ready, logger },
    chat: chatDeps(shared, streams),
    approvals: approvalDeps(shared),
    rules: {
      remembered: backend.rules,
      rules: accessRules(config),
      deadlineMs: decisionDeadlineMs,
      logger,
    },
    webhooks: edges.flatMap(({ webhook }) => webhook ?? []),
    logger,
  });
  await server.listen({ host: config.host, port: config.port });
  // Last: a process that cannot start must not take events from those that can.
  for (const { connection } of edges) connection?.start();
  const announcer = startAnnouncing({
    directory: backend.instances,
    id: `ingress-${randomUUID()}`,
    service: "ingress",
    version: manifest.version,
    apps: parts.bots.map(({ api }) => api.appId),
    clockProblem: backend.clockProblem,
    feeds: () => edges.flatMap((edge) => edge.feeds()),
    onError: (error) => logger.warn({ error }, "others could not be told about this process"),
  });

  const shutDown = async () => {
    closing = true;
    const impatient = setTimeout(() => server.server.closeAllConnections(), drainMs);
    await Promise.all([...edges.map(async ({ connection }) => await connection?.close()), server.close()]);
    clearTimeout(impatient);
    otherEvents.close();
    await announcer.close();
    await Promise.all(edges.map(async (edge) => await edge.close()));
  };
  let closed: Promise<void> | undefined;
  const address = server.server.address();
  const port = typeof address === "object" && address !== null ? address.port : config.port;
  return { port, close: async () => await (closed ??= shutDown()) };
}
