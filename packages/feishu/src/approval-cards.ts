import type { Roles } from "@larkline/agent/permissions";
import { sharedNow, type Approval, type SessionKey } from "@larkline/protocol";
import type { ApprovalCard, ApprovalLease, ApprovalStatus, ApprovalStore, DeadLetters } from "@larkline/store";
import { copiesOf, isUntouched, sendPatienceMs } from "./approval-copies.ts";
import { bringCopy, type ApprovalApi, type CopyOutcome } from "./approval-copy.ts";
import type { FeishuError } from "./error.ts";
import { noLogger, type FeishuLogger } from "./logger.ts";

export interface ApprovalCardsOptions {
  /** By app id. */
  apis: ReadonlyMap<string, ApprovalApi>;
  approvals: Pick<ApprovalStore, "leaseCards" | "saveCards" | "settle">;
  /** Writes the rule that an approved question leaves behind, if it leaves one; may be repeated. */
  keepRule: (status: ApprovalStatus) => Promise<void>;
  /** Keeps word of questions that nobody could be asked. */
  letters?: Pick<DeadLetters, "add">;
  /** The roles that deciders are named by; those who are in them only by a user group get no copy. */
  roles: Roles;
  /** Adds the wake-up of a session whose question could not be asked. */
  wake: (session: SessionKey, gen: number) => Promise<void>;
  logger?: FeishuLogger;
  /** Epoch ms. */
  now?: () => number;
  /** Deadline of one round in ms, 8 s by default. Keep it below the time a lease is good for. */
  deadlineMs?: number;
  /** Wait before the second try, ms, 1 s by default; later ones are longer, up to a minute while the question is open, then up to an hour. */
  retryMs?: number;
}

/** Keeps the cards of approvals true: what people see, and can press, follows the store. */
export interface ApprovalCards {
  /**
   * One round for one approval, if nobody else is at it: what is not sent yet is sent, what shows an
   * earlier state is changed, a remembered decision becomes a rule, and a question that reaches nobody
   * is settled as `undeliverable`. What does not succeed is due again later. Never rejects.
   */
  work(session: SessionKey, approvalId: string): Promise<void>;
  /** Lets running rounds finish for at most 5 s, then aborts them: they are due again. Resolves within 6 s. */
  close(): Promise<void>;
}

const closeMs = 5_000;
const abortedMs = 1_000;
const maxOpenDelayMs = 60_000;
const maxDelayMs = 3_600_000;
const growth = 1.6;
/** While a bot is added, workers that do not know it yet run beside those that do. */
const otherWorkerMs = 10_000;

class Reconciler implements ApprovalCards {
  readonly #options: ApprovalCardsOptions;
  readonly #logger: FeishuLogger;
  readonly #now: () => number;
  readonly #rounds = new Map<AbortController, Promise<void>>();
  #closing = false;

  constructor(options: ApprovalCardsOptions) {
    this.#options = options;
    this.#logger = options.logger ?? noLogger;
    this.#now = options.now ?? sharedNow;
  }

  async work(session: SessionKey, approvalId: string): Promise<void> {
    if (this.#closing) return;
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(), this.#options.deadlineMs ?? 8_000);
    const round = this.#round(session, approvalId, ending.signal).catch((error: unknown) => {
      // The store failed: the lease runs out and somebody else takes the cards.
      this.#logger.error({ session, approvalId, err: error }, "cards of an approval could not be looked after");
    });
    this.#rounds.set(ending, round);
    await round;
    clearTimeout(timer);
    this.#rounds.delete(ending);
  }

  async close(): Promise<void> {
    this.#closing = true;
    const late = Promise.withResolvers<void>();
    const timers = [
      setTimeout(() => {
        for (const ending of this.#rounds.keys()) ending.abort();
      }, closeMs),
      // A store that hangs is waited for no longer: its lease runs out.
      setTimeout(late.resolve, closeMs + abortedMs),
    ];
    await Promise.race([Promise.all(this.#rounds.values()), late.promise]);
    for (const timer of timers) clearTimeout(timer);
  }

  async #round(session: SessionKey, approvalId: string, signal: AbortSignal): Promise<void> {
    const first = await this.#options.approvals.leaseCards(session, approvalId);
    if (first === undefined) return;
    const { app, target } = first.status.approval;
    if (target.channel === "none") return await this.#withoutCards(first);
    const api = this.#options.apis.get(app);
    if (api === undefined) return await this.#leave(first);
    const begun = await this.#begin(first);
    if (begun === undefined) return;
    const { lease, fresh } = begun;
    const ruleKept = await this.#keepRule(lease);
    const outcomes = await this.#bringAll(api, { lease, fresh, signal });
    const cards = outcomes.map(({ card }) => card);
    await this.#settleUnlessAsked(lease, cards);
    const errors = outcomes.flatMap(({ error }) => error ?? []);
    const retryAtMs = errors.length === 0 && ruleKept ? undefined : this.#now() + this.#waitMs(lease, errors);
    await this.#options.approvals.saveCards({ ...lease, cards }, retryAtMs);
  }

  /**
   * Notes which cards are about to be sent before any of them is: whoever goes on after a crash then
   * knows that they may be there, also when the question is settled meanwhile.
   */
  async #begin(lease: ApprovalLease): Promise<{ lease: ApprovalLease; fresh: Set<string> } | undefined> {
    const { approvals } = this.#options;
    const { approval, state } = lease.status;
    if (state !== "pending") return { lease, fresh: new Set() };
    const cards = lease.cards.length > 0 ? lease.cards : copiesOf(approval, this.#options.roles);
    const fresh = new Set(cards.filter(isUntouched).map(({ to }) => to));
    if (fresh.size === 0) return { lease, fresh };
    const nowMs = this.#now();
    const noted = cards.map((card) => (fresh.has(card.to) ? { ...card, uncertainSinceMs: nowMs } : card));
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

  /** Of a question over HTTP, which has no cards, a rule may be left to write. */
  async #withoutCards(lease: ApprovalLease): Promise<void> {
    const ruleKept = await this.#keepRule(lease);
    await this.#options.approvals.saveCards(lease, ruleKept ? undefined : this.#now() + this.#waitMs(lease, []));
  }

  /** A worker that knows the bot does it; that this one does not is no reason to give the question up. */
  async #leave(lease: ApprovalLease): Promise<void> {
    const { session, id, app } = lease.status.approval;
    this.#logger.warn({ session, approvalId: id, app }, "no credentials for the app of an approval");
    await this.#options.approvals.saveCards(lease, this.#now() + otherWorkerMs);
  }

  async #bringAll(
    api: ApprovalApi,
    { lease, fresh, signal }: { lease: ApprovalLease; fresh: Set<string>; signal: AbortSignal },
  ): Promise<CopyOutcome[]> {
    const { status, attempts, cards } = lease;
    const { session, id } = status.approval;
    const outcomes = await Promise.all(
      cards.map(
        async (card): Promise<CopyOutcome> =>
          await bringCopy({ api, status, fresh, attempts, nowMs: this.#now(), signal }, card),
      ),
    );
    for (const { card, error } of outcomes) {
      const before = cards.find(({ to }) => to === card.to);
      const facts = { session, approvalId: id, isCopy: card.to !== "" };
      if (error !== undefined) {
        const { api: call, kind, code, logId } = error;
        this.#logger.warn({ ...facts, api: call, kind, code, logId }, "card of an approval will be tried again");
      } else if (card.failed !== undefined && before?.failed === undefined) {
        this.#logger.error({ ...facts, failed: card.failed }, "card of an approval given up");
      }
    }
    return outcomes;
  }

  /** With nobody to answer it the question would hold its turn up until it expires. */
  async #settleUnlessAsked({ status }: ApprovalLease, cards: readonly ApprovalCard[]): Promise<void> {
    const { approval, state } = status;
    const { session, id, createdAtMs } = approval;
    const isAsked = cards.some(({ messageId, failed }) => messageId !== undefined && failed === undefined);
    if (state !== "pending" || isAsked || cards.length === 0) return;
    const isHopeless = cards.every(({ failed }) => failed !== undefined);
    if (!isHopeless && this.#now() < createdAtMs + sendPatienceMs) return;
    const settled = await this.#options.approvals.settle(session, id, "undeliverable");
    this.#logger.error({ session, approvalId: id, tool: approval.tool }, "nobody could be asked for an approval");
    if (settled.result === "settled") await this.#keepLetter(approval, cards);
    if (settled.result === "unknown" || !("wakeGen" in settled) || settled.wakeGen === undefined) return;
    await this.#options.wake(session, settled.wakeGen).catch((error: unknown) => {
      // The decision is stored: the sweeper finds the session.
      this.#logger.warn({ session, err: error }, "session could not be woken at once");
    });
  }

  /** Its turn goes on without an answer: that nobody was asked is for operators to know. */
  async #keepLetter(approval: Approval, cards: readonly ApprovalCard[]): Promise<void> {
    const { id, session, app, turnId, tool } = approval;
    const reasons = cards.map(({ failed }) => failed ?? "not sent in time");
    const reason = `nobody could be asked: ${[...new Set(reasons)].join(", ")}`;
    const facts = { v: 1, id: `approval:${id}`, session, reason, atMs: this.#now(), app, turnId } as const;
    await this.#options.letters?.add({ ...facts, kind: "approval", approvalId: id, tool }).catch((error: unknown) => {
      this.#logger.warn({ session, approvalId: id, err: error }, "an approval that nobody saw is not kept");
    });
  }

  #waitMs({ status, attempts }: ApprovalLease, errors: readonly FeishuError[]): number {
    // Shut down in the middle: not the platform's fault, so nobody has to wait.
    if (this.#closing && errors.every(({ kind }) => kind === "cancelled")) return 0;
    const limitMs = status.state === "pending" ? maxOpenDelayMs : maxDelayMs;
    const delayMs = Math.min(limitMs, (this.#options.retryMs ?? 1_000) * growth ** attempts);
    const asked = Math.max(0, ...errors.map(({ retryAfterMs }) => retryAfterMs));
    return Math.max(asked, Math.round(delayMs * (0.8 + Math.random() * 0.4)));
  }
}

/** Over the cards of `approvals`; whoever finds some due calls `work`. */
export function createApprovalCards(options: ApprovalCardsOptions): ApprovalCards {
  return new Reconciler(options);
}
