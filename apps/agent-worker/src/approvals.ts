import { isCancelOf } from "@larkline/agent";
import {
  approvalKindOf,
  isDecider,
  rememberedRule,
  ruleApprovalOf,
  ruleText,
} from "@larkline/agent/permissions";
import { FeishuError } from "@larkline/feishu";
import type { Tags } from "@larkline/process/telemetry";
import type { ControlEntry } from "@larkline/protocol";
import {
  operatorsDecide,
  type Approval,
  type ApprovalState,
  type DecisionWord,
} from "@larkline/protocol/approval";
import { withDeadline } from "@larkline/protocol/clock";
import type { EventOf } from "@larkline/protocol/event";
import { argumentsHashOf } from "@larkline/protocol/runner";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { settlesAlone, type ApprovalStatus } from "@larkline/store";
import type { Services } from "./services.ts";

// What people are asked, and what becomes of it: sent, placed, believed, counted, remembered as a rule. The ability
// `approvals` decides what a decision means for its call; this chapter has the stores and cards for that.
//
// Ingress writes down what people have decided, and a program with its Redis user can write anything there. So a
// worker believes only what was asked, which workers alone write, and checks every grant itself: who gave it, and
// whether they may. All that ingress can make up is a click of a person who may decide.

/** How long a look-up of user groups may take: a person waits for the answer. */
const groupsMs = 5_000;

/** How long after it was made a decision waits for a look-up of user groups, ms: its session waits as well. */
const checkPatienceMs = 10 * 60_000;

/**
 * The user groups of a person who decided cannot be looked up now, so it is not known whether they may. The turn waits
 * with the decision unread and its worker looks again later, unless waiting does not help.
 */
export class DecidersUnknownError extends Error {
  /** The platform refuses the look-up, and will again. */
  readonly isLasting: boolean;

  constructor(message: string, isLasting: boolean) {
    super(message);
    this.isLasting = isLasting;
  }
}

/** Sends the cards of approvals that were saved and get cards of their own, in the background. Never throws. */
export function peopleAsked(
  { approvalCards, counters, log, runs, telemetry }: Services,
  approvals: readonly Approval[],
): void {
  for (const approval of approvals) {
    const { session, turnId, id: approvalId, kind, tool, risk } = approval;
    telemetry.events.emit({ eventName: "approval.asked", attributes: tagsOf(approval) });
    counters.approvalsAsked.add(1, { kind });
    runs.asked(approval);
    log.info({ session, turnId, approvalId, kind, tool, risk }, "approval asked for");
    if (approval.inReply !== true) void approvalCards.work(session, approvalId);
  }
}

/**
 * The card of a reply shows these questions, or cannot: then they get cards of their own. Resolves to those that do not
 * stand on it. Fails no turn: after a while a sweeper sends a card for a question of which nothing is known.
 */
export async function asksPlaced(
  { approvals, approvalCards, log }: Services,
  asked: readonly Approval[],
  isPlaced: boolean,
): Promise<Approval[]> {
  const elsewhere: Approval[] = [];
  for (const approval of asked) {
    const { session, id: approvalId } = approval;
    try {
      if (await approvals.placeInReply(session, approvalId, isPlaced)) continue;
      elsewhere.push(approval);
      void approvalCards.work(session, approvalId);
    } catch (error) {
      log.warn({ error, session, approvalId }, "where an approval is shown was not stored");
    }
  }
  return elsewhere;
}

/** Checked control entries, and the effects of the decisions among them. */
export interface CheckedEntries {
  entries: ControlEntry[];
  events: EventOf<"permission_learn">[];
}

/**
 * Checks the decisions among the entries that have come for a turn: those that hold stay, as the approval's own record
 * has them, and so does everything that is no decision. Rejects when the store does not answer, and with a
 * {@link DecidersUnknownError} as long as one may hold and cannot be checked: then nothing was done about any of them.
 * A turn that ends waits for no such check.
 */
export async function checkEntries(
  services: Services,
  turn: TurnState,
  control: readonly ControlEntry[],
): Promise<CheckedEntries> {
  const checked: CheckedEntries = { entries: [], events: [] };
  const settled: ApprovalStatus[] = [];
  const isEnding = turn.stopping !== undefined || control.some((entry) => isCancelOf(entry, turn));
  for (const entry of control) {
    if (entry.type !== "decision") {
      checked.entries.push(entry);
      continue;
    }
    const { approvalId } = entry;
    if (!isAwaited(turn, approvalId)) continue;
    try {
      const decided = await settledDecision(services, turn.message.app, entry);
      if (decided === undefined) {
        services.log.error(
          { turnId: turn.turnId, approvalId },
          "a decision that the store does not know",
        );
        continue;
      }
      checked.entries.push(decided.entry);
      settled.push(decided.status);
    } catch (error) {
      if (!isEnding || !(error instanceof DecidersUnknownError)) throw error;
    }
  }
  for (const status of settled) {
    const event = await approvalSettled(services, turn, status).catch((error: unknown) => {
      services.log.warn(
        { error, approvalId: status.approval.id },
        "what follows from a decision was not done",
      );
      return undefined;
    });
    if (event !== undefined) checked.events.push(event);
  }
  return checked;
}

function isAwaited({ calls }: TurnState, approvalId: string): boolean {
  return calls.some((call) => call.approvalId === approvalId && waitsForPeople(call));
}

type DecisionEntry = Extract<ControlEntry, { type: "decision" }>;

/**
 * The entry as the approval's own record has it; undefined where nothing is settled. Rejects as {@link checkGrant}; at
 * the end of the patience, the grant counts as withdrawn, and the entry says that it was not checked.
 */
export async function settledDecision(
  services: Services,
  app: string,
  { approvalId }: DecisionEntry,
): Promise<{ entry: DecisionEntry; status: ApprovalStatus } | undefined> {
  const found = await services.approvals.find(app, approvalId);
  if (found === undefined || found.state === "pending") return undefined;
  const checked = await checkGrant(services, found).catch((error: unknown) => {
    if (!(error instanceof DecidersUnknownError) || mayCheckLater(services, found, error)) {
      throw error;
    }
    services.log.error(
      { app, approvalId, error },
      "a grant could not be checked, and counts as withdrawn",
    );
    return undefined;
  });
  const status: ApprovalStatus = checked ?? { ...found, state: "cancelled", decisions: [] };
  const { state, decisions, approval } = status;
  if (state === "pending") return undefined;
  const { argumentsHash, requester } = approval;
  // Ingress does not always find out in time how people are called.
  const named = decisions.map((one) =>
    one.by.id === requester.id ? { ...one, by: { ...requester, ...one.by } } : one,
  );
  const entry = { type: "decision", approvalId, argumentsHash, state, decisions: named } as const;
  return { entry: checked === undefined ? { ...entry, unchecked: true } : entry, status };
}

function mayCheckLater(
  { clock }: Services,
  { approval, settledAtMs = approval.createdAtMs }: ApprovalStatus,
  { isLasting }: DecidersUnknownError,
): boolean {
  return !isLasting && clock.now() <= settledAtMs + checkPatienceMs;
}

/** The states in which a call is granted, by the decision that leads to them. */
const grants: Partial<Readonly<Record<ApprovalState, DecisionWord>>> = {
  approved: "approve",
  retried: "retry",
  done: "done",
  answered: "answer",
};

/**
 * The status with only those decisions in it whose people may say what they said. A grant that does not rest on enough
 * people who may decide reads as withdrawn. Rejects with a {@link DecidersUnknownError} while it depends on user groups
 * that cannot be looked up.
 */
export async function checkGrant(
  services: Services,
  status: ApprovalStatus,
): Promise<ApprovalStatus> {
  const { approval, state } = status;
  const word = grants[state];
  if (word === undefined) return status;
  const may = await Promise.all(
    status.decisions.map(async (one) =>
      one.decision === word ? await mayDecide(services, status, one) : "yes",
    ),
  );
  const decisions = status.decisions.filter((_, at) => may[at] === "yes");
  const count = settlesAlone(word) ? 1 : approval.deciders.count;
  const peopleAmong = (those: ApprovalStatus["decisions"]): number =>
    new Set(those.flatMap(({ decision, by }) => (decision === word ? [by.id] : []))).size;
  if (peopleAmong(decisions) >= count) return { ...status, decisions };
  const { session, id: approvalId } = approval;
  const perhaps = (excluded: readonly May[]): ApprovalStatus["decisions"] =>
    status.decisions.filter((_, at) => !excluded.includes(may[at] ?? "no"));
  if (peopleAmong(perhaps(["no"])) >= count) {
    const isLasting = peopleAmong(perhaps(["no", "never known"])) < count;
    const problem = `user groups that decide about the approval ${approvalId} cannot be looked up`;
    throw new DecidersUnknownError(problem, isLasting);
  }
  const by = status.decisions.map((one) => one.by.id);
  services.log.error(
    { session, approvalId, state, by },
    "a grant is not believed: too few of those who gave it may",
  );
  return { ...status, state: "cancelled", decisions: [] };
}

/** Whether a person may decide; where user groups say so, it may be unknown, now or for good. */
type May = "yes" | "no" | "unknown" | "never known";

async function mayDecide(
  services: Services,
  { approval }: ApprovalStatus,
  given: ApprovalStatus["decisions"][number],
): Promise<May> {
  // The clock of Redis has settled it, so no decision after that counts.
  if (given.atMs > approval.expiresAtMs) return "no";
  if (given.via === "console") return operatorsDecide(approval) ? "yes" : "no";
  const { log, settings } = services;
  const isOfPlatform = approval.target.channel !== "none";
  const groups = async (id: string): Promise<readonly string[]> =>
    isOfPlatform ? await groupsOf(services, approval.app, id) : [];
  try {
    const { roles } = settings.permissions;
    const may = await isDecider(
      approval,
      { id: given.by.id, word: given.decision },
      { roles, groups },
    );
    return may ? "yes" : "no";
  } catch (error) {
    const { session, id: approvalId } = approval;
    log.warn({ error, session, approvalId }, "user groups unknown; a decision depends on them");
    return isRefusal(error) ? "never known" : "unknown";
  }
}

function isRefusal(error: unknown): boolean {
  return (
    error instanceof FeishuError &&
    !error.retryable &&
    error.kind !== "cancelled" &&
    error.kind !== "unknown"
  );
}

/** Closes the approvals of these calls after the end of the turn, in the background. Never throws. */
export function dropAsks(services: Services, turn: TurnState, calls: readonly CallState[]): void {
  for (const { approvalId } of calls) {
    if (approvalId === undefined) continue;
    void settledBefore(services, turn, approvalId).catch((error: unknown) => {
      services.log.warn({ error, approvalId }, "a dropped approval was not looked after");
    });
  }
}

async function settledBefore(
  services: Services,
  turn: TurnState,
  approvalId: string,
): Promise<void> {
  const found = await services.approvals.find(turn.message.app, approvalId);
  if (found === undefined || found.state === "pending") return;
  await approvalSettled(services, turn, await checkGrant(services, found));
}

/** Handles a settled approval of a turn: updates its cards, counts it, and stores the rule that it may create. */
async function approvalSettled(
  services: Services,
  { message }: TurnState,
  status: ApprovalStatus,
): Promise<EventOf<"permission_learn"> | undefined> {
  const { approvalCards, clock, counters, log, telemetry } = services;
  const { approval, state, decisions, settledAtMs = clock.now() } = status;
  const { session, turnId, kind, tool, id: approvalId } = approval;
  void approvalCards.work(message.session, approvalId); // the copies that were not pressed
  if (state === "pending") return undefined;
  const seconds = Math.max(0, settledAtMs - approval.createdAtMs) / 1_000;
  counters.approvalsSettled.add(1, { kind, state });
  counters.approvalWaitSeconds.record(seconds, { kind, state });
  const attributes = { ...tagsOf(approval), state, waitedMs: Math.round(seconds * 1_000) };
  telemetry.events.emit({ eventName: "approval.settled", attributes });
  const by = decisions.map(({ by: { id } }) => id);
  log.info({ session, turnId, approvalId, kind, tool, state, by, seconds }, "approval settled");
  if (state !== "approved") return undefined;
  await keepRule(services, status);
  return await proposeRule(services, status);
}

/**
 * Counts the approval. After every `approvals.learnAfter` of one kind a rule is proposed to those who may decide such
 * calls.
 */
async function proposeRule(
  services: Services,
  status: ApprovalStatus,
): Promise<EventOf<"permission_learn"> | undefined> {
  const { approvals, clock, rules, settings } = services;
  const { learnAfter, expiresMs } = settings.permissions;
  const { approval, decisions } = status;
  // What operators approve says nothing about what the people of a chat want.
  if (decisions.some(({ via }) => via === "console")) return undefined;
  const kind = approvalKindOf(approval);
  if (kind === undefined || learnAfter === 0) return undefined;
  // Counting it again after a crash gives the same number and the same proposal.
  const count = await rules.approvedAgain(approval.app, kind, approval.id);
  if (count % learnAfter !== 0 || (await hasRule(services, status))) return undefined;
  const proposal = ruleApprovalOf(approval, { nowMs: clock.now(), expiresMs });
  if (proposal?.remember === undefined) return undefined;
  await approvals.add(proposal);
  peopleAsked(services, [proposal]);
  const ruleString = ruleText(proposal.remember);
  return {
    type: "permission_learn",
    rules: [{ ruleString, description: descriptionOf(proposal, count) }],
  };
}

/** Whether such calls need no approval from now on anyway. */
async function hasRule(
  { rules }: Services,
  { approval, decisions }: ApprovalStatus,
): Promise<boolean> {
  const { remember, app, chatId } = approval;
  if (remember === undefined || decisions.some((decision) => decision.remember === true)) {
    return true;
  }
  const inForce = await rules.inForce(app, chatId);
  return inForce.some(
    ({ tool, pattern, person }) =>
      tool === remember.tool &&
      pattern === remember.pattern &&
      (person === undefined || person === remember.person),
  );
}

function descriptionOf({ tool, remember }: Approval, count: number): string {
  const whose = remember?.person === undefined ? "any person in this chat" : "the person who asked";
  return `Calls of ${tool} like this were approved ${count} times: run them for ${whose} without asking.`;
}

function tagsOf({ session, turnId, callId, id, kind, tool, traceparent }: Approval): Tags {
  const tags = { session, turn: turnId, call: callId, approval: id, kind, tool };
  return traceparent === undefined ? tags : { ...tags, traceparent };
}

/**
 * Stores the rule that an approval creates, if it creates one. May be repeated. Rejects as {@link checkGrant}, but where
 * it will never be known who may: then there is no rule.
 */
export async function keepRule(services: Services, status: ApprovalStatus): Promise<void> {
  const { approval, state, decisions } = await checkGrant(services, status).catch(
    (error: unknown) => {
      if (!(error instanceof DecidersUnknownError) || !error.isLasting) throw error;
      services.log.error({ approvalId: status.approval.id, error }, "a rule is not kept");
      return { ...status, state: "cancelled" } as const;
    },
  );
  if (state !== "approved") return;
  const rule = rememberedRule(approval, decisions, services.settings.permissions.rulesExpireMs);
  if (rule !== undefined) await services.rules.add(rule);
}

/** Whether people have let this very call of the turn run. Rejects as {@link checkGrant}. */
export async function isApproved(
  services: Services,
  { turnId, message }: TurnState,
  call: CallState,
  approvalId: string,
): Promise<boolean> {
  const found = await services.approvals.find(message.app, approvalId);
  if (found === undefined) return false;
  const { approval } = found;
  const isAbout =
    approval.kind !== "rule" &&
    approval.session === message.session &&
    approval.turnId === turnId &&
    approval.tool === call.name &&
    approval.argumentsHash === argumentsHashOf(argumentsTextOf(call));
  if (!isAbout) return false;
  const { state } = await checkGrant(services, found);
  return state === (approval.kind === "outcome" ? "retried" : "approved");
}

/** The arguments for the runner; their hash is that of the approved arguments. */
export function argumentsTextOf({ arguments: given }: CallState): string {
  return JSON.stringify(given);
}

/** Whether people decide about the call: whether it may run, or what has become of it. */
export function waitsForPeople({ state }: CallState): boolean {
  return state === "waiting_approval" || state === "waiting_outcome";
}

/** User groups of a person on the platform. Rejects when they cannot be found out in time. */
export async function groupsOf(
  { bots, clock }: Services,
  app: string,
  openId: string,
): Promise<readonly string[]> {
  const bot = bots.get(app);
  if (bot === undefined) throw new Error(`no credentials for the app ${app}`);
  return await withDeadline(clock, bot.groupsOf(openId), groupsMs);
}
