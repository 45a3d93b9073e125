import {
  costOf,
  createModelChain,
  findModelInfo,
  type LlmBackend,
  type ModelChain,
  type ModelInfo,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model-anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model-openai";
import type { TurnModel } from "@larkline/agent";
import type { WorkerConfig } from "./config.ts";

function backendOf(provider: string, config: WorkerConfig): LlmBackend {
  const access = provider === "anthropic" ? config.anthropic : config.openai;
  if (access === undefined) throw new RangeError(`no key for ${provider}`); // loadConfig has checked
  if (provider === "anthropic") return createAnthropicBackend(access);
  return provider === "openai" ? createOpenAiChatBackend(access) : createOpenAiResponsesBackend(access);
}

/** The chain of configured models. Models of one provider share a client. */
export function createChain(config: WorkerConfig, extra: readonly ModelInfo[]): ModelChain {
  const backends = new Map<string, LlmBackend>();
  const models = config.models.map(({ provider, id }) => {
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
