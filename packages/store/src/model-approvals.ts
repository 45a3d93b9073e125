import { createHash } from "node:crypto";
import type { SessionKey } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { expect } from "vitest";
import type { ApprovalStore, DecideResult } from "./approval-store.ts";
import { approvalOf, decisionOf } from "./suite-samples.ts";

interface AskedApproval {
  session: SessionKey;
  messageId: string;
  state: string;
  /** Who has approved so far. */
  people: Set<string>;
  need: number;
  /** Its turn ended without having read what became of it. */
  isUnread: boolean;
}

/** The id of the approval of a call. */
export function approvalIdFor(callId: string): string {
  return createHash("sha256").update(callId).digest("hex").slice(0, 32);
}

/** Every other approval needs two people. */
function needOf(id: string): number {
  return 1 + (Number.parseInt(id.slice(-1), 16) % 2);
}

/** The questions of a turn that are not answered as far as its worker knows. */
export function questionsOf({ turnId, message, calls }: TurnState): Approval[] {
  const waiting = calls.filter(({ state }) => state === "waiting_approval");
  return waiting.map(({ id: callId }) => {
    const id = approvalIdFor(callId);
    const deciders = { ...approvalOf(message.session, 0).deciders, count: needOf(id) };
    return approvalOf(message.session, 0, { id, turnId, callId, deciders });
  });
}

/** People who decide about the calls of a model world, and what must have become of each question. */
export class ModelApprovals {
  readonly #store: ApprovalStore;
  readonly #asked = new Map<string, AskedApproval>();

  constructor(store: ApprovalStore) {
    this.#store = store;
  }

  /** A write with these questions was accepted. */
  noteAsked(questions: readonly Approval[], messageId: string): void {
    for (const { id, session } of questions) {
      if (this.#asked.has(id)) continue;
      this.#asked.set(id, {
        session,
        messageId,
        state: "pending",
        people: new Set(),
        need: needOf(id),
        isUnread: false,
      });
    }
  }

  /** A turn has ended, and had not read the answers to `open`. */
  noteEnd(session: SessionKey, open: readonly CallState[]): void {
    const unread = new Set(open.map(({ approvalId }) => approvalId));
    for (const [id, each] of this.#asked) {
      if (each.session !== session) continue;
      if (unread.has(id)) each.isUnread = true;
      if (each.state === "pending") each.state = "cancelled";
    }
  }

  /** The session is removed, and its questions with it. */
  noteRemoved(session: SessionKey): void {
    for (const each of this.#asked.values()) if (each.session === session) each.state = "removed";
  }

  isWaitedFor(session: SessionKey): boolean {
    return [...this.#asked.values()].some(
      (each) => each.session === session && each.state === "pending",
    );
  }

  /** The text in a session's history about the result of an approval. */
  static textOf(approvalId: string, state: string): string {
    return `decided ${approvalId} ${state}`;
  }

  /** A person clicks a button of any age. Returns what the clicked session may need. */
  async decide(
    pick: number,
    word: "approve" | "reject",
  ): Promise<{ session: SessionKey; wakeGen?: number } | undefined> {
    const [id, asked] = this.#picked(pick);
    if (id === undefined || asked === undefined) return undefined;
    const person = `ou_${pick % 3}`;
    const expected = this.#expected(asked, word, person);
    const decided = await this.#store.decide(asked.session, id, decisionOf(word, person));
    this.#check(asked, decided, expected);
    return this.#news(asked, decided);
  }

  #picked(pick: number): [string | undefined, AskedApproval | undefined] {
    const all = [...this.#asked];
    return all[pick % all.length] ?? [undefined, undefined];
  }

  #expected(
    asked: AskedApproval,
    word: "approve" | "reject",
    person: string,
  ): DecideResult["result"] {
    if (asked.state !== "pending") return "closed";
    if (word === "reject") {
      asked.state = "rejected";
      return "settled";
    }
    if (asked.people.has(person)) return "repeated";
    asked.people.add(person);
    if (asked.people.size < asked.need) return "counted";
    asked.state = "approved";
    return "settled";
  }

  #check({ state }: AskedApproval, found: DecideResult, result: DecideResult["result"]): void {
    if (state === "removed") expect(found).toEqual({ result: "unknown" });
    else expect(found).toMatchObject({ result, status: { state } });
  }

  #news(
    { session }: AskedApproval,
    decided: DecideResult,
  ): { session: SessionKey; wakeGen?: number } {
    const wakeGen = "wakeGen" in decided ? decided.wakeGen : undefined;
    return { session, ...(wakeGen !== undefined && { wakeGen }) };
  }

  /** A card could not be sent. */
  async giveUp(pick: number): Promise<{ session: SessionKey; wakeGen?: number } | undefined> {
    const [id, asked] = this.#picked(pick);
    if (id === undefined || asked === undefined) return undefined;
    const result = asked.state === "pending" ? "settled" : "closed";
    if (result === "settled") asked.state = "undeliverable";
    const settled = await this.#store.settle(asked.session, id, "undeliverable");
    this.#check(asked, settled, result);
    return this.#news(asked, settled);
  }

  /** No person is asked any more: the questions that are left are given up. */
  async settleAll(tell: (session: SessionKey, wakeGen: number | undefined) => void): Promise<void> {
    for (const [at, { state }] of [...this.#asked.values()].entries()) {
      if (state !== "pending") continue;
      const news = await this.giveUp(at);
      if (news) tell(news.session, news.wakeGen);
    }
  }

  async expectPending(session: SessionKey): Promise<void> {
    const pending = await this.#store.pending(session);
    const expected = [...this.#asked].filter(
      ([, each]) => each.session === session && each.state === "pending",
    );
    expect(new Set(pending.map(({ approval }) => approval.id))).toEqual(
      new Set(expected.map(([id]) => id)),
    );
  }

  /** The texts of a turn about its questions: exactly one for each answer that it has read. */
  textsOf(session: SessionKey, messageId: string): string[] {
    const mine = [...this.#asked].filter(
      ([, each]) => each.session === session && each.messageId === messageId,
    );
    return mine.flatMap(([id, { state, isUnread }]) =>
      isUnread ? [] : [ModelApprovals.textOf(id, state)],
    );
  }
}
