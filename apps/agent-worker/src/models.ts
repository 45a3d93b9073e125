import {
  costOf,
  createModelChain,
  findModelInfo,
  ModelHealth,
  type LlmBackend,
  type ModelChain,
  type ModelChoice,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model/anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model/openai";
import type { TurnModel } from "@larkline/agent";
import { readModelNames, type AgentConfig, type LarklineConfig, type ModelProviders } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import type { WorkerConfig } from "./config.ts";

/** Servers without a key take any. */
const noKey = "none";

function backendOf(provider: string, providers: ModelProviders): LlmBackend {
  const access = providers[provider];
  if (access === undefined) throw new RangeError(`no provider ${provider}`); // readModelNames has checked
  const { type, apiKey = noKey, baseUrl } = access;
  const reached = { apiKey, ...(baseUrl === undefined ? {} : { baseUrl }) };
  if (type === "anthropic") return createAnthropicBackend(reached);
  return type === "openai" ? createOpenAiChatBackend(reached) : createOpenAiResponsesBackend(reached);
}

/** The model of a deployment that names none: one of a vendor that it has a key for. */
function standardModel({ anthropic, openai }: ModelProviders): string | undefined {
  if (anthropic?.apiKey !== undefined) return "anthropic/claude-sonnet-5-5";
  return openai?.apiKey === undefined ? undefined : "openai/gpt-6.1-sol";
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
export function createAgentModels(
  config: Pick<WorkerConfig, "model" | "concurrency">,
  settings: LarklineConfig,
  providers: ModelProviders,
): ParseResult<AgentModels> {
  const { concurrency: slots } = config;
  const text = config.model ?? standardModel(providers);
  if (text === undefined) {
    return { ok: false, error: "Set ANTHROPIC_API_KEY or OPENAI_API_KEY (and MODEL, to choose the model)." };
  }
  const usual = readModelNames(text, { providers, models: settings.models });
  if (!usual.ok) return { ok: false, error: `MODEL: ${usual.error}` };
  const [first] = usual.value;
  if (first === undefined) return { ok: false, error: "MODEL names no model." };
  const sources: ChainSources = {
    usual: usual.value,
    settings,
    providers,
    slots,
    backends: new Map(),
    health: new Map(),
  };
  const made = Object.values(settings.agents).map((agent) => ({
    name: agent.name,
    choices: choicesOf(agent, sources),
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
  const known = { providers: sources.providers, models: sources.settings.models };
  const where = `larkline.config.ts: agents.${name}`;
  const own: ParseResult<ModelChoice[]> =
    model === null ? { ok: true, value: sources.usual } : readModelNames(model, known);
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : readModelNames(models.join(","), known);
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
  /** Those of `MODEL`. */
  usual: ModelChoice[];
  settings: LarklineConfig;
  providers: ModelProviders;
  /** Models of one provider share a client. */
  backends: Map<string, LlmBackend>;
  /** Turns that this process runs at once. */
  slots: number;
  /** By name: what all agents of this process know of a model. */
  health: Map<string, ModelHealth>;
}

function chainOf(
  choices: readonly ModelChoice[],
  { settings, providers, slots, backends, health }: ChainSources,
): ModelChain {
  const models = choices.map(({ provider, id }) => {
    const backend = backends.get(provider) ?? backendOf(provider, providers);
    backends.set(provider, backend);
    const name = nameOf({ provider, id });
    const known = health.get(name) ?? new ModelHealth({ slots, now: () => performance.now() });
    health.set(name, known);
    return { info: findModelInfo(provider, id, settings.models), backend, health: known };
  });
  const { stepBytes, modelSilenceMs, modelThinkingMs, modelRetryMs } = settings.limits;
  return createModelChain({
    models,
    maxStepBytes: stepBytes,
    timeouts: { headersMs: modelSilenceMs, gapMs: modelSilenceMs, thinkingMs: modelThinkingMs },
    retry: { giveUpMs: modelRetryMs },
  });
}

/** What the turn needs to know about its model: facts of the first, prices of whichever answered. */
export function turnModelOf(chain: ModelChain): TurnModel {
  const byId = new Map(chain.models.map((info) => [info.id, info]));
  return {
    info: chain.primary,
    costUsd: (usage, model) => costOf(usage, byId.get(model ?? "") ?? chain.primary),
  };
}
