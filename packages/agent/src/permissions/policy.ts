import type {
  CallAuthority,
  Deciders,
  PermissionRule,
  RiskLevel,
  RuleProposal,
  ToolAnnouncement,
} from "@larkline/protocol";

import type { Heard } from "./addresses.ts";

/** Members of a role of the configuration. */
export interface RoleMembers {
  /** open_ids. */
  readonly people: readonly string[];
  /** Ids of user groups of the platform. */
  readonly groups: readonly string[];
}

/** A person, as far as policies ask: `groups` are the user groups they belong to. */
export interface Person {
  readonly id: string;
  readonly groups: readonly string[];
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

/** One entry of the deployment's policy; the first that fits a call decides. */
export interface PolicyEntry extends PolicyMatch {
  readonly do: "allow" | "ask" | "refuse";
  readonly approvers: Deciders;
  /** Offer "always allow in this chat". */
  readonly remember: boolean;
  readonly reason: string;
  readonly expiresMs: number;
}

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
  /** What becomes of an unknown outcome of a `once` call: people are asked, or the model is told. HTTP API: always told, unless `ask`. */
  readonly unknownOutcome: "ask" | "ask_feishu" | "tell";
  /** Whether rules count, and are offered, where no entry says it. */
  readonly remember: boolean;
  /** Approvals of one kind after which a rule is proposed; 0: never. */
  readonly learnAfter: number;
  /** Rejections in one turn after which nobody is asked any more. */
  readonly maxDenials: number;
}

/** A call that is to be judged. */
export interface JudgedCall {
  readonly tool: ToolAnnouncement;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly person: Person;
  readonly chatId: string;
  readonly chatType: "p2p" | "group" | "api";
  /** Rules of the chat that are in force. */
  readonly rules: readonly PermissionRule[];
  readonly nowMs: number;
  /** What the conversation says about addresses; absent: it is not known to hold anything but people's words. */
  readonly heard?: Heard;
  /** Hosts that the agent's calls may reach unasked: `docs.example.com`, `*.example.com`, `*`. */
  readonly egress?: readonly string[];
}

/** Something in a call's input that people should know of. */
export interface RiskFinding {
  /** Such as `rm -rf`. */
  readonly pattern: string;
  /** In English. */
  readonly reason: string;
}

/** What is asked when a call needs an approval. */
export interface Question {
  readonly deciders: Deciders;
  /** Of the entry that asks; empty where none does. */
  readonly reason: string;
  readonly risk: RiskLevel;
  readonly remember?: RuleProposal;
  /** What the call would reach that no person has named. */
  readonly addresses?: readonly string[];
  readonly expiresAtMs: number;
}

/** Whether a call runs. `findings`: one per risk pattern that fits. */
export type Verdict = { readonly findings: readonly RiskFinding[] } & (
  | { readonly do: "run"; readonly authority: CallAuthority }
  | { readonly do: "ask"; readonly question: Question }
  | { readonly do: "refuse"; readonly reason: string }
);
