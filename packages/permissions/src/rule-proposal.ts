import type { PermissionRule, RiskLevel, RuleProposal, ToolAnnouncement } from "@larkline/protocol";
import { isOneCommand, matchesSubject } from "./subject-pattern.ts";

const maxPatternChars = 1_000;

/** Words whose first argument is another program: what follows them says nothing about what is run. */
const launchers: ReadonlySet<string> = new Set(
  "bash dash doas env eval exec find ksh nice nohup parallel sh ssh su sudo time timeout watch xargs zsh".split(" "),
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
  const general = program !== "" && !launchers.has(program.toLowerCase()) && isOneCommand(subject);
  const pattern = general ? `${program} ${command} *` : subject;
  const exact = general || !pattern.includes("*");
  return exact && pattern.trim() !== "" && pattern.length <= maxPatternChars ? pattern : undefined;
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
  tool: Pick<ToolAnnouncement, "spec" | "subject">,
  input: Readonly<Record<string, unknown>>,
  { risk, risky, person, personal }: ProposalFacts,
): RuleProposal | undefined {
  if (risk === "high" || risky) return undefined;
  const subject = subjectOf(tool, input);
  const pattern = tool.subject === undefined ? "*" : subject === undefined ? undefined : patternFor(subject);
  if (pattern === undefined) return undefined;
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
