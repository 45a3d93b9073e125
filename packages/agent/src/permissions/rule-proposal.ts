import type { PermissionRule, RiskLevel, RuleProposal, ToolAnnouncement } from "@larkline/protocol";
import { maskedArguments } from "./masked-arguments.ts";
import { isOneCommand, matchesSubject } from "./subject-pattern.ts";

const maxPatternChars = 1_000;

/** Words that run what follows them, also behind a program (`docker exec`): a rule would allow anything. */
const launchers: ReadonlySet<string> = new Set(
  (
    "ash bash builtin busybox bwrap chroot cmd command coproc csh dash doas env eval exec find firejail fish flock " +
    "ionice ksh nice nohup nsenter parallel pkexec powershell pwsh runuser rsh script setpriv setsid sh ssh stdbuf " +
    "strace su sudo systemd-run taskset tcsh time timeout toybox trap unshare watch xargs zsh"
  ).split(" "),
);

/** What a call of the tool does, in one text; undefined where the tool names no such argument, or it is no text. */
export function subjectOf(
  { subject }: Pick<ToolAnnouncement, "subject">,
  input: Readonly<Record<string, unknown>>,
): string | undefined {
  const value = subject !== undefined && Object.hasOwn(input, subject) ? input[subject] : undefined;
  return typeof value === "string" ? value : undefined;
}

/**
 * `git status *` for `git status --short`: a program and its command, with any arguments. The exact
 * text for everything that does not begin so, or goes on to another command.
 */
function patternFor(subject: string): string | undefined {
  const [, program = "", command = ""] = /^([a-z][\w-]*) ([a-z][\w-]*) +[^ ]/i.exec(subject) ?? [];
  const launches = [program, command].some((word) => launchers.has(word.toLowerCase()));
  const general = program !== "" && !launches && isOneCommand(subject);
  const pattern = general ? `${program} ${command} *` : subject;
  const exact = general || !pattern.includes("*");
  return exact && pattern.trim() !== "" && pattern.length <= maxPatternChars ? pattern : undefined;
}

/** Rules are shown to everybody in the chat, and kept: none may hold what is hidden in the call itself. */
function holdsSecret(
  pattern: string,
  { subject, secrets = [] }: Pick<ToolAnnouncement, "subject" | "secrets">,
): boolean {
  return subject !== undefined && maskedArguments({ [subject]: pattern }, secrets)[subject] !== pattern;
}

/** What a proposal depends on. `personal`: only for calls of the person it comes from. */
export interface ProposalFacts {
  readonly risk: RiskLevel;
  readonly risky: boolean;
  readonly person: string;
  readonly personal: boolean;
}

/** The rule that an approval of this call may leave behind; none where it would allow too much. */
export function proposalFor(
  tool: Pick<ToolAnnouncement, "spec" | "subject" | "secrets">,
  input: Readonly<Record<string, unknown>>,
  { risk, risky, person, personal }: ProposalFacts,
): RuleProposal | undefined {
  if (risk === "high" || risky) return undefined;
  const subject = subjectOf(tool, input);
  const pattern = tool.subject === undefined ? "*" : subject === undefined ? undefined : patternFor(subject);
  if (pattern === undefined || holdsSecret(pattern, tool)) return undefined;
  return { tool: tool.spec.name, pattern, ...(personal ? { person } : {}) };
}

/** What a rule is held against. */
export interface RuledCall {
  readonly tool: Pick<ToolAnnouncement, "spec" | "subject">;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly person: string;
  readonly chatId: string;
  readonly nowMs: number;
}

function inForce({ expiresAtMs, revoked }: PermissionRule, nowMs: number): boolean {
  return revoked === undefined && nowMs < expiresAtMs;
}

/**
 * Whether a rule in force is for this person's calls of this tool. Its pattern was held against the arguments when the
 * call was judged; the tool that says which argument counts may be gone by now.
 */
export function holdsInForce(rule: PermissionRule, call: { tool: string; person: string; chatId: string }): boolean {
  return (
    rule.tool === call.tool && rule.chatId === call.chatId && (rule.person === undefined || rule.person === call.person)
  );
}

/** The oldest rule in force that covers the call. */
export function ruleFor(rules: readonly PermissionRule[], call: RuledCall): PermissionRule | undefined {
  const { tool, chatId, person, nowMs } = call;
  const subject = subjectOf(tool, call.arguments);
  const fits = (pattern: string): boolean =>
    tool.subject === undefined ? pattern === "*" : subject !== undefined && matchesSubject(pattern, subject);
  return rules.find(
    (rule) =>
      rule.tool === tool.spec.name &&
      rule.chatId === chatId &&
      (rule.person === undefined || rule.person === person) &&
      inForce(rule, nowMs) &&
      fits(rule.pattern),
  );
}
