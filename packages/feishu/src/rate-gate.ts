import { setTimeout as delay } from "node:timers/promises";
import type { RateBucket, RateGovernor, RateGrant, RateLane } from "@larkline/session";
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
  /** Resolves when the call may leave at once. Rejects with a FeishuError that is `heldBack`, or when aborted. */
  enter(call: LimitedCall, pass: GatePass): Promise<void>;
  /** The platform refused because of a limit: slows down what it counted. */
  refused(call: LimitedCall, error: FeishuError): void;
  /** Calls of this month that the quota counts. */
  monthlyCalls(): Promise<number>;
}

const perChatSecond = 5;
const perPatchSecond = 5;
const perCardSecond = 10;

/** What the platform asks to wait when it names no time: the windows of these limits are a second long. */
const pauseMs = 1_000;

/** When it makes sense to ask again while others wait in line. */
const crowdedMs = 200;

/** A governor that does not answer must not hold a call for ever. */
const governorTimeoutMs = 2_000;

function isCounted(api: string): boolean {
  return api.startsWith("im.") || api.startsWith("cardkit.");
}

function targetBuckets(app: string, limits: CallLimits = {}): RateBucket[] {
  const { chatId, userId, messageId, cardId } = limits;
  const buckets: RateBucket[] = [];
  const add = (kind: string, id: string | undefined, perSecond: number): void => {
    if (id !== undefined && id !== "") buckets.push({ key: `${app}:${kind}:${id}`, perSecond });
  };
  add("chat", chatId, perChatSecond);
  add("user", userId, perChatSecond);
  add("message", messageId, perPatchSecond);
  add("card", cardId, perCardSecond);
  return buckets;
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

class GovernedGate implements RateGate {
  readonly #governor: RateGovernor;
  readonly #app: string;
  readonly #lines: WaitingLines = createWaitingLines();

  constructor(governor: RateGovernor, app: string) {
    this.#governor = governor;
    this.#app = app;
  }

  async enter({ api, limits }: LimitedCall, pass: GatePass): Promise<void> {
    const buckets = [...targetBuckets(this.#app, limits), apiBucket(this.#app, api)];
    const attempt: Attempt = { api, buckets, pass, deadline: performance.now() + pass.maxWaitMs };
    const crowded = buckets.find(({ key }) => this.#lines.isCrowded(key));
    // Whoever has waited longer goes first, and frames last.
    if (crowded !== undefined && pass.lane === "frame") throw heldBack(api, crowdedMs);
    let refused: Refused | undefined =
      crowded === undefined ? await this.#take(attempt) : { granted: false, key: crowded.key, waitMs: 0 };
    while (refused !== undefined) refused = await this.#inLine(attempt, refused);
    if (isCounted(api)) this.#governor.countCall(this.#app, monthOf(Date.now())).catch(() => undefined);
  }

  refused({ api, limits }: LimitedCall, error: FeishuError): void {
    if (error.kind !== "rate_limit" || error.heldBack) return;
    const ofGateway = error.httpStatus === 429 || error.code === 99991400;
    const keys = ofGateway ? [apiBucket(this.#app, api).key] : targetBuckets(this.#app, limits).map(({ key }) => key);
    for (const key of keys) this.#governor.pause(key, error.retryAfterMs || pauseMs).catch(() => undefined);
  }

  async monthlyCalls(): Promise<number> {
    return await this.#governor.callsOf(this.#app, monthOf(Date.now()));
  }

  /** Waits for the bucket that refused, one call of this process at a time; resolves to the next refusal, if any. */
  async #inLine(attempt: Attempt, refused: Refused): Promise<Refused | undefined> {
    const { key } = refused;
    this.#checkDeadline(attempt, refused.waitMs);
    const waited = await this.#lines.enter(key, { deadline: attempt.deadline, signals: attempt.pass.signals });
    if (waited === "late") throw heldBack(attempt.api, pauseMs);
    try {
      let waitMs = waited === "first" ? refused.waitMs : 0;
      for (;;) {
        await sleep(waitMs, attempt.pass.signals);
        const again = await this.#take(attempt);
        if (again === undefined || again.key !== key) return again;
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

  async #take({ api, buckets, pass }: Attempt): Promise<Refused | undefined> {
    try {
      const grant = await answerOf(this.#governor.take(buckets, pass.lane), pass.signals);
      return grant.granted ? undefined : grant;
    } catch (error) {
      if (error instanceof TransportFailure) throw error;
      throw unreachable(api);
    }
  }
}

/** Without a governor every call leaves at once, and nothing is counted. */
export const openGate: RateGate = {
  enter: async () => undefined,
  refused: () => undefined,
  monthlyCalls: async () => 0,
};

export function createRateGate(governor: RateGovernor | undefined, app: string): RateGate {
  return governor === undefined ? openGate : new GovernedGate(governor, app);
}
