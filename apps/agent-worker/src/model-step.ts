import {
  compactionRequest,
  createAccumulator,
  deltaEventOf,
  modelMessagesOf,
  type CompactionPlan,
  type StepResult,
} from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import type { ChargeStep } from "./turn-budget.ts";
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
  /** Counts what it used. */
  charge: ChargeStep;
  /** Told what the model says while it says it. */
  onEvent: (event: EngineEvent) => void;
}

/** Runs one model step to its end, and counts what it used. Undefined when the signal broke it off. */
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
  const result = accumulator.result();
  await step.charge(result, step);
  return step.signal.aborted ? undefined : result;
}

export interface Summary {
  chain: ModelChain;
  plan: CompactionPlan;
  language: ReplyLanguage;
  /** Puts what a summary is made from in place of references. */
  read: HistoryReader;
  signal: AbortSignal;
  charge: ChargeStep;
}

/** Asks a model for what is to stand for the older part of a conversation. */
export async function summarise(summary: Summary): Promise<StepResult | undefined> {
  const { chain, plan, language, read, signal, charge } = summary;
  const { system, messages } = compactionRequest(await read(plan.older), language);
  return await runModelStep({
    chain,
    system,
    history: messages,
    read: async (history) => history,
    tools: [],
    signal,
    charge,
    onEvent: () => undefined,
  });
}
