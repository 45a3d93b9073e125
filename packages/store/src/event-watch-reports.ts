import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/** A message to a bot that the platform never delivered to any of our processes. */
export interface MissedMessage {
  messageId: string;
  chatId: string;
  createdAtMs: number;
}

/** What a look at the platform's own list of messages has found for one app. */
export interface EventWatchReport {
  app: string;
  checkedAtMs: number;
  /** Messages of people that were compared with what was received, in the last look. */
  compared: number;
  /** Those of the last day that never came, newest first; at most {@link maxMissed}. */
  missed: readonly MissedMessage[];
  /** Why the last look found out nothing, such as a missing right; a code, no content. */
  problem?: string;
}

/** How many missed messages a report holds. */
export const maxMissed = 20;

const keptMs = 86_400_000;

/** The newest report of each app, kept for a day. */
export class EventWatchReports {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  async save(report: EventWatchReport): Promise<void> {
    await this.#redis.set(this.#keyOf(report.app), JSON.stringify(report), "PX", keptMs);
  }

  async of(app: string): Promise<EventWatchReport | undefined> {
    const text = await this.#redis.get(this.#keyOf(app));
    return text === null ? undefined : (JSON.parse(text) as EventWatchReport); // written by save
  }

  #keyOf(app: string): string {
    return this.#keys.eventWatchOf(app);
  }
}
