import type { EngineEvent, EventOf, ModelWarning, OpenStep, StepUse, TurnState } from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import type { TurnEnvironment, TurnModel } from "./turn-environment.ts";
import { addUse, allTokens, noUse, stepUse } from "./used-tokens.ts";

/** The event that opens the model step after `steps` finished ones. */
export function stepStart(steps: number, { info }: TurnModel): EventOf<"turn_start"> {
  return { type: "turn_start", turnNumber: steps + 1, model: info.id, contextWindowTokens: info.contextWindow };
}

/** The event that voids the deltas of the model step after `steps` finished ones: it is asked again. */
export function stepRestart(steps: number, { info }: TurnModel, reason: string): EventOf<"step_restarted"> {
  return { type: "step_restarted", turnNumber: steps + 1, model: info.id, reason };
}

/** The event that closes model step number `steps`, after its tools. */
export function stepEnd(steps: number, { text: _text, ...numbers }: OpenStep): EventOf<"turn_end"> {
  return { type: "turn_end", turnNumber: steps, ...numbers };
}

/** What a step used, what it had used before it was put off included. Steps without usage count as zero. */
export function measured(step: StepResult, turn: TurnState, { model }: Pick<TurnEnvironment, "model">): OpenStep {
  const nothing = { system: "", history: [], tools: [] };
  const use = step.use ?? stepUse({ ...step, parts: [], toolCalls: [] }, nothing, model);
  const all = turn.putOff === undefined ? use : addUse(turn.putOff.used, use);
  return {
    text: step.text,
    ...all,
    maxTokens: step.maxTokens ?? model.info.maxOutputTokens,
    model: step.model ?? model.info.id,
    responseId: step.responseId ?? null,
  };
}

/** A step that ended without an answer but has used something: it is counted like any other. */
export function withUnanswered(
  turn: TurnState,
  used: { text: string; use?: StepUse | undefined; step?: Partial<StepResult> },
  { model }: Pick<TurnEnvironment, "model">,
): { turn: TurnState; events: EngineEvent[] } {
  const use = addUse(turn.putOff?.used ?? noUse, used.use ?? noUse);
  if (allTokens(use) === 0) return { turn, events: [] };
  const maxTokens = used.step?.maxTokens ?? model.info.maxOutputTokens;
  const asked = used.step?.model ?? model.info.id;
  const numbers = { text: used.text, ...use, maxTokens, model: asked, responseId: null };
  const next = counted(turn, numbers);
  return { turn: next, events: [stepEnd(next.steps, numbers)] };
}

/** The turn with one more finished step. */
export function counted({ putOff: _putOff, needs: _needs, ...turn }: TurnState, step: OpenStep): TurnState {
  const { inputTokens, outputTokens, costUsd, cacheReadTokens = 0, cacheCreationTokens = 0 } = turn.totals;
  return {
    ...turn,
    steps: turn.steps + 1,
    totals: {
      inputTokens: inputTokens + step.inputTokens,
      outputTokens: outputTokens + step.outputTokens,
      cacheReadTokens: cacheReadTokens + (step.cacheReadTokens ?? 0),
      cacheCreationTokens: cacheCreationTokens + (step.cacheCreationTokens ?? 0),
      costUsd: costUsd + step.costUsd,
    },
  };
}

/** The event of a warning of the model stream. */
export function warningEvent({ code, message }: ModelWarning): EventOf<"warning"> {
  return { type: "warning", code, message, detail: "" };
}

/** Warnings and complete blocks of a step, in order. */
export function blockEvents(step: StepResult): EngineEvent[] {
  const warnings = step.warnings.map(warningEvent);
  const blocks = step.parts.filter(({ text }) => text !== "").map(({ type, text }): EngineEvent => ({ type, text }));
  return [...warnings, ...blocks];
}
