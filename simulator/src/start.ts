import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "@larkline/protocol";
import {
  applicationRoutes,
  authRoutes,
  botRoutes,
  createAppConsole,
  createApps,
  createRegistrations,
  createTokenStore,
  type SimApp,
  simulatedApp,
} from "./apps.ts";
import { cardUpdateRoutes, createCardControls, createCardTokens } from "./card-clicks.ts";
import { type CardRules, createCardStore } from "./card-store.ts";
import { cardKitRoutes } from "./cardkit-api.ts";
import { createChatControls } from "./chats.ts";
import { commandPanelRoutes } from "./command-panel.ts";
import {
  createDeliveryService,
  createWebhookSender,
  type DeliveryRecord,
  unsubscribed,
  type WebhookSender,
} from "./delivery.ts";
import {
  chatRoutes,
  contactRoutes,
  createDirectory,
  memberRoutes,
  userGroupRoutes,
} from "./directory.ts";
import { createFaultTable, type FaultSource } from "./faults.ts";
import { type ApiCall, createHttpApi, RouteTable } from "./http-api.ts";
import { GrantService } from "./grants.ts";
import { createLongConnections, type LongConnections } from "./long-connection.ts";
import { createMediaStore, fileRoutes, imageRoutes, resourceRoutes } from "./media.ts";
import { followUpRoutes, messageRoutes, sendRoutes } from "./message-api.ts";
import { createMessageStore } from "./message-store.ts";
import { createNotifier, createReplyWatch, type Notifier } from "./reply-watch.ts";
import { createMessageControls } from "./person-message.ts";
import { type ApiRoute, createUuidTable, type OpenRoute, type Platform } from "./platform.ts";
import { createMonthlyQuota, createRateLimiter, type LimitRefusal } from "./rate-limiter.ts";
import { reactionRoutes } from "./reactions.ts";
import { appsAsBefore, restore, snapshotOf } from "./snapshot.ts";
import type {
  AppConnection,
  FeishuSimulator,
  SimulatorEvents,
  SimulatorOptions,
} from "./simulator.ts";
import { createWork } from "./work/index.ts";

const documentedRetryDelaysMs = [15_000, 300_000, 3_600_000, 21_600_000];

/** Starts a simulated open platform. Rejects when the port is taken or an app is configured wrongly. */
export async function startFeishuSimulator(options: SimulatorOptions): Promise<FeishuSimulator> {
  const { restore: before } = options;
  const parts = assemble(
    before === undefined ? options : { ...options, apps: appsAsBefore(options.apps, before) },
  );
  if (before !== undefined) {
    restore(parts.platform, before, options.restoredBytes ?? (() => undefined));
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
    snapshot: (messagesOfChat) => snapshotOf(platform, messagesOfChat),
    card: platform.cards.describe,
    media: platform.media.get,
    on: parts.notifier.on,
    registrations: platform.registrations,
    grants: platform.grants,
    work: platform.work.controls,
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
  const platform = createPlatform(options, notifier, {
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
    requestListener({ options, platform, connections, faults, onCall }),
  );
  server.on("upgrade", connections.upgrade);
  const replies = createReplyWatch(platform.clock, platform.messages, notifier);
  return {
    notifier,
    platform,
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
    onRefusal,
    publish,
  }: { onRefusal: (refusal: LimitRefusal) => void; publish: Platform["publish"] },
): Platform {
  const clock = options.clock ?? systemClock;
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
    work: createWork(clock),
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
  connections: LongConnections;
  faults: FaultSource;
  onCall: (call: ApiCall) => void;
}

function requestListener({
  options,
  platform,
  connections,
  faults,
  onCall,
}: ListenerParts): RequestListener {
  const connect: OpenRoute = {
    method: "POST",
    path: "/callback/ws/endpoint",
    handle: ({ body, host }) => connections.endpoint(body, host),
  };
  const routes = new RouteTable(apiRoutes(platform), [
    ...authRoutes(platform),
    ...platform.registrations.routes,
    ...platform.grants.routes,
    connect,
  ]);
  const api = createHttpApi({
    platform,
    faults,
    routes,
    errorStatus: options.errorStatus ?? 400,
    onCall,
  });
  return (request, response) => {
    const platformPath = /^\/(open-apis|callback|oauth)\//.test(request.url ?? "");
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
    ...platform.work.routes(platform),
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
