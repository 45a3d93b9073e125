import { textIn, type LocalText, type ReplyLanguage } from "@larkline/protocol";
import type {
  Deciders,
  PermissionRule,
  RuleProposal,
  Approval,
  DecisionWord,
} from "@larkline/protocol/approval";
import type { StandingApproval } from "@larkline/protocol/schedule";
import type { CallAuthority, RiskLevel, ToolAnnouncement } from "@larkline/protocol/tool";
import { textsOf } from "../texts/index.ts";

/** All that the deployment says about who may do what. */
export interface PermissionPolicy {
  readonly roles: Readonly<Record<string, RoleMembers>>;
  readonly entries: readonly PolicyEntry[];
  /** Who decides where no entry says it. */
  readonly approvers: Deciders;
  readonly expiresMs: number;
  /** How long a remembered decision holds. */
  readonly rulesExpireMs: number;
  /** `ask`: a call whose input fits a risk pattern needs an approval; `suggest`: it is only pointed out. */
  readonly risky: "suggest" | "ask";
  /** What becomes of an unknown outcome of a `once` call: `ask`: people decide; `tell`: the model reads that it is unknown; `ask_feishu`: as `ask`, and as `tell` over the HTTP API. */
  readonly unknownOutcome: "ask" | "ask_feishu" | "tell";
  /** Whether rules count, and are offered, where no entry says it. */
  readonly remember: boolean;
  /** Approvals of one kind after which a rule is proposed; 0: never. */
  readonly learnAfter: number;
  /** Rejections in one turn after which further calls are refused without asking. */
  readonly maxDenials: number;
}

/** Members of a role of the configuration. */
export interface RoleMembers {
  /** open_ids. */
  readonly people: readonly string[];
  /** Ids of user groups of the platform. */
  readonly groups: readonly string[];
}

/** One entry of the deployment's policy; the first that fits a call decides. */
export interface PolicyEntry extends PolicyMatch {
  readonly do: "allow" | "ask" | "refuse";
  readonly approvers: Deciders;
  /** Offer "always allow in this chat". */
  readonly remember: boolean;
  readonly reason: LocalText;
  readonly expiresMs: number;
}

/** Which calls an entry is about; what is absent does not matter, and all that is there must fit. */
export interface PolicyMatch {
  /** Names of tools; `*` stands for any characters. */
  readonly tools: readonly string[];
  /**
   * Pattern of the tool's subject. `allow`: all of it has to fit, as in permission rules. `ask` and
   * `refuse`: one command in it is enough.
   */
  readonly subject?: string;
  readonly people?: readonly string[];
  readonly roles?: readonly string[];
  readonly chats?: readonly string[];
  readonly chatTypes?: readonly ("p2p" | "group" | "api")[];
}

/** A call that the policy decides about. */
export interface PolicyCall {
  readonly tool: ToolAnnouncement;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly person: Person;
  readonly chatId: string;
  readonly chatType: "p2p" | "group" | "api";
  /** Rules of the chat that are in force. */
  readonly rules: readonly PermissionRule[];
  /** What the schedule whose run this is may do without asking. */
  readonly standing?: StandingApprovals | undefined;
  readonly nowMs: number;
  /** What the conversation says about addresses; absent: it is not known to hold anything but people's words. */
  readonly addressContext?: AddressContext | undefined;
  /** Hosts that the agent's calls may reach unasked: `docs.example.com`, `*.example.com`, `*`. */
  readonly egress?: readonly string[];
}

/** What of a run's schedule is allowed; `id` names it where rules are named. */
export interface StandingApprovals {
  readonly id: string;
  readonly allowed: readonly StandingApproval[];
}

/** A person, as far as policies ask: `groups` are the user groups they belong to. */
export interface Person {
  readonly id: string;
  readonly groups: readonly string[];
}

/** Whether a call runs. `findings`: one per risk pattern that fits. */
export type Verdict = { readonly findings: readonly RiskFinding[] } & (
  | { readonly do: "run"; readonly authority: CallAuthority }
  | { readonly do: "ask"; readonly question: Question }
  | { readonly do: "refuse"; readonly reason: string }
);

/** Something in a call's input that people should know of. */
export interface RiskFinding {
  /** What was found, such as `rm -rf`. */
  readonly pattern: string;
  /** Why it matters, in English. */
  readonly reason: string;
}

/** What is asked when a call needs an approval. */
export interface Question {
  readonly deciders: Deciders;
  /** The reason of the entry that asks; empty where it gives none. */
  readonly reason: LocalText;
  readonly risk: RiskLevel;
  /** What the call does, for those who are asked alone; otherwise the summary that its tool announces. */
  readonly summary?: LocalText;
  readonly remember?: RuleProposal;
  /** What the call would reach that no person has named. */
  readonly addresses?: readonly string[];
  readonly expiresAtMs: number;
}

/** The roles of a configuration, by name. */
export type Roles = Readonly<Record<string, RoleMembers>>;

/** Whether the person has one of the roles, by themselves or through a group. Unknown roles have no members. */
export function hasRole(person: Person, names: readonly string[], roles: Roles): boolean {
  return names.some((name) => {
    const members = Object.hasOwn(roles, name) ? roles[name] : undefined;
    return (
      members !== undefined &&
      (members.people.includes(person.id) ||
        members.groups.some((group) => person.groups.includes(group)))
    );
  });
}

/** Whom and where something answers; null: everybody, everywhere. A person or a role is enough. */
export interface Access {
  readonly people: readonly string[] | null;
  readonly roles: readonly string[] | null;
  readonly chats: readonly string[] | null;
}

/** Whether a person has access in a chat. Groups are looked at only where they make a difference. */
export function hasAccess(
  { people, roles, chats }: Access,
  { person, chatId, known }: { person: Person; chatId: string; known: Roles },
): boolean {
  if (chats !== null && !chats.includes(chatId)) return false;
  if (people === null && roles === null) return true;
  return people?.includes(person.id) === true || hasRole(person, roles ?? [], known);
}

/** Whether a requester's own approval counts. */
export function requesterApproves({ requester, fourEyes }: Deciders): boolean {
  return requester && !fourEyes;
}

/** A person who wants to decide, and what they say. */
export interface Decider {
  readonly person: Person;
  readonly word: DecisionWord;
  readonly roles: Roles;
}

const wordsOf: Readonly<Record<Approval["kind"], readonly DecisionWord[]>> = {
  call: ["approve", "reject"],
  rule: ["approve", "reject"],
  outcome: ["retry", "done", "abort"],
  question: ["answer"],
  consent: ["approve", "reject"],
};

/** Words with which nothing is done: a requester may always say them. */
const refusals: ReadonlySet<DecisionWord> = new Set(["reject", "abort"]);

/**
 * Whether this person may say this word about the approval, by its own record and the members that
 * roles have now. A word of another kind of approval is refused to everyone.
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

function isNamed({ people, roles }: Deciders, person: Person, known: Roles): boolean {
  return people.includes(person.id) || hasRole(person, roles, known);
}

/**
 * Decides as {@link mayDecide}, about a person whose groups are looked up only where they could make a difference.
 */
export async function isDecider(
  approval: Approval,
  { id, word }: { id: string; word: DecisionWord },
  { roles, groups }: { roles: Roles; groups: (openId: string) => Promise<readonly string[]> },
): Promise<boolean> {
  const may = (its: Person["groups"]): boolean =>
    mayDecide(approval, { person: { id, groups: its }, word, roles });
  if (may([])) return true;
  const named = approval.deciders.roles.flatMap((name) =>
    Object.hasOwn(roles, name) ? [roles[name]] : [],
  );
  if (!may(named.flatMap((role) => role?.groups ?? []))) return false;
  return may(await groups(id));
}

/** The platform's user groups of a person; rejects where they cannot be found out. */
export type GroupsOf = (app: string, openId: string) => Promise<readonly string[]>;

/** How people and things are called where deciders are named. */
export interface DeciderNames {
  readonly language: ReplyLanguage;
  /** The requester's name; without it they are described. */
  readonly requester?: string;
  /** The name of a person by open_id; without it the id is shown. */
  readonly nameOf?: (openId: string) => string | undefined;
}

const maxNamed = 10;

/** Who may approve, in one line, for people. */
export function decidersText(
  deciders: Deciders,
  { language, requester, nameOf }: DeciderNames,
): string {
  const { comma, deciders: words } = textsOf(language);
  const named = [
    ...(requesterApproves(deciders) ? [requester ?? words.requester] : []),
    ...deciders.people.map((openId) => nameOf?.(openId) ?? openId),
    ...deciders.roles.map((name) => {
      const title = deciders.roleTitles?.[name];
      return title === undefined ? words.role(name) : textIn(title, language);
    }),
    ...(deciders.operators === true ? [words.operators] : []),
  ];
  const shown = named.slice(0, maxNamed).join(comma);
  return named.length > maxNamed ? `${shown}…` : shown || words.nobody;
}

/** What a conversation says about addresses. */
export interface AddressContext {
  /** Text that no person wrote to the bot was read: results of tools, files, quotes, summaries of them. */
  readonly foreign: boolean;
  /** Addresses that people named, as {@link addressKey} has them. */
  readonly named: ReadonlySet<string>;
}
