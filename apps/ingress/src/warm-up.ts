import { createWebhookEvent, FeishuApi, messageEventType } from "@larkline/feishu";
import { silentLogger, silentTelemetry } from "@larkline/process/telemetry";
import { withDeadline } from "@larkline/protocol/clock";
import { Bot } from "./bot.ts";
import { createServer } from "./server.ts";
import { OpenStreams, type IngressCounters, type Services, type WarmUpStores } from "./services.ts";

const messages = 80;
/** Sent before the process counts as ready: in them nearly all code is compiled, and all scripts are loaded. */
const messagesBeforeReady = 60;
/**
 * Messages sent at once, as in the first second of a burst: a round of the event loop has several of them.
 */
const atOnce = 10;
/**
 * How long the process warms up, ms; then it takes requests all the same: a slow start is better than none.
 */
const deadlineMs = 5_000;

export interface WarmUp {
  /** Resolves when the process may count as ready. Never rejects. */
  readonly first: Promise<void>;
  /** Breaks the rest off. Idempotent. */
  close(): Promise<void>;
}

/**
 * Sends messages to a server of this process's own code, the first of them before `/ready` answers 200 and the others
 * while it takes real ones: what real ones need is compiled and loaded then, and soon optimized. They are stored under
 * keys of their own that expire, and reach no queue, log, trace, metric and platform. A failure is logged.
 */
export function startWarmUp(services: Services, stores: WarmUpStores): WarmUp {
  const { clock, log, redis } = services;
  const { promise: first, resolve: onFirst } = Promise.withResolvers<void>();
  const closing = new AbortController();
  const warm = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    try {
      if (!(await withDeadline(clock, redis.ping(), deadlineMs))) return;
      await withDeadline(
        clock,
        rehearse(services, stores, { onFirst, signal: closing.signal }),
        deadlineMs,
      );
      if (!closing.signal.aborted) {
        log.info({ messages, ms: Math.round(clock.monotonic() - startedMs) }, "warmed up");
      }
    } catch (error) {
      log.warn({ error }, "not warmed up: the first messages take longer");
    } finally {
      onFirst();
    }
  };
  const warmed = warm();
  return {
    first,
    close: async () => {
      closing.abort();
      await warmed;
    },
  };
}

async function rehearse(
  real: Services,
  stores: WarmUpStores,
  { onFirst, signal }: { onFirst: () => void; signal: AbortSignal },
): Promise<void> {
  const services = detached(real, stores);
  const bot = detachedBot(services);
  const server = await createServer(services, [bot], async () => ({}));
  try {
    const run = services.random.id();
    for (let sent = 0; sent < messages && !signal.aborted; sent += atOnce) {
      if (sent === messagesBeforeReady) onFirst();
      const chats = Array.from({ length: atOnce }, (_, at) => `${run}${(sent + at) >> 1}`);
      const requests = chats.map((chat) => messageRequest(services, bot, chat));
      const answers = await Promise.all(
        requests.map(async (request) => await server.inject(request)),
      );
      const refused = answers.find(({ statusCode }) => statusCode !== 200);
      if (refused !== undefined) {
        throw new Error(`a message was answered with ${refused.statusCode}`);
      }
    }
  } finally {
    bot.identity.close();
    bot.api.close();
    await server.close();
  }
}

/** The services of this process, without the parts that have effects outside of it. */
function detached(services: Services, stores: WarmUpStores): Services {
  return {
    ...services,
    ...stores,
    turns: { wake: async () => undefined },
    cancels: { publish: async () => undefined },
    log: silentLogger,
    counters: uncounted,
    telemetry: silentTelemetry,
    streams: new OpenStreams(1),
  };
}

const ignore = (): void => undefined;
const uncounted: IngressCounters = {
  messages: { add: ignore },
  events: { add: ignore },
  otherEvents: { add: ignore },
  refused: { add: ignore },
  ackSeconds: { record: ignore },
};

/** A bot without credentials: whatever it would ask the platform fails before it leaves this process. */
function detachedBot(services: Services): Bot {
  const { settings, clock, random } = services;
  const [appId, secret] = ["cli_warm_up", random.uuid()];
  const tokenCache = {
    get: async () => await Promise.reject(new Error("the warm-up asks no platform")),
  };
  const api = new FeishuApi({
    appId,
    appSecret: secret,
    domain: "feishu",
    tokenCache,
    clock,
    random,
  });
  const own = { ...settings.bots.default, tenants: null };
  const feishu = { ...own.feishu, typing: false, queueNotice: "off" } as const;
  const access = {
    name: "default",
    appId,
    appSecret: secret,
    domain: "feishu",
    encryptKey: secret,
    verificationToken: secret,
    websocket: false,
    webhook: true,
  } as const;
  const bots = { ...settings.bots, default: { ...own, feishu } };
  return new Bot({ ...services, settings: { ...settings, bots } }, access, api);
}

/** A text message, as `im.message.receive_v1` describes it. Every other one finds the one before it in its chat. */
function messageRequest({ clock, random }: Services, { access }: Bot, chat: string) {
  const { appId, encryptKey = "", verificationToken } = access;
  const id = random.uuid().replaceAll("-", "");
  const now = String(clock.now());
  const event = {
    schema: "2.0",
    header: {
      event_id: id,
      event_type: messageEventType,
      create_time: now,
      token: verificationToken,
      app_id: appId,
      tenant_key: "warm-up",
    },
    event: {
      sender: { sender_id: { open_id: `ou_${chat}` }, sender_type: "user", tenant_key: "warm-up" },
      message: {
        message_id: `om_${id}`,
        create_time: now,
        chat_id: `oc_${chat}`,
        chat_type: "p2p",
        message_type: "text",
        content: JSON.stringify({ text: `How warm is it today, in ${chat}?` }),
      },
    },
  };
  const { body, headers } = createWebhookEvent(encryptKey, event, clock.now());
  return { method: "POST", url: "/feishu/events", payload: body, headers } as const;
}
