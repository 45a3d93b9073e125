import { turnLimits, type TurnLimits, type TurnEnvironment } from "@larkline/agent";
import { chosenModel, type ChosenModel } from "@larkline/agent/drive";
import { transferTool, type TransferTool } from "@larkline/agent/handover";
import { helperTool, type HelperLink, type HelperTool } from "@larkline/agent/helpers";
import { memorySettings } from "@larkline/agent/memory";
import {
  createModelChain,
  findModelInfo,
  joinedExtra,
  ModelHealth,
  type LlmBackend,
  type ModelChain,
  type ChainModel,
  type ChainRequest,
  type ModelChoice,
  type ProviderType,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model/anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model/openai";
import {
  modelOptionsOf,
  readModelNames,
  standardModels,
  type AgentConfig,
  type LarklineConfig,
  type ModelAccess,
  type ModelOptions,
  type ModelProviders,
} from "@larkline/process/config";
import type { InboundMessage, OutputForm, ParseResult, ReplyLanguage } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import type { Logger } from "@larkline/process/telemetry";
import type { InstanceDirectory } from "@larkline/store/operations";
import type { WorkerConfig } from "./config.ts";

// The agents of the configuration, with the models that they may use. Which of them answers in a turn is decided in agents.ts.

/** An agent of the deployment: what of it is the same for all its turns. */
export class Agent {
  readonly name: string;
  readonly config: AgentConfig;
  /** Number of its version; 0: as in the file. */
  readonly version: number;
  /** Bounds of each turn. */
  readonly limits: TurnLimits;
  /** Language of what Larkline itself says; empty: that of the message. */
  readonly speech: { texts?: ReplyLanguage };
  /** What its abilities know. */
  readonly place: TurnEnvironment["place"];
  /** Whether it remembers something of people or chats. */
  readonly hasMemory: boolean;
  /** Its hand-overs to other agents. */
  readonly transfers: readonly { to: string; context: "all" | "last"; tool: TransferTool }[];
  /** Its members may hand over to each other, by the name of the call; where it is a team that works so. */
  readonly passes: ReadonlyMap<string, { to: string; tool: TransferTool }>;
  /** The agents that it may give tasks to, by the name of their tool. */
  readonly helpers: ReadonlyMap<string, { link: HelperLink; tool: HelperTool }>;
  readonly #models: ModelChoices;

  constructor(settings: LarklineConfig, config: AgentConfig, models: ModelChoices, version = 0) {
    this.name = config.name;
    this.version = version;
    this.config = config;
    this.limits = limitsOf(settings, config);
    const { person, chat } = memorySettings(config.abilities);
    this.hasMemory = person !== "off" || chat;
    const { roles, expiresMs } = settings.permissions;
    this.place = {
      settings: config.abilities,
      people: { roles: Object.keys(roles), answerMs: expiresMs },
      events: settings.doors.personal?.events,
    };
    this.speech = config.language === "auto" ? {} : { texts: config.language };
    this.transfers = config.handoffs.map((handoff) => {
      const { agent: to, context } = handoff;
      return { to, context, tool: transferTool(handoff, settings.agents[to]?.description) };
    });
    this.passes = new Map(
      config.team?.select === "handoff" ? passesOf(settings, config.team.members) : [],
    );
    this.helpers = new Map(
      config.helpers.map((link) => {
        return [
          link.as,
          { link, tool: helperTool(link, settings.agents[link.agent]?.description) },
        ] as const;
      }),
    );
    this.#models = models;
  }

  /** `<provider>/<id>` of the model that answers without a choice. */
  get defaultModel(): string {
    return this.#models.usual.name;
  }

  /** The options of the turn that answers a message. */
  optionsFor({ output: asked, model = {} }: InboundMessage): TurnOptions {
    const output = asked ?? this.config.output;
    const request = { ...this.config.request, ...modelOptionsOf(model), hosted: true };
    if (output === null) return { request, form: undefined };
    const { name, schema: jsonSchema } = output;
    return {
      request: { ...request, responseFormat: { type: "json_schema", name, jsonSchema } },
      form: output,
    };
  }

  /** The model that a session has chosen; the usual one when it has chosen none, or one that is not offered any more. */
  modelOf(chosen: string | undefined): ChosenModel {
    const { usual, offered } = this.#models;
    return (chosen === undefined ? undefined : offered.get(chosen)) ?? usual;
  }
}

/** What the requests of a turn carry, and the form of its answer: as its message asks, else as its agent does. */
export interface TurnOptions {
  request: ModelOptions & Pick<ChainRequest, "responseFormat" | "hosted">;
  form: OutputForm | undefined;
}

function passesOf({ agents }: LarklineConfig, members: readonly string[]) {
  return members.map((to) => {
    const tool = transferTool({ agent: to, context: "all" }, agents[to]?.description);
    return [tool.spec.name, { to, tool }] as const;
  });
}

/** The agents of the configuration, by name. */
export function agentsOf(settings: LarklineConfig, { ofAgents }: AgentModels): Map<string, Agent> {
  const agents = new Map<string, Agent>();
  for (const config of Object.values(settings.agents)) {
    const models = ofAgents.get(config.name);
    if (models !== undefined) agents.set(config.name, new Agent(settings, config, models)); // each has models
  }
  return agents;
}

/** The bounds of every turn of an agent. */
function limitsOf(
  { limits, permissions }: LarklineConfig,
  { maxIterations }: AgentConfig,
): TurnLimits {
  const {
    maxCallsPerStep,
    toolTimeoutMs,
    toolWaitMs,
    maxResultChars,
    handoffsPerTurn: maxTransfers,
  } = limits;
  const { stepsPerTurn: maxStepsWithHelpers } = limits;
  const { maxDenials } = permissions;
  const ofCalls = { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars, maxDenials };
  return turnLimits({ maxIterations, ...ofCalls, maxTransfers, maxStepsWithHelpers });
}

/** The models of one agent: its own, and those that people may choose. */
interface ModelChoices {
  usual: ChosenModel;
  /** The models that people may choose, by name. Each falls back to the usual ones. */
  offered: ReadonlyMap<string, ChosenModel>;
}

/** The models of all agents. */
export interface AgentModels {
  /** `<provider>/<id>` of the model that an agent without one of its own has. */
  defaultName: string;
  /** The models of each agent, by its name. */
  ofAgents: ReadonlyMap<string, ModelChoices>;
  /** A model of a server that operators have added; it falls back to the usual ones of its agent. */
  added(agent: AgentConfig, name: string, model: ChainModel): ChosenModel;
  /** A model that the configuration or the environment names, or the first of `MODEL`; an error says why there is none. */
  configured(name?: string): ParseResult<{ name: string; model: ChainModel }>;
}

/**
 * The models of every agent: its own, or else those of the environment, and those that it offers for
 * `/model`. The error lists every agent with a problem.
 */
export function createAgentModels(
  { model, concurrency: slots }: Pick<WorkerConfig, "model" | "concurrency">,
  settings: LarklineConfig,
  { providers, modules }: { providers: ModelProviders; modules: ReadonlyMap<string, LlmBackend> },
  own: { clock: Clock; random: Random },
): ParseResult<AgentModels> {
  const text = model ?? standardModel(providers);
  if (text === undefined) {
    return {
      ok: false,
      error: "Set ANTHROPIC_API_KEY or OPENAI_API_KEY (and MODEL, to choose the model).",
    };
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
    ...own,
    backends: new Map(modules),
    health: new Map(),
  };
  const made = Object.values(settings.agents).map((agent) => ({
    name: agent.name,
    choices: choicesOf(agent, sources),
  }));
  const problems = made.flatMap(({ choices }) => (choices.ok ? [] : [choices.error]));
  if (problems.length > 0) return { ok: false, error: problems.join("\n") };
  const ofAgents = new Map(
    made.flatMap(({ name, choices }) => (choices.ok ? [[name, choices.value]] : [])),
  );
  const added: AgentModels["added"] = (agent, name, addedModel) => {
    const usualOnes = ownModels(agent, sources);
    const others = usualOnes.ok ? modelsIn(usualOnes.value, sources, agent) : [];
    return chosenModel(name, chainOf([addedModel, ...others], sources));
  };
  const configured: AgentModels["configured"] = (name) => {
    const named = readModelNames(name ?? text, { providers, models: settings.models });
    if (!named.ok) return named;
    const [choice = first] = named.value;
    return { ok: true, value: { name: nameOf(choice), model: modelIn(choice, sources) } };
  };
  return { ok: true, value: { defaultName: nameOf(first), ofAgents, added, configured } };
}

/** The model of a deployment that names none: one of a vendor that it has a key for. */
function standardModel({ anthropic, openai }: ModelProviders): string | undefined {
  if (anthropic?.apiKey !== undefined) return standardModels.anthropic;
  return openai?.apiKey === undefined ? undefined : standardModels.openai;
}

interface ChainSources {
  /** The models that `MODEL` names. */
  usual: ModelChoice[];
  settings: LarklineConfig;
  providers: ModelProviders;
  /** Models of one provider share a client; modules have made theirs. */
  backends: Map<string, LlmBackend>;
  /** Turns that this process runs at once. */
  slots: number;
  clock: Clock;
  random: Random;
  /** What all agents of this process know of a model, by its name. */
  health: Map<string, ModelHealth>;
}

function choicesOf(agent: AgentConfig, sources: ChainSources): ParseResult<ModelChoices> {
  const { name, models, team } = agent;
  const known = { providers: sources.providers, models: sources.settings.models };
  const where = `larkline.config.ts: ${team === null ? "agents" : "teams"}.${name}${team === null ? "" : ".selector"}`;
  const own = ownModels(agent, sources);
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : readModelNames(models.join(","), known);
  if (!own.ok) return { ok: false, error: `${where}.model: ${own.error}` };
  if (!offered.ok) return { ok: false, error: `${where}.models: ${offered.error}` };
  const [first] = own.value;
  if (first === undefined) return { ok: false, error: `${where} has no model.` };
  const offeredModels = offered.value.map((choice) => {
    const others = own.value.filter((other) => nameOf(other) !== nameOf(choice));
    return [
      nameOf(choice),
      chosenModel(nameOf(choice), chainOf(modelsIn([choice, ...others], sources, agent), sources)),
    ] as const;
  });
  return {
    ok: true,
    value: {
      usual: chosenModel(nameOf(first), chainOf(modelsIn(own.value, sources, agent), sources)),
      offered: new Map(offeredModels),
    },
  };
}

/** The models that an agent has without a choice. */
function ownModels(
  { model }: AgentConfig,
  { usual, providers, settings: { models } }: ChainSources,
): ParseResult<ModelChoice[]> {
  return model === null ? { ok: true, value: usual } : readModelNames(model, { providers, models });
}

function nameOf({ provider, id }: ModelChoice): string {
  return `${provider}/${id}`;
}

function modelsIn(
  choices: readonly ModelChoice[],
  sources: ChainSources,
  agent: AgentConfig,
): ChainModel[] {
  return choices.map((choice) => modelIn(choice, sources, agent));
}

/** A model of the configuration, with what an agent adds to its requests. */
function modelIn(
  { provider, id }: ModelChoice,
  { settings, providers, slots, clock, backends, health }: ChainSources,
  agent?: AgentConfig,
): ChainModel {
  const backend = backends.get(provider) ?? backendOf(provider, providers, clock);
  backends.set(provider, backend);
  const name = nameOf({ provider, id });
  const known = health.get(name) ?? new ModelHealth({ slots, clock });
  health.set(name, known);
  return {
    info: findModelInfo(provider, id, settings.models),
    backend,
    health: known,
    extra: joinedExtra(providers[provider]?.extra, agent?.extra[provider]),
    hostedTools: agent?.hostedTools[provider] ?? [],
  };
}

function chainOf(
  models: readonly ChainModel[],
  { settings, clock, random }: Pick<ChainSources, "settings" | "clock" | "random">,
): ModelChain {
  const { stepBytes, modelSilenceMs, modelThinkingMs, modelRetryMs } = settings.limits;
  return createModelChain({
    models,
    maxStepBytes: stepBytes,
    timeouts: { headersMs: modelSilenceMs, gapMs: modelSilenceMs, thinkingMs: modelThinkingMs },
    retry: { giveUpMs: modelRetryMs },
    clock,
    random: random.fraction,
  });
}

/** Servers without a key take any. */
const noKey = "none";

function backendOf(provider: string, providers: ModelProviders, clock: Clock): LlmBackend {
  const access = providers[provider];
  // Names were checked, and modules have given their backends.
  if (access === undefined || access.type === "module") {
    throw new RangeError(`no provider ${provider}`);
  }
  const { type, ...reached } = access;
  return serverBackend(type, { ...reached, clock });
}

/** What reaches a server. `fetch`: in place of the usual one. */
export function serverBackend(
  type: ProviderType,
  {
    apiKey = noKey,
    baseUrl,
    profile,
    ...given
  }: Pick<ModelAccess, "apiKey" | "baseUrl" | "profile"> & { clock: Clock; fetch?: typeof fetch },
): LlmBackend {
  const reached = {
    apiKey,
    clock: given.clock,
    ...(given.fetch === undefined ? {} : { fetch: given.fetch }),
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(profile === undefined ? {} : { profile }),
  };
  if (type === "anthropic") return createAnthropicBackend(reached);
  return type === "openai"
    ? createOpenAiChatBackend(reached)
    : createOpenAiResponsesBackend(reached);
}

/** How long the last result is used, ms. */
const lookEveryMs = 5_000;

/**
 * Whether all processes that live know of helpers: one of the version before would not find, stop or remove their sessions.
 * Looked up by workers whose agents have some, and by no other.
 */
export class HelperReadiness {
  isReady = false;
  /** They can also read the updates that an asker gets about a helper that waits for people. */
  readsWaits = false;

  async start({ agents, instances, clock, log }: Processes, signal: AbortSignal): Promise<void> {
    if ([...agents.values()].every(({ helpers }) => helpers.size === 0)) return;
    const look = async (): Promise<void> => {
      const living = (await instances.instances()).filter(
        ({ expiresAtMs }) => expiresAtMs > clock.now(),
      );
      const older = living.filter(({ features = [] }) => !features.includes("helpers"));
      if (older.length > 0 && this.isReady) {
        log.warn(
          { older: older.map(({ id }) => id) },
          "processes of the version before live: no helper is started",
        );
      }
      this.isReady = older.length === 0;
      this.readsWaits = living.every(({ features = [] }) => features.includes("helper-waits"));
    };
    await look();
    const again = (): void =>
      void look().catch((error: unknown) => log.warn({ error }, "processes were not looked up"));
    signal.addEventListener("abort", clock.every(lookEveryMs, again), { once: true });
  }
}

/** What it looks at. */
interface Processes {
  readonly agents: ReadonlyMap<string, Agent>;
  readonly instances: InstanceDirectory;
  readonly clock: Clock;
  readonly log: Logger;
}
