import {
  costOf,
  createModelChain,
  findModelInfo,
  type LlmBackend,
  type ModelChain,
  type ModelChoice,
  type ModelInfo,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model-anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model-openai";
import type { TurnModel } from "@larkline/agent";
import type { LarklineConfig } from "@larkline/config";
import type { ParseResult } from "@larkline/protocol";
import { modelsOf, type WorkerConfig } from "./config.ts";

function backendOf(provider: string, config: WorkerConfig): LlmBackend {
  const access = provider === "anthropic" ? config.anthropic : config.openai;
  if (access === undefined) throw new RangeError(`no key for ${provider}`); // loadConfig has checked
  if (provider === "anthropic") return createAnthropicBackend(access);
  return provider === "openai" ? createOpenAiChatBackend(access) : createOpenAiResponsesBackend(access);
}

/**
 * The chain of configured models: those of the default agent, or else of the environment. Models of
 * one provider share a client.
 */
export function createChain(config: WorkerConfig, settings: LarklineConfig): ParseResult<ModelChain> {
  const { model } = settings.agents.default;
  const has = { anthropic: config.anthropic !== undefined, openai: config.openai !== undefined };
  const choices: ParseResult<ModelChoice[]> =
    model === null ? { ok: true, value: config.models } : modelsOf(model, has);
  if (!choices.ok) return { ok: false, error: `larkline.config.ts: agents.default.model: ${choices.error}` };
  return { ok: true, value: chainOf(choices.value, config, settings.models) };
}

function chainOf(choices: readonly ModelChoice[], config: WorkerConfig, extra: readonly ModelInfo[]): ModelChain {
  const backends = new Map<string, LlmBackend>();
  const models = choices.map(({ provider, id }) => {
    const backend = backends.get(provider) ?? backendOf(provider, config);
    backends.set(provider, backend);
    return { info: findModelInfo(provider, id, extra), backend };
  });
  return createModelChain({ models });
}

/** What the turn needs to know about its model: facts of the first, prices of whichever answered. */
export function turnModelOf(chain: ModelChain): TurnModel {
  const byId = new Map(chain.models.map((info) => [info.id, info]));
  return {
    info: chain.primary,
    costUsd: (usage, model) => costOf(usage, byId.get(model ?? "") ?? chain.primary),
  };
}
