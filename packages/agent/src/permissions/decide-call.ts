import { textIn, type LocalText } from "@larkline/protocol";
import type { Deciders, PermissionRule } from "@larkline/protocol/approval";
import { strangeAddresses, riskOf } from "./arguments.ts";
import {
  hasRole,
  requesterApproves,
  type PolicyCall,
  type PermissionPolicy,
  type PolicyEntry,
  type PolicyMatch,
  type Question,
  type RiskFinding,
  type Verdict,
} from "./policy.ts";
import {
  proposalFor,
  ruleFor,
  subjectOf,
  matchesSubject,
  touchesSubject,
  matchesName,
} from "./rules.ts";
import { isAllowedBy } from "./standing.ts";

/**
 * Decides whether a call runs, needs an approval or is refused. The first policy entry that fits decides; without
 * one, the tool's own `requiresApproval` and, if the policy says so, the risk patterns. A remembered rule replaces an
 * approval, never a refusal. Once text from outside was read, a call to an address that no person has named always
 * needs an approval.
 */
export function decideCall(policy: PermissionPolicy, call: PolicyCall): Verdict {
  const findings = riskOf(call.arguments);
  const facts = { call, policy, findings, strange: strangeAddresses(call) };
  const entry = decidingEntry(facts);
  if (entry?.do === "refuse") return { do: "refuse", reason: textIn(entry.reason, "en"), findings };
  const asked = entry === undefined ? needsApproval(facts) : entry.do === "ask";
  // An entry that allows a subject names the address itself; one that allows a tool says nothing of where it goes.
  const named = entry?.do === "allow" && entry.subject !== undefined;
  if (facts.strange.length > 0 && !named) {
    return ask(entry?.do === "ask" ? entry : undefined, facts);
  }
  return asked ? ask(entry, facts) : { do: "run", authority: { by: "policy" }, findings };
}

interface DecisionFacts {
  call: PolicyCall;
  policy: PermissionPolicy;
  findings: RiskFinding[];
  /** Addresses that no person has named, after text from outside was read. */
  strange: readonly string[];
}

/**
 * The entry that decides: the first that fits. An entry that asks about one command of several does not end the
 * search, because another entry may refuse the rest, and because the approver of one command must not decide alone
 * about the others.
 */
function decidingEntry(facts: DecisionFacts): PolicyEntry | undefined {
  const { call, policy } = facts;
  let part: PolicyEntry | undefined;
  let whole: PolicyEntry | undefined;
  for (const entry of policy.entries) {
    if (!fits(entry, call, policy)) continue;
    if (entry.do !== "ask" || !fitsInPart(entry, call)) {
      whole = entry;
      break;
    }
    if (part === undefined || isStricter(entry.approvers, part.approvers)) part = entry;
  }
  return part === undefined ? whole : decidingOf(part, whole, facts);
}

function fits(entry: PolicyEntry, call: PolicyCall, policy: PermissionPolicy): boolean {
  return (
    entry.tools.some((pattern) => matchesName(pattern, call.tool.spec.name)) &&
    isAmong(call.chatId, entry.chats) &&
    isAmong(call.chatType, entry.chatTypes) &&
    fitsPerson(entry, call, policy) &&
    (entry.subject === undefined || fitsSubject(entry, entry.subject, call))
  );
}

function isAmong(value: string, values: readonly string[] | undefined): boolean {
  return values === undefined || values.includes(value);
}

function fitsPerson(
  { people, roles }: PolicyMatch,
  call: PolicyCall,
  policy: PermissionPolicy,
): boolean {
  if (people === undefined && roles === undefined) return true;
  return (
    people?.includes(call.person.id) === true || hasRole(call.person, roles ?? [], policy.roles)
  );
}

/** `allow` entries must fit the whole subject; `ask` and `refuse` entries fit if any command in it could. */
function fitsSubject(
  entry: PolicyEntry,
  pattern: string,
  { tool, arguments: input }: PolicyCall,
): boolean {
  if (tool.subject === undefined) return false;
  const subject = subjectOf(tool, input);
  if (entry.do === "allow") return subject !== undefined && matchesSubject(pattern, subject);
  return subject === undefined || touchesSubject(pattern, subject);
}

/** Whether an entry that fits is about one command of several, or about one that cannot be read. */
function fitsInPart(
  { subject: pattern }: PolicyEntry,
  { tool, arguments: input }: PolicyCall,
): boolean {
  if (pattern === undefined) return false;
  const subject = subjectOf(tool, input);
  return subject === undefined || !matchesSubject(pattern, subject);
}

/** Whether `one` needs another approver where `other` lets the requester decide alone. */
function isStricter(one: Deciders, other: Deciders): boolean {
  return requesterApproves(other) && !requesterApproves(one);
}

/**
 * Chooses the entry that decides: the one that asks about a part of the call, or the one about the whole, if there is
 * one.
 */
function decidingOf(
  part: PolicyEntry,
  whole: PolicyEntry | undefined,
  facts: DecisionFacts,
): PolicyEntry | undefined {
  if (whole?.do === "refuse") return whole;
  const isAsked = whole === undefined ? needsApproval(facts) : whole.do === "ask";
  return isAsked && isStricter((whole ?? facts.policy).approvers, part.approvers) ? whole : part;
}

function needsApproval({ call, policy, findings }: Omit<DecisionFacts, "strange">): boolean {
  return call.tool.requiresApproval || (findings.length > 0 && policy.risky === "ask");
}

/** Asks, unless a remembered rule answers. Rules do not count for risky calls: their authors have not seen this input. */
function ask(
  entry: PolicyEntry | undefined,
  { call, policy, findings, strange }: DecisionFacts,
): Verdict {
  const asking = askingOf(entry, policy);
  const risky = findings.length > 0;
  if (strange.length > 0) {
    // For this call only: the next page could use a rule for an address that a page has named.
    const question = questionOf({ ...asking, remember: false }, call, risky);
    return { do: "ask", question: { ...question, addresses: strange }, findings };
  }
  const ruled = asking.remember && !(risky && policy.risky === "ask");
  const rules = asking.deciders.fourEyes
    ? call.rules.filter((one) => isSeenByOther(one, call))
    : call.rules;
  const rule = ruled ? ruleFor(rules, { ...call, person: call.person.id }) : undefined;
  const id = rule?.id ?? (ruled && !risky ? standingId(asking, call) : undefined);
  return id === undefined
    ? { do: "ask", question: questionOf(asking, call, risky), findings }
    : { do: "run", authority: { by: "rule", id }, findings };
}

/** A person has allowed only what they decide alone: where others have to agree, they are asked at each run. */
function standingId({ deciders }: Asking, call: PolicyCall): string | undefined {
  const { standing } = call;
  const isTheirs = requesterApproves(deciders) && deciders.count === 1;
  return isTheirs && standing !== undefined && isAllowedBy(standing.allowed, call)
    ? standing.id
    : undefined;
}

/** How a person is asked: by an entry of the policy, or by its defaults. */
interface Asking {
  deciders: Deciders;
  reason: LocalText;
  remember: boolean;
  expiresMs: number;
  /** Rules count for the person alone: the entry is about certain people. */
  personal: boolean;
}

function askingOf(entry: PolicyEntry | undefined, policy: PermissionPolicy): Asking {
  if (entry === undefined) {
    const { approvers: deciders, remember, expiresMs } = policy;
    return { deciders, reason: "", remember, expiresMs, personal: false };
  }
  const { approvers: deciders, reason, remember, expiresMs, people, roles } = entry;
  return {
    deciders,
    reason,
    remember,
    expiresMs,
    personal: people !== undefined || roles !== undefined,
  };
}

function questionOf(asking: Asking, call: PolicyCall, risky: boolean): Question {
  const { deciders, reason, expiresMs } = asking;
  const risk = risky ? "high" : (call.tool.risk ?? "medium");
  // A person who may decide alone must not decide for others, whose calls may need another approver. Under
  // four eyes a rule for everybody would let its own author's calls run unseen.
  const personal = asking.personal || requesterApproves(deciders) || deciders.fourEyes;
  const facts = { risk, risky, person: call.person.id, personal };
  const remember = asking.remember ? proposalFor(call.tool, call.arguments, facts) : undefined;
  const question = { deciders, reason, risk, expiresAtMs: call.nowMs + expiresMs } as const;
  return remember === undefined ? question : { ...question, remember };
}

/** Whether another person made the rule for this person's calls. Of all who agreed to a rule, only its author is stored. */
function isSeenByOther({ person, author }: PermissionRule, call: PolicyCall): boolean {
  return person === call.person.id && author.id !== call.person.id;
}

/**
 * The question about a call of a tool with effect `once` that may have taken effect; undefined when
 * the model reads that the outcome is unknown. The tool may be gone, so only its name counts.
 */
export function unknownOutcomeOf(
  policy: PermissionPolicy,
  call: Omit<PolicyCall, "tool" | "rules"> & { readonly toolName: string },
): Question | undefined {
  const { unknownOutcome } = policy;
  if (unknownOutcome === "tell" || (unknownOutcome === "ask_feishu" && call.chatType === "api")) {
    return undefined;
  }
  const tool = {
    spec: { name: call.toolName, description: "", inputSchema: {} },
    effect: "once",
  } as const;
  const unapproved = {
    ...call,
    tool: { ...tool, requiresApproval: false, timeoutMs: 1 },
    rules: [],
  };
  const entry = policy.entries.find(
    (one) => one.do === "ask" && one.subject === undefined && fits(one, unapproved, policy),
  );
  const { deciders: asked, expiresMs } = askingOf(entry, policy);
  const { operators: _operators, ...deciders } = asked; // of calls alone
  // The call was allowed before, and its requester can check what it did, so the requester's decision is enough.
  return {
    deciders: { ...deciders, requester: true, fourEyes: false, count: 1 },
    reason: "",
    risk: "high",
    expiresAtMs: call.nowMs + expiresMs,
  };
}
