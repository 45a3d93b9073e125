import { FeishuError, LongConnection } from "@larkline/feishu";
import type { Clock } from "@larkline/protocol/clock";
import { type EventWatchReport, maxMissed, type MissedMessage } from "@larkline/store/operations";
import { drainMs, type Bot } from "./bot.ts";
import { handleEvent } from "./events.ts";
import type { Services } from "./services.ts";
import { sessionOfMessage } from "./sessions.ts";

// Events over the platform's WebSocket: the connection of a bot, what `/ready` says about it, and the watch for other
// programs that take the bot's events away.

/** Makes the long connection of a bot, not started yet. Throws when the app id cannot be one. */
export function openLongConnection(services: Services, bot: Bot): LongConnection {
  const { appId, appSecret, domain } = bot.access;
  return new LongConnection({
    appId,
    appSecret,
    domain,
    logger: bot.log,
    clock: services.clock,
    random: services.random,
    onEvent: async (envelope) => {
      const answer = await handleEvent(services, bot, envelope, "websocket");
      return Object.keys(answer).length === 0 ? undefined : answer;
    },
    onState: (state) => bot.log.info({ state }, "long connection"),
    drainMs,
  });
}

/** A bot, as far as readiness goes. */
export interface ConnectedBot {
  name: string;
  /** The connection of the bot; undefined: its events come by webhook. */
  connection: Pick<LongConnection, "state"> | undefined;
}

/** How long `/ready` of a new process waits for its bots to connect, so that a roll-out stops when they cannot. */
const startMs = 30_000;

/**
 * What `/ready` says about the long connections. One that is lost later, or never comes, is no reason to withhold the
 * process from people who write to another bot.
 */
export class ConnectionChecks {
  readonly #bots: readonly ConnectedBot[];
  readonly #clock: Clock;
  readonly #startedMs: number;
  /** Names of bots that were connected once. */
  readonly #seen = new Set<string>();

  constructor(clock: Clock, bots: readonly ConnectedBot[]) {
    this.#bots = bots;
    this.#clock = clock;
    this.#startedMs = clock.monotonic();
  }

  /** The state of each connection, by the name of the check. */
  states(): Record<string, boolean | "lost"> {
    for (const bot of this.#bots) if (isConnected(bot)) this.#seen.add(bot.name);
    const isServing = this.#bots.some((bot) => bot.connection === undefined || isConnected(bot));
    const isNew = this.#clock.monotonic() - this.#startedMs < startMs;
    const states = this.#bots.flatMap((bot): [string, boolean | "lost"][] => {
      if (bot.connection === undefined) return [];
      const name = bot.name === "default" ? "longConnection" : `longConnection.${bot.name}`;
      if (isConnected(bot)) return [[name, true]];
      const isStarting = isNew && !this.#seen.has(bot.name);
      return [[name, isServing && !isStarting ? "lost" : false]];
    });
    return Object.fromEntries(states);
  }
}

function isConnected({ connection }: ConnectedBot): boolean {
  return connection?.state() === "connected";
}

const minuteMs = 60_000;
const monthMs = 30 * 24 * 60 * minuteMs;
/** How far back a look goes. */
const windowMs = 30 * minuteMs;
const intervalMs = 600_000;
/** Younger messages may still arrive: the platform repeats unacknowledged events after up to five minutes. */
const graceMs = 360_000;
/** The part of a month's calls that these checks may use. */
const shareOfCalls = 0.02;
/** How long a missed message is reported. */
const reportedMs = 24 * 60 * minuteMs;
const lookDeadlineMs = 15_000;

/**
 * Finds out whether another program takes events of a bot. Over long connections the platform sends each event to one
 * connection only and does not tell how many there are ("Long connection"). But it lists the messages of a chat: a
 * direct message that was written while we are connected and never came went to another program. Looks by itself every
 * ten minutes at most, one process at a time.
 */
export class EventWatch {
  readonly #services: Services;
  readonly #bot: Bot;
  readonly #graceMs: number;
  readonly #startedAtMs: number;
  readonly #everyMs: number;
  readonly #stopTimer: () => void;
  readonly #closing = new AbortController();
  #running: Promise<void> | undefined;

  constructor(services: Services, bot: Bot, grace = graceMs) {
    this.#services = services;
    this.#bot = bot;
    this.#graceMs = grace;
    this.#startedAtMs = services.clock.now();
    const { monthlyCalls } = bot.settings.feishu;
    this.#everyMs =
      monthlyCalls === null
        ? intervalMs
        : Math.max(intervalMs, monthMs / (monthlyCalls * shareOfCalls));
    this.#stopTimer = services.clock.every(
      Math.min(this.#everyMs, intervalMs),
      () => void this.look(),
    );
  }

  /** Looks once, if it is time and no other process does. Never rejects. */
  async look(): Promise<void> {
    this.#running ??= this.#look()
      .catch((error: unknown) =>
        this.#bot.log.warn({ error }, "it could not be found out who takes events"),
      )
      .finally(() => (this.#running = undefined));
    await this.#running;
  }

  async close(): Promise<void> {
    this.#stopTimer();
    this.#closing.abort();
    await this.#running;
  }

  async #look(): Promise<void> {
    const { clock, eventWatches, redis } = this.#services;
    const { app, log, recentChats } = this.#bot;
    const nowMs = clock.now();
    const sinceMs = Math.max(nowMs - windowMs, this.#startedAtMs);
    const chatId = recentChats.busiest(sinceMs);
    if (
      chatId === undefined ||
      !(await redis.takeDuty(`event-watch:${app}`, this.#everyMs - 1_000))
    ) {
      return;
    }
    const before = await this.#stillMissed((await eventWatches.of(app))?.missed ?? [], nowMs);
    const found = await this.#compare(chatId, sinceMs);
    const known = new Set(before.map(({ messageId }) => messageId));
    const fresh = found.missed.filter(({ messageId }) => !known.has(messageId));
    const missed = [...fresh, ...before].slice(0, maxMissed);
    await eventWatches.save({ app, checkedAtMs: nowMs, ...found, missed });
    recentChats.clear();
    if (fresh.length > 0) {
      log.error({ app, missed: fresh.length }, "an unknown instance takes events");
    }
  }

  /** Some come hours late: the platform repeats what was not acknowledged. */
  async #stillMissed(missed: readonly MissedMessage[], nowMs: number): Promise<MissedMessage[]> {
    const recent = missed.filter(({ createdAtMs }) => createdAtMs > nowMs - reportedMs);
    const came = await Promise.all(recent.map(async (one) => await this.#came(one)));
    return recent.filter((_, at) => came[at] === false);
  }

  async #came({ chatId, messageId }: { chatId: string; messageId: string }): Promise<boolean> {
    const session = await sessionOfMessage(this.#services, this.#bot, { chatId, messageId });
    return await this.#services.store.seen(session, this.#bot.app, messageId);
  }

  async #compare(
    chatId: string,
    sinceMs: number,
  ): Promise<Pick<EventWatchReport, "compared" | "missed" | "problem">> {
    const { clock } = this.#services;
    const untilMs = clock.now() - this.#graceMs;
    const late = new AbortController();
    const cancel = clock.after(lookDeadlineMs, () => late.abort());
    const signal = AbortSignal.any([this.#closing.signal, late.signal]);
    try {
      const listed = await this.#bot.api.history.list({ chatId, sinceMs }, { signal });
      // Orders leave no record of their own when they are answered by what they do.
      const wanted = listed.filter(
        (one) => one.isByPerson && !one.isOrder && one.createdAtMs <= untilMs,
      );
      const came = await Promise.all(
        wanted.map(async ({ messageId }) => await this.#came({ chatId, messageId })),
      );
      const lost = wanted.filter((_, at) => came[at] === false);
      const missed = lost.map(({ messageId, createdAtMs }) => ({ messageId, chatId, createdAtMs }));
      return { compared: wanted.length, missed };
    } catch (error) {
      return { compared: 0, missed: [], problem: problemOf(error) };
    } finally {
      cancel();
    }
  }
}

/** A code without content. */
function problemOf(error: unknown): string {
  if (!(error instanceof FeishuError)) return "no answer";
  return [error.kind, ...(error.code === 0 ? [] : [error.code])].join(" ");
}
