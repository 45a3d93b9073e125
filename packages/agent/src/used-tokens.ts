import type { Message, StepUse, ToolSpec, Usage } from "@larkline/protocol";
import type { StepResult, VendorCall } from "./accumulate.ts";
import { messageTokens, textTokens, writtenTokens } from "./token-estimate.ts";
import type { TurnModel } from "./turn-environment.ts";

/** What a model was asked. */
export interface StepRequest {
  system: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
}

/** One call of a vendor, and what it used. */
export interface CallUse {
  model: string | undefined;
  usage: Usage;
  estimated: boolean;
}

function askedTokens({ system, history, tools }: StepRequest): number {
  const read = history.reduce((sum, message) => sum + messageTokens(message), textTokens(system));
  return read + (tools.length === 0 ? 0 : textTokens(JSON.stringify(tools)));
}

/** A stream that does not tell of its calls was one. */
function callsOf(step: StepResult): readonly VendorCall[] {
  const { vendorCalls, model = "", usage } = step;
  return vendorCalls ?? [{ model, usage, complete: usage !== null, writtenTokens: writtenTokens(step) }];
}

/**
 * What each call of a vendor has used: what the vendor reported, or an estimate of what it did not: all of it, or
 * what had been written when the stream broke off. Calls of which nothing came back are left out: vendors do not
 * charge for what they refuse, and it cannot be known what else became of them.
 */
export function callUses(step: StepResult, request: StepRequest): CallUse[] {
  let asked: number | undefined;
  return callsOf(step).flatMap(({ model: id, usage, complete, writtenTokens: outputTokens }): CallUse[] => {
    const model = id === "" ? undefined : id;
    if (usage !== null && complete) return [{ model, usage, estimated: false }];
    if (usage !== null) {
      const written = Math.max(usage.outputTokens, outputTokens);
      return [{ model, usage: { ...usage, outputTokens: written }, estimated: true }];
    }
    if (outputTokens === 0) return [];
    const inputTokens = (asked ??= askedTokens(request));
    const guessed = { inputTokens, outputTokens, cacheReadTokens: 0, cacheCreationTokens: 0 };
    return [{ model, usage: guessed, estimated: true }];
  });
}

export const noUse: StepUse = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheCreationTokens: 0,
  costUsd: 0,
  attempts: 0,
  estimated: false,
};

/** All that a step has used, each call at the price of the model that was asked. */
export function stepUse(step: StepResult, request: StepRequest, model: Pick<TurnModel, "costUsd">): StepUse {
  const attempts = callsOf(step).length;
  return callUses(step, request).reduce(
    (sum, { usage, estimated, model: asked }) =>
      addUse(sum, { ...usage, costUsd: model.costUsd(usage, asked), attempts: 0, estimated }),
    { ...noUse, attempts },
  );
}

export function addUse(one: StepUse, other: StepUse): StepUse {
  return {
    inputTokens: one.inputTokens + other.inputTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    cacheReadTokens: one.cacheReadTokens + other.cacheReadTokens,
    cacheCreationTokens: one.cacheCreationTokens + other.cacheCreationTokens,
    costUsd: one.costUsd + other.costUsd,
    attempts: one.attempts + other.attempts,
    estimated: one.estimated || other.estimated,
  };
}

type Tokens = Pick<Usage, "inputTokens" | "outputTokens" | "cacheReadTokens" | "cacheCreationTokens">;

/** All tokens of a call, cached ones included. */
export function allTokens({ inputTokens, outputTokens, cacheReadTokens, cacheCreationTokens }: Tokens): number {
  return inputTokens + outputTokens + cacheReadTokens + cacheCreationTokens;
}
