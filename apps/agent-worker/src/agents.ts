import { memorySettings } from "@larkline/agent/memory";
import {
  endPaused,
  handedOverBy,
  helperTool,
  transferTool,
  turnLimits,
  type TransferTool,
  type TurnLimits,
  type TurnModel,
  languageOfMessage,
  noticeText,
  refuseTurn,
  type AgentFacts,
  type HelperLink,
  type HelperTool,
  type CommandFacts,
  type SessionChoices,
  type HelperFacts,
  type HelperTarget,
  type TeamFacts,
  type TransferTarget,
  type Transition,
  type TurnEnvironment,
  withoutTeam,
} from "@larkline/agent";
import {
  costOf,
  createModelChain,
  findModelInfo,
  joinedExtra,
  ModelHealth,
  type LlmBackend,
  type ModelChain,
  type ChainRequest,
  type ModelChoice,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model/anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model/openai";
import {
  agentOfMessage,
  modelOptionsOf,
  readModelNames,
  standardModels,
  type AgentConfig,
  type LarklineConfig,
  type ModelOptions,
  type ModelProviders,
} from "@larkline/process/config";
import {
  teamOfTurn,
  type Clock,
  type Random,
  type InboundMessage,
  type OutputForm,
  type ParseResult,
  type ReplyLanguage,
  agentOfTurn,
  chatOf,
  peopleOf,
  type QueuedMessage,
  type TeamState,
  type TurnState,
} from "@larkline/protocol";
import { hasAccess } from "@larkline/agent/permissions";
import { groupsOf } from "./call-policy.ts";
import type { TurnStart } from "./turn-output.ts";
import type { WorkerConfig } from "./config.ts";
import type { Services } from "./services.ts";
import type { RunningTurn } from "./turn-run.ts";

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
    this.place = { settings: config.abilities, people: { roles: Object.keys(roles), answerMs: expiresMs } };
    this.speech = config.language === "auto" ? {} : { texts: config.language };
    this.transfers = config.handoffs.map((handoff) => {
      const { agent: to, context } = handoff;
      return { to, context, tool: transferTool(handoff, settings.agents[to]?.description) };
    });
    this.passes = new Map(config.team?.select === "handoff" ? passesOf(settings, config.team.members) : []);
    this.helpers = new Map(
      config.helpers.map((link) => {
        return [link.as, { link, tool: helperTool(link, settings.agents[link.agent]?.description) }] as const;
      }),
    );
    this.#models = models;
  }

  /** `<provider>/<id>` of the model that answers without a choice. */
  get defaultModel(): string {
    return this.#models.usual.name;
  }

  /** For the turn of a message. */
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

/** By name. */
export function agentsOf(settings: LarklineConfig, { ofAgents }: AgentModels): Map<string, Agent> {
  const agents = new Map<string, Agent>();
  for (const config of Object.values(settings.agents)) {
    const models = ofAgents.get(config.name);
    if (models !== undefined) agents.set(config.name, new Agent(settings, config, models)); // each has models
  }
  return agents;
}

/** The agent that answers a message. */
export function agentFor({ settings, agents, log }: Services, message: InboundMessage): Agent {
  const { session, agent = "default" } = message;
  const accepted = agents.get(agent);
  if (accepted !== undefined) return accepted;
  const { name } = agentOfMessage(settings, message);
  log.warn({ session, agent, answeredBy: name }, "the agent of a message is not configured any more");
  const found = agents.get(name);
  if (found === undefined) throw new RangeError(`no agent ${name}`); // it is one of them
  return found;
}

/** The bounds of every turn of an agent. */
export function limitsOf({ limits, permissions }: LarklineConfig, { maxIterations }: AgentConfig): TurnLimits {
  const { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars, handoffsPerTurn: maxTransfers } = limits;
  const { stepsPerTurn: maxStepsWithHelpers } = limits;
  const { maxDenials } = permissions;
  const ofCalls = { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars, maxDenials };
  return turnLimits({ maxIterations, ...ofCalls, maxTransfers, maxStepsWithHelpers });
}

/** Money is counted by prices. */
export function warnOfMissingPrices({ settings, agents, log }: Services): void {
  if (!settings.budgets.budgets.some(({ usd }) => usd !== undefined)) return;
  for (const agent of agents.values()) {
    const all = [undefined, ...agent.config.models].flatMap((name) => agent.modelOf(name).chain.models);
    const free = all.filter(({ inputPricePer1M, outputPricePer1M }) => inputPricePer1M + outputPricePer1M === 0);
    if (free.length === 0) continue;
    const facts = { agent: agent.name, models: [...new Set(free.map(({ id }) => id))].join(", ") };
    log.warn(facts, "budgets in money do not count these models: their prices are unknown (models[] can give them)");
  }
}

/** A model that answers, with its fallbacks. */
export interface ChosenModel {
  /** `<provider>/<id>` of the first. */
  name: string;
  chain: ModelChain;
  /** What a turn needs to know about it: facts of the first, prices of whichever answered. */
  model: TurnModel;
}

/** The models of one agent: its own, and those that people may choose. */
export interface ModelChoices {
  usual: ChosenModel;
  /** By name. Each falls back to the usual ones. */
  offered: ReadonlyMap<string, ChosenModel>;
}

/** The models of all agents. */
export interface AgentModels {
  /** `<provider>/<id>` of the model that an agent without one of its own has. */
  defaultName: string;
  /** By name of the agent. */
  ofAgents: ReadonlyMap<string, ModelChoices>;
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
  const ofAgents = new Map(made.flatMap(({ name, choices }) => (choices.ok ? [[name, choices.value]] : [])));
  return { ok: true, value: { defaultName: nameOf(first), ofAgents } };
}

/** The model of a deployment that names none: one of a vendor that it has a key for. */
function standardModel({ anthropic, openai }: ModelProviders): string | undefined {
  if (anthropic?.apiKey !== undefined) return standardModels.anthropic;
  return openai?.apiKey === undefined ? undefined : standardModels.openai;
}

interface ChainSources {
  /** Those of `MODEL`. */
  usual: ModelChoice[];
  settings: LarklineConfig;
  providers: ModelProviders;
  /** Models of one provider share a client; modules have made theirs. */
  backends: Map<string, LlmBackend>;
  /** Turns that this process runs at once. */
  slots: number;
  clock: Clock;
  random: Random;
  /** By name: what all agents of this process know of a model. */
  health: Map<string, ModelHealth>;
}

function choicesOf(agent: AgentConfig, sources: ChainSources): ParseResult<ModelChoices> {
  const { name, model, models, team } = agent;
  const known = { providers: sources.providers, models: sources.settings.models };
  const where = `larkline.config.ts: ${team === null ? "agents" : "teams"}.${name}${team === null ? "" : ".selector"}`;
  const own: ParseResult<ModelChoice[]> =
    model === null ? { ok: true, value: sources.usual } : readModelNames(model, known);
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : readModelNames(models.join(","), known);
  if (!own.ok) return { ok: false, error: `${where}.model: ${own.error}` };
  if (!offered.ok) return { ok: false, error: `${where}.models: ${offered.error}` };
  const [first] = own.value;
  if (first === undefined) return { ok: false, error: `${where} has no model.` };
  const offeredModels = offered.value.map((choice) => {
    const others = own.value.filter((other) => nameOf(other) !== nameOf(choice));
    return [nameOf(choice), chosenOf(choice, chainOf([choice, ...others], sources, agent))] as const;
  });
  return {
    ok: true,
    value: { usual: chosenOf(first, chainOf(own.value, sources, agent)), offered: new Map(offeredModels) },
  };
}

function nameOf({ provider, id }: ModelChoice): string {
  return `${provider}/${id}`;
}

function chainOf(
  choices: readonly ModelChoice[],
  { settings, providers, slots, clock, random, backends, health }: ChainSources,
  agent: AgentConfig,
): ModelChain {
  const models = choices.map(({ provider, id }) => {
    const backend = backends.get(provider) ?? backendOf(provider, providers, clock);
    backends.set(provider, backend);
    const name = nameOf({ provider, id });
    const known = health.get(name) ?? new ModelHealth({ slots, clock });
    health.set(name, known);
    return {
      info: findModelInfo(provider, id, settings.models),
      backend,
      health: known,
      extra: joinedExtra(providers[provider]?.extra, agent.extra[provider]),
      hostedTools: agent.hostedTools[provider] ?? [],
    };
  });
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
  if (access === undefined || access.type === "module") throw new RangeError(`no provider ${provider}`);
  const { type, apiKey = noKey, baseUrl, profile } = access;
  const reached = {
    apiKey,
    clock,
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(profile === undefined ? {} : { profile }),
  };
  if (type === "anthropic") return createAnthropicBackend(reached);
  return type === "openai" ? createOpenAiChatBackend(reached) : createOpenAiResponsesBackend(reached);
}

function chosenOf(choice: ModelChoice, chain: ModelChain): ChosenModel {
  return { name: nameOf(choice), chain, model: turnModelOf(chain) };
}

function turnModelOf(chain: ModelChain): TurnModel {
  const byId = new Map(chain.models.map((info) => [info.id, info]));
  return {
    info: chain.primary,
    costUsd: (usage, model) => costOf(usage, byId.get(model ?? "") ?? chain.primary),
  };
}

// The agent that answers: in a turn that begins or continues, to which agents it may hand over or give a task, and
// which ones a person may choose.

/** Who answers a message. */
export interface Speaker {
  agent: Agent;
  /** The checkpoint, with that agent as the one that answers. */
  turn: TurnState | undefined;
  /** The agent that the message is for does not answer this person here. */
  isRefused: boolean;
  /** The agent that answered is not configured any more: the session forgets it. */
  isGone: boolean;
  /** The note to the person about it, if any. */
  notes: string[];
}

/**
 * Chooses the agent that answers. A turn that continues keeps its agent. A new turn gets the agent that the session was
 * handed over to, if it is still configured and the person may use it; otherwise the agent that the message is for.
 */
export async function speakerIn(services: Services, { turn, head, settings }: TurnStart): Promise<Speaker> {
  const { message } = turn ?? head;
  const entry = agentFor(services, message);
  const team = turn === undefined ? undefined : teamOfTurn(turn);
  if (turn !== undefined && team !== undefined) return memberIn(services, turn, { team, entry });
  const wanted = turn === undefined ? agentOfSession(settings, message) : turn.agent;
  const active = wanted === undefined ? undefined : services.agents.get(wanted);
  const speak = (agent: Agent, note?: "agentGone" | "agentElsewhere"): Speaker => {
    const language = languageOfMessage(message, agent.speech.texts);
    const notes = note === undefined ? [] : [noticeText(note, language, { agent: wanted ?? "", now: agent.name })];
    return { agent, turn, isRefused: false, isGone: note === "agentGone", notes };
  };
  const isGone = wanted !== undefined && active === undefined;
  if (turn !== undefined) {
    if (!isGone) return speak(active ?? entry);
    const { agent: _gone, ...rest } = turn;
    return { ...speak(entry, "agentGone"), turn: rest };
  }
  if (active !== undefined && (await answers(services, active, message))) return speak(active);
  const isRefused = !(await answers(services, entry, message));
  const note = active === undefined ? "agentGone" : "agentElsewhere";
  return { ...speak(entry, wanted === undefined ? undefined : note), isRefused };
}

/**
 * The member that answers in a turn of a team. If it is not configured any more, another one follows. Without its team
 * a member answers alone.
 */
function memberIn({ agents }: Services, turn: TurnState, { team, entry }: { team: TeamState; entry: Agent }): Speaker {
  const speaker = { turn, isRefused: false, isGone: false, notes: [] };
  const together = agents.get(team.name);
  const member = turn.agent === undefined ? undefined : agents.get(turn.agent);
  if (together !== undefined && together.config.team !== null) {
    if (member === undefined || team.choosing === true) return { ...speaker, agent: together };
    return { ...speaker, agent: member };
  }
  return { ...speaker, agent: member ?? entry, turn: withoutTeam(turn) };
}

/** Whether an agent answers the person of a message in its chat. A team answers if one of its members does. */
async function answers(services: Services, agent: Agent, message: InboundMessage): Promise<boolean> {
  for (const one of agentsIn(services, agent)) if (await answersAlone(services, one, message)) return true;
  return false;
}

/** Their groups are looked up where they can decide it. */
async function answersAlone(
  services: Services,
  { config: { access } }: Agent,
  message: InboundMessage,
): Promise<boolean> {
  if (access === null) return true;
  const { app, sender, session } = message;
  const { reply } = peopleOf(message);
  const { roles: known } = services.settings.permissions;
  const may = (groups: readonly string[]): boolean =>
    hasAccess(access, { person: { id: sender.id, groups }, chatId: chatOf(message), known });
  if (may([])) return true;
  const named = (access.roles ?? []).flatMap((role) => (Object.hasOwn(known, role) ? (known[role]?.groups ?? []) : []));
  if (reply.channel === "none" || !may(named)) return false;
  try {
    return may(await groupsOf(services, app, sender.id));
  } catch (error) {
    services.log.warn({ error, session }, "user groups unknown; an agent that depends on them does not answer");
    return false;
  }
}

/** The agent that a session was handed over to; undefined where its messages go to the agent that they are for. */
function agentOfSession({ agent }: SessionChoices, message: InboundMessage): string | undefined {
  return agent !== undefined && agent.from === (message.agent ?? "default") ? agent.to : undefined;
}

/** The agents whose rights count for an agent: its own, of a team those of its members. */
export function agentsIn({ agents }: Services, agent: Agent): Agent[] {
  const { team } = agent.config;
  return team === null ? [agent] : team.members.flatMap((name) => agents.get(name) ?? []);
}

/** Whether an operator has paused it. */
export function isPaused({ pauses }: Services, agent: string): boolean {
  return pauses.hasAny && pauses.of("agent", agent) !== undefined;
}

/** The end of the turn when a model would be asked and the agent that answers, or its team, is paused. */
export function pausedEnd(
  services: Services,
  { agent, stored: { turn } }: Pick<RunningTurn, "agent" | "stored">,
  next: Transition["next"],
): Transition | undefined {
  if (next.do !== "model" && next.do !== "compact" && next.do !== "choose") return undefined;
  const name = pausedIn(services, turn, agent.name);
  return name === undefined ? undefined : endPaused(turn, name, agent.speech.texts);
}

/** The team of a turn, or the agent that answers in it, if an operator has paused it. */
export function pausedIn(services: Services, turn: TurnState, agent = agentOfTurn(turn)): string | undefined {
  return [teamOfTurn(turn)?.name ?? agent, agent].find((one) => isPaused(services, one));
}

/** Whether the person may use an agent here. */
export type MayUse = (agent: Agent) => boolean;

/** The facts that decide which agents may answer. */
export interface WordFacts {
  chosenModel: string | undefined;
  mayUse: MayUse;
}

/**
 * The hand-overs of the agent that answers, by the name of their call; undefined where it has none. In a team they lead
 * to its members only. `team`: the team of the turn.
 */
export function transfersOf(
  services: Services,
  { agent, team, ...facts }: WordFacts & { agent: Agent; team: Agent | undefined },
): ReadonlyMap<string, TransferTarget> | undefined {
  const { agents } = services;
  const passes = [...(team?.passes.values() ?? [])].filter(({ to }) => to !== agent.name);
  const offered = team === undefined ? agent.transfers : passes.map((pass) => ({ ...pass, context: "all" as const }));
  if (offered.length === 0) return undefined;
  const targets = offered.flatMap(({ to, context, tool }): [string, TransferTarget][] => {
    const target = agents.get(to);
    if (target === undefined) return [];
    const { model } = target.modelOf(facts.chosenModel);
    const isAllowed = facts.mayUse(target);
    const together = teamFactsOf(services, target, facts);
    const members = together === undefined ? {} : { team: together };
    return [[tool.spec.name, { to, context, tool, isAllowed, model, ...members }]];
  });
  return new Map(targets);
}

/** The team that answers in a run, or in the turn that begins, and the bounds of that turn. */
export function teamOfRun(
  services: Services,
  { agent, first, stored: { turn } }: Pick<RunningTurn, "agent" | "first" | "stored">,
  facts: WordFacts,
): { together?: Agent; team?: TeamFacts; limits: TurnLimits } {
  const state = teamOfTurn(turn);
  const together = state === undefined ? agent : services.agents.get(state.name);
  const team = together === undefined ? undefined : teamFactsOf(services, together, facts);
  if (together === undefined || team === undefined) return { limits: first.limits };
  // A contribution has as many steps as a turn of its agent.
  const maxIterations = (state?.fromStep ?? 0) + agent.limits.maxIterations;
  return { together, team, limits: { ...first.limits, maxIterations } };
}

/** A team for the person of a turn: whom of its members they may use. */
function teamFactsOf({ agents }: Services, { name, config }: Agent, facts: WordFacts): TeamFacts | undefined {
  if (config.team === null) return undefined;
  const { members, ...settings } = config.team;
  const known = members.flatMap((member) => agents.get(member) ?? []);
  return {
    ...settings,
    name,
    members: known.map((member) => ({
      name: member.name,
      description: member.config.description,
      isAllowed: facts.mayUse(member),
      model: member.modelOf(facts.chosenModel).model,
    })),
  };
}

/** The helpers of the agent that answers. */
export function helpersOf({ agents, helperReadiness }: Services, agent: Agent, mayUse: MayUse): HelperFacts {
  const targets = [...agent.helpers].flatMap(([name, { link, tool }]): [string, HelperTarget][] => {
    const target = agents.get(link.agent);
    if (target === undefined) return [];
    return [[name, { agent: link.agent, tool, timeoutMs: link.timeoutMs, isAllowed: mayUse(target) }]];
  });
  return { targets: new Map(targets), isReady: helperReadiness.isReady };
}

/** The end of a turn whose message is for an agent that does not answer this person; undefined for others. */
export function refusalOf(
  { clock }: Services,
  { agent, isRefused }: Speaker,
  head: QueuedMessage,
): Transition | undefined {
  if (!isRefused) return undefined;
  const language = languageOfMessage(head.message, agent.speech.texts);
  return refuseTurn(head, clock.now(), noticeText("agentRefused", language, { agent: agent.name }));
}

/** What a command depends on. */
export function commandFactsOf(
  services: Services,
  { agent, model, start, mayUse }: { agent: Agent; model: string; start: TurnStart; mayUse: MayUse },
): CommandFacts {
  const { defaultModel, speech, config } = agent;
  const agents = agentFactsOf(services, start.head.message, agent.name, mayUse);
  const choices = start.settings;
  const nowMs = services.clock.now();
  return { nowMs, model, defaultModel, models: config.models, ...speech, choices, agents };
}

/**
 * What `/agent` says: the agents that the person may use among those that the conversation can come to by hand-overs from
 * the agent that its messages are for. A bot's people reach no agent in this way that its configuration does not lead to.
 */
function agentFactsOf(services: Services, message: InboundMessage, now: string, mayUse: MayUse): AgentFacts {
  const entry = agentFor(services, message);
  const reachable = [entry];
  for (const { transfers } of reachable) {
    for (const { to } of transfers) {
      const agent = services.agents.get(to);
      if (agent !== undefined && !reachable.includes(agent)) reachable.push(agent);
    }
  }
  const known = reachable.filter(mayUse);
  return { now, known: known.map(({ name, config: { description } }) => ({ name, description })) };
}

/** The choices of a session after a turn, if they are other ones; `chosen`: by the turn itself. */
export function choicesAfter(
  turn: TurnState,
  { settings: before, isAgentGone: isGone = false }: Pick<TurnStart, "settings" | "isAgentGone">,
  chosen: SessionChoices | undefined,
): SessionChoices | undefined {
  const { message } = turn;
  const handOvers = handedOverBy(turn).length;
  if (handOvers === 0 && (!isGone || chosen !== undefined)) return chosen;
  const { agent: _agent, ...rest } = chosen ?? before;
  const [from, to] = [message.agent ?? "default", teamOfTurn(turn)?.name ?? agentOfTurn(turn)];
  return handOvers === 0 || to === from ? rest : { ...rest, agent: { from, to } };
}

/** The features that a process needs to continue a session with these choices. */
export function needsOfChoices({ agents }: Services, { agent }: SessionChoices): readonly string[] {
  if (agent === undefined) return [];
  const isTeam = (agents.get(agent.to)?.config.team ?? null) !== null;
  return isTeam ? ["hand-over", "team"] : ["hand-over"];
}

/** The name of an agent that answers in place of the one that the message is for. */
export function agentOtherThan({ agent: entry = "default" }: InboundMessage, { name }: Agent): string | undefined {
  return name === entry ? undefined : name;
}
