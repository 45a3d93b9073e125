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
import type { AgentConfig, LarklineConfig } from "@larkline/config";
import type { ParseResult } from "@larkline/protocol";
import { modelsOf, type WorkerConfig } from "./config.ts";

function backendOf(provider: string, config: WorkerConfig): LlmBackend {
  const access = provider === "anthropic" ? config.anthropic : config.openai;
  if (access === undefined) throw new RangeError(`no key for ${provider}`); // loadConfig has checked
  if (provider === "anthropic") return createAnthropicBackend(access);
  return provider === "openai" ? createOpenAiChatBackend(access) : createOpenAiResponsesBackend(access);
}

/** The models of one agent: its own, and those that people may choose. */
export interface ModelChoices {
  /** `<provider>/<id>` of the model without a choice. */
  readonly defaultName: string;
  /** The chain of a choice; of the default when there is none, or not any more. */
  choose(name: string | undefined): { name: string; chain: ModelChain };
}

function nameOf({ provider, id }: ModelChoice): string {
  return `${provider}/${id}`;
}

/** The models of all agents. */
export interface AgentModels {
  /** `<provider>/<id>` of the model that an agent without one of its own has. */
  readonly defaultName: string;
  /** Those of an agent of the configuration. */
  of(agent: string): ModelChoices;
}

/**
 * The models of every agent: its own, or else those of the environment, and those that it offers for
 * `/model`. A chosen model falls back to the usual ones. The error lists every agent with a problem.
 */
export function createAgentModels(config: WorkerConfig, settings: LarklineConfig): ParseResult<AgentModels> {
  const [first] = config.models;
  if (first === undefined) return { ok: false, error: "MODEL names no model." };
  const backends = new Map<string, LlmBackend>();
  const made = Object.values(settings.agents).map((agent) => ({
    name: agent.name,
    choices: choicesOf(agent, { config, settings, backends }),
  }));
  const problems = made.flatMap(({ choices }) => (choices.ok ? [] : [choices.error]));
  if (problems.length > 0) return { ok: false, error: problems.join("\n") };
  const byAgent = new Map(made.flatMap(({ name, choices }) => (choices.ok ? [[name, choices.value]] : [])));
  return {
    ok: true,
    value: {
      defaultName: nameOf(first),
      of: (agent) => {
        const choices = byAgent.get(agent);
        if (choices === undefined) throw new RangeError(`no agent ${agent}`); // whoever asks has its configuration
        return choices;
      },
    },
  };
}

function choicesOf({ name, model, models }: AgentConfig, sources: ChainSources): ParseResult<ModelChoices> {
  const { config } = sources;
  const has = { anthropic: config.anthropic !== undefined, openai: config.openai !== undefined };
  const where = `larkline.config.ts: agents.${name}`;
  const own: ParseResult<ModelChoice[]> = model === null ? { ok: true, value: config.models } : modelsOf(model, has);
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : modelsOf(models.join(","), has);
  if (!own.ok) return { ok: false, error: `${where}.model: ${own.error}` };
  if (!offered.ok) return { ok: false, error: `${where}.models: ${offered.error}` };
  const [first] = own.value;
  if (first === undefined) return { ok: false, error: `${where} has no model.` };
  const usual = { name: nameOf(first), chain: chainOf(own.value, sources) };
  const chosen = offered.value.map((choice) => {
    const others = own.value.filter((other) => nameOf(other) !== nameOf(choice));
    return [nameOf(choice), chainOf([choice, ...others], sources)] as const;
  });
  const byName = new Map(chosen);
  return {
    ok: true,
    value: {
      defaultName: usual.name,
      choose: (wanted) => {
        const found = wanted === undefined ? undefined : byName.get(wanted);
        return found === undefined || wanted === undefined ? usual : { name: wanted, chain: found };
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
