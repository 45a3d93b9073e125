import { createHash } from "node:crypto";
import {
  groupsAtBot,
  type AgentConfig,
  type BotConfig,
  type IngressBotAccess,
} from "@larkline/process/config";
import { watchPlatform, type Logger } from "@larkline/process/telemetry";
import {
  GroupLookup,
  OutboxSender,
  StatusReactions,
  type FeishuApi,
  type LongConnection,
} from "@larkline/feishu";
import { LRUCache } from "lru-cache";
import type { InboundMessage } from "@larkline/protocol";
import { pause, withDeadline } from "@larkline/protocol/clock";
import { traceparentOf } from "@larkline/protocol/trace";
import type { DeadLetters, OutboxLease, OutboxRecord, OutboxTarget, Outbox } from "@larkline/store";
import type { AppFeed } from "@larkline/store/operations";
import type { AloneNotice, Channel, Services } from "./services.ts";

/** How events reach this process. */
export type Transport = "webhook" | "websocket";

/** How long closing waits for what is under way. */
export const drainMs = 5_000;

/** Deadline for checking and storing a decision together: below the 3 s in which a click has to be answered. */
export const decisionDeadlineMs = 2_000;

/** How long an answer waits for the names of people. */
const namePatienceMs = 300;

const dayMs = 24 * 3_600_000;

/** One bot: its identity, its connection to the platform, and what this process has cached for it. */
export class Bot implements Channel {
  /** Its name in the configuration; `default` is the bot of `FEISHU_APP_ID`. */
  readonly name: string;
  readonly app: string;
  readonly access: IngressBotAccess;
  readonly settings: BotConfig;
  /** Calls the platform as this bot. The caller of the constructor closes it. */
  readonly api: FeishuApi;
  readonly log: Logger;
  /**
   * What each write of a message may take. Together they have the deadline of the acknowledgement; a message that is
   * stored later counts as stored.
   */
  readonly storeDeadlineMs = 2_400;
  readonly languageKeptMs = 90 * dayMs;
  readonly identity: BotIdentity;
  readonly background: Background;
  /** Optional calls of the platform, a few at a time, so that a burst of messages does not wait for them. */
  readonly courtesies: Background;
  readonly outbox: NoticeOutbox;
  readonly reactions: StatusReactions;
  readonly directChats: DirectChats;
  readonly recentChats = new RecentChats();
  /** Questions to the platform that are under way, by chat: whether the chat is a group in topic form. */
  readonly topicQuestions = new Map<string, Promise<boolean>>();
  /** When the last event came, epoch ms. */
  readonly lastEventAtMs = new Map<Transport, number>();
  /**
   * The long connection of the bot; undefined where its events come by webhook only. Set when the process starts,
   * before any event.
   */
  connection: LongConnection | undefined;
  readonly #services: Services;
  readonly #groups: GroupLookup;

  /** Begins to ask the platform who the bot is. */
  constructor(services: Services, access: IngressBotAccess, api: FeishuApi) {
    const { settings, lookups, log } = services;
    this.#services = services;
    this.name = access.name;
    this.app = api.appId;
    this.access = access;
    // Names of bots come from the configuration.
    this.settings = settings.bots[access.name] ?? settings.bots.default;
    this.api = api;
    this.log = log.child({ bot: this.settings.name });
    this.identity = new BotIdentity(services, api, this.log);
    this.background = new Background(services, this.log);
    this.courtesies = new Background(services, this.log, courtesiesAtOnce);
    this.reactions = new StatusReactions({ api, lookups, logger: this.log });
    this.outbox = new NoticeOutbox(services, { api, reactions: this.reactions, logger: this.log });
    this.directChats = new DirectChats(services, this.app);
    this.#groups = new GroupLookup({
      api,
      lookups,
      timeoutMs: decisionDeadlineMs,
      clock: services.clock,
    });
  }

  /** The agent that answers what is written in a chat from now on. */
  agentIn(chatId: string): AgentConfig {
    const { agents } = this.#services.settings;
    // Names of agents were checked when the configuration was loaded.
    return agents[this.settings.chats.get(chatId) ?? this.settings.agent] ?? agents.default;
  }

  /**
   * Looks where the workers remember names first. Names that are not there are asked for and not remembered: that is
   * rare.
   */
  async namesOf(openIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const names = new Map<string, string>();
    const impatient = new AbortController();
    try {
      const found = this.#findNames([...new Set(openIds)], names, impatient.signal);
      await withDeadline(this.#services.clock, found, namePatienceMs);
    } catch (error) {
      impatient.abort();
      this.log.warn({ error }, "not all names of people known");
    }
    return new Map(names);
  }

  async #findNames(
    openIds: readonly string[],
    names: Map<string, string>,
    signal: AbortSignal,
  ): Promise<void> {
    const { lookups } = this.#services;
    const keptNames = openIds.map(
      async (id) => [id, await lookups.get(`name:${this.app}:${id}`)] as const,
    );
    const known = await Promise.all(keptNames);
    for (const [id, name] of known) if (name) names.set(id, name);
    const unknown = known.flatMap(([id, name]) => (name === undefined ? [id] : []));
    if (unknown.length === 0) return;
    for (const [id, name] of await this.api.userNames(unknown, { signal })) names.set(id, name);
  }

  async groupsOf(openId: string): Promise<readonly string[]> {
    return groupsAtBot(this.settings, await this.#groups.groupsOf(openId));
  }

  async tellAlone(openId: string, { message, ...shown }: AloneNotice): Promise<void> {
    const { id, session } = message;
    const target = { app: this.app, chatId: openId, messageId: "", inThread: false };
    const notice = { purpose: "notice", key: `${id}-alone`, session, target, ...shown } as const;
    await sendNotice(this.#services, this, notice);
  }

  /** Finishes what is under way. Call it when no event can come any more. */
  async close(): Promise<void> {
    await Promise.all([this.background.close(), this.courtesies.close()]);
    await this.outbox.close();
    this.identity.close();
  }
}

/** How events of a bot come in at this moment, for `/ready` and the console. */
export function feedsOf(bot: Bot): AppFeed[] {
  const { app, access, connection } = bot;
  const feedOf = (transport: Transport, state: string): AppFeed => {
    const lastEventAtMs = bot.lastEventAtMs.get(transport);
    return { app, transport, state, ...(lastEventAtMs === undefined ? {} : { lastEventAtMs }) };
  };
  return [
    ...(connection === undefined ? [] : [feedOf("websocket", connection.state())]),
    ...(access.webhook ? [feedOf("webhook", "listening")] : []),
  ];
}

const identityBackOffMs = { first: 500, longest: 30_000 } as const;

/** Who the bot is, asked for in the background until the platform answers. */
export class BotIdentity {
  /** The bot's open_id; empty while it is unknown. */
  openId = "";
  readonly #services: Services;
  readonly #log: Logger;
  readonly #known = Promise.withResolvers<void>();
  readonly #closing = new AbortController();

  constructor(services: Services, api: FeishuApi, log: Logger) {
    this.#services = services;
    this.#log = log;
    void this.#ask(api);
  }

  /** Never rejects. */
  async #ask(api: FeishuApi): Promise<void> {
    const { signal } = this.#closing;
    for (let waitMs: number = identityBackOffMs.first; !signal.aborted;) {
      try {
        const bot = await api.botInfo(signal);
        this.openId = bot.openId;
        this.#known.resolve();
        this.#log.info({ botOpenId: bot.openId, botName: bot.name }, "the bot knows itself");
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.#log.warn(
          { error, retryInMs: waitMs },
          "the bot's own open_id is unknown: group messages have to wait",
        );
        await pause(this.#services.clock, waitMs, signal);
        waitMs = Math.min(waitMs * 2, identityBackOffMs.longest);
      }
    }
  }

  /** The bot's open_id, waited for as long as that; empty when it is still unknown then. */
  async within(ms: number): Promise<string> {
    const known = new AbortController();
    const late = pause(
      this.#services.clock,
      ms,
      AbortSignal.any([known.signal, this.#closing.signal]),
    );
    await Promise.race([this.#known.promise, late]);
    known.abort();
    return this.openId;
  }

  close(): void {
    this.#closing.abort();
  }
}

const courtesiesAtOnce = 2;
/** Bound of the queue. Work above it is dropped: it would come too late to be of use. */
const maxWaiting = 1_000;

/** `signal` aborts when the process ends: from then on work waits only for what is under way. */
type Work = (signal: AbortSignal) => Promise<unknown>;

/** Work that no caller waits for and that must not delay an acknowledgement. */
class Background {
  readonly #services: Services;
  readonly #log: Logger;
  readonly #running = new Set<Promise<void>>();
  readonly #atOnce: number;
  readonly #closing = new AbortController();
  #waiting: [what: string, work: Work][] = [];

  /** `atOnce`: how many run side by side; what comes then waits for its turn. */
  constructor(services: Services, log: Logger, atOnce = Number.POSITIVE_INFINITY) {
    this.#services = services;
    this.#log = log;
    this.#atOnce = atOnce;
  }

  /** Does the work soon. A failure is logged and has no other consequence. */
  run(what: string, work: Work): void {
    if (this.#running.size >= this.#atOnce) {
      if (this.#waiting.length < maxWaiting) this.#waiting.push([what, work]);
      return;
    }
    const task = work(this.#closing.signal)
      .then(() => undefined)
      .catch((error: unknown) => this.#log.warn({ error, what }, "work in the background failed"))
      .finally(() => {
        this.#running.delete(task);
        const next = this.#waiting.shift();
        if (next !== undefined) this.run(...next);
      });
    this.#running.add(task);
  }

  /** Lets running work finish, for {@link drainMs} at most; work that has not begun is dropped. */
  async close(): Promise<void> {
    const { clock } = this.#services;
    this.#waiting = [];
    this.#closing.abort();
    await withDeadline(clock, Promise.all(this.#running), drainMs).catch((error: unknown) =>
      this.#log.warn(
        { error, unfinished: this.#running.size },
        "work in the background is left undone",
      ),
    );
  }
}

/** Something to be said outside of a turn. */
export interface Notice {
  /** What the notice is for. Together with `key` it identifies the notice, which is sent once. */
  purpose: "notice" | "queued" | "welcome";
  /** What it is about, such as a message id. */
  key: string;
  session: string;
  target: OutboxTarget;
  /** What is sent when the card cannot be. */
  text: string;
  card?: Record<string, unknown>;
}

/**
 * Stores a notice in the session's outbox, from where it is sent in the background. Resolves when it is stored; false
 * when it was stored before. The outbox remembers it under `messageId`; `parked` waits behind the question on its card.
 */
export async function sendNotice(
  services: Services,
  bot: Bot,
  notice: Notice,
  { messageId, parked }: { messageId?: string; parked?: InboundMessage } = {},
): Promise<boolean> {
  const record = recordOf(notice, services.clock.now());
  const { stored, lease } = await services.store.outbox.push(record, messageId ?? record.id, {
    parked,
  });
  if (lease !== undefined) bot.outbox.deliver(lease);
  return stored;
}

/** The `uuid` of the record depends on purpose, app and key alone, so the platform shows the notice once. */
function recordOf(
  { purpose, key, session, target, text, card }: Notice,
  nowMs: number,
): OutboxRecord {
  return {
    v: 1,
    id: `${purpose}-${key}`,
    uuid: createHash("sha256")
      .update(`${purpose} ${target.app}:${key}`)
      .digest("base64url")
      .slice(0, 40),
    session,
    target,
    text,
    ...(card === undefined ? {} : { card }),
    // A welcome is about no message.
    ...(purpose === "welcome" ? {} : { traceparent: traceparentOf({ app: target.app, id: key }) }),
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

/**
 * Sends what this process has put into outboxes itself, in the background. Replies that are shown on cards are left to
 * the workers, which can upload the images that answers name: where such a reply comes next, the outbox is given back,
 * due at once, with everything that stands behind the reply.
 */
class NoticeOutbox {
  readonly #services: Services;
  readonly #sender: OutboxSender;

  constructor(
    services: Services,
    { api, reactions, logger }: { api: FeishuApi; reactions: StatusReactions; logger: Logger },
  ) {
    this.#services = services;
    const { store, deadLetters, cards: ledger, telemetry, clock, random } = services;
    const outbox: Pick<Outbox, "ack" | "lease" | "retry"> = {
      ack: async (session, token) =>
        await this.#unlessReply(await store.outbox.ack(session, token)),
      lease: async (session) => await this.#unlessReply(await store.outbox.lease(session)),
      retry: async (lease, retryAtMs) => await store.outbox.retry(lease, retryAtMs),
    };
    const letters: Pick<DeadLetters, "moveToDeadLetters"> = {
      moveToDeadLetters: async (lease, reason) =>
        await this.#unlessReply(await deadLetters.moveToDeadLetters(lease, reason)),
    };
    const watch = reactions.watchLines(watchPlatform(telemetry, clock).deliveries);
    const apis = new Map([[api.appId, api]]);
    this.#sender = new OutboxSender({
      outbox,
      letters,
      ledger,
      apis,
      watch,
      logger,
      clock,
      random,
    });
  }

  async #unlessReply(lease: OutboxLease | undefined): Promise<OutboxLease | undefined> {
    if (lease?.record.view === undefined) return lease;
    await this.#services.store.outbox.retry(lease, this.#services.clock.now());
    return undefined;
  }

  /** Returns at once. An outbox that cannot be given back is free when its lease expires. */
  deliver(lease: OutboxLease): void {
    void this.#send(lease).catch(() => undefined);
  }

  async #send(lease: OutboxLease): Promise<void> {
    const notice = await this.#unlessReply(lease);
    if (notice !== undefined) await this.#sender.deliver(notice);
  }

  /** Lets running sends finish, for a while. */
  async close(): Promise<void> {
    await this.#sender.close();
  }
}

const directChatKeptMs = 30 * dayMs;
/** Every message names its chat, so it is stored once a day only. A value is fresh up to and including this age. */
const freshMs = dayMs - 1;
const maxFresh = 10_000;

/** Which chat with the bot belongs to which person: a press on the menu names no chat. */
export class DirectChats {
  readonly #services: Services;
  readonly #app: string;
  /** The chats that this process has stored within a day, by person. */
  readonly #fresh: LRUCache<string, string>;

  constructor(services: Services, app: string) {
    this.#services = services;
    this.#app = app;
    const perf = { now: () => services.clock.now() };
    this.#fresh = new LRUCache({ max: maxFresh, ttl: freshMs, ttlResolution: 0, perf });
  }

  async remember(openId: string, chatId: string): Promise<void> {
    if (this.#fresh.get(openId) === chatId) return;
    await this.#services.lookups.set(this.#keyOf(openId), chatId, directChatKeptMs);
    this.#fresh.set(openId, chatId);
  }

  /** The person's chat with the bot, as far as it is known. */
  async of(openId: string): Promise<string | undefined> {
    return await this.#services.lookups.get(this.#keyOf(openId));
  }

  #keyOf(openId: string): string {
    return `direct:${this.#app}:${openId}`;
  }
}

const maxRecentChats = 200;

/** Direct chats of the last while, with how many messages came in each. */
class RecentChats {
  readonly #chats = new LRUCache<string, { count: number; atMs: number }>({ max: maxRecentChats });

  note(chatId: string, atMs: number): void {
    const { count = 0 } = this.#chats.get(chatId) ?? {};
    this.#chats.set(chatId, { count: count + 1, atMs });
  }

  busiest(sinceMs: number): string | undefined {
    const recent = [...this.#chats].filter(([, { atMs }]) => atMs >= sinceMs);
    return recent.sort(([, one], [, other]) => other.count - one.count)[0]?.[0];
  }

  clear(): void {
    this.#chats.clear();
  }
}
