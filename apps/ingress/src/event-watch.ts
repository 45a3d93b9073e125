import { sharedNow } from "@larkline/protocol";
import { FeishuError, type FeishuApi } from "@larkline/feishu";
import {
  maxMissed,
  type EventWatchReport,
  type EventWatchReports,
  type MissedMessage,
  type SessionStore,
} from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { Placer } from "./conversation-place.ts";

export interface EventWatchDeps {
  app: string;
  api: FeishuApi;
  store: Pick<SessionStore, "seen">;
  placer: Pick<Placer, "sessionOf">;
  reports: EventWatchReports;
  /** False: another process has looked not long ago. */
  takeDuty: (ttlMs: number) => Promise<boolean>;
  /** Calls a month that the plan includes; null: nobody counts. */
  monthlyCalls: number | null;
  logger: Logger;
  /** Epoch ms. */
  now?: () => number;
  /** Younger messages may still come: the platform repeats what was not acknowledged after up to five minutes. */
  graceMs?: number;
}

/**
 * Finds out whether somebody else takes events of the app. Over long connections the platform sends each event
 * to one connection only and does not tell how many there are ("Long connection"). But it lists the messages
 * of a chat: a direct message that was written while we are connected and never came went somewhere else.
 */
export interface EventWatch {
  /** A direct message came: its chat is one to look at. Costs nothing. */
  noteDirect(chatId: string): void;
  /** Looks once, if it is time and nobody else does. Never rejects. */
  look(): Promise<void>;
  close(): Promise<void>;
}

const minuteMs = 60_000;
const monthMs = 30 * 24 * 60 * minuteMs;
/** How far back a look goes. */
const windowMs = 30 * minuteMs;
const intervalMs = 600_000;
/** Looks may use so much of a month's calls. */
const shareOfCalls = 0.02;
const maxChats = 200;
/** How long a missed message is reported. */
const reportedMs = 24 * 60 * minuteMs;
const deadlineMs = 15_000;

/** The chats of the last while, with how many messages came in each; the busiest tells most. */
class RecentChats {
  readonly #chats = new Map<string, { count: number; atMs: number }>();

  note(chatId: string, atMs: number): void {
    const { count = 0 } = this.#chats.get(chatId) ?? {};
    this.#chats.delete(chatId);
    this.#chats.set(chatId, { count: count + 1, atMs });
    const [oldest] = this.#chats.keys();
    if (this.#chats.size > maxChats && oldest !== undefined) this.#chats.delete(oldest);
  }

  busiest(sinceMs: number): string | undefined {
    const recent = [...this.#chats].filter(([, { atMs }]) => atMs >= sinceMs);
    return recent.sort(([, one], [, other]) => other.count - one.count)[0]?.[0];
  }

  clear(): void {
    this.#chats.clear();
  }
}

function problemOf(error: unknown): string {
  if (!(error instanceof FeishuError)) return "no answer";
  return [error.kind, ...(error.code === 0 ? [] : [error.code])].join(" ");
}

class Watch implements EventWatch {
  readonly #deps: EventWatchDeps;
  readonly #now: () => number;
  readonly #startedAtMs: number;
  readonly #chats = new RecentChats();
  readonly #closing = new AbortController();
  readonly #everyMs: number;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | undefined;

  constructor(deps: EventWatchDeps) {
    this.#deps = deps;
    this.#now = deps.now ?? sharedNow;
    this.#startedAtMs = this.#now();
    const { monthlyCalls } = deps;
    this.#everyMs = monthlyCalls === null ? intervalMs : Math.max(intervalMs, monthMs / (monthlyCalls * shareOfCalls));
    this.#timer = setInterval(() => void this.look(), Math.min(this.#everyMs, intervalMs));
    this.#timer.unref();
  }

  noteDirect(chatId: string): void {
    this.#chats.note(chatId, this.#now());
  }

  async look(): Promise<void> {
    this.#running ??= this.#look()
      .catch((error: unknown) => this.#deps.logger.warn({ error }, "it could not be found out who takes events"))
      .finally(() => (this.#running = undefined));
    await this.#running;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#closing.abort();
    await this.#running;
  }

  async #look(): Promise<void> {
    const { takeDuty, reports, app } = this.#deps;
    const nowMs = this.#now();
    const sinceMs = Math.max(nowMs - windowMs, this.#startedAtMs);
    const chatId = this.#chats.busiest(sinceMs);
    if (chatId === undefined || !(await takeDuty(this.#everyMs - 1_000))) return;
    const before = await this.#stillMissed((await reports.of(app))?.missed ?? [], nowMs);
    const found = await this.#compare(chatId, sinceMs);
    const known = new Set(before.map(({ messageId }) => messageId));
    const fresh = found.missed.filter(({ messageId }) => !known.has(messageId));
    const missed = [...fresh, ...before].slice(0, maxMissed);
    await reports.save({ app, checkedAtMs: nowMs, ...found, missed });
    this.#chats.clear();
    if (fresh.length > 0) this.#deps.logger.error({ app, missed: fresh.length }, "an unknown instance takes events");
  }

  /** Some come hours late: the platform repeats what nobody acknowledged. */
  async #stillMissed(missed: readonly MissedMessage[], nowMs: number): Promise<MissedMessage[]> {
    const recent = missed.filter(({ createdAtMs }) => createdAtMs > nowMs - reportedMs);
    const came = await Promise.all(recent.map(async (one) => await this.#came(one)));
    return recent.filter((_, at) => came[at] === false);
  }

  async #came({ chatId, messageId }: Pick<MissedMessage, "chatId" | "messageId">): Promise<boolean> {
    const { store, placer, app } = this.#deps;
    return await store.seen(await placer.sessionOf(chatId, messageId), app, messageId);
  }

  async #compare(chatId: string, sinceMs: number): Promise<Pick<EventWatchReport, "compared" | "missed" | "problem">> {
    const { api, graceMs = 360_000 } = this.#deps;
    const untilMs = this.#now() - graceMs;
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(deadlineMs)]);
    try {
      const listed = await api.history.list({ chatId, sinceMs }, { signal });
      // Orders leave no record of their own when they are answered by what they do.
      const wanted = listed.filter((one) => one.isByPerson && !one.isOrder && one.createdAtMs <= untilMs);
      const came = await Promise.all(wanted.map(async ({ messageId }) => await this.#came({ chatId, messageId })));
      const lost = wanted.filter((_, at) => came[at] === false);
      const missed = lost.map(({ messageId, createdAtMs }) => ({ messageId, chatId, createdAtMs }));
      return { compared: wanted.length, missed };
    } catch (error) {
      return { compared: 0, missed: [], problem: problemOf(error) };
    }
  }
}

/** A watch over the long connections of one app; it looks by itself every ten minutes at most. */
export function createEventWatch(deps: EventWatchDeps): EventWatch {
  return new Watch(deps);
}
