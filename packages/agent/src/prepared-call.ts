import type { CallState, EventOf, ToolAnnouncement, ToolCall, ToolOutcome, ToolUsePart } from "@larkline/protocol";
import { parseArguments } from "./tool-arguments.ts";
import type { TurnLimits } from "./turn-limits.ts";

/** A tool that can be called now, and the runner that offers it. */
export interface OfferedTool {
  runner: string;
  announcement: ToolAnnouncement;
}

/** A call of the model under the id it is stored with. `refusal` is set when it must not run. */
export interface PreparedCall {
  call: CallState;
  use: ToolUsePart;
  refusal?: ToolOutcome;
}

/** What decides whether a call runs, and how long it may take. */
export interface CallRules {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
}

/** A name vendors accept back in history, whatever the model made up. */
function storableName(name: string): string {
  const clean = name.replaceAll(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  return clean === "" ? "unnamed_tool" : clean;
}

/** Why a call of a known tool must not run. */
function refusalOf({ announcement }: OfferedTool, position: number, { limits }: CallRules): string | undefined {
  if (position >= limits.maxCallsPerStep) {
    return `Too many calls at once: at most ${limits.maxCallsPerStep} are run. This one was not run.`;
  }
  return announcement.requiresApproval
    ? "permission_denied: this tool needs the approval of a person, and approvals are not available here. It was not run."
    : undefined;
}

function notFound(name: string): string {
  return `tool_not_found: there is no tool named ${JSON.stringify(name)}. Use only the tools you were given.`;
}

function toolUse(source: ToolCall, parsed: Record<string, unknown>): ToolUsePart {
  const use: ToolUsePart = { type: "tool_use", id: source.id, name: storableName(source.name), arguments: parsed };
  return source.providerMetadata === undefined ? use : { ...use, providerMetadata: source.providerMetadata };
}

function prepare(source: ToolCall, position: number, rules: CallRules): PreparedCall {
  const tool = rules.tools.get(source.name);
  const parsed = parseArguments(source.arguments);
  const use = toolUse(source, parsed.ok ? parsed.value : {});
  const call: CallState = {
    id: use.id,
    name: use.name,
    arguments: use.arguments,
    state: "running",
    startedAtMs: rules.nowMs,
  };
  const refuse = (error: string): PreparedCall => ({ call, use, refusal: { ok: false, error } });
  if (tool === undefined) return refuse(notFound(source.name));
  const refusal = refusalOf(tool, position, rules);
  if (refusal !== undefined) return refuse(refusal);
  if (!parsed.ok) return refuse(parsed.problem);
  const { effect, timeoutMs, limits } = tool.announcement;
  const deadlineMs = rules.nowMs + Math.min(timeoutMs, rules.limits.toolTimeoutMs) + rules.limits.toolWaitMs;
  const limited = limits === undefined ? {} : { limited: true };
  return { call: { ...call, deadlineMs, runner: tool.runner, effect, ...limited }, use };
}

/**
 * Tells the calls of a step that run from those that are answered at once: unknown tools,
 * arguments that are no JSON object, tools that need an approval, calls over the limit.
 */
export function prepareCalls(calls: readonly ToolCall[], ids: readonly string[], rules: CallRules): PreparedCall[] {
  return calls.map((source, position) => prepare({ ...source, id: ids[position] ?? source.id }, position, rules));
}

/** The event of the model's wish to call a tool. */
export function toolUseEvent({ call }: PreparedCall): EventOf<"tool_use"> {
  return { type: "tool_use", id: call.id, toolName: call.name, input: call.arguments };
}
