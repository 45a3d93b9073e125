import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "@larkline/protocol/clock";
import {
  createApps,
  createAppConsole,
  createRegistrations,
  simulatedApp,
  createTokenStore,
  type SimApp,
} from "./apps.ts";
import { createCardControls, cardUpdateRoutes } from "./card-clicks.ts";
import { createCardStore, createCardTokens, type CardRules } from "./card-store.ts";
import { cardKitRoutes } from "./cardkit-api.ts";
import { createChatControls } from "./chats.ts";
import { commandPanelRoutes } from "./command-panel.ts";
import {
  unsubscribed,
  type DeliveryRecord,
  createWebhookSender,
  createDeliveryService,
  type WebhookSender,
} from "./delivery.ts";
import { createDirectory } from "./directory.ts";
import { createFaultTable, type FaultSource } from "./faults.ts";
import { type ApiCall, RouteTable, createHttpApi } from "./http-api.ts";
import { GrantService } from "./grants.ts";
import { createLongConnections, type LongConnections } from "./long-connection.ts";
import { createMediaStore } from "./media.ts";
import { sendRoutes, messageRoutes, followUpRoutes } from "./message-api.ts";
import { createMessageStore } from "./message-store.ts";
import { createNotifier, createReplyWatch, type Notifier } from "./reply-watch.ts";
import { createMessageControls } from "./person-message.ts";
import { type Platform, createUuidTable } from "./platform.ts";
import { type LimitRefusal, createRateLimiter, createMonthlyQuota } from "./rate-limiter.ts";
import { reactionRoutes } from "./reactions.ts";
import { appsAsBefore, restore, snapshotOf } from "./snapshot.ts";
import type {
  SimulatorOptions,
  FeishuSimulator,
  SimulatorEvents,
  AppConnection,
} from "./simulator.ts";
import { createWork, type Work } from "./work/index.ts";
import type { ApiRoute } from "./api-route.ts";
import { authRoutes, botRoutes, applicationRoutes } from "./app-api.ts";
import { chatRoutes, memberRoutes, contactRoutes, userGroupRoutes } from "./contact-api.ts";
import { imageRoutes, fileRoutes, resourceRoutes } from "./media-api.ts";
import type { OpenRoute } from "./open-api.ts";

const documentedRetryDelaysMs = [15_000, 300_000, 3_600_000, 21_600_000];

/** Starts a simulated open platform. Rejects when the port is taken or an app is configured wrongly. */
export async function startFeishuSimulator(options: SimulatorOptions): Promise<FeishuSimulator> {
  const { restore: before } = options;
  const parts = assemble(
    before === undefined ? options : { ...options, apps: appsAsBefore(options.apps, before) },
  );
  if (before !== undefined) {
    restore(parts, before, options.restoredBytes ?? (() => undefined));
  }
  const { server, platform, connections, webhook, deliveries, replies } = parts;
  await listen(server, options);
  const address = server.address() as AddressInfo; // A TCP server that listens has an address of this form.
  let closing: Promise<void> | undefined;
  const close = async (): Promise<void> => {
    deliveries.close();
    replies.close();
    platform.cards.close();
    connections.close();
    webhook.close();
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return {
    ...createMessageControls(platform, deliveries),
    ...createChatControls(platform),
    setDeliveryNoise: deliveries.setNoise,
    ...createCardControls(platform, deliveries),
    ...controls(parts),
    url: `http://${baseHost(address)}:${address.port}`,
    close: () => (closing ??= close()),
    addUser: platform.directory.addUser,
    addChat: platform.directory.addChat,
    addUserGroup: platform.directory.addUserGroup,
    users: platform.directory.users,
    chats: platform.directory.chats,
    get apps() {
      return [...platform.apps.values()].map((app) => connectionOf(app, connections));
    },
    messages: platform.messages.inChat,
    waitForReply: replies.waitForReply,
    waitForCard: replies.waitForCard,
    waitUntil: replies.waitUntil,
    snapshot: (messagesOfChat) => snapshotOf(parts, messagesOfChat),
    card: platform.cards.describe,
    media: platform.media.get,
    on: parts.notifier.on,
    registrations: platform.registrations,
    grants: platform.grants,
    work: parts.work.controls,
    setConsole: platform.console.set,
    faults: parts.faults,
    get apiCalls() {
      return parts.calls.entries;
    },
    get deliveries() {
      return parts.records.entries;
    },
    get refusals() {
      return parts.refusals.entries;
    },
  };
}

function assemble(options: SimulatorOptions) {
  const notifier = createNotifier<SimulatorEvents>();
  const capacity = options.logCapacity ?? 2000;
  const refusals = createBoundedLog<LimitRefusal>(capacity);
  const work = createWork(options.clock ?? systemClock);
  const platform = createPlatform(options, notifier, {
    world: work.world,
    onRefusal: (refusal) => {
      refusals.add(refusal);
      notifier.emit("refusal", refusal);
    },
    publish: (event) =>
      platform.console.entry(event.app.appId).events.includes(event.eventType)
        ? deliveries.deliver(event)
        : Promise.resolve(unsubscribed(event)),
  });
  const calls = createBoundedLog<ApiCall>(capacity);
  const records = createBoundedLog<DeliveryRecord>(capacity);
  const faults = createFaultTable();
  const connections = createLongConnections({
    apps: platform.apps,
    options: options.connection ?? {},
    clock: platform.clock,
    onChange: (appId, open) => notifier.emit("connection", { appId, connections: open }),
  });
  const webhook = createWebhookSender(platform.clock, {
    connectTimeoutMs: options.webhookTimeouts?.connectTimeoutMs ?? 2000,
    totalTimeoutMs: options.webhookTimeouts?.totalTimeoutMs ?? 3000,
  });
  const deliveries = createDeliveryService({
    webhook: webhook.push,
    websocket: connections.push,
    isConnected: (appId) => connections.count(appId) > 0,
    retryDelaysMs: options.retryDelaysMs ?? documentedRetryDelaysMs,
    clock: platform.clock,
    onAttempt(record) {
      records.add(record);
      notifier.emit("delivery", record);
    },
  });
  const onCall = (call: ApiCall): void => {
    calls.add(call);
    notifier.emit("apiCall", call);
  };
  const server = createServer(
    { keepAliveTimeout: 65_000 },
    requestListener({ options, platform, work, connections, faults, onCall }),
  );
  server.on("upgrade", connections.upgrade);
  const replies = createReplyWatch(platform.clock, platform.messages, notifier);
  return {
    notifier,
    platform,
    work,
    calls,
    records,
    refusals,
    faults,
    connections,
    webhook,
    deliveries,
    server,
    replies,
  };
}

function createPlatform(
  options: SimulatorOptions,
  notifier: Notifier<SimulatorEvents>,
  {
    world,
    onRefusal,
    publish,
  }: Pick<Platform, "world" | "publish"> & { onRefusal: (refusal: LimitRefusal) => void },
): Platform {
  const { clock } = world;
  const apps = createApps(options.apps);
  const console = createAppConsole(options.apps);
  const registrations = createRegistrations({
    options: options.registration ?? {},
    clock,
    addApp: (app) => {
      apps.set(app.appId, simulatedApp(app, [...apps.values()][0]?.tenantKey ?? "tenant"));
      console.set(app.appId, app);
    },
  });
  const directory = createDirectory([...apps.keys()], {
    onUser: (user) => notifier.emit("user", user),
    onChat: (chat) => notifier.emit("chat", chat),
  });
  const messages = createMessageStore();
  const media = createMediaStore();
  const announce: Platform["announce"] = (message) => notifier.emit("message", message);
  return {
    apps,
    console,
    registrations,
    directory,
    messages,
    cards: createCardStore({
      rules: cardRules(options, { apps, directory, media }),
      clock,
      messages,
      announce,
    }),
    cardTokens: createCardTokens(clock),
    media,
    tokens: createTokenStore(clock),
    grants: new GrantService({ apps, directory, clock, publish }),
    world,
    limiter: createRateLimiter({ clock, enforced: options.limits !== "off", onRefusal }),
    uuids: createUuidTable(clock, options.duplicateUuid ?? "original"),
    quota: createMonthlyQuota(clock, options.monthlyQuota ?? Number.POSITIVE_INFINITY),
    sendRefusals: new Map(),
    nameScopes: new Map(),
    clock,
    announce,
    publish,
  };
}

function cardRules(
  options: SimulatorOptions,
  { apps, directory, media }: Pick<Platform, "apps" | "directory" | "media">,
): CardRules {
  return {
    duplicateUuid: options.duplicateCardUuid ?? "success",
    invalidOnce: options.cardInvalidOnce ?? false,
    facts: {
      isPerson: (openId) =>
        directory.users.has(openId) || [...apps.values()].some((app) => app.openId === openId),
      isImage: (imageKey) => media.get(imageKey)?.kind === "image",
    },
  };
}

interface ListenerParts {
  options: SimulatorOptions;
  platform: Platform;
  work: Work;
  connections: LongConnections;
  faults: FaultSource;
  onCall: (call: ApiCall) => void;
}

function requestListener({
  options,
  platform,
  work,
  connections,
  faults,
  onCall,
}: ListenerParts): RequestListener {
  const connect: OpenRoute = {
    method: "POST",
    path: "/callback/ws/endpoint",
    handle: ({ body, host }) => connections.endpoint(body, host),
  };
  const routes = new RouteTable(
    [...apiRoutes(platform), ...work.routes(platform)],
    [
      ...authRoutes(platform),
      ...platform.registrations.routes,
      ...platform.grants.routes,
      ...work.openRoutes,
      connect,
    ],
  );
  const api = createHttpApi({
    platform,
    faults,
    routes,
    errorStatus: options.errorStatus ?? 400,
    onCall,
  });
  return (request, response) => {
    // People open the page of the code flow in a browser, below the same path as the API.
    const platformPath = /^\/(open-apis|callback|oauth)\/(?!authen\/v1\/authorize)/.test(
      request.url ?? "",
    );
    if (!platformPath && options.serve !== undefined) return options.serve(request, response);
    void api(request, response);
  };
}

/** One module per API family; a new family is one more line. */
function apiRoutes(platform: Platform): ApiRoute[] {
  return [
    ...botRoutes(),
    ...applicationRoutes(platform),
    ...commandPanelRoutes(),
    ...sendRoutes(platform),
    ...messageRoutes(platform),
    ...reactionRoutes(platform),
    ...chatRoutes(platform),
    ...memberRoutes(platform),
    ...followUpRoutes(platform),
    ...contactRoutes(platform),
    ...userGroupRoutes(platform),
    ...imageRoutes(platform),
    ...fileRoutes(platform),
    ...resourceRoutes(platform),
    ...cardKitRoutes(platform),
    ...cardUpdateRoutes(platform),
  ];
}

type Controls = Pick<
  FeishuSimulator,
  | "expireTokens"
  | "dropConnections"
  | "freezeConnections"
  | "setTransport"
  | "setWebhookUrl"
  | "setGroupScope"
  | "verifyWebhook"
>;

function controls({
  platform,
  connections,
  webhook,
}: {
  platform: Platform;
  connections: LongConnections;
  webhook: WebhookSender;
}): Controls {
  const appOf = (appId: string): SimApp => {
    const app = platform.apps.get(appId);
    if (app === undefined) throw new Error(`No app ${appId}`);
    return app;
  };
  return {
    expireTokens: platform.tokens.expire,
    dropConnections: connections.drop,
    freezeConnections: connections.freeze,
    setTransport(appId, transport) {
      appOf(appId).transport = transport;
    },
    setWebhookUrl(appId, url) {
      appOf(appId).webhookUrl = url;
    },
    setGroupScope(appId, scope) {
      appOf(appId).groupScope = scope;
    },
    verifyWebhook: async (appId) => webhook.verify(appOf(appId)),
  };
}

function connectionOf(app: SimApp, connections: LongConnections): AppConnection {
  const { appId, openId, name, transport, webhookUrl } = app;
  return { appId, openId, name, transport, webhookUrl, connections: connections.count(appId) };
}

function baseHost(address: AddressInfo): string {
  if (address.address === "0.0.0.0" || address.address === "::") return "127.0.0.1";
  return address.family === "IPv6" ? `[${address.address}]` : address.address;
}

function listen(server: Server, { port = 0, host = "127.0.0.1" }: SimulatorOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** A list that forgets its oldest entries, so that a long run keeps a flat memory. */
interface BoundedLog<Entry> {
  readonly entries: readonly Entry[];
  add(entry: Entry): void;
}

function createBoundedLog<Entry>(capacity: number): BoundedLog<Entry> {
  let entries: Entry[] = [];
  return {
    get entries() {
      return entries.length > capacity ? entries.slice(-capacity) : entries;
    },
    add(entry) {
      entries.push(entry);
      if (entries.length >= capacity * 2) entries = entries.slice(-capacity);
    },
  };
}
