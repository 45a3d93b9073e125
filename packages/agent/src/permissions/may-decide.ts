import type { Approval, Deciders, DecisionWord, ReplyLanguage } from "@larkline/protocol";
import { hasRole, requesterApproves, type Roles } from "./person.ts";
import type { Person } from "./policy.ts";

const wordsOf: Readonly<Record<Approval["kind"], readonly DecisionWord[]>> = {
  call: ["approve", "reject"],
  rule: ["approve", "reject"],
  outcome: ["retry", "done", "abort"],
};

/** Words with which nothing is done: a requester may always say them. */
const refusals: ReadonlySet<DecisionWord> = new Set(["reject", "abort"]);

/** Somebody who wants to decide, and what they say. */
export interface Decider {
  readonly person: Person;
  readonly word: DecisionWord;
  readonly roles: Roles;
}

function isNamed({ people, roles }: Deciders, person: Person, known: Roles): boolean {
  return people.includes(person.id) || hasRole(person, roles, known);
}

/**
 * Whether this person may say this word about the approval, by its own record and the members that
 * roles have now. The words of another kind of approval are nobody's.
 */
export function mayDecide(
  { kind, requester, deciders }: Pick<Approval, "kind" | "requester" | "deciders">,
  { person, word, roles }: Decider,
): boolean {
  if (!wordsOf[kind].includes(word)) return false;
  const isRequester = person.id === requester.id;
  if (isRequester && (refusals.has(word) || requesterApproves(deciders))) return true;
  return isNamed(deciders, person, roles) && !(isRequester && deciders.fourEyes);
}

/** The platform's user groups of a person; rejects where they cannot be found out. */
export type GroupsOf = (app: string, openId: string) => Promise<readonly string[]>;

/** As {@link mayDecide}, of a person whose groups are looked up only where they could make a difference. */
export async function isDecider(
  approval: Approval,
  { id, word }: { id: string; word: DecisionWord },
  { roles, groups }: { roles: Roles; groups: (openId: string) => Promise<readonly string[]> },
): Promise<boolean> {
  const may = (its: Person["groups"]): boolean => mayDecide(approval, { person: { id, groups: its }, word, roles });
  if (may([])) return true;
  const named = approval.deciders.roles.flatMap((name) => (Object.hasOwn(roles, name) ? [roles[name]] : []));
  if (!may(named.flatMap((role) => role?.groups ?? []))) return false;
  return may(await groups(id));
}

/** How people and things are called where deciders are named. */
export interface DeciderNames {
  readonly language: ReplyLanguage;
  /** The requester's name; without it they are described. */
  readonly requester?: string;
  /** The name of a person by open_id; without it the id is shown. */
  readonly nameOf?: (openId: string) => string | undefined;
}

const words = {
  zh: { requester: "发起人", role: (name: string) => `角色“${name}”的成员`, between: "、", nobody: "没有人" },
  en: { requester: "the requester", role: (name: string) => `members of “${name}”`, between: ", ", nobody: "nobody" },
} as const;

const maxNamed = 10;

/** Who may approve, in one line, for people. */
export function decidersText(deciders: Deciders, { language, requester, nameOf }: DeciderNames): string {
  const { between, nobody, role, requester: described } = words[language];
  const named = [
    ...(requesterApproves(deciders) ? [requester ?? described] : []),
    ...deciders.people.map((openId) => nameOf?.(openId) ?? openId),
    ...deciders.roles.map(role),
  ];
  const shown = named.slice(0, maxNamed).join(between);
  return named.length > maxNamed ? `${shown}…` : shown || nobody;
}
