import type { LarklineConfig } from "@larkline/config";
import {
  createLongConnection,
  createOutboxSender,
  createWebhookVerifier,
  messageEventType,
  type FeishuApi,
  type LongConnection,
  type OutboxSender,
} from "@larkline/feishu";
import type { EventLog, SessionStore } from "@larkline/session";
import type { Logger, Metrics } from "@larkline/telemetry";
import { createBotIdentity, type BotIdentity } from "./bot-identity.ts";
import type { ChatRoutesDeps } from "./chat-routes.ts";
import type { FeishuConfig, IngressConfig } from "./config.ts";
import { createEventRouter, type EventRouter } from "./event-router.ts";
import { createInbox, type CancelPublisher, type Inbox, type TurnWaker } from "./inbox.ts";
import { createIngressMetrics, type IngressMetrics } from "./ingress-metrics.ts";
import { createMessageHandler } from "./message-handler.ts";
import { createServer } from "./server.ts";
import { createStreamHub, type StreamHub } from "./stream-hub.ts";
import type { WebhookRoutesDeps } from "./webhook-routes.ts";

/** Where messages go to and events come from. */
export interface Backend {
  store: Pick<SessionStore, "append" | "cancel" | "summary" | "pushOutbox" | "ackOutbox" | "retryOutbox">;
  log: EventLog;
  turns: TurnWaker;
  cancels: CancelPublisher;
  /** Whether the backend can be reached, as far as is known without asking. */
  isReady(): boolean;
  /** Asks it. */
  ping(): Promise<boolean>;
}

export interface IngressParts {
  config: IngressConfig;
  settings: LarklineConfig;
  backend: Backend;
  /** Present when `config.feishu` is. */
  api: FeishuApi | undefined;
  metrics: Metrics;
  logger: Logger;
}

export interface Ingress {
  /** The port in use. */
  port: number;
  /** Takes nothing new, finishes what is under way, ends streams so that clients resume elsewhere. Idempotent. */
  close(): Promise<void>;
}

/** The platform waits 3 s for an acknowledgement ("Event subscription overview"). */
const ackDeadlineMs = 2_500;
/** Storing and waking each get less, so that both together stay below the acknowledgement's deadline. */
const storeDeadlineMs = 1_200;
/** How long `close` waits for clients that do not read their last bytes. */
const drainMs = 5_000;

interface FeishuEdge {
  webhook: WebhookRoutesDeps | undefined;
  connection: LongConnection | undefined;
  identity: BotIdentity;
  outbox: OutboxSender;
}

interface Shared extends IngressParts {
  inbox: Inbox;
  counters: IngressMetrics;
}

function createRouter(shared: Shared, parts: { api: FeishuApi; identity: BotIdentity; outbox: OutboxSender }) {
  const { backend, settings, logger, inbox, counters } = shared;
  const { messageAgeMs, messageChars } = settings.limits;
  const message = createMessageHandler({
    app: parts.api.appId,
    inbox,
    store: backend.store,
    deliver: (lease) => void parts.outbox.deliver(lease),
    identity: parts.identity,
    rules: { maxAgeMs: messageAgeMs, maxChars: messageChars, groups: settings.agents.default.groups },
    count: (outcome) => counters.messages.add({ channel: "feishu", outcome }),
    logger,
  });
  const { events, ackSeconds } = counters;
  return createEventRouter({
    handlers: { [messageEventType]: message },
    events,
    ackSeconds,
    deadlineMs: ackDeadlineMs,
    logger,
  });
}

function longConnectionOf(feishu: FeishuConfig, route: EventRouter, logger: Logger): LongConnection {
  const { appId, appSecret, domain } = feishu;
  return createLongConnection({
    appId,
    appSecret,
    domain,
    logger,
    onEvent: async (envelope) => {
      const answer = await route(envelope, "websocket");
      return Object.keys(answer).length === 0 ? undefined : answer;
    },
    onState: (state) => logger.info({ state }, "long connection"),
    drainMs,
  });
}

function createFeishuEdge(shared: Shared, feishu: FeishuConfig, api: FeishuApi): FeishuEdge {
  const { logger, backend, counters } = shared;
  const identity = createBotIdentity({ botInfo: async (signal) => await api.botInfo(signal), logger });
  const outbox = createOutboxSender({ store: backend.store, apis: new Map([[api.appId, api]]), logger });
  const route = createRouter(shared, { api, identity, outbox });
  const { encryptKey, verificationToken, appId } = feishu;
  const verifier = createWebhookVerifier({ encryptKey, verificationToken, appId });
  return {
    webhook: feishu.webhook ? { verifier, route, refused: counters.refused, logger } : undefined,
    connection: feishu.websocket ? longConnectionOf(feishu, route, logger) : undefined,
    identity,
    outbox,
  };
}

function chatDeps({ config, backend, inbox, counters, logger }: Shared, streams: StreamHub): ChatRoutesDeps {
  return {
    inbox,
    streams,
    runs: backend,
    rules: { token: config.api.token, corsOrigins: config.api.corsOrigins },
    onDisconnect: config.api.onDisconnect,
    isReady: () => backend.isReady(),
    count: (outcome) => counters.messages.add({ channel: "api", outcome }),
    logger,
  };
}

/** Starts everything that takes messages. Rejects when the port is taken or the app id cannot be one. */
export async function startIngress(parts: IngressParts): Promise<Ingress> {
  const { config, backend, api, metrics, logger } = parts;
  const inbox = createInbox({ ...backend, deadlineMs: storeDeadlineMs });
  const { heartbeatMs, maxStreams } = config.api;
  const streams = createStreamHub({ log: backend.log, inbox, logger, heartbeatMs, maxStreams });
  const shared: Shared = { ...parts, inbox, counters: createIngressMetrics(metrics, streams.count) };
  const edge =
    config.feishu === undefined || api === undefined ? undefined : createFeishuEdge(shared, config.feishu, api);
  let closing = false;

  const ready = async () => ({
    redis: await backend.ping(),
    accepting: !closing,
    ...(edge?.connection === undefined ? {} : { longConnection: edge.connection.state() === "connected" }),
  });
  const server = await createServer({
    ops: { metrics, ready, logger },
    chat: chatDeps(shared, streams),
    webhook: edge?.webhook,
    logger,
  });
  await server.listen({ host: config.host, port: config.port });
  // Last: a process that cannot start must not take events from those that can.
  edge?.connection?.start();

  const shutDown = async () => {
    closing = true;
    const impatient = setTimeout(() => server.server.closeAllConnections(), drainMs);
    await Promise.all([edge?.connection?.close(), server.close()]);
    clearTimeout(impatient);
    await edge?.outbox.close();
    edge?.identity.close();
  };
  let closed: Promise<void> | undefined;
  const address = server.server.address();
  const port = typeof address === "object" && address !== null ? address.port : config.port;
  return { port, close: async () => await (closed ??= shutDown()) };
}
