import {
  costOf,
  createModelChain,
  findModelInfo,
  type LlmBackend,
  type ModelChain,
  type ModelChoice,
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

/** The models of a deployment: the agent's own, and those that people may choose. */
export interface ModelChoices {
  /** `<provider>/<id>` of the model without a choice. */
  readonly defaultName: string;
  /** The chain of a choice; of the default when there is none, or not any more. */
  choose(name: string | undefined): { name: string; chain: ModelChain };
}

function nameOf({ provider, id }: ModelChoice): string {
  return `${provider}/${id}`;
}

/**
 * The models of the default agent, or else of the environment, and those it offers for `/model`. A
 * chosen model falls back to the default ones.
 */
export function createModelChoices(config: WorkerConfig, settings: LarklineConfig): ParseResult<ModelChoices> {
  const { model, models } = settings.agents.default;
  const has = { anthropic: config.anthropic !== undefined, openai: config.openai !== undefined };
  const own: ParseResult<ModelChoice[]> = model === null ? { ok: true, value: config.models } : modelsOf(model, has);
  if (!own.ok) return { ok: false, error: `larkline.config.ts: agents.default.model: ${own.error}` };
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : modelsOf(models.join(","), has);
  if (!offered.ok) return { ok: false, error: `larkline.config.ts: agents.default.models: ${offered.error}` };
  const [first] = own.value;
  if (first === undefined) return { ok: false, error: "MODEL names no model." };
  const backends = new Map<string, LlmBackend>();
  const chain = (choices: readonly ModelChoice[]): ModelChain => chainOf(choices, { config, settings, backends });
  const usual = { name: nameOf(first), chain: chain(own.value) };
  const chosen = offered.value.map((choice) => {
    const others = own.value.filter((other) => nameOf(other) !== nameOf(choice));
    return [nameOf(choice), chain([choice, ...others])] as const;
  });
  const byName = new Map(chosen);
  return {
    ok: true,
    value: {
      defaultName: usual.name,
      choose: (name) => {
        const found = name === undefined ? undefined : byName.get(name);
        return found === undefined || name === undefined ? usual : { name, chain: found };
      },
    },
  };
}

interface ChainSources {
  config: WorkerConfig;
  settings: LarklineConfig;
  /** Models of one provider share a client. */
  backends: Map<string, LlmBackend>;
}

function chainOf(choices: readonly ModelChoice[], { config, settings, backends }: ChainSources): ModelChain {
  const models = choices.map(({ provider, id }) => {
    const backend = backends.get(provider) ?? backendOf(provider, config);
    backends.set(provider, backend);
    return { info: findModelInfo(provider, id, settings.models), backend };
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
