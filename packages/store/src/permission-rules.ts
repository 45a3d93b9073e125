import { createHash } from "node:crypto";
import type { PermissionRule, Sender } from "@larkline/protocol";
import { ruleFactsOf } from "./audit-facts.ts";
import type { PermissionRules } from "./approval-store.ts";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { addRuleLua, approvedAgainLua, forgetRuleLua, revokeRuleLua, rulesInForceLua } from "./permission-rules-lua.ts";
import { defineScript, type Script } from "./script.ts";
import { ruleFrom } from "./stored.ts";

export interface RedisPermissionRulesOptions {
  redis: RedisConnection;
  namespace?: string;
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

/** Permission rules on Redis; each write is one script, its audit record included. */
export function createRedisPermissionRules(options: RedisPermissionRulesOptions): PermissionRules {
  return new RedisPermissionRules(options);
}

class RedisPermissionRules implements PermissionRules {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #auditMax: number;
  readonly #scripts: Record<"add" | "revoke" | "inForce" | "approvedAgain" | "forget", Script>;

  constructor({ redis, namespace = defaultNamespace, auditMaxRecords = keepAllAudits }: RedisPermissionRulesOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#auditMax = auditMaxRecords;
    this.#scripts = {
      add: defineScript(redis, "rules_add", addRuleLua),
      revoke: defineScript(redis, "rules_revoke", revokeRuleLua),
      inForce: defineScript(redis, "rules_inForce", rulesInForceLua),
      forget: defineScript(redis, "rules_forget", forgetRuleLua),
      approvedAgain: defineScript(redis, "rules_approvedAgain", approvedAgainLua),
    };
  }

  async inForce(app: string, chatId: string): Promise<PermissionRule[]> {
    const { rules, ofChat, revoked } = this.#keys.rules(app);
    return await this.#read([ofChat(chatId), rules, revoked]);
  }

  async list(app: string): Promise<PermissionRule[]> {
    const { rules, byExpiry, revoked } = this.#keys.rules(app);
    return await this.#read([byExpiry, rules, revoked]);
  }

  async #read(keys: string[]): Promise<PermissionRule[]> {
    const texts = (await this.#scripts.inForce(keys, [])) as string[]; // shape fixed by the script
    const rules = texts.map(ruleFrom).filter(({ revoked }) => revoked === undefined);
    return rules.sort((one, other) => one.createdAtMs - other.createdAtMs);
  }

  async add(rule: PermissionRule): Promise<void> {
    const { rules, byExpiry, ofChat, audit, revoked } = this.#keys.rules(rule.app);
    const facts = JSON.stringify(ruleFactsOf(rule));
    await this.#scripts.add(
      [rules, byExpiry, ofChat(rule.chatId), audit, revoked],
      [rule.id, JSON.stringify(rule), rule.expiresAtMs, facts, rule.author.id, keepMs, this.#auditMax],
    );
  }

  async revoke(app: string, ruleId: string, by: Sender): Promise<PermissionRule | undefined> {
    const { rules, ofChat, audit, revoked } = this.#keys.rules(app);
    // Only to learn the chat, which the key of its rules needs; the script decides.
    const known = await this.#redis.hget(rules, ruleId);
    if (known === null) return undefined;
    const rule = ruleFrom(known);
    const reply = await this.#scripts.revoke(
      [rules, ofChat(rule.chatId), audit, revoked],
      [ruleId, JSON.stringify(by), JSON.stringify(ruleFactsOf(rule)), by.id, this.#auditMax],
    );
    return reply === null ? undefined : ruleFrom(String(reply));
  }

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

  async forget({ app, id, chatId }: Pick<PermissionRule, "app" | "id" | "chatId">): Promise<void> {
    const { rules, byExpiry, ofChat, revoked } = this.#keys.rules(app);
    await this.#scripts.forget([rules, byExpiry, ofChat(chatId), revoked], [id]);
  }

  async approvedAgain(app: string, kind: string, approvalId: string): Promise<number> {
    const name = createHash("sha256").update(kind).digest("base64url");
    return Number(await this.#scripts.approvedAgain([this.#keys.rules(app).approved(name)], [approvalId, countedMs]));
  }
}
