import type { Roles } from "@larkline/agent/permissions";
import type { SessionKey } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol/clock";
import type {
  ApprovalCard,
  ApprovalLease,
  ApprovalStatus,
  ApprovalStore,
  DeadLetters,
} from "@larkline/store";
import { approvalCard, approvalMark, type ShownConsent } from "../cards/approval-card.ts";
import {
  clockSkewMs,
  derivedUuid,
  receiverOf,
  uuidProtectionMs,
  type FeishuApi,
} from "../feishu-api.ts";
import type { CallOptions } from "../transport/api-call.ts";
import { FeishuError, feishuErrorOf, isKind, type FeishuErrorKind } from "../transport/error.ts";
import { noLogger, type FeishuLogger } from "../transport/sdk.ts";

/** What a step of a consent has led to. */
export interface ConsentRound {
  /** What the card shows now; absent: nothing yet, or the approval has just been settled. */
  shown?: ShownConsent;
  /** Epoch ms of the next step; absent: when a person has acted. */
  nextAtMs?: number;
}

export interface ApprovalCardsOptions {
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  approvals: ApprovalStore;
  /** Stores the rule of an approved question, if it has one; may be repeated. */
  keepRule: (status: ApprovalStatus) => Promise<void>;
  /** Takes the next step of a consent. Absent: other workers do. */
  consents?: { advance(status: ApprovalStatus): Promise<ConsentRound> } | undefined;
  /** Records questions that could not be shown to any person. */
  letters?: DeadLetters;
  /** The roles that name deciders; people who are in a role only through a user group get no copy. */
  roles: Roles;
  /** Wakes a session whose question could not be asked. */
  wake: (session: SessionKey, gen: number) => Promise<void>;
  logger?: FeishuLogger;
  clock?: Clock;
  random?: Random;
  /** Deadline of one round in ms, 8 s by default. Keep it below the time a lease is good for. */
  deadlineMs?: number;
  /** Wait before the second try, ms, 1 s by default; later ones are longer, up to a minute while the question is open, then up to an hour. */
  retryMs?: number;
}

const closeMs = 5_000;
const abortedMs = 1_000;
const maxOpenDelayMs = 60_000;
const maxDelayMs = 3_600_000;
const growth = 1.6;
/** While a bot is added, workers that do not know it yet run beside those that do. */
const otherWorkerMs = 10_000;

/** How long sending is tried before the question counts as undeliverable. */
const sendPatienceMs = 10 * 60_000;

/** Keeps the cards of approvals in the state that the store has. */
export class ApprovalCards {
  readonly #options: ApprovalCardsOptions;
  readonly #logger: FeishuLogger;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #rounds = new Map<AbortController, Promise<void>>();
  #closing = false;

  constructor(options: ApprovalCardsOptions) {
    this.#options = options;
    this.#logger = options.logger ?? noLogger;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
  }

  /**
   * One round for one approval, unless another worker holds its lease: sends the cards that are not sent yet, changes
   * those that show an earlier state, stores the rule of a remembered decision, and settles as `undeliverable` a
   * question that reached no person. What does not succeed is due again later. Never rejects.
   */
  async work(session: SessionKey, approvalId: string): Promise<void> {
    if (this.#closing) return;
    const ending = new AbortController();
    const cancel = this.#clock.after(this.#options.deadlineMs ?? 8_000, () => ending.abort());
    const round = this.#round(session, approvalId, ending.signal).catch((error: unknown) => {
      // The store failed: the lease runs out and another worker takes the cards.
      this.#logger.error(
        { session, approvalId, err: error },
        "cards of an approval could not be looked after",
      );
    });
    this.#rounds.set(ending, round);
    await round;
    cancel();
    this.#rounds.delete(ending);
  }

  /** Lets running rounds finish for at most 5 s, then aborts them: they are due again. Resolves within 6 s. */
  async close(): Promise<void> {
    this.#closing = true;
    const late = Promise.withResolvers<void>();
    const timers = [
      this.#clock.after(closeMs, () => {
        for (const ending of this.#rounds.keys()) ending.abort();
      }),
      // A store that hangs is not waited for: its lease runs out.
      this.#clock.after(closeMs + abortedMs, late.resolve),
    ];
    await Promise.race([Promise.all(this.#rounds.values()), late.promise]);
    for (const cancel of timers) cancel();
  }

  async #round(session: SessionKey, approvalId: string, signal: AbortSignal): Promise<void> {
    const first = await this.#options.approvals.leaseCards(session, approvalId);
    if (first === undefined) return;
    const { app, target } = first.status.approval;
    if (target.channel === "none") return await this.#withoutCards(first);
    const api = this.#options.apis.get(app);
    if (api === undefined) return await this.#leave(first);
    if (first.status.approval.kind === "consent") {
      return await this.#consentRound(api, first, signal);
    }
    await this.#cardsRound(api, { first, signal });
  }

  /** A consent of several calls has one card, that of the first of them. */
  async #consentRound(api: FeishuApi, first: ApprovalLease, signal: AbortSignal): Promise<void> {
    const { approvals, consents } = this.#options;
    if (consents === undefined) return await this.#leave(first);
    const { shown, nextAtMs } = await consents.advance(first.status);
    const isOwn = shown?.asks === true || first.cards.length > 0;
    if (shown === undefined || !isOwn) await approvals.saveCards(first, nextAtMs);
    else await this.#cardsRound(api, { first, shown, nextAtMs, signal });
  }

  async #cardsRound(
    api: FeishuApi,
    round: {
      first: ApprovalLease;
      shown?: ShownConsent;
      nextAtMs?: number | undefined;
      signal: AbortSignal;
    },
  ): Promise<void> {
    const { first, shown, nextAtMs, signal } = round;
    const begun = await this.#begin(first);
    if (begun === undefined) return;
    const { fresh } = begun;
    const lease =
      shown === undefined
        ? begun.lease
        : { ...begun.lease, status: { ...begun.lease.status, consent: shown } };
    const ruleKept = await this.#keepRule(lease);
    const outcomes = await this.#bringAll(api, { lease, fresh, signal });
    const cards = outcomes.map(({ card }) => card);
    await this.#settleUnlessAsked(lease, cards);
    const errors = outcomes.flatMap(({ error }) => error ?? []);
    const retryAtMs =
      errors.length === 0 && ruleKept ? nextAtMs : this.#clock.now() + this.#waitMs(lease, errors);
    await this.#options.approvals.saveCards({ ...lease, cards }, retryAtMs);
  }

  /**
   * Stores which cards are about to be sent, before any of them is. After a crash the successor then knows that they
   * may be there, also when the question is settled meanwhile.
   */
  async #begin(
    lease: ApprovalLease,
  ): Promise<{ lease: ApprovalLease; fresh: Set<string> } | undefined> {
    const { approvals } = this.#options;
    const { approval, state } = lease.status;
    if (state !== "pending") return { lease, fresh: new Set() };
    const cards = lease.cards.length > 0 ? lease.cards : copiesOf(approval, this.#options.roles);
    const fresh = new Set(cards.filter(isUntouched).map(({ to }) => to));
    if (fresh.size === 0) return { lease, fresh };
    const nowMs = this.#clock.now();
    const noted = cards.map((card) =>
      fresh.has(card.to) ? { ...card, uncertainSinceMs: nowMs } : card,
    );
    if (!(await approvals.saveCards({ ...lease, cards: noted }, 0))) return undefined;
    const again = await approvals.leaseCards(approval.session, approval.id);
    return again === undefined ? undefined : { lease: again, fresh };
  }

  async #keepRule({ status }: ApprovalLease): Promise<boolean> {
    if (status.state !== "approved") return true;
    try {
      await this.#options.keepRule(status);
      return true;
    } catch (error) {
      const { session, id: approvalId } = status.approval;
      this.#logger.warn({ session, approvalId, err: error }, "rule not kept yet");
      return false;
    }
  }

  /** A question over HTTP has no cards, but it may have a rule. */
  async #withoutCards(lease: ApprovalLease): Promise<void> {
    const ruleKept = await this.#keepRule(lease);
    await this.#options.approvals.saveCards(
      lease,
      ruleKept ? undefined : this.#clock.now() + this.#waitMs(lease, []),
    );
  }

  /** Leaves the cards to a worker that has the credentials of the bot. */
  async #leave(lease: ApprovalLease): Promise<void> {
    const { session, id, app } = lease.status.approval;
    this.#logger.warn(
      { session, approvalId: id, app },
      "no credentials for the app of an approval",
    );
    await this.#options.approvals.saveCards(lease, this.#clock.now() + otherWorkerMs);
  }

  async #bringAll(
    api: FeishuApi,
    { lease, fresh, signal }: { lease: ApprovalLease; fresh: Set<string>; signal: AbortSignal },
  ): Promise<CopyOutcome[]> {
    const { status, attempts, cards } = lease;
    const { session, id } = status.approval;
    const outcomes = await Promise.all(
      cards.map(
        async (card): Promise<CopyOutcome> =>
          await bringCopy({ api, status, fresh, attempts, nowMs: this.#clock.now(), signal }, card),
      ),
    );
    for (const { card, error } of outcomes) {
      const before = cards.find(({ to }) => to === card.to);
      const facts = { session, approvalId: id, isCopy: card.to !== "" };
      if (error !== undefined) {
        const { api: call, kind, code, logId } = error;
        this.#logger.warn(
          { ...facts, api: call, kind, code, logId },
          "card of an approval will be tried again",
        );
      } else if (card.failed !== undefined && before?.failed === undefined) {
        this.#logger.error({ ...facts, failed: card.failed }, "card of an approval given up");
      }
    }
    return outcomes;
  }

  /** Settles a question that reached no person: otherwise its turn would wait until the question expires. */
  async #settleUnlessAsked(
    { status }: ApprovalLease,
    cards: readonly ApprovalCard[],
  ): Promise<void> {
    const { approval, state } = status;
    const { session, id, createdAtMs } = approval;
    const isAsked = cards.some(
      ({ messageId, failed, inReply = false }) =>
        inReply || (messageId !== undefined && failed === undefined),
    );
    if (state !== "pending" || isAsked || cards.length === 0) return;
    const isHopeless = cards.every(({ failed }) => failed !== undefined);
    if (!isHopeless && this.#clock.now() < createdAtMs + sendPatienceMs) return;
    const settled = await this.#options.approvals.settle(session, id, "undeliverable");
    this.#logger.error(
      { session, approvalId: id, tool: approval.tool },
      "nobody could be asked for an approval",
    );
    if (settled.result === "settled") await this.#keepLetter(approval, cards);
    if (settled.result === "unknown" || !("wakeGen" in settled) || settled.wakeGen === undefined) {
      return;
    }
    await this.#options.wake(session, settled.wakeGen).catch((error: unknown) => {
      // The decision is stored: the sweeper finds the session.
      this.#logger.warn({ session, err: error }, "session could not be woken at once");
    });
  }

  /** Logs for operators that a question reached no person; its turn continues without an answer. */
  async #keepLetter(approval: Approval, cards: readonly ApprovalCard[]): Promise<void> {
    const { id, session, app, turnId, tool } = approval;
    const reasons = cards.map(({ failed }) => failed ?? "not sent in time");
    const reason = `nobody could be asked: ${[...new Set(reasons)].join(", ")}`;
    const facts = {
      v: 1,
      id: `approval:${id}`,
      session,
      reason,
      atMs: this.#clock.now(),
      app,
      turnId,
    } as const;
    await this.#options.letters
      ?.add({ ...facts, kind: "approval", approvalId: id, tool })
      .catch((error: unknown) => {
        this.#logger.warn(
          { session, approvalId: id, err: error },
          "an approval that nobody saw is not kept",
        );
      });
  }

  #waitMs({ status, attempts }: ApprovalLease, errors: readonly FeishuError[]): number {
    // Our own shutdown aborted the calls, so the next round need not wait.
    if (this.#closing && errors.every(({ kind }) => kind === "cancelled")) return 0;
    const limitMs = status.state === "pending" ? maxOpenDelayMs : maxDelayMs;
    const delayMs = Math.min(limitMs, (this.#options.retryMs ?? 1_000) * growth ** attempts);
    const asked = Math.max(0, ...errors.map(({ retryAfterMs }) => retryAfterMs));
    return Math.max(asked, Math.round(delayMs * (0.8 + this.#random.fraction() * 0.4)));
  }
}

/** How many people who are named as deciders, or as members of their roles, get a copy of their own. */
const maxCopies = 10;

/**
 * The cards of an approval: one in the chat, and a copy for each person who is named as a decider, in
 * person or by a role, because a decider need not be in the chat. The person who asked for the call is in the chat
 * and gets no copy.
 */
function copiesOf({ target, deciders, requester }: Approval, roles: Roles): ApprovalCard[] {
  if (target.channel === "none") return [];
  const members = deciders.roles.flatMap((name) =>
    Object.hasOwn(roles, name) ? (roles[name]?.people ?? []) : [],
  );
  const named = [...deciders.people, ...members];
  const people = new Set(named.filter((id) => /^ou_[A-Za-z0-9_-]{1,120}$/.test(id)));
  people.delete(requester.id);
  people.delete(target.chatId);
  return ["", ...[...people].slice(0, maxCopies)].map((to) => ({ to }));
}

/** No process has begun to send the copy. */
function isUntouched({
  failed,
  messageId,
  uncertainSinceMs = 0,
  inReply = false,
}: ApprovalCard): boolean {
  return failed === undefined && messageId === undefined && uncertainSinceMs === 0 && !inReply;
}

/** The state that the copies of an approval have to show. */
interface CopyGoal {
  api: FeishuApi;
  status: ApprovalStatus;
  /** Copies that no process can have sent before this round. */
  fresh: ReadonlySet<string>;
  /** How often this was tried before. */
  attempts: number;
  nowMs: number;
  signal: AbortSignal;
}

/** The state of a copy after a round. `error`: why it does not show the current state yet. */
interface CopyOutcome {
  card: ApprovalCard;
  error?: FeishuError;
}

/** A card cannot be changed any more 14 days after it was sent ("Update a card"). */
const cardLifetimeMs = 14 * 24 * 3_600_000;

/** Brings one copy to the current state of the approval. Never rejects: failures are in the outcome. */
async function bringCopy(goal: CopyGoal, given: ApprovalCard): Promise<CopyOutcome> {
  const { status, nowMs } = goal;
  const mark = approvalMark(status);
  let card = given;
  if (card.failed !== undefined || card.shows === mark) return { card };
  // The worker of the turn draws it, which a decision wakes.
  if (card.inReply === true) return { card: { ...card, shows: mark } };
  const wasBegun = card.messageId !== undefined || (card.uncertainSinceMs ?? 0) > 0;
  // No person has seen it, so there is nothing to change.
  if (status.state !== "pending" && !wasBegun) return { card };
  if (nowMs - status.approval.createdAtMs > cardLifetimeMs) {
    return { card: { ...card, failed: "too old" } };
  }
  try {
    if (card.messageId === undefined) card = await placed(goal, card);
    if (card.messageId === undefined || card.shows === mark) return { card };
    await patch(goal, card.messageId);
    return { card: { ...card, shows: mark } };
  } catch (error) {
    return failedCopy(goal, card, error);
  }
}

/** How often a failure of an unknown kind is repeated. */
const maxUnknownAttempts = 6;

/** The platform believes that the same message is being sent at this moment ("Send message"). */
const beingSentCodes: ReadonlySet<number> = new Set([230049, 18121]);

/** The idempotency key of one copy, the same for every sender. */
function copyUuid(approvalId: string, to: string): string {
  return to === "" ? `ap-${approvalId}` : derivedUuid(`ap-${approvalId}`, to);
}

function callOf({ signal, status }: CopyGoal): CallOptions {
  return { signal, traceparent: status.approval.traceparent };
}

async function sendToChat(goal: CopyGoal, chatId: string, form: { content: string; uuid: string }) {
  const { api } = goal;
  const sent = await api.messages.send(
    { ...receiverOf(chatId), messageType: "interactive", ...form },
    callOf(goal),
  );
  return sent.messageId;
}

/** A question that arose in a thread is sent there; elsewhere it is a message of its own. */
async function send(goal: CopyGoal, to: string): Promise<string> {
  const { target, id } = goal.status.approval;
  if (target.channel === "none") throw new RangeError("an approval without a target has no cards");
  const form = { content: JSON.stringify(approvalCard(goal.status)), uuid: copyUuid(id, to) };
  const { chatId, messageId, inThread } = target;
  if (to !== "") return await sendToChat(goal, to, form);
  if (!inThread || messageId === "") return await sendToChat(goal, chatId, form);
  try {
    const reply = { messageId, chatId, inThread, messageType: "interactive" as const, ...form };
    return (await goal.api.messages.reply(reply, callOf(goal))).messageId;
  } catch (error) {
    if (!isKind(error, "target_gone")) throw error;
    return await sendToChat(goal, chatId, { ...form, uuid: derivedUuid(form.uuid, "c") });
  }
}

/** Looks in the chat for a card whose sending was uncertain. Undefined also when the chat cannot be read. */
async function found(
  { api, status, signal }: CopyGoal,
  card: ApprovalCard,
): Promise<string | undefined> {
  const { target, id } = status.approval;
  if (card.to !== "" || target.channel === "none") return undefined;
  const { chatId, messageId, inThread } = target;
  const thread = inThread && messageId !== "" ? { threadOf: messageId } : {};
  const sinceMs = (card.uncertainSinceMs ?? 0) - clockSkewMs;
  try {
    return await api.history.findCard({ chatId, ...thread, sinceMs, mark: id }, { signal });
  } catch (error) {
    if (error instanceof FeishuError && !error.retryable && error.kind !== "cancelled") {
      return undefined;
    }
    throw error;
  }
}

async function sendOrFind(goal: CopyGoal, card: ApprovalCard): Promise<string> {
  try {
    return await send(goal, card.to);
  } catch (error) {
    const known =
      error instanceof FeishuError && beingSentCodes.has(error.code)
        ? await found(goal, card)
        : undefined;
    if (known !== undefined) return known;
    throw error;
  }
}

/**
 * Finds out the message of a card, sending it if need be. While the platform remembers the `uuid`, sending the card
 * (again) returns which message it is. Later the card is looked for; it is sent again only while the question is open,
 * and only to the chat, because a person may have got their own copy already.
 */
async function placed(goal: CopyGoal, card: ApprovalCard): Promise<ApprovalCard> {
  const { uncertainSinceMs = 0, ...rest } = card;
  const mark = approvalMark(goal.status);
  if (goal.nowMs - uncertainSinceMs <= uuidProtectionMs) {
    const messageId = await sendOrFind(goal, card);
    return goal.fresh.has(card.to) ? { ...rest, messageId, shows: mark } : { ...rest, messageId };
  }
  const known = await found(goal, card);
  if (known !== undefined) return { ...rest, messageId: known };
  if (goal.status.state === "pending" && card.to === "") {
    return { ...rest, messageId: await sendOrFind(goal, card), shows: mark };
  }
  return { ...card, failed: "whether it was sent is not known" };
}

const contentKinds: readonly FeishuErrorKind[] = [
  "bad_request",
  "card_full",
  "card_invalid",
  "content_blocked",
  "too_long",
];

/** Changes a card. When the platform refuses the content of a settled one, it is shown without what people and models wrote. */
async function patch(goal: CopyGoal, messageId: string): Promise<void> {
  const { api, status } = goal;
  const call = callOf(goal);
  try {
    await api.cards.patchMessage({ messageId, card: approvalCard(status) }, call);
  } catch (error) {
    if (!isKind(error, ...contentKinds) || status.state === "pending") throw error;
    await api.cards.patchMessage({ messageId, card: approvalCard(status, { bare: true }) }, call);
  }
}

/** Whether the same call may succeed later. An operator may repair the app, so its approvals wait for that. */
function mayPass(error: FeishuError, { attempts }: CopyGoal): boolean {
  if (error.retryable || error.kind === "cancelled" || error.kind === "app_setup") return true;
  return error.kind === "unknown" && attempts < maxUnknownAttempts;
}

function failedCopy(goal: CopyGoal, card: ApprovalCard, thrown: unknown): CopyOutcome {
  const error = feishuErrorOf("approval card", thrown);
  const { uncertainSinceMs: _doubt, ...certain } = card;
  // The first attempt was refused for certain, so no person sees the card.
  const isUnsent = card.messageId === undefined && goal.fresh.has(card.to) && !error.uncertain;
  const kept = isUnsent ? certain : card;
  const { createdAtMs } = goal.status.approval;
  const isLate = card.messageId === undefined && goal.nowMs >= createdAtMs + sendPatienceMs;
  if (mayPass(error, goal) && !(isUnsent && isLate)) return { card: kept, error };
  const isUsable = card.messageId !== undefined && isKind(error, "unknown", ...contentKinds);
  // Only its count of people is old. If we gave it up, it would keep its buttons after the question is settled.
  if (isUsable && goal.status.state === "pending") {
    return { card: { ...card, shows: approvalMark(goal.status) } };
  }
  return { card: { ...kept, failed: `${error.kind} ${error.code}` } };
}
