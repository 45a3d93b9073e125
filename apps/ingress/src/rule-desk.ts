import { noticeText, permissionsOrder, permissionsText, ruleNamed } from "@larkline/agent";
import { decidersText, hasRole, matchesName, ruleText, type PermissionPolicy } from "@larkline/agent/permissions";
import {
  jsonParserOf,
  type Deciders,
  type InboundMessage,
  type PermissionRule,
  type ReplyLanguage,
} from "@larkline/protocol";
import type { LookupCache, PermissionRules } from "@larkline/store";
import { Type, type Static } from "typebox";
import type { PeopleNames } from "./people-names.ts";

/** Obeys `/permissions` with these words behind it; resolves to the answer. */
export type RuleDesk = (argument: string, message: InboundMessage, language: ReplyLanguage) => Promise<string>;

export interface RuleDeskDeps {
  app: string;
  rules: Pick<PermissionRules, "inForce" | "revoke">;
  policy: Pick<PermissionPolicy, "roles" | "approvers" | "entries">;
  lookups: Pick<LookupCache, "get" | "set">;
  groupsOf: (openId: string) => Promise<readonly string[]>;
  namesOf: PeopleNames;
}

/** What an order to revoke aims at; without `id` at nothing. */
const Aim = Type.Object({ id: Type.Optional(Type.String()), text: Type.String() });
type Aim = Static<typeof Aim>;

const parseAim = jsonParserOf(Aim);

/** Longer than messages are redelivered ("Event subscription overview": 7 hours). */
const rememberedMs = 24 * 3_600_000;

/** Characters of a rule that are remembered: what is said of it is cut anyway. */
const maxShown = 200;

/** Rules are of chats: those of the chat in which the message was written. A session of the API is one of its own. */
function chatOf({ reply, session }: InboundMessage): string {
  return reply.channel === "none" ? session : reply.chatId;
}

export function createRuleDesk({ app, rules, policy, lookups, groupsOf, namesOf }: RuleDeskDeps): RuleDesk {
  /** Whoever left the rule, the person it is for, and whoever decides about such calls. */
  const revokersOf = ({ tool, author, person }: PermissionRule): Deciders => {
    const entries = policy.entries.filter(
      (entry) => entry.do === "ask" && entry.tools.some((pattern) => matchesName(pattern, tool)),
    );
    const approvers = [policy.approvers, ...entries.map((entry) => entry.approvers)];
    const people = [author.id, ...(person === undefined ? [] : [person]), ...approvers.flatMap((one) => one.people)];
    const roles = [...new Set(approvers.flatMap((one) => one.roles))];
    return { requester: false, people: [...new Set(people)], roles, fourEyes: false, count: 1 };
  };

  const mayRevoke = async ({ people, roles }: Deciders, openId: string): Promise<boolean> => {
    if (people.includes(openId) || hasRole({ id: openId, groups: [] }, roles, policy.roles)) return true;
    const groups = roles.flatMap((name) => (Object.hasOwn(policy.roles, name) ? policy.roles[name]?.groups : []) ?? []);
    if (groups.length === 0) return false;
    return hasRole({ id: openId, groups: await groupsOf(openId) }, roles, policy.roles);
  };

  /** Numbers change when rules go: an order that is delivered again aims at the rule it was given for. */
  const aimOf = async (which: string, { id: messageId }: InboundMessage, held: PermissionRule[]): Promise<Aim> => {
    const key = `revoke:${app}:${messageId}`;
    const before = parseAim((await lookups.get(key)) ?? "");
    if (before.ok) return before.value;
    const rule = ruleNamed(held, which);
    const text = (rule === undefined ? which : ruleText(rule)).slice(0, maxShown);
    const aim: Aim = rule === undefined ? { text } : { id: rule.id, text };
    await lookups.set(key, JSON.stringify(aim), rememberedMs);
    return aim;
  };

  const revoke = async (which: string, message: InboundMessage, language: ReplyLanguage): Promise<string> => {
    const held = await rules.inForce(app, chatOf(message));
    const { id, text } = await aimOf(which, message, held);
    if (id === undefined) return noticeText("ruleUnknown", language, { rule: text });
    const rule = held.find((one) => one.id === id);
    if (rule !== undefined) {
      const revokers = revokersOf(rule);
      if (!(await mayRevoke(revokers, message.sender.id))) {
        const names = await namesOf(revokers.people);
        const who = decidersText(revokers, { language, nameOf: (openId) => names.get(openId) });
        return noticeText("notAllowedToRevoke", language, { who });
      }
      await rules.revoke(app, id, message.sender);
    }
    // Also when it is gone by now: an earlier delivery, or somebody else, was faster.
    return noticeText("ruleRevoked", language, { rule: text });
  };

  const list = async (message: InboundMessage, language: ReplyLanguage): Promise<string> => {
    const held = await rules.inForce(app, chatOf(message));
    const names = await namesOf(held.map(({ author }) => author.id));
    const named = held.map((rule) => ({
      ...rule,
      author: { name: names.get(rule.author.id) ?? rule.author.id, ...rule.author },
    }));
    return permissionsText(named, language);
  };

  return async (argument, message, language) => {
    const order = permissionsOrder(argument);
    return order.do === "list" ? await list(message, language) : await revoke(order.which, message, language);
  };
}
