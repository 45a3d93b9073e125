import { randomUUID } from "node:crypto";
import { stateAfter, type Approval, type SessionKey } from "@larkline/protocol";
import {
  answersKind,
  settlesAlone,
  type ApprovalLease,
  type ApprovalStatus,
  type ApprovalStore,
  type DecideResult,
} from "../index.ts";
import { indexApprovals } from "./approval-index.ts";
import {
  addApprovalLua,
  approvedRulesLua,
  decideLua,
  leaseCardsLua,
  saveApprovalCardsLua,
  settleLua,
} from "./approval-lua.ts";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { approvalArgs, approvalKeysOf, defaultMaxApprovals } from "./gate-args.ts";
import { createKeyspace, defaultNamespace, type CellKeys, type Keyspace } from "./keys.ts";
import { duePairs } from "./oldest-members.ts";
import { defineScript, type Script } from "./script.ts";
import { approvalCardsFrom, approvalStatusFrom, type StoredStatus } from "./stored.ts";

export interface RedisApprovalStoreOptions {
  redis: RedisConnection;
  /** That of the session store: both work on the same sessions. */
  namespace?: string;
  /** How long a process may take for the cards of one approval. Default 15 s. */
  cardsLeaseMs?: number;
  /** How many approvals of one session are kept, apart from those that are not finished. Default 200. */
  maxApprovals?: number;
  /** About how many audit records each cell keeps, such as 1,000,000. Default: all. */
  auditMaxRecords?: number;
}

/** The approval store on Redis, beside the sessions. Each change is one script. */
export function createRedisApprovalStore(options: RedisApprovalStoreOptions): ApprovalStore {
  return new RedisApprovalStore(options);
}

class RedisApprovalStore implements ApprovalStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #leaseMs: number;
  readonly #maxKept: number;
  readonly #auditMax: number;
  readonly #scripts: Record<"add" | "approvedRules" | "decide" | "settle" | "lease" | "saveCards", Script>;

  constructor(options: RedisApprovalStoreOptions) {
    const { redis } = options;
    this.#redis = redis;
    this.#keys = createKeyspace(options.namespace ?? defaultNamespace);
    this.#leaseMs = options.cardsLeaseMs ?? 15_000;
    this.#maxKept = options.maxApprovals ?? defaultMaxApprovals;
    this.#auditMax = options.auditMaxRecords ?? keepAllAudits;
    this.#scripts = {
      add: defineScript(redis, "approvals_add", addApprovalLua),
      approvedRules: defineScript(redis, "approvals_approvedRules", approvedRulesLua),
      decide: defineScript(redis, "approvals_decide", decideLua),
      settle: defineScript(redis, "approvals_settle", settleLua),
      lease: defineScript(redis, "approvals_lease", leaseCardsLua),
      saveCards: defineScript(redis, "approvals_saveCards", saveApprovalCardsLua),
    };
  }

  async add(approval: Approval): Promise<void> {
    await indexApprovals(this.#redis, this.#keys, [approval]);
    await this.#scripts.add(approvalKeysOf(this.#keys.session(approval.session)), [
      approval.session,
      this.#maxKept,
      ...approvalArgs(approval),
      this.#auditMax,
    ]);
  }

  async find(app: string, approvalId: string): Promise<ApprovalStatus | undefined> {
    const session = await this.#redis.get(this.#keys.approval(approvalId));
    const status = session === null ? undefined : await this.#read(session, approvalId);
    return status?.approval.app === app ? status : undefined;
  }

  async #read(session: SessionKey, approvalId: string): Promise<ApprovalStatus | undefined> {
    const keys = this.#keys.session(session);
    const [approval, [state, decisions, settledAtMs]] = await Promise.all([
      this.#redis.hget(keys.approvalOf(approvalId), "a"),
      this.#redis.hmget(keys.saidOf(approvalId), "st", "dec", "at"),
    ]);
    if (approval === null) return undefined;
    return approvalStatusFrom([approval, state ?? "pending", decisions ?? "", settledAtMs ?? ""]);
  }

  async decide(...given: Parameters<ApprovalStore["decide"]>): Promise<DecideResult> {
    const [session, approvalId, decision] = given;
    const { decision: word, by, note, remember } = decision;
    return await this.#settling("decide", session, [
      approvalId,
      word,
      answersKind(word, "outcome") ? 1 : 0,
      by.id,
      JSON.stringify({ decision: word, by, note, remember }),
      stateAfter[word],
      settlesAlone(word) ? 1 : 0,
    ]);
  }

  async settle(session: SessionKey, approvalId: string, state: "expired" | "undeliverable"): Promise<DecideResult> {
    return await this.#settling("settle", session, [approvalId, state]);
  }

  async #settling(script: "decide" | "settle", session: SessionKey, args: (string | number)[]): Promise<DecideResult> {
    const keys = this.#keys.session(session);
    const reply = await this.#scripts[script](
      [keys.session, keys.inbox, keys.requests, keys.dirty, ...approvalKeysOf(keys), keys.state],
      [session, ...args, this.#auditMax],
    );
    if (reply === null) return { result: "unknown" };
    const [result, approval, state, decisions, settledAtMs, gen] = reply as [
      Exclude<DecideResult["result"], "unknown">,
      ...StoredStatus,
      string | number, // shape fixed by the script
    ];
    const status = approvalStatusFrom([approval, state, decisions, settledAtMs]);
    return { result, status, ...(Number(gen) > 0 && { wakeGen: Number(gen) }) };
  }

  async pending(session: SessionKey): Promise<ApprovalStatus[]> {
    const ids = await this.#redis.zrange(this.#keys.session(session).pending, "0", "-1");
    const read = await Promise.all(ids.map(async (id) => await this.#read(session, id)));
    return read.flatMap((status) => (status?.state === "pending" ? [status] : []));
  }

  async approvedRules(session: SessionKey): Promise<ApprovalStatus[]> {
    const { kept, approvalCards, approvals, said } = this.#keys.session(session);
    const rules = await this.#scripts.approvedRules([kept, approvalCards, approvals, said], [session]);
    return (rules as StoredStatus[]).map(approvalStatusFrom); // shape fixed by the script
  }

  async dueExpiries(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]> {
    return await this.#due((cell) => cell.expiries, nowMs, limit);
  }

  async dueCards(nowMs: number, limit: number): Promise<{ session: SessionKey; approvalId: string }[]> {
    return await this.#due((cell) => cell.approvalCards, nowMs, limit);
  }

  async #due(index: (cell: CellKeys) => string, untilMs: number, limit: number) {
    const pairs = await duePairs(this.#redis, this.#keys.cells().map(index), { untilMs, limit });
    return pairs.map(([session, approvalId]) => ({ session, approvalId }));
  }

  async leaseCards(session: SessionKey, approvalId: string): Promise<ApprovalLease | undefined> {
    const keys = this.#keys.session(session);
    const token = randomUUID();
    const reply = await this.#scripts.lease(
      [keys.approvalOf(approvalId), keys.saidOf(approvalId), keys.approvalCards],
      [`${session}|${approvalId}`, token, this.#leaseMs],
    );
    if (reply === null) return undefined;
    const [approval, state, decisions, settledAtMs, cards, attempts] = reply as [
      ...StoredStatus,
      string,
      number, // shape fixed by the script
    ];
    const status = approvalStatusFrom([approval, state, decisions, settledAtMs]);
    return { token, status, cards: approvalCardsFrom(cards), attempts };
  }

  async saveCards({ token, status, cards }: ApprovalLease, retryAtMs?: number): Promise<boolean> {
    const { session, id } = status.approval;
    const keys = this.#keys.session(session);
    const reply = await this.#scripts.saveCards(
      [keys.saidOf(id), keys.approvalCards],
      [`${session}|${id}`, token, JSON.stringify(cards), retryAtMs ?? ""],
    );
    return reply === 1;
  }
}
