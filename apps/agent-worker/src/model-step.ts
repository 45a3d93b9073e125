import {
  compactionRequest,
  callUses,
  createAccumulator,
  deltaEventOf,
  modelMessagesOf,
  stepUse,
  type CompactionPlan,
  type StepResult,
  type TurnModel,
} from "@larkline/agent";
import type { ModelOptions } from "@larkline/process/config";
import type { ModelChain, StepPast } from "@larkline/model";
import type { ChargeStep } from "./turn-budget.ts";
import {
  sharedNow,
  type EngineEvent,
  type Message,
  type ModelRetry,
  type ReplyLanguage,
  type ToolSpec,
  type TurnState,
} from "@larkline/protocol";

/** Puts stored content in place of references to it; what is gone is said to be gone. */
export type HistoryReader = (history: readonly Message[]) => Promise<readonly Message[]>;

export interface ModelStep {
  chain: ModelChain;
  /** Knows what its calls cost. */
  model: Pick<TurnModel, "costUsd">;
  /** What became of the step before, if it was put off. */
  past?: StepPast | undefined;
  /** Number of the step in its turn, from 1. */
  turnNumber: number;
  system: string;
  history: readonly Message[];
  read: HistoryReader;
  tools: readonly ToolSpec[];
  /** What the agent asks of the vendor; absent: nothing. */
  options?: ModelOptions;
  signal: AbortSignal;
  /** Counts what it used. */
  charge: ChargeStep;
  /** Told what the model says while it says it. */
  onEvent: (event: EngineEvent) => void;
  /** Told of a call of a vendor that went wrong and is followed by another one. */
  onRetry: (retry: ModelRetry) => void;
}

/** Runs one model step to its end, or until the signal breaks it off, and counts what it used. */
export async function runModelStep(step: ModelStep): Promise<StepResult> {
  const accumulator = createAccumulator();
  const request = {
    ...step.options,
    messages: await step.read(modelMessagesOf(step.history)),
    tools: step.tools,
    system: step.system,
  };
  for await (const chunk of step.chain.stream(request, step.signal, step.past)) {
    accumulator.push(chunk);
    if (chunk.type === "retry") step.onRetry(chunk);
    const event = deltaEventOf(chunk, step.turnNumber);
    if (event !== undefined) step.onEvent(event);
  }
  const result = accumulator.result();
  const use = stepUse(result, step, step.model);
  await step.charge(use);
  return { ...result, use, uses: callUses(result, step), ...(step.signal.aborted ? { brokenOff: true } : {}) };
}

/** What a chain needs to know of a step that was put off. */
export function pastOf({ putOff }: TurnState): StepPast | undefined {
  if (putOff === undefined) return undefined;
  const { rounds, sinceMs, askedWaitMs } = putOff;
  return { rounds, askedWaitMs, elapsedMs: Math.max(0, sharedNow() - sinceMs) };
}

export interface Summary {
  chain: ModelChain;
  plan: CompactionPlan;
  language: ReplyLanguage;
  /** Puts what a summary is made from in place of references. */
  read: HistoryReader;
  signal: AbortSignal;
  charge: ChargeStep;
  model: ModelStep["model"];
  past?: StepPast | undefined;
  onRetry: ModelStep["onRetry"];
}

/** Asks a model for what is to stand for the older part of a conversation. */
export async function summarise(summary: Summary): Promise<StepResult> {
  const { chain, plan, language, read, ...rest } = summary;
  const { system, messages } = compactionRequest(await read(plan.older), language);
  return await runModelStep({
    chain,
    turnNumber: 0,
    system,
    history: messages,
    read: async (history) => history,
    tools: [],
    ...rest,
    onEvent: () => undefined,
  });
}
