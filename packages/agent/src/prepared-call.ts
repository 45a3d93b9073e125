import {
  argumentsHashOf,
  type Approval,
  type CallState,
  type EngineEvent,
  type EventOf,
  type ToolAnnouncement,
  type ToolCall,
  type ToolOutcome,
  type ToolUsePart,
  type TurnState,
} from "@larkline/protocol";
import { maskedArguments, type Heard, type Verdict } from "./permissions/index.ts";
import { approvalOf, requestEvents, suggestionEvents } from "./call-approval.ts";
import { parseArguments } from "./tool-arguments.ts";
import type { TurnEnvironment } from "./turn-environment.ts";
import { heardIn } from "./user-message.ts";
import type { TurnLimits } from "./turn-limits.ts";

/** A tool that can be called now, and the runner that offers it. */
export interface OfferedTool {
  runner: string;
  announcement: ToolAnnouncement;
  /** The runner has no living instance, and is believed to come back within so many ms: a call waits as long. */
  awayForMs?: number;
  /** Epoch ms since when the runner has living instances. */
  livingSinceMs?: number;
}

/** A call of the model under the id it is stored with. `refusal` is set when it must not run. */
export interface PreparedCall {
  call: CallState;
  use: ToolUsePart;
  refusal?: ToolOutcome;
  /** The question that it waits for. */
  approval?: Approval;
  /** What followers learn besides the call itself. */
  events: EngineEvent[];
}

/** A name vendors accept back in history, whatever the model made up. */
function storableName(name: string): string {
  const clean = name.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  return clean === "" ? "unnamed_tool" : clean;
}

/** Steps in a row that may make the same call; the next one is not run, unless its tool is there to be polled. */
const maxRepeats = 2;

/** Names a call by what it would do. */
export function signatureOf({ name, arguments: text }: Pick<ToolCall, "name" | "arguments">): string {
  const parsed = parseArguments(text);
  return `${name} ${argumentsHashOf(parsed.ok ? JSON.stringify(parsed.value) : text)}`;
}

function notFound(name: string): string {
  return `tool_not_found: there is no tool named ${JSON.stringify(name)}. Use only the tools you were given.`;
}

function repeatedTooOften(name: string): string {
  return (
    `This is the third step in a row that calls ${name} with the same arguments. It was not run: the result would be ` +
    "the same. Use what you have, try something else, or say what you could not do."
  );
}

function tooMany({ maxCallsPerStep }: TurnLimits): string {
  return `Too many calls at once: at most ${maxCallsPerStep} are run. This one was not run.`;
}

function denied(reason: string): string {
  const why = reason.trim() === "" ? "the policy here does not allow it" : reason.trim().replace(/\.$/, "");
  return `permission_denied: ${why}. The call was not run.`;
}

function noMoreQuestions(denials: number): string {
  const why = `people have rejected ${denials} calls of this turn, so nobody is asked any more`;
  return `${denied(why)} Do not try other ways to the same end: say what you could not do.`;
}

function toolUse(source: ToolCall, parsed: Record<string, unknown>): ToolUsePart {
  const use: ToolUsePart = { type: "tool_use", id: source.id, name: storableName(source.name), arguments: parsed };
  return source.providerMetadata === undefined ? use : { ...use, providerMetadata: source.providerMetadata };
}

/**
 * Epoch ms after which a call that is handed out now is answered with a timeout. It may wait in the queue for
 * `toolWaitMs`, or for as long as a runner that is away is believed in.
 */
export function deadlineOf(
  timeoutMs: number,
  { limits, nowMs }: Pick<TurnEnvironment, "limits" | "nowMs">,
  tool?: Pick<OfferedTool, "awayForMs">,
): number {
  const waitMs = Math.max(limits.toolWaitMs, tool?.awayForMs ?? 0);
  return nowMs + Math.min(timeoutMs, limits.toolTimeoutMs) + waitMs;
}

/** The call with what its tool says of it; that must hold when the tool is gone. */
export function withFacts(call: CallState, { announcement, runner, awayForMs }: OfferedTool): CallState {
  const { effect, timeoutMs, limits, secrets, digest } = announcement;
  return {
    ...call,
    runner,
    effect,
    timeoutMs,
    ...(limits === undefined ? {} : { limited: true }),
    ...(secrets === undefined ? {} : { secrets }),
    ...(digest === undefined ? {} : { toolDigest: digest }),
    ...(awayForMs === undefined ? {} : { runnerIsAway: true }),
  };
}

/** A call that can run, on its way to the judge. */
interface Candidate {
  call: CallState;
  use: ToolUsePart;
  tool: OfferedTool;
}

function judged({ call, use, tool }: Candidate, verdict: Verdict, { turn, env }: Preparation): PreparedCall {
  const { denials = 0 } = turn;
  const suggestions = suggestionEvents(call, verdict.findings);
  const refuse = (error: string): PreparedCall => ({ call, use, refusal: { ok: false, error }, events: [] });
  switch (verdict.do) {
    case "refuse":
      return refuse(denied(verdict.reason));
    case "run": {
      const { authority } = verdict;
      const deadlineMs = deadlineOf(tool.announcement.timeoutMs, env, tool);
      const allowed = authority.by === "policy" ? call : { ...call, authority };
      return { call: { ...allowed, deadlineMs }, use, events: suggestions };
    }
    case "ask": {
      if (denials >= env.limits.maxDenials) return refuse(noMoreQuestions(denials));
      const { question, findings } = verdict;
      const approval = approvalOf(turn, { kind: "call", call, question, findings }, env);
      const waiting: CallState = { ...call, state: "waiting_approval", approvalId: approval.id };
      const requested = requestEvents(approval, tool.announcement.requiresApproval);
      return { call: waiting, use, approval, events: [...suggestions, ...requested] };
    }
  }
}

/** What preparing depends on. */
export interface Preparation {
  turn: TurnState;
  env: TurnEnvironment;
  /** Of the conversation: the same for all calls of a step. */
  heard: Heard;
}

function prepare(source: ToolCall, position: number, preparation: Preparation): PreparedCall {
  const { nowMs, limits, tools, judge } = preparation.env;
  const tool = tools.get(source.name);
  const parsed = parseArguments(source.arguments);
  const use = toolUse(source, parsed.ok ? parsed.value : {});
  const { id, name, arguments: given } = use;
  const wanted: CallState = { id, name, arguments: given, state: "running", startedAtMs: nowMs };
  const call = tool === undefined ? wanted : withFacts(wanted, tool);
  const refuse = (error: string): PreparedCall => ({ call, use, refusal: { ok: false, error }, events: [] });
  if (tool === undefined) return refuse(notFound(source.name));
  if (position >= limits.maxCallsPerStep) return refuse(tooMany(limits));
  if (!parsed.ok) return refuse(parsed.problem);
  const repeats = preparation.turn.repeated?.[signatureOf(source)] ?? 0;
  if (repeats >= maxRepeats && tool.announcement.poll !== true) return refuse(repeatedTooOften(source.name));
  const verdict = judge.verdict({ name: source.name, arguments: given, heard: preparation.heard });
  return judged({ call, use, tool }, verdict, preparation);
}

/**
 * Tells the calls of a step that run from those that people are asked about and those that are
 * answered at once: unknown tools, arguments that are no JSON object, calls that the policy refuses
 * or that are over a limit.
 */
export function prepareCalls(
  calls: readonly ToolCall[],
  ids: readonly string[],
  { turn, env }: Omit<Preparation, "heard">,
): PreparedCall[] {
  const heard = heardIn(env.history ?? [], turn.message);
  const prepared = calls.map((source, position) =>
    prepare({ ...source, id: ids[position] ?? source.id }, position, { turn, env, heard }),
  );
  const allowed = new Set(prepared.filter(isAsked).slice(0, env.limits.maxQuestionsPerStep));
  return prepared.map((each) => (isAsked(each) && !allowed.has(each) ? unasked(each, env) : each));
}

function isAsked({ approval }: PreparedCall): boolean {
  return approval !== undefined;
}

/** Each question is a card for several people: a model must not be able to flood them. */
function unasked({ call, use }: PreparedCall, { limits }: TurnEnvironment): PreparedCall {
  const { approvalId: _approvalId, ...rest } = call;
  const error = denied(`people are asked about ${limits.maxQuestionsPerStep} calls of a step at most`);
  return { call: { ...rest, state: "running" }, use, refusal: { ok: false, error }, events: [] };
}

/** The event of the model's wish to call a tool. Followers do not see what the tool calls secret. */
export function toolUseEvent({ call }: PreparedCall): EventOf<"tool_use"> {
  const { id, name: toolName, arguments: given, secrets = [] } = call;
  return { type: "tool_use", id, toolName, input: secrets.length === 0 ? given : maskedArguments(given, secrets) };
}
