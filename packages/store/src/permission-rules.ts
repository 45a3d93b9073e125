import { createHash } from "node:crypto";
import type { Sender } from "@larkline/protocol";
import type { PermissionRule } from "@larkline/protocol/approval";
import { ruleFactsOf, keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import { ruleFrom } from "./stored.ts";

interface PermissionRulesOptions extends StoreOptions {
  /** About how many audit records are kept outside the cells, rules among them. Default: all. */
  auditMaxRecords?: number;
}

const dayMs = 24 * 60 * 60 * 1_000;
/** How long a rule that is over is remembered: a late `add` must find it. */
const keepMs = 30 * dayMs;
/** Rules read at once. */
const pageSize = 500;
/** How long approvals of one kind are counted after the last one. */
const countedMs = 90 * dayMs;

const rulesInForce = script("rules-in-force");
const addRule = script("add-rule");
const revokeRule = script("revoke-rule");
const forgetRule = script("forget-rule");
const approvedAgain = script("approved-again");

/** Decisions that hold from now on. Writes are in the audit log. */
export class PermissionRules {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #auditMax: number;

  constructor({ redis, namespace, auditMaxRecords = keepAllAudits }: PermissionRulesOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#auditMax = auditMaxRecords;
  }

  /** Rules of one chat that hold now, oldest first. */
  async inForce(app: string, chatId: string): Promise<PermissionRule[]> {
    const { rules, ofChat, revoked } = this.#keys.rules(app);
    return await this.#read({ index: ofChat(chatId), rules, revoked });
  }

  /** All rules of an app that hold now, oldest first. */
  async list(app: string): Promise<PermissionRule[]> {
    const { rules, byExpiry, revoked } = this.#keys.rules(app);
    return await this.#read({ index: byExpiry, rules, revoked });
  }

  async #read(keys: { index: string; rules: string; revoked: string }): Promise<PermissionRule[]> {
    const texts = (await runScript(this.#redis, rulesInForce, keys)) as string[]; // shape fixed by the script
    const rules = texts.map(ruleFrom).filter(({ revoked }) => revoked === undefined);
    return rules.sort((one, other) => one.createdAtMs - other.createdAtMs);
  }

  /** Adds a rule; one whose id was ever added, even if it was revoked since, stays as it is. */
  async add(rule: PermissionRule): Promise<void> {
    const keys = this.#keys.rules(rule.app);
    const values = {
      id: rule.id,
      rule: JSON.stringify(rule),
      expiresAtMs: rule.expiresAtMs,
      facts: JSON.stringify(ruleFactsOf(rule)),
      person: rule.author.id,
      keepMs,
      auditMax: this.#auditMax,
    };
    await runScript(this.#redis, addRule, { ...keys, ofChat: keys.ofChat(rule.chatId) }, values);
  }

  /** Undefined when there is no such rule in force; otherwise the rule as it was. */
  async revoke(app: string, ruleId: string, by: Sender): Promise<PermissionRule | undefined> {
    const keys = this.#keys.rules(app);
    // Only to learn the chat, which the key of its rules needs; the script decides.
    const known = await this.#redis.hget(keys.rules, ruleId);
    if (known === null) return undefined;
    const rule = ruleFrom(known);
    const values = {
      id: ruleId,
      by: JSON.stringify(by),
      facts: JSON.stringify(ruleFactsOf(rule)),
      person: by.id,
      auditMax: this.#auditMax,
    };
    const reply = await runScript(
      this.#redis,
      revokeRule,
      { ...keys, ofChat: keys.ofChat(rule.chatId) },
      values,
    );
    return reply === null ? undefined : ruleFrom(String(reply));
  }

  /** All that are stored, those that are over too, which a person has left or which are about them. */
  async ofPerson(app: string, person: string): Promise<PermissionRule[]> {
    const { rules, byExpiry } = this.#keys.rules(app);
    const ids = await this.#redis.zrangebyscore(byExpiry, "-inf", "+inf");
    const found: PermissionRule[] = [];
    for (let from = 0; from < ids.length; from += pageSize) {
      const texts = await this.#redis.hmget(rules, ...ids.slice(from, from + pageSize));
      found.push(...texts.flatMap((text) => (text === null ? [] : [ruleFrom(text)])));
    }
    return found.filter((rule) => rule.author.id === person || rule.person === person);
  }

  /** Forgets a rule that is over: nothing is stored of it any more. One that holds has to be revoked before. */
  async forget({ app, id, chatId }: Pick<PermissionRule, "app" | "id" | "chatId">): Promise<void> {
    const keys = this.#keys.rules(app);
    await runScript(this.#redis, forgetRule, { ...keys, ofChat: keys.ofChat(chatId) }, { id });
  }

  /** Counts an approval of one kind (chat, tool, pattern, person), each approval once; returns how many there are now. */
  async approvedAgain(app: string, kind: string, approvalId: string): Promise<number> {
    const name = createHash("sha256").update(kind).digest("base64url");
    const approved = this.#keys.rules(app).approved(name);
    return Number(
      await runScript(this.#redis, approvedAgain, { approved }, { approvalId, ttlMs: countedMs }),
    );
  }
}
