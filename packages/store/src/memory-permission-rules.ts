import type { PermissionRule, Sender } from "@larkline/protocol";
import type { PermissionRules } from "./approval-store.ts";
import { ruleFactsOf } from "./audit-facts.ts";
import type { MemoryAuditLog } from "./memory-audit-log.ts";

/** Rules in the memory of this process. What goes in and comes out is a copy. */
export class MemoryPermissionRules implements PermissionRules {
  readonly #rules = new Map<string, PermissionRule>();
  readonly #approvedOfKind = new Map<string, Set<string>>();
  readonly #now: () => number;
  readonly #audit: MemoryAuditLog;

  constructor(now: () => number, audit: MemoryAuditLog) {
    this.#now = now;
    this.#audit = audit;
  }

  async inForce(app: string, chatId: string): Promise<PermissionRule[]> {
    return (await this.list(app)).filter((rule) => rule.chatId === chatId);
  }

  async list(app: string): Promise<PermissionRule[]> {
    const held = [...this.#rules.values()].filter((rule) => rule.app === app && this.#holds(rule));
    return structuredClone(held.sort((one, other) => one.createdAtMs - other.createdAtMs));
  }

  #holds({ revoked, expiresAtMs }: PermissionRule): boolean {
    return revoked === undefined && expiresAtMs > this.#now();
  }

  async add(rule: PermissionRule): Promise<void> {
    const key = JSON.stringify([rule.app, rule.id]);
    if (this.#rules.has(key)) return;
    this.#rules.set(key, structuredClone(rule));
    this.#audit.write({ kind: "rule_added", ...ruleFactsOf(rule), userId: rule.author.id });
  }

  async revoke(app: string, ruleId: string, by: Sender): Promise<PermissionRule | undefined> {
    const key = JSON.stringify([app, ruleId]);
    const rule = this.#rules.get(key);
    if (rule === undefined || !this.#holds(rule)) return undefined;
    // It stays, revoked, so that adding it again has no effect.
    this.#rules.set(key, { ...rule, revoked: { by: { ...by }, atMs: this.#now() } });
    this.#audit.write({ kind: "rule_revoked", ...ruleFactsOf(rule), userId: by.id });
    return structuredClone(rule);
  }

  async ofPerson(app: string, person: string): Promise<PermissionRule[]> {
    const all = [...this.#rules.values()].filter((rule) => rule.app === app);
    return structuredClone(all.filter((rule) => rule.author.id === person || rule.person === person));
  }

  async forget({ app, id }: Pick<PermissionRule, "app" | "id">): Promise<void> {
    const key = JSON.stringify([app, id]);
    const rule = this.#rules.get(key);
    if (rule !== undefined && !this.#holds(rule)) this.#rules.delete(key);
  }

  async approvedAgain(app: string, kind: string, approvalId: string): Promise<number> {
    const key = JSON.stringify([app, kind]);
    const approved = this.#approvedOfKind.get(key) ?? new Set();
    this.#approvedOfKind.set(key, approved.add(approvalId));
    return approved.size;
  }
}
