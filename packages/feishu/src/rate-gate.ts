import { setTimeout as delay } from "node:timers/promises";
import { sharedNow } from "@larkline/protocol";
import type { RateBucket, RateCeiling, RateGovernor, RateGrant, RateLane } from "@larkline/store";
import { FeishuError } from "./error.ts";
import { TransportFailure } from "./http-transport.ts";
import { apiBucket, monthOf } from "./limits.ts";
import { createWaitingLines, type WaitingLines } from "./waiting-lines.ts";

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
export interface LimitedCall {
  api: string;
  limits?: CallLimits;
}

/** How long a call may wait for its turn, and who it stands back for. */
export interface GatePass {
  lane: RateLane;
  maxWaitMs: number;
  signals: readonly AbortSignal[];
}

/** Lets calls out no faster than the platform takes them. */
export interface RateGate {
  /**
   * Resolves when the call may leave at once, to what has to be told that it is over. Rejects with a FeishuError that
   * is `heldBack`, or when aborted.
   */
  enter(call: LimitedCall, pass: GatePass): Promise<() => void>;
  /** The platform refused because of a limit: slows down what it counted. */
  refused(call: LimitedCall, error: FeishuError): void;
  /** Calls of this month that the quota counts. */
  monthlyCalls(): Promise<number>;
}

const perChatSecond = 5;
/** Other bots in the chat draw on the same limit: a fifth of it is theirs. */
const sharedChat = 0.8;
const perPatchSecond = 5;
const perCardSecond = 10;

/** What the platform asks to wait when it names no time: the windows of these limits are a second long. */
const pauseMs = 1_000;

/** When it makes sense to ask again while others wait in line. */
const crowdedMs = 200;

/** A governor that does not answer must not hold a call for ever. */
const governorTimeoutMs = 2_000;

/** How long a place is kept for a call whose end is not told, because its process died. */
const flightMs = 15_000;

/** A grant older than this is not used any more: this process was stopped, and its place is no longer kept. */
const staleGrantMs = 5_000;

/** How long it is believed which bots are in a chat, and of how many chats. */
const membersMs = 10 * 60_000;
const maxChats = 5_000;

function isCounted(api: string): boolean {
  return api.startsWith("im.") || api.startsWith("cardkit.");
}

/** In which window the platform has counted: one that asks to wait for longer than a second counts minutes. */
function ceilingOf({ perSecond = 0 }: RateBucket, { namedLimit, retryAfterMs }: FeishuError): RateCeiling | undefined {
  if (namedLimit === 0) return undefined;
  return retryAfterMs <= 1_000 && namedLimit <= perSecond ? { perSecond: namedLimit } : { perMinute: namedLimit };
}

function heldBack(api: string, retryAfterMs: number): FeishuError {
  const reason = "held back by the rate limit";
  return new FeishuError({ api, kind: "rate_limit", code: 0, httpStatus: 0, retryAfterMs, heldBack: true, reason });
}

function unreachable(api: string): FeishuError {
  const reason = "the rate limits could not be read";
  return new FeishuError({ api, kind: "unavailable", code: 0, httpStatus: 0, heldBack: true, reason });
}

async function sleep(waitMs: number, signals: readonly AbortSignal[]): Promise<void> {
  try {
    await delay(waitMs, undefined, { signal: AbortSignal.any([...signals]) });
  } catch {
    throw new TransportFailure("aborted", false, "aborted");
  }
}

/** The governor's answer, awaited for a limited time; without `AbortSignal.any`, which costs more than a grant. */
async function answerOf<T>(answer: Promise<T>, signals: readonly AbortSignal[]): Promise<T> {
  const end = Promise.withResolvers<never>();
  const onAbort = (): void => end.reject(new TransportFailure("aborted", false, "aborted"));
  const timer = setTimeout(() => end.reject(new Error("no answer")), governorTimeoutMs);
  for (const signal of signals) signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([answer, end.promise]);
  } finally {
    clearTimeout(timer);
    for (const signal of signals) signal.removeEventListener("abort", onAbort);
  }
}

type Refused = Extract<RateGrant, { granted: false }>;

interface Attempt {
  api: string;
  buckets: readonly RateBucket[];
  pass: GatePass;
  /** `performance.now()` at which waiting ends. */
  deadline: number;
}

/** Whether no other bot is a member of a chat. Rejects when the platform does not say. */
export type AskOnlyBot = (chatId: string) => Promise<boolean>;

class GovernedGate implements RateGate {
  readonly #governor: RateGovernor;
  readonly #app: string;
  readonly #askOnlyBot: AskOnlyBot;
  readonly #lines: WaitingLines = createWaitingLines();
  /** What is known of chats that had to wait: whether this bot is alone in them. */
  readonly #chats = new Map<string, { onlyBot: boolean; untilMs: number }>();

  constructor(governor: RateGovernor, app: string, askOnlyBot: AskOnlyBot) {
    this.#governor = governor;
    this.#app = app;
    this.#askOnlyBot = askOnlyBot;
  }

  async enter({ api, limits = {} }: LimitedCall, pass: GatePass): Promise<() => void> {
    const buckets = [...this.#targets(limits), apiBucket(this.#app, api)];
    const attempt: Attempt = { api, buckets, pass, deadline: performance.now() + pass.maxWaitMs };
    const crowded = buckets.find(({ key }) => this.#lines.isCrowded(key));
    // Whoever has waited longer goes first, and frames last.
    if (crowded !== undefined && pass.lane === "frame") throw heldBack(api, crowdedMs);
    let grant: RateGrant =
      crowded === undefined ? await this.#take(attempt) : { granted: false, key: crowded.key, waitMs: 0 };
    while (!grant.granted) {
      if (limits.chatId !== undefined && grant.key.endsWith(`:chat:${limits.chatId}`)) this.#learn(limits.chatId);
      grant = await this.#inLine(attempt, grant);
    }
    if (isCounted(api)) this.#governor.countCall(this.#app, monthOf(sharedNow())).catch(() => undefined);
    const { ticket } = grant;
    return () => void this.#governor.ended(ticket, buckets, flightMs).catch(() => undefined);
  }

  refused({ api, limits = {} }: LimitedCall, error: FeishuError): void {
    if (error.kind !== "rate_limit" || error.heldBack) return;
    const ofGateway = error.httpStatus === 429 || error.code === 99991400;
    const buckets = ofGateway ? [apiBucket(this.#app, api)] : this.#targets(limits);
    for (const bucket of buckets) {
      const ceiling = ofGateway ? ceilingOf(bucket, error) : undefined;
      this.#governor.pause(bucket.key, error.retryAfterMs || pauseMs, ceiling).catch(() => undefined);
    }
  }

  async monthlyCalls(): Promise<number> {
    return await this.#governor.callsOf(this.#app, monthOf(sharedNow()));
  }

  #targets({ chatId, userId, messageId, cardId }: CallLimits): RateBucket[] {
    const buckets: RateBucket[] = [];
    const add = (kind: string, id: string | undefined, bucket: Omit<RateBucket, "key">): void => {
      if (id !== undefined && id !== "") buckets.push({ key: `${this.#app}:${kind}:${id}`, ...bucket });
    };
    const isAlone = chatId !== undefined && this.#chats.get(chatId)?.onlyBot === true;
    add("chat", chatId, { perSecond: perChatSecond, ...(isAlone ? {} : { share: sharedChat }) });
    add("user", userId, { perSecond: perChatSecond });
    add("message", messageId, { perSecond: perPatchSecond });
    add("card", cardId, { perSecond: perCardSecond });
    return buckets;
  }

  /** Asks in the background who else is in a chat whose calls have to wait. */
  #learn(chatId: string): void {
    const nowMs = performance.now();
    const known = this.#chats.get(chatId);
    if (known !== undefined && known.untilMs > nowMs) return;
    const [oldest] = this.#chats.keys();
    if (this.#chats.size >= maxChats && oldest !== undefined) this.#chats.delete(oldest);
    this.#chats.set(chatId, { onlyBot: false, untilMs: nowMs + membersMs });
    this.#askOnlyBot(chatId).then(
      (onlyBot) => this.#chats.set(chatId, { onlyBot, untilMs: nowMs + membersMs }),
      () => undefined,
    );
  }

  /** Waits for the bucket that refused, one call of this process at a time; resolves to a grant or the next refusal. */
  async #inLine(attempt: Attempt, refused: Refused): Promise<RateGrant> {
    const { key } = refused;
    this.#checkDeadline(attempt, refused.waitMs);
    const waited = await this.#lines.enter(key, { deadline: attempt.deadline, signals: attempt.pass.signals });
    if (waited === "late") throw heldBack(attempt.api, pauseMs);
    try {
      let waitMs = waited === "first" ? refused.waitMs : 0;
      for (;;) {
        await sleep(waitMs, attempt.pass.signals);
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
    if (performance.now() + waitMs > deadline) throw heldBack(api, waitMs || crowdedMs);
  }

  async #take({ api, buckets, pass }: Attempt): Promise<RateGrant> {
    try {
      for (;;) {
        const askedMs = performance.now();
        const grant = await answerOf(this.#governor.take(buckets, pass.lane, flightMs), pass.signals);
        if (!grant.granted || performance.now() - askedMs < staleGrantMs) return grant;
      }
    } catch (error) {
      if (error instanceof TransportFailure) throw error;
      throw unreachable(api);
    }
  }
}

/** Without a governor every call leaves at once, and nothing is counted. */
export const openGate: RateGate = {
  enter: async () => () => undefined,
  refused: () => undefined,
  monthlyCalls: async () => 0,
};

export function createRateGate(governor: RateGovernor | undefined, app: string, askOnlyBot: AskOnlyBot): RateGate {
  return governor === undefined ? openGate : new GovernedGate(governor, app, askOnlyBot);
}
