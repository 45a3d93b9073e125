import type { Message, ToolSpec, Usage } from "@larkline/protocol";
import type { StepResult } from "./accumulate.ts";
import { messageTokens, textTokens } from "./token-estimate.ts";

/** What a model was asked. */
export interface StepRequest {
  system: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
}

function writtenTokens({ parts, toolCalls }: StepResult): number {
  const calls = toolCalls.map(({ name, arguments: given }) => textTokens(name) + textTokens(given));
  return [...parts.map(({ text }) => textTokens(text)), ...calls].reduce((sum, tokens) => sum + tokens, 0);
}

/**
 * What a model call has used: what the vendor reported, or an estimate where it reported nothing and had
 * begun to answer, as when the stream was broken off. Undefined when nothing came back: vendors do not
 * charge for what they refuse, and nobody can say what else became of it.
 */
export function usedBy(step: StepResult, { system, history, tools }: StepRequest): Usage | undefined {
  if (step.usage !== null) return step.usage;
  if (step.parts.length === 0 && step.toolCalls.length === 0) return undefined;
  const read = history.reduce((sum, message) => sum + messageTokens(message), textTokens(system));
  const inputTokens = read + (tools.length === 0 ? 0 : textTokens(JSON.stringify(tools)));
  return { inputTokens, outputTokens: writtenTokens(step), cacheReadTokens: 0, cacheCreationTokens: 0 };
}

/** All tokens of a call, cached ones included. */
export function allTokens({ inputTokens, outputTokens, cacheReadTokens, cacheCreationTokens }: Usage): number {
  return inputTokens + outputTokens + cacheReadTokens + cacheCreationTokens;
}
