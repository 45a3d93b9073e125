import { createAccumulator, deltaEventOf, modelMessagesOf, type StepResult } from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import type { EngineEvent, Message, ToolSpec } from "@larkline/protocol";

export interface ModelStep {
  chain: ModelChain;
  system: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
  signal: AbortSignal;
  /** Told what the model says while it says it. */
  onEvent: (event: EngineEvent) => void;
}

/** Runs one model step to its end. Undefined when the signal broke it off. */
export async function runModelStep(step: ModelStep): Promise<StepResult | undefined> {
  const accumulator = createAccumulator();
  const request = {
    messages: modelMessagesOf(step.history),
    tools: step.tools,
    system: step.system,
  };
  for await (const chunk of step.chain.stream(request, step.signal)) {
    accumulator.push(chunk);
    const event = deltaEventOf(chunk);
    if (event !== undefined) step.onEvent(event);
  }
  return step.signal.aborted ? undefined : accumulator.result();
}
