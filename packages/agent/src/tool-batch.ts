import {
  toolResultPart,
  type CallState,
  type EngineEvent,
  type Message,
  type ToolAnnouncement,
  type ToolCall,
  type ToolOutcome,
  type ToolUsePart,
} from "@larkline/protocol";
import { resultText } from "./call-outcome.ts";
import { parseArguments } from "./tool-arguments.ts";
import type { TurnLimits } from "./turn-limits.ts";

/** A tool that can be called now, and the runner that offers it. */
export interface OfferedTool {
  runner: string;
  announcement: ToolAnnouncement;
}

/** A call of the model with the id it is stored under. `outcome` is set when it must not run. */
export interface PreparedCall {
  call: CallState;
  use: ToolUsePart;
  outcome?: ToolOutcome;
}

interface BatchRules {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
}

function refused(error: string): ToolOutcome {
  return { ok: false, error };
}

/** A name vendors accept back in history, whatever the model made up. */
function storableName(name: string): string {
  const clean = name.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  return clean === "" ? "unnamed_tool" : clean;
}

/** Why the call must not run; undefined when it may. */
function refusalOf(
  name: string,
  tool: OfferedTool | undefined,
  position: number,
  limits: TurnLimits,
): string | undefined {
  if (tool === undefined)
    return `tool_not_found: there is no tool named ${JSON.stringify(name)}. Use only the tools you were given.`;
  if (position >= limits.maxCallsPerStep) {
    return `Too many calls at once: at most ${limits.maxCallsPerStep} are run. This one was not run.`;
  }
  return tool.announcement.requiresApproval
    ? "permission_denied: this tool needs the approval of a person, and approvals are not available here. It was not run."
    : undefined;
}

function prepare(source: ToolCall & { position: number }, rules: BatchRules): PreparedCall {
  const tool = rules.tools.get(source.name);
  const parsed = parseArguments(source.arguments);
  const use: ToolUsePart = {
    type: "tool_use",
    id: source.id,
    name: storableName(source.name),
    arguments: parsed.ok ? parsed.value : {},
  };
  if (source.providerMetadata !== undefined) use.providerMetadata = source.providerMetadata;
  const call: CallState = { id: use.id, name: use.name, arguments: use.arguments, state: "running" };
  const refusal =
    refusalOf(source.name, tool, source.position, rules.limits) ?? (parsed.ok ? undefined : parsed.problem);
  if (refusal !== undefined || tool === undefined) return { call, use, outcome: refused(refusal ?? "tool_not_found") };
  const runMs = Math.min(tool.announcement.timeoutMs, rules.limits.toolTimeoutMs);
  return { call: { ...call, deadlineMs: rules.nowMs + runMs + rules.limits.toolWaitMs }, use };
}

/**
 * Turns the calls of a step into calls that run and calls that are answered at once: unknown tools,
 * arguments that are no JSON object, tools that need an approval, calls over the limit.
 */
export function prepareCalls(calls: readonly ToolCall[], ids: readonly string[], rules: BatchRules): PreparedCall[] {
  return calls.map((source, position) => prepare({ ...source, id: ids[position] ?? source.id, position }, rules));
}

/** Whether the call still waits for its outcome. */
export function isOpen(call: CallState): boolean {
  return call.state !== "done";
}

/** Calls a runner should be working on. */
export function callsToDispatch(calls: readonly CallState[]): CallState[] {
  return calls.filter(({ state }) => state === "running");
}

/** The one message that answers a batch, in call order. Every call must be done. */
export function resultsMessage(calls: readonly CallState[]): Message {
  const content = calls.map(({ id, outcome = refused("The call was not answered.") }) =>
    toolResultPart(id, resultText(outcome), !outcome.ok),
  );
  return { role: "tool", content };
}

/** Events of the model's wish to call tools. */
export function toolUseEvents(prepared: readonly PreparedCall[]): EngineEvent[] {
  return prepared.map(({ call }) => ({ type: "tool_use", id: call.id, toolName: call.name, input: call.arguments }));
}
