import {
  withoutImageMarks,
  type CallState,
  type CallTiming,
  type ShownSoFar,
  type ShownTool,
  type ToolOutcome,
  type TurnState,
} from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import { resultText } from "./call-outcome.ts";
import { joinedTexts, textHead, textTail } from "./text-cut.ts";

const maxThinkingChars = 2_000;
const maxOutputChars = 500;
const maxTools = 20;

const nothing: ShownSoFar = { text: "", thinking: "", tools: [], earlierTools: 0 };

/** What the person has seen of the finished steps of a turn; checkpoints of an earlier version lack it. */
export function shownOf({ shown }: TurnState): ShownSoFar {
  return shown ?? nothing;
}

/** The end of all thinking, as much as is shown. */
export function shownThinking(earlier: string, more: string): string {
  return textTail(joinedTexts(earlier, more), maxThinkingChars);
}

/** The turn with more text shown. */
export function withText(turn: TurnState, text: string): TurnState {
  const shown = shownOf(turn);
  return { ...turn, shown: { ...shown, text: joinedTexts(shown.text, text) } };
}

/** Takes back the text that {@link withText} added last, for an ending whose reply repeats it. */
export function withoutText(turn: TurnState, text: string): TurnState {
  const shown = shownOf(turn);
  if (text.trim() === "" || !shown.text.endsWith(text)) return turn;
  const before = shown.text.slice(0, -text.length);
  return { ...turn, shown: { ...shown, text: before.endsWith("\n\n") ? before.slice(0, -2) : "" } };
}

/** The turn with what a finished step thought. */
export function withThinking(turn: TurnState, { parts }: Pick<StepResult, "parts">): TurnState {
  const shown = shownOf(turn);
  const thinking = parts.reduce(
    (all, { type, text }) => (type === "thinking" ? shownThinking(all, text) : all),
    shown.thinking,
  );
  return { ...turn, shown: { ...shown, thinking } };
}

/** When a call ended, and how. */
export interface EndedFacts {
  nowMs: number;
  stopped: boolean;
  timing?: CallTiming | undefined;
}

/** How long it took; nothing of a call that ended while it waited for people. */
function durationOf(call: CallState, { nowMs, timing }: EndedFacts): Pick<ShownTool, "elapsedMs" | "queuedMs"> {
  if (call.state !== "running") return {};
  const elapsedMs = Math.max(0, nowMs - (call.startedAtMs ?? nowMs));
  return timing === undefined ? { elapsedMs } : { elapsedMs, queuedMs: Math.min(elapsedMs, timing.queuedMs) };
}

/** A call that has ended, as the person sees it. */
export function endedTool(call: CallState, outcome: ToolOutcome, facts: EndedFacts): ShownTool {
  const ended = outcome.ok ? "done" : "failed";
  return {
    id: call.id,
    name: call.name,
    state: facts.stopped && call.state !== "waiting_approval" ? "stopped" : ended,
    startedAtMs: call.startedAtMs ?? facts.nowMs,
    ...durationOf(call, facts),
    output: textHead(withoutImageMarks(resultText(outcome)), maxOutputChars),
  };
}

/** What is shown, with calls that have just ended; the oldest are only counted. */
export function withTools(shown: ShownSoFar, ended: readonly ShownTool[]): ShownSoFar {
  const tools = [...shown.tools, ...ended];
  const dropped = Math.max(0, tools.length - maxTools);
  return { ...shown, tools: tools.slice(dropped), earlierTools: shown.earlierTools + dropped };
}

/** All shown calls: those of earlier rounds, then those of the open round in the order of the model. */
export function toolsNow(turn: TurnState, nowMs: number): ShownTool[] {
  const { tools } = shownOf(turn);
  const ofRound = new Set(turn.calls.map(({ id }) => id));
  const round = turn.calls.flatMap((call): ShownTool[] => {
    const ended = tools.find(({ id }) => id === call.id);
    if (ended !== undefined) return [ended];
    if (call.state === "done") return [];
    const state = call.state === "running" ? "running" : "waiting";
    const isAway = state === "running" && call.runnerIsAway === true;
    const startedAtMs = call.startedAtMs ?? nowMs;
    return [{ id: call.id, name: call.name, state, ...(isAway ? { isAway } : {}), startedAtMs }];
  });
  return [...tools.filter(({ id }) => !ofRound.has(id)), ...round];
}
