import { parserOf } from "@larkline/protocol";
import { deadline, systemClock, type Clock } from "@larkline/protocol/clock";
import { Type } from "@larkline/protocol/type";
import type { LookupCache } from "@larkline/store/platform";
import type { FeishuApi } from "../feishu-api.ts";

export interface GroupLookupOptions {
  api: FeishuApi;
  lookups: LookupCache;
  /** Deadline of one answer in ms, 2 s by default: the answer to a click waits for it. */
  timeoutMs?: number;
  clock?: Clock;
}

const cacheMs = 5 * 60_000;

/** The user groups of people, from the platform, remembered for all processes. A cache that fails costs only a call. */
export class GroupLookup {
  readonly #api: FeishuApi;
  readonly #lookups: LookupCache;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #asking = new Map<string, Promise<string[]>>();

  constructor({ api, lookups, timeoutMs = 2_000, clock = systemClock }: GroupLookupOptions) {
    this.#api = api;
    this.#lookups = lookups;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
  }

  /**
   * Ids of the user groups that the person belongs to, at most five minutes old. Rejects when they cannot be known,
   * with an error that says why; the caller must not take that for "none".
   */
  async groupsOf(openId: string): Promise<string[]> {
    const running =
      this.#asking.get(openId) ?? this.#ask(openId).finally(() => this.#asking.delete(openId));
    this.#asking.set(openId, running);
    return [...(await running)];
  }

  async #ask(openId: string): Promise<string[]> {
    const key = `groups:${this.#api.appId}:${openId}`;
    const known = parsedGroups(await this.#lookups.get(key).catch(() => undefined));
    if (known !== undefined) return known;
    const timeoutMs = this.#timeoutMs;
    const groups = await this.#api.groupsOf(openId, {
      signal: deadline(this.#clock, timeoutMs),
      maxWaitMs: timeoutMs,
    });
    await this.#lookups.set(key, JSON.stringify(groups), cacheMs).catch(() => undefined);
    return groups;
  }
}

const parseCached = parserOf(Type.Array(Type.String(), { maxItems: 20_000 }));

function parsedGroups(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  try {
    const parsed = parseCached(JSON.parse(text));
    return parsed.ok ? parsed.value : undefined;
  } catch {
    return undefined;
  }
}
