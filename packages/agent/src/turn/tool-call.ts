import type { ParseResult, ReplyLanguage } from "@larkline/protocol";
import { asksRequesterAlone, type Approval } from "@larkline/protocol/approval";
import type { ToolUsePart } from "@larkline/protocol/content";
import { resultCodeIn } from "@larkline/protocol/error";
import type { EngineEvent, EventOf } from "@larkline/protocol/event";
import type { CallWords } from "@larkline/protocol/reply-view";
import { argumentsHashOf, attemptIdOf, awayMs } from "@larkline/protocol/runner";
import {
  type ToolAnnouncement,
  type ToolCall,
  type ToolOutcome,
  denial,
  outcomeText,
  type StoredResult,
  shortenedResult,
} from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { itemOfPart } from "@larkline/protocol/vendor-item";
import { maskedArguments } from "../permissions/arguments.ts";
import type { AddressContext, Verdict, RiskFinding } from "../permissions/policy.ts";
import { oneLine, shortened, textHead, textsOf } from "../texts/index.ts";
import { addressContextOf, turnNumberOf } from "./context.ts";
import {
  abilityOf,
  firstObjection,
  readsOthers,
  takerOf,
  type Ability,
  type AskedPeople,
  type OwnCalls,
  type PreparedOwn,
  type CallFacts,
  permissionAsked,
  type TurnEnvironment,
  type OutcomeEntry,
} from "./ability.ts";
import type { OfferedTool } from "./facts.ts";
import { isDeepStrictEqual } from "node:util";

/** A call of the model under the id it is stored with. `outcome` is set when it is answered at once: an ability has, or it must not run. */
export interface PreparedCall {
  call: CallState;
  use: ToolUsePart;
  outcome?: ToolOutcome;
  /** What it waits for. */
  asked?: Approval;
  /** Events besides `tool_use`. */
  events: EngineEvent[];
  /** Further fields of its `tool_use` event. */
  own?: PreparedOwn["event"];
}

/** What preparing depends on. */
interface Preparation {
  turn: TurnState;
  env: TurnEnvironment;
  /** The addresses of the conversation: the same for all calls of a step. */
  addressContext: AddressContext;
}

/**
 * Decides for each call of a step whether it runs, waits for people, or is answered with an error at once:
 * unknown tools, arguments that are no JSON object, calls that the policy refuses and calls over a limit.
 */
export function prepareCalls(
  calls: readonly ToolCall[],
  ids: readonly string[],
  { turn, env, beyond }: Omit<Preparation, "addressContext"> & { beyond: number },
): PreparedCall[] {
  const addressContext = addressContextOf(env.history ?? [], turn.message, readsOthers(env));
  const opened = new Map<Ability, number>();
  const prepared = calls.map((source, position) => {
    const named = { ...source, id: ids[position] ?? source.id };
    if (position >= env.limits.maxCallsPerStep) return refusedWithRest(named, beyond, env);
    const taker = takerOf(source.name, env);
    if (taker !== undefined) {
      const before = opened.get(taker.ability) ?? 0;
      const own = prepareOwn(named, taker.calls, { turn, env, before });
      if (own.outcome === undefined) opened.set(taker.ability, before + 1);
      return own;
    }
    return prepare(named, { turn, env, addressContext });
  });
  const allowed = new Set(prepared.filter(isAsked).slice(0, env.limits.maxQuestionsPerStep));
  return prepared.map((each) => (isAsked(each) && !allowed.has(each) ? unasked(each, env) : each));
}

/** Steps in a row that may make the same call; the next one is not run, unless its tool is there to be polled. */
const maxRepeats = 2;

function prepare(source: ToolCall, preparation: Preparation): PreparedCall {
  const { nowMs, tools, callPolicy: policy } = preparation.env;
  const tool = tools.get(source.name);
  const parsed = parseArguments(source.arguments);
  const schema = tool?.announcement.spec.inputSchema ?? {};
  const use = toolUse(source, parsed.ok ? coercedArguments(parsed.value, schema) : {});
  const { id, name, arguments: given } = use;
  const wanted: CallState = { id, name, arguments: given, state: "running", startedAtMs: nowMs };
  const call = tool === undefined ? wanted : withFacts(wanted, tool);
  const refuse = (error: string): PreparedCall => ({
    call,
    use,
    outcome: failure(error),
    events: [],
  });
  if (tool === undefined) return refuse(notFound(source.name));
  if (!parsed.ok) return refuse(parsed.problem);
  const repeats = preparation.turn.called.repeated[signatureOf(source)] ?? 0;
  if (repeats >= maxRepeats && tool.announcement.poll !== true) {
    return refuse(repeatedTooOften(source.name));
  }
  const { addressContext } = preparation;
  const verdict = policy.verdict({ name: source.name, arguments: given, addressContext });
  return decided({ call, use, tool }, verdict, preparation);
}

/** A call that waits for people. */
export type WaitingCall = Required<Pick<PreparedCall, "call" | "asked">> &
  Pick<PreparedCall, "events">;

/** A call that waits for the answer to what people are asked. `by`: the ability that asks in place of its own tool. */
export function waitingFor(
  call: CallState,
  { record, events }: AskedPeople,
  by: Ability | undefined,
): WaitingCall {
  const { deadlineMs: _deadlineMs, askedBy: _askedBy, ...rest } = call;
  const waiting: CallState = {
    ...rest,
    state: call.outcome === undefined ? "waiting_approval" : "waiting_outcome",
    approvalId: record.id,
  };
  return {
    call: by === undefined ? waiting : { ...waiting, askedBy: by.name },
    asked: record,
    events: [...events],
  };
}

/** What becomes of a call that may start: an ability may object. */
type StartedCall = { start: CallState } | { end: ToolOutcome } | { wait: WaitingCall };

/** A call that is about to start, its clock included, as far as no ability objects. */
export function startUnlessObjected(call: CallState, facts: CallFacts): StartedCall {
  const found = firstObjection(call, facts);
  const { askedBy: _askedBy, ...start } = call;
  if (found === undefined) return { start };
  const { by, objection } = found;
  if ("permission" in objection && asksRequesterAlone({ kind: "call", ...objection.permission })) {
    const authority = facts.env.callPolicy.allowedAhead?.(call);
    if (authority !== undefined) {
      return startUnlessObjected({ ...call, askedBy: by.name, authority }, facts);
    }
  }
  const made =
    "permission" in objection
      ? permissionAsked(call, { question: objection.permission, findings: [], by: by.name }, facts)
      : objection;
  return "outcome" in made ? { end: made.outcome } : { wait: waitingFor(call, made.ask, by) };
}

/** A call of an ability that is no tool: the ability decides about it. */
function prepareOwn(
  source: ToolCall,
  calls: OwnCalls,
  facts: { turn: TurnState; env: TurnEnvironment; before: number },
): PreparedCall {
  const { turn, env } = facts;
  const parsed = parseArguments(source.arguments);
  const given: ParseResult<unknown> = parsed.ok ? parsed : { ok: false, error: parsed.problem };
  const use = toolUse(source, parsed.ok ? parsed.value : {});
  const { id, name, arguments: args } = use;
  const call: CallState = { id, name, arguments: args, state: "running", startedAtMs: env.nowMs };
  const repeats = turn.called.repeated[signatureOf(source)] ?? 0;
  const repeated =
    repeats >= maxRepeats && calls.mayRepeat !== true
      ? failure(repeatedTooOften(source.name))
      : undefined;
  const { event: own, ...prepared } = calls.prepare({ call, given, repeated }, facts);
  return { ...prepared, use, events: [], own };
}

function failure(error: string): ToolOutcome {
  return { ok: false, error };
}

function toolUse(source: ToolCall, parsed: Record<string, unknown>): ToolUsePart {
  const use: ToolUsePart = {
    type: "tool_use",
    id: source.id,
    name: storableName(source.name),
    arguments: parsed,
  };
  return source.providerMetadata === undefined
    ? use
    : { ...use, providerMetadata: source.providerMetadata };
}

/** The name in a form that vendors accept in history. */
function storableName(name: string): string {
  const clean = name.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  return clean === "" ? "unnamed_tool" : clean;
}

function notFound(name: string): string {
  return `tool_not_found: there is no tool named ${JSON.stringify(name)}. Use only the tools you were given.`;
}

/** The first call over the limit of a step. It stands for all of them: the step is cut behind it. */
function refusedWithRest(
  source: ToolCall,
  beyond: number,
  { limits, nowMs }: TurnEnvironment,
): PreparedCall {
  const parsed = parseArguments(source.arguments);
  const use = toolUse(source, parsed.ok ? parsed.value : {});
  const { id, name, arguments: args } = use;
  const rest = beyond > 1 ? ` and ${beyond - 1} more of this step, which are left out here,` : "";
  const were = beyond > 1 ? "were" : "was";
  const error = `Too many calls at once: at most ${limits.maxCallsPerStep} are run. This one${rest} ${were} not run.`;
  const call: CallState = { id, name, arguments: args, state: "running", startedAtMs: nowMs };
  return { call, use, outcome: failure(error), events: [] };
}

function repeatedTooOften(name: string): string {
  return (
    `This is the third step in a row that calls ${name} with the same arguments. It was not run: the result would be ` +
    "the same. Use what you have, try something else, or say what you could not do."
  );
}

/** A call that can run, before the policy decides. */
interface Candidate {
  call: CallState;
  use: ToolUsePart;
  tool: OfferedTool;
}

function decided(
  { call, use, tool }: Candidate,
  verdict: Verdict,
  facts: Omit<Preparation, "addressContext">,
): PreparedCall {
  const { env } = facts;
  if (verdict.do === "refuse") {
    return { call, use, outcome: denied(verdict.reason), events: [] };
  }
  const { findings } = verdict;
  const suggestions = suggestionEvents(call, findings);
  if (verdict.do === "ask") {
    const wanted = { question: verdict.question, findings, by: undefined };
    const made = permissionAsked(call, wanted, facts);
    if ("outcome" in made) return { call, use, outcome: made.outcome, events: suggestions };
    const waiting = waitingFor(call, made.ask, undefined);
    return { ...waiting, use, events: [...suggestions, ...waiting.events] };
  }
  const { authority } = verdict;
  const allowed = authority.by === "policy" ? call : { ...call, authority };
  const started = startUnlessObjected(allowed, facts);
  if ("end" in started) return { call: allowed, use, outcome: started.end, events: suggestions };
  if ("wait" in started) {
    return { ...started.wait, use, events: [...suggestions, ...started.wait.events] };
  }
  const answer = abilityOf(call, env.abilities)?.onCall?.(call, facts);
  if (answer !== undefined && "ask" in answer) {
    return { ...waitingFor(call, answer.ask, undefined), use };
  }
  const deadlineMs = deadlineOf(tool.announcement.timeoutMs, env, tool);
  const running = { call: { ...allowed, deadlineMs }, use, events: suggestions };
  return answer === undefined ? running : { ...running, outcome: answer };
}

function denied(reason: string): ToolOutcome {
  const why =
    reason.trim() === "" ? "the policy here does not allow it" : reason.trim().replace(/\.$/, "");
  return denial(`${why}. The call was not run.`);
}

function isAsked({ asked }: PreparedCall): boolean {
  return asked !== undefined;
}

/** Each question may be a card for several people: the model must not flood them. */
function unasked({ call, use }: PreparedCall, { limits }: TurnEnvironment): PreparedCall {
  const { approvalId: _approvalId, askedBy: _askedBy, ...rest } = call;
  const outcome = denied(
    `people are asked about ${limits.maxQuestionsPerStep} calls of a step at most`,
  );
  return { call: { ...rest, state: "running" }, use, outcome, events: [] };
}

/** The `tool_use` event. Arguments that the tool declares secret are masked. */
export function toolUseEvent({ call, use, own }: PreparedCall): EventOf<"tool_use"> {
  const { id, name: toolName, arguments: given, secrets = [] } = call;
  // The event has the arguments itself, secrets masked.
  const { arguments: _given, ...item } = itemOfPart(use) ?? {};
  const input = secrets.length === 0 ? given : maskedArguments(given, secrets);
  const event: EventOf<"tool_use"> = { type: "tool_use", id, toolName, input, ...own };
  if ("id" in item) event.vendorItem = item;
  return event;
}

/** The call with the facts of its tool, copied because the tool may be gone when they are needed. */
function withFacts(call: CallState, { announcement, runner, awayForMs }: OfferedTool): CallState {
  const { effect, timeoutMs, limits, secrets, digest, identity } = announcement;
  const words = wordsOf(announcement, call.arguments);
  return {
    ...call,
    runner,
    effect,
    timeoutMs,
    ...(limits === undefined ? {} : { limited: true }),
    ...(secrets === undefined ? {} : { secrets }),
    ...(words === undefined ? {} : { words }),
    ...(digest === undefined ? {} : { toolDigest: digest }),
    ...(identity === undefined ? {} : { identity }),
    ...(awayForMs === undefined ? {} : { runnerIsAway: true }),
  };
}

/** Longest value of an argument in a summary, and longest summary, in characters. */
const [maxValueChars, maxSentenceChars] = [80, 300];

/** What people read of a call with these arguments; undefined where its tool announces no words. */
function wordsOf(
  { title, summary, secrets = [] }: Pick<ToolAnnouncement, "title" | "summary" | "secrets">,
  given: Record<string, unknown>,
): CallWords | undefined {
  if (title === undefined && summary === undefined) return undefined;
  const shown = maskedArguments(given, secrets);
  const filled = (template: string): string =>
    shortened(
      template.replaceAll(/\{([^{}]{1,100})\}/g, (_, name: string) => valueText(shown[name])),
      maxSentenceChars,
    );
  return {
    ...(title === undefined ? {} : { title }),
    ...(summary === undefined
      ? {}
      : {
          summary:
            typeof summary === "string"
              ? filled(summary)
              : { zh: filled(summary.zh), en: filled(summary.en) },
        }),
  };
}

/** A value in a sentence, "…" where it is cut or absent: people who read that see the arguments unfolded. */
function valueText(value: unknown): string {
  const text =
    typeof value === "string" ? value : value === undefined ? "…" : JSON.stringify(value);
  return oneLine(shortened(text, 4 * maxValueChars), maxValueChars);
}

/**
 * Epoch ms after which a call that is handed out now is answered with a timeout. It may wait in the queue for
 * `toolWaitMs`, or for as long as a runner that is away is believed in.
 */
function deadlineOf(
  timeoutMs: number,
  { limits, nowMs }: Pick<TurnEnvironment, "limits" | "nowMs">,
  tool?: Pick<OfferedTool, "awayForMs">,
): number {
  const waitMs = Math.max(limits.toolWaitMs, tool?.awayForMs ?? 0);
  return nowMs + Math.min(timeoutMs, limits.toolTimeoutMs) + waitMs;
}

/** Events about risky arguments. They do not delay the call. */
function suggestionEvents(
  call: CallState,
  findings: readonly RiskFinding[],
): EventOf<"checkpoint_suggested">[] {
  return findings.map(({ pattern, reason }) => ({
    type: "checkpoint_suggested",
    toolCallId: call.id,
    toolName: call.name,
    input: maskedArguments(call.arguments, call.secrets ?? []),
    riskReason: reason,
    riskPattern: pattern,
  }));
}

/** Names one attempt of a call. */
export function attemptOf({ id, attempt = 1 }: CallState): string {
  return attemptIdOf({ callId: id, attempt });
}

/** The hash that binds a decision to the arguments of this call. */
export function hashOf({ arguments: given }: CallState): string {
  return argumentsHashOf(JSON.stringify(given));
}

/** The call without what it waited for, and without the outcome that people were asked about. */
export function withoutWait({
  approvalId: _approvalId,
  outcome: _outcome,
  ...call
}: CallState): CallState {
  return call;
}

/** Whether the call still waits for its outcome. */
export function isOpen({ state }: CallState): boolean {
  return state !== "done";
}

/** The call as it starts after people were waited for: its clock and its deadline begin now. */
export function startedNow(call: CallState, env: TurnEnvironment): CallState {
  const offered = env.tools.get(call.name);
  const tool = offered?.runner === call.runner ? offered : undefined;
  const { runnerIsAway: _wasAway, handedOutAgainAtMs: _again, ...rest } = withoutWait(call);
  return {
    ...rest,
    ...(tool?.awayForMs === undefined ? {} : { runnerIsAway: true }),
    state: "running",
    startedAtMs: env.nowMs,
    deadlineMs: deadlineOf(call.timeoutMs ?? env.limits.toolTimeoutMs, env, tool),
  };
}

/** The attempt that follows by itself on an outcome which has taken no effect; undefined where the outcome counts. */
export function attemptAfter(
  { outcome, unstarted = false }: OutcomeEntry,
  call: CallState,
  { turn, env }: Pick<CallFacts, "turn" | "env">,
): CallState | undefined {
  const again = unstarted ? handedOutAgain(turn, call, env) : undefined;
  return again ?? withOtherToken(call, outcome, env);
}

/** Most that the clocks of a runner and of a worker may differ, ms. */
const clockSlackMs = 1_000;

/**
 * The next attempt of a call that was not started by its deadline because its runner was away: for the same runner, or
 * for the one that offers the tool by now. The ledger has closed the attempt before, so that one can never start.
 * Undefined when the runner was there all the time, or its tool is not offered any more: then the time-out counts.
 */
function handedOutAgain(
  turn: TurnState,
  call: CallState,
  env: TurnEnvironment,
): CallState | undefined {
  const { nowMs, limits } = env;
  const { startedAtMs = nowMs, handedOutAgainAtMs = startedAtMs, deadlineMs = nowMs } = call;
  const offered = env.tools.get(call.name);
  const isLate = deadlineMs <= nowMs + clockSlackMs;
  // A runner that keeps restarting holds a call no longer than one that stays away.
  if (offered === undefined || !isLate || nowMs - startedAtMs > awayMs) return undefined;
  const { awayForMs, livingSinceMs = 0 } = offered;
  const isTaken = offered.runner !== call.runner;
  // Its instances started after the call: for a time the runner had none.
  const wasAway = isTaken || awayForMs !== undefined || livingSinceMs > handedOutAgainAtMs;
  const next = isTaken ? takenOver(turn, call, { offered, env }) : call;
  if (!wasAway || next === undefined) return undefined;
  const { runnerIsAway: _wasAway, ...rest } = next;
  return {
    ...rest,
    ...(awayForMs === undefined ? {} : { runnerIsAway: true }),
    attempt: (call.attempt ?? 1) + 1,
    handedOutAgainAtMs: nowMs,
    deadlineMs: deadlineOf(next.timeoutMs ?? limits.toolTimeoutMs, env, offered),
  };
}

/**
 * The next attempt of a call whose token the platform has refused before it took any effect: once, because a worker
 * fetches another token for it. Undefined for all other outcomes.
 */
function withOtherToken(
  call: CallState,
  outcome: ToolOutcome,
  env: TurnEnvironment,
): CallState | undefined {
  if (outcome.ok || outcome.grant?.kind !== "token" || call.tokenRefused === true) return undefined;
  const attempt = (call.attempt ?? 1) + 1;
  return { ...startedNow(call, env), attempt, tokenRefused: true };
}

/**
 * The call as one of another runner, which has taken over its tool. Undefined where it was made for another schema or
 * effect, or where it needs more than what has allowed it: the model may call the tool as it is now.
 */
function takenOver(
  turn: TurnState,
  call: CallState,
  { offered, env }: { offered: OfferedTool; env: TurnEnvironment },
): CallState | undefined {
  const { toolDigest, limited: _limited, secrets = [], authority, ...rest } = call;
  const { digest, identity, secrets: itsSecrets = [] } = offered.announcement;
  if (toolDigest === undefined || toolDigest !== digest) return undefined;
  if (!isDeepStrictEqual(identity, call.identity)) return undefined;
  const addressContext = addressContextOf(env.history ?? [], turn.message, readsOthers(env));
  const verdict = env.callPolicy.verdict({
    name: call.name,
    arguments: call.arguments,
    addressContext,
  });
  const isApproved = authority?.by === "approval";
  if (verdict.do === "refuse" || (verdict.do === "ask" && !isApproved)) return undefined;
  const allowed = verdict.do === "ask" || isApproved ? authority : verdict.authority;
  const hidden = [...new Set([...secrets, ...itsSecrets])];
  return {
    ...withFacts(rest, offered),
    ...(hidden.length === 0 ? {} : { secrets: hidden }),
    ...(allowed === undefined || allowed.by === "policy" ? {} : { authority: allowed }),
  };
}

/** The next attempt of a call that people let run again. Each ability may object to it. */
export function retried(
  { askedBy: _askedBy, ...call }: CallState,
  env: TurnEnvironment,
): CallState {
  return { ...startedNow(call, env), attempt: (call.attempt ?? 1) + 1 };
}

/** What every vendor accepts as the id of a call. */
const acceptedId = /^[A-Za-z0-9_-]{1,40}$/;

/**
 * One id per call, in order: the model's own where it can be used, otherwise a new one. No id is
 * in `taken` or given twice. Deterministic, so a repeated step gets the same ids.
 */
export function uniqueCallIds(
  calls: readonly ToolCall[],
  place: { turnId: string; step: number },
  taken: ReadonlySet<string>,
): string[] {
  const given = new Set(taken);
  return calls.map(({ id }, index) => {
    let unique =
      acceptedId.test(id) && !given.has(id)
        ? id
        : `call_${turnNumberOf(place.turnId)}_${place.step}_${index}`;
    while (given.has(unique)) unique += "x";
    given.add(unique);
    return unique;
  });
}

// The arguments of a call, as the model has written them.

/** The parsed arguments of a call. With a `problem` the call does not run, and the model reads the problem. */
type ParsedArguments =
  | { ok: true; value: Record<string, unknown> }
  | { ok: false; problem: string };

/** Empty text counts as `{}`; anything else must be the JSON text of an object. */
export function parseArguments(text: string): ParsedArguments {
  if (text.trim() === "") return { ok: true, value: {} };
  let value: unknown;
  try {
    value = JSON.parse(text);
    // Some open models encode them twice.
    if (typeof value === "string" && value.trimStart().startsWith("{")) value = JSON.parse(value);
  } catch {
    return { ok: false, problem: "The arguments are not valid JSON. The tool was not run." };
  }
  if (!isObject(value)) {
    return { ok: false, problem: "The arguments must be a JSON object. The tool was not run." };
  }
  return isTooDeep(value)
    ? { ok: false, problem: "The arguments are nested too deeply. The tool was not run." }
    : { ok: true, value };
}

/** Depth to which arguments are searched for text that stands for another value. */
const coercedDepth = 10;

/**
 * Arguments with each text that is one other value in JSON as that value, where the schema allows no text: some open
 * models write `"5"` for a number and a list as its JSON. The same object where nothing is another.
 */
export function coercedArguments(
  given: Record<string, unknown>,
  schema: Readonly<Record<string, unknown>>,
  depth = 0,
): Record<string, unknown> {
  const { properties } = schema;
  if (depth > coercedDepth || !isObject(properties)) return given;
  let coerced = given;
  for (const [name, value] of Object.entries(given)) {
    const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
    const fitted = isObject(own) ? coercedValue(value, own, depth) : value;
    if (fitted !== value) coerced = { ...coerced, [name]: fitted };
  }
  return coerced;
}

function coercedValue(value: unknown, schema: Record<string, unknown>, depth: number): unknown {
  if (isObject(value)) return coercedArguments(value, schema, depth + 1);
  if (Array.isArray(value)) {
    const { items } = schema;
    if (!isObject(items) || depth > coercedDepth) return value;
    const fitted = value.map((one: unknown) => coercedValue(one, items, depth + 1));
    return fitted.every((one, at) => one === value[at]) ? value : fitted;
  }
  const { type } = schema;
  if (typeof value !== "string" || typeof type !== "string" || type === "string") return value;
  try {
    const read: unknown = JSON.parse(value);
    return isOfType(read, type) ? read : value;
  } catch {
    return value;
  }
}

function isOfType(value: unknown, type: string): boolean {
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  if (type === "null") return value === null;
  if (type === "integer") return Number.isSafeInteger(value);
  return type === "number" ? Number.isFinite(value) : typeof value === type;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Deeper values cannot be written as JSON again: that is recursive. */
const maxDepth = 200;

function isTooDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((one) =>
      typeof one === "object" && one !== null ? Object.values(one) : [],
    );
  }
  return false;
}

/** Identifies a call by tool and arguments. */
export function signatureOf({
  name,
  arguments: text,
}: Pick<ToolCall, "name" | "arguments">): string {
  const parsed = parseArguments(text);
  return `${name} ${argumentsHashOf(parsed.ok ? JSON.stringify(parsed.value) : text)}`;
}

// The result of a call: what is kept of it, and what models and people read.

/** Sets the outcome of a call, cut to `maxChars` characters plus a marker, and returns its event. */
export function answered(
  call: CallState,
  given: ToolOutcome,
  maxChars: number,
): { call: CallState; outcome: ToolOutcome; event: EventOf<"tool_result"> } {
  const { outcome, truncated } = bounded(given, maxChars);
  const event: EventOf<"tool_result"> = {
    type: "tool_result",
    id: call.id,
    toolName: call.name,
    output: resultText(outcome),
    isError: !outcome.ok,
    truncated,
    storedPath: outcome.ok && outcome.stored !== undefined ? outcome.stored.handle : "",
    code: outcome.ok ? "" : codeOf(outcome),
  };
  if (outcome.ok && !truncated) event.result = outcome.result;
  const { input: _input, ...rest } = withoutWait(call);
  return { call: { ...rest, state: "done", outcome }, outcome, event };
}

/** The code of a failed call whose text names none. */
const otherCode = "tool_execution_error";

const deniedCode = "permission_denied";

const maxResultChars = 20;

/** What a result is, for display, in 20 characters: the value itself where it fits, else kind and size. */
export function resultSummary(outcome: ToolOutcome, language: ReplyLanguage): string {
  const { summaries } = textsOf(language);
  const text = outcomeText(outcome);
  if (!outcome.ok) return summaries.error(text.length);
  const { result, stored } = outcome;
  const isEmpty = text.trim() === "";
  if (!isEmpty && text.length <= maxResultChars && text === oneLine(text, maxResultChars)) {
    return text;
  }
  if (stored !== undefined) return summaries.text(stored.characters);
  if (typeof result === "object" && result !== null) {
    return summaries.json(Object.keys(result).length);
  }
  return summaries.text(text.length);
}

/** An outcome that fits its share. */
interface Bounded {
  outcome: ToolOutcome;
  truncated: boolean;
}

/** What is kept of an outcome: a value JSON can hold, cut to size. */
function bounded(outcome: ToolOutcome, maxChars: number): Bounded {
  const text = outcomeText(outcome);
  if (outcome.ok && outcome.stored !== undefined) {
    return boundedStored(text, outcome.stored, maxChars);
  }
  const truncated = text.length > maxChars;
  if (!outcome.ok) {
    return {
      outcome: truncated ? { ...outcome, error: capped(text, maxChars) } : outcome,
      truncated,
    };
  }
  return {
    outcome: { ok: true, result: truncated ? capped(text, maxChars) : (outcome.result ?? null) },
    truncated,
  };
}

/** Characters by which a stored result may exceed its share: its text ends with how to read the rest. */
const hintChars = 400;

/** A text that is kept elsewhere as a whole: what the model gets names its handle. */
function boundedStored(text: string, stored: StoredResult, maxChars: number): Bounded {
  const fits = text.length < stored.characters && text.length <= maxChars + hintChars;
  const result = fits ? text : shortenedResult(text, stored, maxChars);
  return { outcome: { ok: true, result, stored }, truncated: true };
}

function capped(text: string, maxChars: number): string {
  return `${textHead(text, maxChars)}\n[Result cut off: only the first ${maxChars} of ${text.length} characters are shown.]`;
}

const unknownAdvice =
  "It is not known whether this call took effect. Do not repeat it; tell the user that its effect must be checked.";

/** What the model reads as the result of a call: the text of a failed one begins with its code. */
export function resultText(outcome: ToolOutcome): string {
  const text = plainResultText(outcome);
  if (outcome.ok) return text;
  const code = codeOf(outcome);
  return code === resultCodeIn(text) ? text : `${code}: ${text}`;
}

/**
 * The code of a failed call: a refusal is a fact of the outcome; all others have the code with which the text of the
 * tool begins.
 */
function codeOf({ error, denied: isDenied }: FailedOutcome): string {
  if (isDenied === true) return deniedCode;
  const code = resultCodeIn(error);
  return code === undefined || code === deniedCode ? otherCode : code;
}

type FailedOutcome = ToolOutcome & { ok: false };

/** The same for people, to whom the code of a tool's own failure says nothing. */
export function plainResultText(outcome: ToolOutcome): string {
  const text = outcomeText(outcome);
  return !outcome.ok && outcome.unknown === true ? `${text}\n${unknownAdvice}` : text;
}
