import {
  compactionRequest,
  createAccumulator,
  deltaEventOf,
  modelMessagesOf,
  type CompactionPlan,
  type StepResult,
} from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import type { EngineEvent, Message, ReplyLanguage, ToolSpec } from "@larkline/protocol";

/** Puts stored content in place of references to it; what is gone is said to be gone. */
export type HistoryReader = (history: readonly Message[]) => Promise<readonly Message[]>;

export interface ModelStep {
  chain: ModelChain;
  system: string;
  history: readonly Message[];
  read: HistoryReader;
  tools: readonly ToolSpec[];
  signal: AbortSignal;
  /** Told what the model says while it says it. */
  onEvent: (event: EngineEvent) => void;
}

/** Runs one model step to its end. Undefined when the signal broke it off. */
export async function runModelStep(step: ModelStep): Promise<StepResult | undefined> {
  const accumulator = createAccumulator();
  const request = {
    messages: await step.read(modelMessagesOf(step.history)),
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

export interface Summary {
  chain: ModelChain;
  plan: CompactionPlan;
  language: ReplyLanguage;
  /** Puts what a summary is made from in place of references. */
  read: HistoryReader;
  signal: AbortSignal;
}

/** Asks a model for what is to stand for the older part of a conversation. */
export async function summarise({ chain, plan, language, read, signal }: Summary): Promise<StepResult | undefined> {
  const { system, messages } = compactionRequest(await read(plan.older), language);
  return await runModelStep({
    chain,
    system,
    history: messages,
    read: async (history) => history,
    tools: [],
    signal,
    onEvent: () => undefined,
  });
}
