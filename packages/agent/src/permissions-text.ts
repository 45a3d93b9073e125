import { ruleText } from "./permissions/index.ts";
import type { PermissionRule, ReplyLanguage } from "@larkline/protocol";
import { inlineCode, oneLine } from "./notice.ts";

/** What `/permissions` is asked to do. */
export type PermissionsOrder = { do: "list" } | { do: "revoke"; which: string };

/** Reads the words after `/permissions`: none, or `revoke` (`撤销`) and the number or the id of a rule. */
export function permissionsOrder(argument: string): PermissionsOrder {
  const [, which = ""] = /^(?:revoke|撤销)\s*(.*)$/iu.exec(argument.trim()) ?? [];
  return which === "" ? { do: "list" } : { do: "revoke", which: which.trim() };
}

/** The rule that is meant by its number in the list, or by its id or the beginning of that, if only one begins so. */
export function ruleNamed(rules: readonly PermissionRule[], which: string): PermissionRule | undefined {
  if (/^\d{1,3}$/.test(which)) return rules[Number(which) - 1];
  const wanted = which.toLowerCase();
  const found = wanted.length < 4 ? [] : rules.filter(({ id }) => id.startsWith(wanted));
  return found.length === 1 ? found[0] : undefined;
}

const shownIdChars = 8;

/** The day, in UTC. */
function dayOf(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 10);
}

function whomOf({ author, person }: PermissionRule, language: ReplyLanguage): string {
  if (person === undefined) return language === "zh" ? "对群内所有人" : "for everybody here";
  const name = oneLine(person === author.id ? (author.name ?? person) : person, 64);
  return language === "zh" ? `仅对 ${name}` : `for ${name} only`;
}

function lineOf(rule: PermissionRule, index: number, language: ReplyLanguage): string {
  const { author, expiresAtMs, id } = rule;
  const name = oneLine(author.name ?? author.id, 64);
  const facts =
    language === "zh"
      ? `${whomOf(rule, language)}，由 ${name} 允许，有效至 ${dayOf(expiresAtMs)}`
      : `${whomOf(rule, language)}, allowed by ${name}, until ${dayOf(expiresAtMs)}`;
  return `${index + 1}. ${inlineCode(ruleText(rule))} (${id.slice(0, shownIdChars)}) ${facts}`;
}

const maxShown = 50;

/** What `/permissions` answers: the rules of the chat that hold now, in the order given. */
export function permissionsText(rules: readonly PermissionRule[], language: ReplyLanguage): string {
  if (rules.length === 0) {
    return language === "zh" ? "这里没有已记住的许可。" : "Nothing is allowed for good here.";
  }
  const title = language === "zh" ? "这里不再询问的操作：" : "What runs here without asking:";
  const hint =
    language === "zh" ? "用 `/权限 撤销 编号` 撤销。" : "Take one back with `/permissions revoke` and its number.";
  const lines = rules.slice(0, maxShown).map((rule, index) => lineOf(rule, index, language));
  const more = rules.length > maxShown ? [`… ${rules.length - maxShown}`] : [];
  return [title, ...lines, ...more, "", hint].join("\n");
}
