import { pause, withDeadline, type Clock } from "@larkline/protocol/clock";
import type {
  RateBucket,
  RateCeiling,
  RateGovernor,
  RateGrant,
  RatePriority,
} from "@larkline/store/platform";
import { LRUCache } from "lru-cache";
import { FeishuError, TransportFailure } from "./error.ts";

/** What a call counts against, beside the limits of its API. */
export interface CallLimits {
  /** Receiving chat: 5 a second, shared by all bots in it ("Send message"). */
  chatId?: string | undefined;
  /** Receiving person. */
  userId?: string | undefined;
  /** Message whose card is replaced: 5 a second ("Update a card"). */
  messageId?: string | undefined;
  /** Card entity: 10 operations a second ("Streaming updates of cards"). */
  cardId?: string | undefined;
}

/** A call as far as the limits go. */
interface LimitedCall {
  api: string;
  limits?: CallLimits;
}

/** How long a call may wait for its turn, and with which priority. */
export interface CallTurn {
  /** A `frame` gives way to every `final`: the next frame replaces it. */
  priority: RatePriority;
  maxWaitMs: number;
  signals: readonly AbortSignal[];
}

const perChatSecond = 5;
/** Other bots in the chat draw on the same limit: we leave them a fifth of it. */
const sharedChat = 0.8;
const perPatchSecond = 5;
const perCardSecond = 10;

/** How long to wait when the platform names no time: the windows of these limits are a second long. */
const pauseMs = 1_000;

/** After how long a call may ask again while others wait in line. */
const crowdedMs = 200;

/** The longest wait for an answer of the governor. */
const governorTimeoutMs = 2_000;

/** How long the governor keeps the place of a call whose end is never reported, because its process died. */
const flightMs = 15_000;

/** A grant that took longer than this is not used: the process was stopped, and the governor may have dropped its place. */
const staleGrantMs = 5_000;

/** How long we remember whether a chat has other bots, and for how many chats. */
const membersMs = 10 * 60_000;
const maxChats = 5_000;

interface RateLimiterOptions {
  /** Holds the limits of all processes. */
  governor: RateGovernor;
  /** App id. */
  app: string;
  /** Resolves to whether no other bot is a member of a chat. Rejects when the platform does not say. */
  isOnlyBot: (chatId: string) => Promise<boolean>;
  clock: Clock;
}

/** Keeps the calls of one app within the limits of the platform, together with all other processes. */
export class RateLimiter {
  readonly #governor: RateGovernor;
  readonly #app: string;
  readonly #isOnlyBot: RateLimiterOptions["isOnlyBot"];
  readonly #clock: Clock;
  readonly #lines: WaitingLines;
  /** Whether this bot is alone in a chat, for chats whose calls had to wait. */
  readonly #chats = new LRUCache<string, { onlyBot: boolean; untilMs: number }>({ max: maxChats });

  constructor({ governor, app, isOnlyBot, clock }: RateLimiterOptions) {
    this.#governor = governor;
    this.#app = app;
    this.#isOnlyBot = isOnlyBot;
    this.#clock = clock;
    this.#lines = new WaitingLines(clock);
  }

  /**
   * Resolves when the call may leave, to a function that must be called when the call is over. Rejects with a
   * FeishuError that is `heldBack`, or with a TransportFailure when aborted.
   */
  async enter({ api, limits = {} }: LimitedCall, turn: CallTurn): Promise<() => void> {
    const buckets = [...this.#targets(limits), apiBucket(this.#app, api)];
    const attempt: Attempt = {
      api,
      buckets,
      turn,
      deadline: this.#clock.monotonic() + turn.maxWaitMs,
    };
    const crowded = buckets.find(({ key }) => this.#lines.isCrowded(key));
    // Calls that wait in line go first; a frame does not wait behind them.
    if (crowded !== undefined && turn.priority === "frame") throw heldBack(api, crowdedMs);
    let grant: RateGrant =
      crowded === undefined
        ? await this.#take(attempt)
        : { granted: false, key: crowded.key, waitMs: 0 };
    while (!grant.granted) {
      if (limits.chatId !== undefined && grant.key.endsWith(`:chat:${limits.chatId}`)) {
        this.#learn(limits.chatId);
      }
      grant = await this.#inLine(attempt, grant);
    }
    if (isCounted(api)) {
      this.#governor.countCall(this.#app, monthOf(this.#clock.now())).catch(() => undefined);
    }
    const { ticket } = grant;
    return () => void this.#governor.ended(ticket, buckets, flightMs).catch(() => undefined);
  }

  /** The platform refused a call because of a limit: pauses the buckets that it counted against. */
  refused({ api, limits = {} }: LimitedCall, error: FeishuError): void {
    if (error.kind !== "rate_limit" || error.heldBack) return;
    const ofGateway = error.httpStatus === 429 || error.code === 99991400;
    const buckets = ofGateway ? [apiBucket(this.#app, api)] : this.#targets(limits);
    for (const bucket of buckets) {
      const ceiling = ofGateway ? ceilingOf(bucket, error) : undefined;
      this.#governor
        .pause(bucket.key, error.retryAfterMs || pauseMs, ceiling)
        .catch(() => undefined);
    }
  }

  /** Calls of this month that the quota counts. */
  async monthlyCalls(): Promise<number> {
    return await this.#governor.callsOf(this.#app, monthOf(this.#clock.now()));
  }

  #targets({ chatId, userId, messageId, cardId }: CallLimits): RateBucket[] {
    const buckets: RateBucket[] = [];
    const add = (kind: string, id: string | undefined, bucket: Omit<RateBucket, "key">): void => {
      if (id !== undefined && id !== "") {
        buckets.push({ key: `${this.#app}:${kind}:${id}`, ...bucket });
      }
    };
    const isAlone = chatId !== undefined && this.#chats.get(chatId)?.onlyBot === true;
    add("chat", chatId, { perSecond: perChatSecond, ...(isAlone ? {} : { share: sharedChat }) });
    add("user", userId, { perSecond: perChatSecond });
    add("message", messageId, { perSecond: perPatchSecond });
    add("card", cardId, { perSecond: perCardSecond });
    return buckets;
  }

  /** Asks in the background which other bots are in a chat whose calls have to wait. */
  #learn(chatId: string): void {
    const nowMs = this.#clock.monotonic();
    const known = this.#chats.get(chatId);
    if (known !== undefined && known.untilMs > nowMs) return;
    this.#chats.set(chatId, { onlyBot: false, untilMs: nowMs + membersMs });
    this.#isOnlyBot(chatId).then(
      (onlyBot) => this.#chats.set(chatId, { onlyBot, untilMs: nowMs + membersMs }),
      () => undefined,
    );
  }

  /** Waits for the bucket that refused, one call of this process at a time; resolves to a grant or the next refusal. */
  async #inLine(attempt: Attempt, refused: Refused): Promise<RateGrant> {
    const { key } = refused;
    this.#checkDeadline(attempt, refused.waitMs);
    const waited = await this.#lines.enter(key, {
      deadline: attempt.deadline,
      signals: attempt.turn.signals,
    });
    if (waited === "late") throw heldBack(attempt.api, pauseMs);
    try {
      let waitMs = waited === "first" ? refused.waitMs : 0;
      for (;;) {
        await sleep(this.#clock, waitMs, attempt.turn.signals);
        const again = await this.#take(attempt);
        if (again.granted || again.key !== key) return again;
        this.#checkDeadline(attempt, again.waitMs);
        ({ waitMs } = again);
      }
    } finally {
      this.#lines.leave(key);
    }
  }

  #checkDeadline({ api, deadline }: Attempt, waitMs: number): void {
    if (this.#clock.monotonic() + waitMs > deadline) throw heldBack(api, waitMs || crowdedMs);
  }

  async #take({ api, buckets, turn }: Attempt): Promise<RateGrant> {
    try {
      for (;;) {
        const askedMs = this.#clock.monotonic();
        const grant = await answerOf(
          this.#clock,
          this.#governor.take(buckets, turn.priority, flightMs),
          turn.signals,
        );
        if (!grant.granted || this.#clock.monotonic() - askedMs < staleGrantMs) return grant;
      }
    } catch (error) {
      if (error instanceof TransportFailure) throw error;
      throw unreachable(api);
    }
  }
}

/** The quota may be asked for before every frame, so an answer is used for this long. */
const freshQuotaMs = 5_000;

/** How many calls of this month are left. */
export class MonthlyQuota {
  readonly #limiter: RateLimiter | undefined;
  readonly #limit: number | null;
  readonly #clock: Clock;
  #known: { counted: Promise<number>; untilMs: number } | undefined;

  /** `limit`: calls a month that the tenant's plan includes; null when they are not limited. */
  constructor(limiter: RateLimiter | undefined, limit: number | null, clock: Clock) {
    this.#limiter = limiter;
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Calls so far, a few seconds old at most; 0 without a limiter. Rejects when the count cannot be read. */
  async read(): Promise<{ calls: number; limit: number | null }> {
    const limit = this.#limit;
    if (this.#known !== undefined && this.#known.untilMs > this.#clock.monotonic()) {
      return { calls: await this.#known.counted, limit };
    }
    const known = { counted: this.#count(), untilMs: this.#clock.monotonic() + freshQuotaMs };
    this.#known = known;
    known.counted.catch(() => {
      if (this.#known === known) this.#known = undefined;
    });
    return { calls: await known.counted, limit };
  }

  async #count(): Promise<number> {
    try {
      return (await this.#limiter?.monthlyCalls()) ?? 0;
    } catch {
      const reason = "the count of calls could not be read";
      throw new FeishuError({ api: "quota", kind: "unavailable", code: 0, httpStatus: 0, reason });
    }
  }
}

/** Waiting lines, one per key, first come first served. */
class WaitingLines {
  readonly #clock: Clock;
  /** The calls behind the one whose turn it is. */
  readonly #lines = new Map<string, (() => void)[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a call is in the line of this key. */
  isCrowded(key: string): boolean {
    return this.#lines.has(key);
  }

  /**
   * Resolves to `first`: the line was empty; `turn`: the call has waited and it is its turn now; `late`: the
   * deadline (`clock.monotonic()`) came first and the call has left the line. Rejects when aborted.
   */
  async enter(
    key: string,
    { deadline, signals }: { deadline: number; signals: readonly AbortSignal[] },
  ): Promise<"first" | "turn" | "late"> {
    if (signals.some(({ aborted }) => aborted)) {
      throw new TransportFailure("aborted", false, "aborted");
    }
    const line = this.#lines.get(key);
    if (line === undefined) {
      this.#lines.set(key, []);
      return "first";
    }
    return await new Promise((resolve, reject) => {
      const settle = (finish: () => void): void => {
        cancel();
        for (const signal of signals) signal.removeEventListener("abort", onAbort);
        const at = line.indexOf(onTurn);
        if (at >= 0) line.splice(at, 1);
        finish();
      };
      const onTurn = (): void => settle(() => resolve("turn"));
      const onAbort = (): void =>
        settle(() => reject(new TransportFailure("aborted", false, "aborted")));
      const leftMs = Math.max(0, deadline - this.#clock.monotonic());
      const cancel = this.#clock.after(leftMs, () => settle(() => resolve("late")));
      for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
      line.push(onTurn);
    });
  }

  /** The call whose turn it was lets the next one go. */
  leave(key: string): void {
    const next = this.#lines.get(key)?.shift();
    if (next === undefined) this.#lines.delete(key);
    else next();
  }
}

function isCounted(api: string): boolean {
  return api.startsWith("im.") || api.startsWith("cardkit.");
}

/** The limit that the platform named, and its window: a platform that asks to wait for longer than a second counts minutes. */
function ceilingOf(
  { perSecond = 0 }: RateBucket,
  { namedLimit, retryAfterMs }: FeishuError,
): RateCeiling | undefined {
  if (namedLimit === 0) return undefined;
  return retryAfterMs <= 1_000 && namedLimit <= perSecond
    ? { perSecond: namedLimit }
    : { perMinute: namedLimit };
}

function heldBack(api: string, retryAfterMs: number): FeishuError {
  const reason = "held back by the rate limit";
  return new FeishuError({
    api,
    kind: "rate_limit",
    code: 0,
    httpStatus: 0,
    retryAfterMs,
    heldBack: true,
    reason,
  });
}

function unreachable(api: string): FeishuError {
  const reason = "the rate limits could not be read";
  return new FeishuError({
    api,
    kind: "unavailable",
    code: 0,
    httpStatus: 0,
    heldBack: true,
    reason,
  });
}

async function sleep(clock: Clock, waitMs: number, signals: readonly AbortSignal[]): Promise<void> {
  const signal = AbortSignal.any([...signals]);
  await pause(clock, waitMs, signal);
  if (signal.aborted) throw new TransportFailure("aborted", false, "aborted");
}

/** The governor's answer, awaited for a limited time; without `AbortSignal.any`, which costs more than a grant. */
async function answerOf<T>(
  clock: Clock,
  answer: Promise<T>,
  signals: readonly AbortSignal[],
): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(new TransportFailure("aborted", false, "aborted"));
  for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([withDeadline(clock, answer, governorTimeoutMs), aborted.promise]);
  } finally {
    for (const signal of signals) signal.removeEventListener("abort", onAbort);
  }
}

type Refused = Extract<RateGrant, { granted: false }>;

interface Attempt {
  api: string;
  buckets: readonly RateBucket[];
  turn: CallTurn;
  /** `clock.monotonic()` at which waiting ends. */
  deadline: number;
}

// Facts about the platform that also programs without an API client need, such as the console. This file
// must not import the SDK.

/** Where an app lives: one of the two clouds, or any base URL (a simulator, a proxy). */
export type FeishuDomain = "feishu" | "lark" | (string & {});

const clouds: Record<string, string> = {
  feishu: "https://open.feishu.cn",
  lark: "https://open.larksuite.com",
};

/** The base URL without a trailing slash. Throws when it is neither a known name nor an http(s) URL. */
export function baseUrlOf(domain: FeishuDomain): string {
  const known = clouds[domain];
  if (known !== undefined) return known;
  if (!URL.canParse(domain)) {
    throw new Error(`FEISHU_DOMAIN must be feishu, lark or a base URL, got "${domain}"`);
  }
  const url = new URL(domain);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new Error(`FEISHU_DOMAIN must be an http or https URL, got "${url.protocol}"`);
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}

interface Tier {
  perSecond?: number;
  perMinute?: number;
}

/** "Rate limits", tier 4: what most of the APIs allow one app in one tenant. */
const defaultTier: Tier = { perSecond: 50, perMinute: 1_000 };

/** APIs of another tier. */
const tiers: Readonly<Record<string, Tier>> = {
  "contact.user.basicBatch": { perSecond: 5 },
};

/** The APIs whose slowness people notice: those that show something, and those that a message waits for. */
const visibleApis = [
  "im.message.reply",
  "im.message.create",
  "im.message.patch",
  "im.message.list",
  "im.message.get",
  "cardkit.card.create",
  "cardkit.card.update",
  "cardkit.card.batchUpdate",
  "cardkit.card.settings",
  "cardkit.cardElement.content",
  "im.image.create",
  "im.messageResource.get",
  "im.reaction.create",
  "contact.user.basicBatch",
] as const;

/** The limit of one API for one app, shared by all processes. */
export function apiBucket(app: string, api: string): RateBucket {
  return { key: `${app}:api:${api}`, ...(tiers[api] ?? defaultTier) };
}

/** The limits of the APIs that matter most. */
export function apiBuckets(app: string): RateBucket[] {
  return visibleApis.map((api) => apiBucket(app, api));
}

/** The month (`YYYY-MM`) in which the platform counts a call: its quota follows the calendar of its own time zone. */
export function monthOf(nowMs: number): string {
  return new Date(nowMs + 8 * 3_600_000).toISOString().slice(0, 7);
}

/** The name under which the processes share an app's access token. */
export function tenantTokenName(domain: FeishuDomain, app: string): string {
  return `feishu-tenant-token ${baseUrlOf(domain)} ${app}`;
}
