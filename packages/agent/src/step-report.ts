import type { EngineEvent, EventOf, ModelWarning, OpenStep, TurnState } from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import type { TurnEnvironment, TurnModel } from "./turn-environment.ts";

/** The event that opens the model step after `steps` finished ones. */
export function stepStart(steps: number, { info }: TurnModel): EventOf<"turn_start"> {
  return { type: "turn_start", turnNumber: steps + 1, model: info.id, contextWindowTokens: info.contextWindow };
}

/** The event that closes model step number `steps`, after its tools. */
export function stepEnd(steps: number, { text: _text, ...numbers }: OpenStep): EventOf<"turn_end"> {
  return { type: "turn_end", turnNumber: steps, ...numbers };
}

/** What a step used. Steps without usage count as zero. */
export function measured(step: StepResult, { model }: TurnEnvironment): OpenStep {
  const { usage } = step;
  return {
    text: step.text,
    inputTokens: usage?.inputTokens ?? 0,
    outputTokens: usage?.outputTokens ?? 0,
    costUsd: usage === null ? 0 : model.costUsd(usage, step.model),
    maxTokens: model.info.maxOutputTokens,
  };
}

/** The turn with one more finished step. */
export function counted(turn: TurnState, step: OpenStep): TurnState {
  return {
    ...turn,
    steps: turn.steps + 1,
    totals: {
      inputTokens: turn.totals.inputTokens + step.inputTokens,
      outputTokens: turn.totals.outputTokens + step.outputTokens,
      costUsd: turn.totals.costUsd + step.costUsd,
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
