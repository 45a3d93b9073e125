import { isChildSession, rootSessionOf, type Sender, type SessionKey } from "@larkline/protocol";
import {
  type Approval,
  type ApprovalDecision,
  stateAfter,
  type DecisionWord,
} from "@larkline/protocol/approval";
import { systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol/clock";
import { type Script, runScript, script } from "./lua.ts";
import { keepAllAudits } from "./audit-log.ts";
import { type RedisConnection, duePairs } from "./connection.ts";
import {
  defaultDedupTtlMs,
  defaultMaxApprovals,
  newApproval,
  approvalCardsFrom,
  approvalStatusFrom,
} from "./stored.ts";
import type { ScriptReplies } from "./script-replies.ts";
import type { ApprovalCard, ApprovalStatus } from "./session-types.ts";
import { type CellKeys, createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

/**
 * The result of a decision; `status` is the state afterwards. The caller has checked before that the person may decide.
 */
export type DecideResult =
  /** It settled the approval; the session has the entry and needs the wake-up `wakeGen`. */
  | { result: "settled"; status: ApprovalStatus; wakeGen?: number }
  /** It counts, and more people have to approve. */
  | { result: "counted"; status: ApprovalStatus }
  /** This person has approved before. */
  | { result: "repeated"; status: ApprovalStatus }
  /**
   * It had been settled, or its time was over: that much is settled now. Of `settle` also: too early.
   * `wakeGen` is there while the session waits for a wake-up, which may be lost.
   */
  | { result: "closed"; status: ApprovalStatus; wakeGen?: number }
  /** No approval of that id (any more), or the decision does not fit its kind. */
  | { result: "unknown" };

/** The right to send and update the cards of one approval, until it expires. */
export interface ApprovalLease {
  token: string;
  status: ApprovalStatus;
  cards: ApprovalCard[];
  /** The number of earlier leases since the cards last had to change. */
  attempts: number;
}

interface ApprovalStoreOptions extends StoreOptions {
  /** How long a process may take for the cards of one approval. Default 15 s. */
  cardsLeaseMs?: number;
  /** How many approvals of one session are kept, apart from those that are not finished. Default 200. */
  maxApprovals?: number;
  /** About how many audit records each cell keeps, such as 1,000,000. Default: all. */
  auditMaxRecords?: number;
}

const addApprovals = script("add-approvals");
const approvedRules = script("approved-rules");
const decide = script("decide");
const settle = script("settle");
const takeAnswer = script("take-answer");
const leaseApprovalCards = script("lease-approval-cards");
const saveApprovalCards = script("save-approval-cards");
const placeApproval = script("place-approval");
const touchApprovalCards = script("touch-approval-cards");

/** All cards of an approval whose buttons stand on the card of the reply. */
const replyCards = JSON.stringify([
  { to: "", inReply: true, shows: "pending" },
] satisfies ApprovalCard[]);

/** A question that stands, or is to stand, on the card of the reply. */
export interface AskedInReply {
  approval: Approval;
  /** Epoch ms at which its requester was last asked why they reject; 0 if never. */
  reasonAskedAtMs: number;
}

/**
 * Questions to people and their answers. They are created by {@link SessionStore.save}, together
 * with the turn that waits for them, or by `add`; an answer reaches the session's inbox in the same
 * step that takes it, exactly once. Kept for a week after they have expired.
 */
export class ApprovalStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #leaseMs: number;
  readonly #maxKept: number;
  readonly #auditMax: number;
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(options: ApprovalStoreOptions) {
    const { redis } = options;
    this.#redis = redis;
    this.#keys = createKeyspace(options.namespace);
    this.#leaseMs = options.cardsLeaseMs ?? 15_000;
    this.#maxKept = options.maxApprovals ?? defaultMaxApprovals;
    this.#auditMax = options.auditMaxRecords ?? keepAllAudits;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
  }

  /** Adds one that no turn waits for (`rule`). One that exists already stays as it is. */
  async add(approval: Approval): Promise<void> {
    await indexApprovals({ redis: this.#redis, keys: this.#keys, nowMs: this.#clock.now() }, [
      approval,
    ]);
    await runScript(this.#redis, addApprovals, this.#keys.session(approval.session), {
      sid: approval.session,
      maxKept: this.#maxKept,
      newApprovals: JSON.stringify([newApproval(approval)]),
      auditMax: this.#auditMax,
    });
  }

  /** By id alone, which is all that a button carries. Undefined when it is not known or of another app. */
  async find(app: string, approvalId: string): Promise<ApprovalStatus | undefined> {
    const session = await this.#redis.get(this.#keys.approvalSessionOf(approvalId));
    const status = session === null ? undefined : await this.#read(session, approvalId);
    return status?.approval.app === app ? status : undefined;
  }

  async #read(session: SessionKey, approvalId: string): Promise<ApprovalStatus | undefined> {
    const keys = this.#keys.session(session);
    const [[approval], [state, decisions, settledAtMs]] = await Promise.all([
      this.#redis.hmget(keys.approvalOf(approvalId), "approval"),
      this.#redis.hmget(keys.saidOf(approvalId), "state", "decisions", "settledAtMs"),
    ]);
    if (typeof approval !== "string") return undefined;
    return approvalStatusFrom({
      approval,
      state: state ?? "pending",
      decisions: decisions ?? "",
      ...(settledAtMs && { settledAtMs: Number(settledAtMs) }),
    });
  }

  /**
   * Takes one person's decision, atomically: time, state and repetition are checked by the store's
   * own clock. `reject` and `abort` settle at once, any other word when `deciders.count` different
   * people have said it. Nothing reaches a session whose turn is over.
   */
  async decide(
    session: SessionKey,
    approvalId: string,
    decision: Omit<ApprovalDecision, "atMs">,
  ): Promise<DecideResult> {
    const { decision: word, by, note, remember, via } = decision;
    return await this.#settleWith(decide, session, {
      id: approvalId,
      word,
      about: answersKind(word, "outcome")
        ? "outcome"
        : answersKind(word, "question")
          ? "question"
          : "",
      person: by.id,
      whose: via === undefined || by.name === undefined ? by.id : `${by.id}:${by.name}`,
      decision: JSON.stringify({ decision: word, by, note, remember, via }),
      stateAfter: stateAfter[word],
      settlesAlone: settlesAlone(word) ? 1 : 0,
    });
  }

  /**
   * Takes a message as the answer to a question, atomically with noting the message as known: a redelivery answers
   * nothing more and starts no turn. `unknown` where nothing was done, because it is known already or was recalled.
   * Whether the person was asked is checked by the caller, before.
   */
  async answer(
    session: SessionKey,
    approvalId: string,
    { app, messageId, by, text }: { app: string; messageId: string; by: Sender; text: string },
  ): Promise<DecideResult> {
    const keys = this.#keys.session(rootSessionOf(session)); // people write there
    const marks = { seen: keys.seenOf(app, messageId), recalled: keys.recalledOf(app, messageId) };
    const decision = JSON.stringify({ decision: "answer", by, note: text });
    const values = { id: approvalId, decision, person: by.id, seenTtlMs: defaultDedupTtlMs };
    return await this.#settleWith(takeAnswer, session, values, marks);
  }

  /**
   * Settles an approval without a decision: after its expiry by the store's clock, or because no person could be asked.
   */
  async settle(
    session: SessionKey,
    approvalId: string,
    state: "expired" | "undeliverable",
  ): Promise<DecideResult> {
    return await this.#settleWith(settle, session, { id: approvalId, result: state });
  }

  async #settleWith(
    settleScript: Script<ScriptReplies["settle"]>,
    session: SessionKey,
    values: Record<string, string | number>,
    marks: { seen?: string; recalled?: string } = {},
  ): Promise<DecideResult> {
    const keys = { ...this.#keys.session(session), ...marks };
    const reply = await runScript(this.#redis, settleScript, keys, {
      ...values,
      sid: session,
      auditMax: this.#auditMax,
    });
    if (reply === undefined) return { result: "unknown" };
    const { result, wakeGen } = reply;
    return { result, status: approvalStatusFrom(reply), ...(wakeGen > 0 && { wakeGen }) };
  }

  /** Pending approvals of a session, oldest first. */
  async pending(session: SessionKey): Promise<ApprovalStatus[]> {
    const { children } = this.#keys.session(session);
    const below = isChildSession(session)
      ? []
      : (await this.#redis.hkeys(children)).filter(isChildSession);
    const lists = await Promise.all(
      [session, ...below].map(async (each) => await this.#pendingOf(each)),
    );
    return lists.flat();
  }

  async #pendingOf(session: SessionKey): Promise<ApprovalStatus[]> {
    const ids = await this.#redis.zrange(this.#keys.session(session).pending, "0", "-1");
    const read = await Promise.all(ids.map(async (id) => await this.#read(session, id)));
    return read.flatMap((status) => (status?.state === "pending" ? [status] : []));
  }

  /** The pending approval of a session that one of its cards asks about; undefined where a message is no such card. */
  async shownBy(session: SessionKey, messageId: string): Promise<Approval | undefined> {
    const found = await Promise.all(
      (await this.pending(session)).map(async ({ approval }) => {
        const said = this.#keys.session(approval.session).saidOf(approval.id);
        const cards = approvalCardsFrom((await this.#redis.hget(said, "cards")) ?? "");
        return cards.some((card) => card.messageId === messageId) ? [approval] : [];
      }),
    );
    return found.flat()[0];
  }

  /** Open questions of `ask_person` of a session, oldest first, with the messages that are their cards. */
  async openQuestions(session: SessionKey): Promise<{ approval: Approval; cards: string[] }[]> {
    const open = (await this.pending(session)).filter(
      ({ approval }) => approval.kind === "question",
    );
    return await Promise.all(
      open.map(async ({ approval }) => {
        const said = this.#keys.session(approval.session).saidOf(approval.id);
        const cards = approvalCardsFrom((await this.#redis.hget(said, "cards")) ?? "");
        return { approval, cards: cards.flatMap(({ messageId }) => messageId ?? []) };
      }),
    );
  }

  /** Those of these approvals that wait for a word on the card of the reply, or are to get their buttons there. */
  async inReply(session: SessionKey, approvalIds: readonly string[]): Promise<AskedInReply[]> {
    const keys = this.#keys.session(session);
    const found = await Promise.all(
      approvalIds.map(async (id) => {
        const [status, said] = await Promise.all([
          this.#read(session, id),
          this.#redis.hmget(keys.saidOf(id), "cards", "reasonAskedAtMs"),
        ]);
        if (status?.state !== "pending" || status.approval.inReply !== true) return [];
        const hasOwnCard = approvalCardsFrom(said[0] ?? "").some(({ inReply = false }) => !inReply);
        return hasOwnCard
          ? []
          : [{ approval: status.approval, reasonAskedAtMs: Number(said[1] ?? 0) }];
      }),
    );
    return found.flat();
  }

  /**
   * Records whether the buttons of a pending approval are on the card of the reply. Where they do not, it is due to get a
   * card of its own. False where it has one, or is to get one.
   */
  async placeInReply(session: SessionKey, approvalId: string, isPlaced: boolean): Promise<boolean> {
    const keys = this.#keys.session(session);
    const placed = await runScript(
      this.#redis,
      placeApproval,
      { answers: keys.saidOf(approvalId), approvalCards: keys.approvalCards },
      { member: `${session}|${approvalId}`, isPlaced: isPlaced ? 1 : 0, cards: replyCards },
    );
    return placed !== 0;
  }

  /** The card of the reply has got the form for the reason of a rejection: the worker that draws that card draws the form, too. */
  async noteReasonAsked({ session, id, expiresAtMs }: Approval): Promise<void> {
    const said = this.#keys.session(session).saidOf(id);
    const nowMs = this.#clock.now();
    // It may have been removed a moment ago: then this must not stay.
    const endsAtMs = Math.max(expiresAtMs, nowMs) + weekMs;
    await this.#redis
      .multi()
      .hset(said, "reasonAskedAtMs", String(nowMs))
      .pexpireat(said, endsAtMs)
      .exec();
  }

  /** The cards of a pending approval are due: its person wants another link (`isWanted`), or there is something to show. */
  async touchCards(session: SessionKey, approvalId: string, isWanted: boolean): Promise<boolean> {
    const values = {
      sid: session,
      id: approvalId,
      isWanted: isWanted ? 1 : 0,
      auditMax: this.#auditMax,
    };
    return (
      (await runScript(this.#redis, touchApprovalCards, this.#keys.session(session), values)) === 1
    );
  }

  /** Epoch ms at which its person last wanted another link; 0: never. */
  async againAtMs({ session, id }: Pick<Approval, "session" | "id">): Promise<number> {
    return Number(
      (await this.#redis.hget(this.#keys.session(session).saidOf(id), "againAtMs")) ?? 0,
    );
  }

  /** Approved questions about rules of a session whose cards are not done: their rules may not be written yet. Oldest first. */
  async approvedRules(session: SessionKey): Promise<ApprovalStatus[]> {
    const { rules } = await runScript(this.#redis, approvedRules, this.#keys.session(session), {
      sid: session,
    });
    return rules.map(approvalStatusFrom);
  }

  /** Pending ones past their expiry, oldest first. */
  async dueExpiries(
    nowMs: number,
    limit: number,
  ): Promise<{ session: SessionKey; approvalId: string }[]> {
    return await this.#due((cell) => cell.expiries, nowMs, limit);
  }

  /** Approvals whose cards do not show their state yet and should be tried now. */
  async dueCards(
    nowMs: number,
    limit: number,
  ): Promise<{ session: SessionKey; approvalId: string }[]> {
    return await this.#due((cell) => cell.approvalCards, nowMs, limit);
  }

  async #due(index: (cell: CellKeys) => string, untilMs: number, limit: number) {
    const pairs = await duePairs(this.#redis, this.#keys.cells().map(index), { untilMs, limit });
    return pairs.map(([session, approvalId]) => ({ session, approvalId }));
  }

  /** Leases the cards of one approval, if no process holds the lease and there is something to do. */
  async leaseCards(session: SessionKey, approvalId: string): Promise<ApprovalLease | undefined> {
    const keys = this.#keys.session(session);
    const token = this.#random.uuid();
    const reply = await runScript(
      this.#redis,
      leaseApprovalCards,
      {
        approval: keys.approvalOf(approvalId),
        answers: keys.saidOf(approvalId),
        approvalCards: keys.approvalCards,
      },
      { member: `${session}|${approvalId}`, token, leaseMs: this.#leaseMs },
    );
    if (reply === undefined) return undefined;
    const { cards, attempts } = reply;
    return { token, status: approvalStatusFrom(reply), cards: approvalCardsFrom(cards), attempts };
  }

  /**
   * Stores what the cards show, and ends the lease. `retryAtMs`: they are due again then; without it they are done. If
   * the state has changed since the lease they are due at once. False when the lease belongs to another process by now.
   */
  async saveCards({ token, status, cards }: ApprovalLease, retryAtMs?: number): Promise<boolean> {
    const { session, id } = status.approval;
    const keys = this.#keys.session(session);
    const reply = await runScript(
      this.#redis,
      saveApprovalCards,
      { answers: keys.saidOf(id), approvalCards: keys.approvalCards },
      {
        member: `${session}|${id}`,
        token,
        cards: JSON.stringify(cards),
        retryAtMs: retryAtMs ?? "",
      },
    );
    return reply === 1;
  }
}

/** Decisions for which one person is enough, because they allow nothing. */
export function settlesAlone(word: DecisionWord): boolean {
  return word === "reject" || word === "abort";
}

/** Whether a decision fits the kind of the approval. */
export function answersKind(word: DecisionWord, kind: Approval["kind"]): boolean {
  if (word === "answer") return kind === "question";
  const isAboutOutcome = word === "retry" || word === "done" || word === "abort";
  return kind !== "question" && isAboutOutcome === (kind === "outcome");
}

/** How long an approval is kept after its end; approvals.lua has it, too. */
const weekMs = 7 * 24 * 60 * 60 * 1_000;

/**
 * Notes which session an approval belongs to: a button carries its id only. Comes before the approval
 * itself, so that a reader of one can find it; a note without an approval leads nowhere.
 */
export async function indexApprovals(
  { redis, keys, nowMs }: { redis: RedisConnection; keys: Keyspace; nowMs: number },
  approvals: readonly Approval[],
): Promise<void> {
  await Promise.all(
    approvals.map(async ({ id, session, expiresAtMs }) => {
      await redis.set(
        keys.approvalSessionOf(id),
        session,
        "PX",
        Math.max(0, expiresAtMs - nowMs) + weekMs,
      );
    }),
  );
}
