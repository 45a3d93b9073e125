import { createHash } from "node:crypto";
import type {
  PermissionRule,
  RuleProposal,
  Approval,
  ApprovalDecision,
} from "@larkline/protocol/approval";
import type { RiskLevel, ToolAnnouncement } from "@larkline/protocol/tool";
import { maskedArguments } from "./arguments.ts";

/** The call that rules are matched with. */
interface RuledCall {
  readonly tool: Pick<ToolAnnouncement, "spec" | "subject">;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly person: string;
  readonly chatId: string;
  readonly nowMs: number;
}

/** The oldest rule in force that covers the call. */
export function ruleFor(
  rules: readonly PermissionRule[],
  call: RuledCall,
): PermissionRule | undefined {
  const { tool, chatId, person, nowMs } = call;
  const subject = subjectOf(tool, call.arguments);
  const fits = (pattern: string): boolean =>
    tool.subject === undefined
      ? pattern === "*"
      : subject !== undefined && matchesSubject(pattern, subject);
  return rules.find(
    (rule) =>
      rule.tool === tool.spec.name &&
      rule.chatId === chatId &&
      (rule.person === undefined || rule.person === person) &&
      inForce(rule, nowMs) &&
      fits(rule.pattern),
  );
}

function inForce({ expiresAtMs, revoked }: PermissionRule, nowMs: number): boolean {
  return revoked === undefined && nowMs < expiresAtMs;
}

/**
 * Whether a rule in force covers this person's calls of this tool. The pattern was matched with the arguments when the
 * call was decided, and is not matched again: the tool, which names the argument, may be gone.
 */
export function holdsInForce(
  rule: PermissionRule,
  call: { tool: string; person: string; chatId: string },
): boolean {
  return (
    rule.tool === call.tool &&
    rule.chatId === call.chatId &&
    (rule.person === undefined || rule.person === call.person)
  );
}

/** Facts for a proposal. `personal`: the rule covers only calls of the person who made this call. */
export interface ProposalFacts {
  readonly risk: RiskLevel;
  readonly risky: boolean;
  readonly person: string;
  readonly personal: boolean;
}

/** The rule that an approval of this call may create; undefined where it would allow too much. */
export function proposalFor(
  tool: Pick<ToolAnnouncement, "spec" | "subject" | "secrets">,
  input: Readonly<Record<string, unknown>>,
  { risk, risky, person, personal }: ProposalFacts,
): RuleProposal | undefined {
  if (risk === "high" || risky) return undefined;
  const subject = subjectOf(tool, input);
  const pattern =
    tool.subject === undefined ? "*" : subject === undefined ? undefined : patternFor(subject);
  if (pattern === undefined || holdsSecret(pattern, tool)) return undefined;
  return { tool: tool.spec.name, pattern, ...(personal ? { person } : {}) };
}

/** Words that run what follows them, also behind a program (`docker exec`): a rule would allow anything. */
const launchers: ReadonlySet<string> = new Set(
  (
    "ash bash builtin busybox bwrap chroot cmd command coproc csh dash doas env eval exec find firejail fish flock " +
    "ionice ksh nice nohup nsenter parallel pkexec powershell pwsh runuser rsh script setpriv setsid sh ssh stdbuf " +
    "strace su sudo systemd-run taskset tcsh time timeout toybox trap unshare watch xargs zsh"
  ).split(" "),
);

const maxPatternChars = 1_000;

/**
 * `git status *` for `git status --short`: a program and its command, with any arguments. The exact
 * text for every other form, and for several commands in one text.
 */
function patternFor(subject: string): string | undefined {
  const [, program = "", command = ""] = /^([a-z][\w-]*) ([a-z][\w-]*) +[^ ]/i.exec(subject) ?? [];
  const launches = [program, command].some((word) => launchers.has(word.toLowerCase()));
  const general = program !== "" && !launches && isOneCommand(subject);
  const pattern = general ? `${program} ${command} *` : subject;
  const exact = general || !pattern.includes("*");
  return exact && pattern.trim() !== "" && pattern.length <= maxPatternChars ? pattern : undefined;
}

/** Rules are stored and shown to the whole chat, so they must not contain arguments that are masked in the call. */
function holdsSecret(
  pattern: string,
  { subject, secrets = [] }: Pick<ToolAnnouncement, "subject" | "secrets">,
): boolean {
  return (
    subject !== undefined && maskedArguments({ [subject]: pattern }, secrets)[subject] !== pattern
  );
}

/** What a call of the tool does, in one text; undefined where the tool names no such argument, or it is no text. */
export function subjectOf(
  { subject }: Pick<ToolAnnouncement, "subject">,
  input: Readonly<Record<string, unknown>>,
): string | undefined {
  const value = subject !== undefined && Object.hasOwn(input, subject) ? input[subject] : undefined;
  return typeof value === "string" ? value : undefined;
}

/**
 * The rule that an approved approval creates: enough people agreed, by approving a `rule`, or by approving a call
 * with `remember`. Deterministic, so adding it twice is harmless.
 */
export function rememberedRule(
  approval: Approval,
  decisions: readonly ApprovalDecision[],
  rulesExpireMs: number,
): PermissionRule | undefined {
  const { id, app, chatId, kind, deciders, remember } = approval;
  const agreed = decisions.filter(
    ({ decision, remember: wanted }) =>
      decision === "approve" && (kind === "rule" || wanted === true),
  );
  const last = agreed.at(-1);
  const people = new Set(agreed.map(({ by }) => by.id));
  if (
    remember === undefined ||
    last === undefined ||
    kind === "outcome" ||
    people.size < deciders.count
  ) {
    return undefined;
  }
  const { by, atMs } = last;
  return {
    v: 1,
    id,
    app,
    chatId,
    ...remember,
    author: by,
    createdAtMs: atMs,
    expiresAtMs: atMs + rulesExpireMs,
  };
}

/** The question whether calls like this approved one may always run, after `permission_learn` proposed it. */
export function ruleApprovalOf(
  approval: Approval,
  { nowMs, expiresMs }: { nowMs: number; expiresMs: number },
): Approval | undefined {
  if (approval.remember === undefined || approval.kind !== "call") return undefined;
  const id = approvalIdOf({ ...approval, kind: "rule", attemptId: approval.callId });
  const { reasons: _reasons, ...asked } = approval;
  const { operators: _operators, ...deciders } = approval.deciders; // of calls alone
  return {
    ...asked,
    id,
    deciders,
    kind: "rule",
    reason: "",
    createdAtMs: nowMs,
    expiresAtMs: nowMs + expiresMs,
  };
}

/** What an approval is about: its `attemptId` is that of the call, the rule's that of the call it comes from. */
type ApprovalSubject = Pick<Approval, "kind" | "turnId" | "argumentsHash"> & {
  readonly attemptId: string;
};

/**
 * The id of an approval, 32 hex digits, made from its subject, so that a retry finds the first one. It includes the
 * arguments: after Redis has lost its last writes, a turn may ask again under the same call id, and a card with other
 * arguments must not answer the new question.
 */
export function approvalIdOf({ kind, turnId, attemptId, argumentsHash }: ApprovalSubject): string {
  return createHash("sha256")
    .update(`${kind} ${turnId} ${attemptId} ${argumentsHash}`)
    .digest("hex")
    .slice(0, 32);
}

/** What approvals of one kind have in common: chat, tool, pattern and person. Undefined where no rule is offered. */
export function approvalKindOf({
  chatId,
  remember,
}: Pick<Approval, "chatId" | "remember">): string | undefined {
  if (remember === undefined) return undefined;
  const { tool, pattern, person = "" } = remember;
  const facts = JSON.stringify([chatId, tool, pattern, person]);
  return createHash("sha256").update(facts).digest("hex").slice(0, 32);
}

/** A rule as people read it: `shell(git status *)`. */
export function ruleText({ tool, pattern }: RuleProposal): string {
  return `${tool}(${pattern})`;
}

/**
 * Whether all of `subject` fits `pattern`. `*` stands for any text, also none, that stays within one
 * command; everything else stands for itself. The first place of each part is the best one: a later
 * one has more text before it that must stay within the command. Linear in the length of the subject.
 */
export function matchesSubject(pattern: string, subject: string): boolean {
  const [head = "", ...parts] = pattern.split("*");
  const tail = parts.pop();
  if (tail === undefined) return subject === head;
  if (!subject.startsWith(head)) return false;
  let from = head.length;
  for (const part of parts) {
    const at = reached(subject, part, from);
    if (at === -1) return false;
    from = at + part.length;
  }
  const end = subject.length - tail.length;
  return end >= from && subject.endsWith(tail) && isOneCommand(subject.slice(from, end));
}

/**
 * Finds `part` from `from` on, with nothing but one command's text in between; -1 if it is not there.
 */
function reached(subject: string, part: string, from: number): number {
  const at = subject.indexOf(part, from);
  return at !== -1 && isOneCommand(subject.slice(from, at)) ? at : -1;
}

/** Characters that end a shell command, or begin another one inside it. */
const metacharacters = /[;|&<>$()`\r\n]/;

const separators = new RegExp(metacharacters.source, "g");

/** Whether the subject, or one of the commands in it, fits the pattern: for entries that hold calls back. */
export function touchesSubject(pattern: string, subject: string): boolean {
  if (matchesSubject(pattern, subject)) return true;
  return subject.split(separators).some((command) => matchesSubject(pattern, command.trim()));
}

/** Whether a text is one command, with nothing that a shell would take for another one. */
function isOneCommand(text: string): boolean {
  return !metacharacters.test(text);
}

/** Whether a name of a tool fits a pattern in which `*` stands for any characters. Linear. */
export function matchesName(pattern: string, name: string): boolean {
  const [head = "", ...parts] = pattern.split("*");
  const tail = parts.pop();
  if (tail === undefined) return name === head;
  if (!name.startsWith(head)) return false;
  let from = head.length;
  for (const part of parts) {
    const at = name.indexOf(part, from);
    if (at === -1) return false;
    from = at + part.length;
  }
  return name.length - tail.length >= from && name.endsWith(tail);
}
