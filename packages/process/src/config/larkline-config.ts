import { allAbilities } from "@larkline/agent";
import type { BudgetPolicy } from "@larkline/agent/budgets";
import type { Handoff, HelperLink, TeamSettings } from "@larkline/agent";
import {
  completeModelInfo,
  type ChainRequest,
  type HostedTool,
  type ModelInfo,
  type RequestExtra,
} from "@larkline/model";
import type { Access, PermissionPolicy } from "@larkline/agent/permissions";
import {
  outputFormProblem,
  parserOf,
  type OutputForm,
  type ParseResult,
  type RunModelOptions,
} from "@larkline/protocol";
import {
  ConfigInput,
  type AgentInput,
  type TeamInput,
  type BusyPolicy,
  type CardInput,
  type CurrencyInput,
  type EventsInput,
  type GroupPolicy,
  type LimitsInput,
  type SessionScope,
  type WebhookInput,
  defaultRetention,
  type RetentionSettings,
} from "./config-schema.ts";
import { Type } from "@larkline/protocol/type";
import { accessOf, agentLinkProblems, handoffsOf, helpersOf, teamOf, teamProblems } from "./agent-links.ts";
import { resolveBots, type BotConfig } from "./bot-config.ts";
import { resolveBudgets } from "./budget-config.ts";
import { resolveMcp, type McpConfig } from "./mcp-config.ts";
import { resolvePermissions } from "./permission-config.ts";
import { resolveProviders, type ProviderInput, type TranscriptionInput } from "./provider-config.ts";

/** An agent with its defaults filled in. `null` in `model` and `tools` means "no own choice". */
export interface AgentConfig {
  readonly name: string;
  readonly instructions: string;
  readonly model: string | null;
  readonly maxIterations: number;
  readonly tools: readonly string[] | null;
  /** Hosts that its tools may reach unasked, besides what people name. */
  readonly egress: readonly string[];
  readonly groups: GroupPolicy;
  /** Messages of a group that were not for the bot and that its model reads with the next one; 0: none. */
  readonly groupContext: number;
  readonly models: readonly string[];
  readonly busy: BusyPolicy;
  readonly sessions: SessionScope;
  readonly reply: "card" | "text";
  readonly card: Readonly<Required<CardInput>>;
  readonly language: "auto" | "zh" | "en";
  readonly defaultLanguage: "zh" | "en";
  readonly commands: Readonly<Record<string, { description: string; prompt: string }>>;
  /** What it says of abilities, by their names. */
  readonly abilities: Readonly<Record<string, unknown>>;
  /** Options of its model requests. */
  readonly request: ModelOptions;
  /** What goes with its requests, by provider. */
  readonly extra: Readonly<Record<string, RequestExtra>>;
  /** Tools that vendors run for it, by provider. */
  readonly hostedTools: Readonly<Record<string, readonly HostedTool[]>>;
  /** The form of its answers; null where they are free text. */
  readonly output: OutputForm | null;
  /** Description for others. */
  readonly description: string | undefined;
  /** Whom it may hand over to. */
  readonly handoffs: readonly Handoff[];
  /** Whom it may give tasks to. */
  readonly helpers: readonly HelperLink[];
  /** Whom and where it answers; null: everybody, everywhere. */
  readonly access: Access | null;
  /** The agents that answer in turns where this is a team; `model` is the one that chooses then. */
  readonly team: TeamSettings | null;
}

/** Values of a model request that an agent may set; what is absent is not sent. */
export type ModelOptions = Pick<
  ChainRequest,
  "needsThinking" | "effort" | "temperature" | "topP" | "maxTokens" | "fastMode" | "storeResponses"
>;

/** The configuration of a deployment, complete. `agents` and `bots` always have `default`; teams are among the agents. */
export interface LarklineConfig {
  readonly agents: Readonly<Record<string, AgentConfig>> & { readonly default: AgentConfig };
  readonly models: readonly ModelInfo[];
  /** Besides the built-in ones; `readProviders` adds those, and the keys. */
  readonly providers: Readonly<Record<string, ProviderInput>>;
  /** Absent: voice messages are read only where the platform has written them down. */
  readonly transcription?: TranscriptionInput;
  readonly limits: Readonly<Required<LimitsInput>>;
  readonly bots: Readonly<Record<string, BotConfig>> & { readonly default: BotConfig };
  /** Further forms of the timestamp that webhooks carry; each matches whole texts and gives an instant. */
  readonly webhook: { readonly timestampForms: readonly RegExp[] };
  /** Handlers of platform events that Larkline does not use itself; `loadConfigFile` makes URLs of the modules. */
  readonly events: { readonly modules: readonly string[]; readonly url: string | undefined };
  readonly permissions: PermissionPolicy;
  readonly budgets: BudgetPolicy;
  readonly mcp: McpConfig;
  /** The runners that names of tools belong to, by name or by prefix that ends in `*`. */
  readonly toolOwners: ReadonlyMap<string, string>;
  /** Modules with observers; `loadConfigFile` makes URLs of them. */
  readonly observers: readonly string[];
  readonly retention: RetentionSettings;
  readonly sandbox: { readonly allowUnboundedMemory: boolean };
  /** Address of the console, without a slash at its end. */
  readonly consoleUrl: string | undefined;
  /** Operators may change agents at the console. */
  readonly changesAgents: boolean;
  /** Of the costs on cards; undefined: US dollars. */
  readonly currency: CurrencyInput | undefined;
}

const defaultLimits: Required<LimitsInput> = {
  messageAgeMs: 600_000,
  messageChars: 50_000,
  attachmentBytes: 20_000_000,
  attachmentChars: 60_000,
  attachmentTimeoutMs: 30_000,
  attachmentCpuMs: 5_000,
  maxCallsPerStep: 64,
  handoffsPerTurn: 8,
  stepsPerTurn: 64,
  toolTimeoutMs: 600_000,
  toolWaitMs: 30_000,
  maxResultChars: 100_000,
  stepBytes: 1_000_000,
  modelSilenceMs: 30_000,
  modelThinkingMs: 300_000,
  modelRetryMs: 300_000,
};

const defaultCard: Required<CardInput> = {
  thinking: true,
  tools: true,
  model: true,
  tokens: true,
  cost: true,
  seconds: true,
  trace: true,
};

const defaultInstructions =
  "You are a helpful assistant in a team chat. Answer in the language of the question, briefly and honestly. " +
  "Use a tool when it gives a better answer than memory, and say so when you do not know.";

function behaviourOf(input: AgentInput) {
  return {
    models: input.models ?? [],
    busy: input.busy ?? "queue",
    sessions: input.sessions ?? "chat",
    reply: input.reply ?? "card",
    card: { ...defaultCard, ...input.card },
    language: input.language ?? "auto",
    defaultLanguage: input.defaultLanguage ?? "zh",
    commands: input.commands ?? {},
    abilities: abilitiesOf(input),
  } as const;
}

function abilitiesOf(input: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    allAbilities.flatMap(({ name }) => (input[name] === undefined ? [] : [[name, input[name]]])),
  );
}

function requestOf(input: AgentInput): ModelOptions {
  const { fast, storeResponses = false } = input;
  return {
    ...modelOptionsOf(input),
    ...(storeResponses ? { storeResponses } : {}),
    ...(fast === undefined ? {} : { fastMode: fast }),
  };
}

/** Options of a run or an agent as requests have them. */
export function modelOptionsOf(options: RunModelOptions): ModelOptions {
  const { thinking, effort, temperature, topP, maxOutputTokens } = options;
  return {
    ...(thinking === undefined ? {} : { needsThinking: thinking }),
    ...(effort === undefined ? {} : { effort }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { topP }),
    ...(maxOutputTokens === undefined ? {} : { maxTokens: maxOutputTokens }),
  };
}

function agentOf(name: string, input: AgentInput): AgentConfig {
  return {
    name,
    instructions: input.instructions ?? defaultInstructions,
    model: input.model ?? null,
    maxIterations: input.maxIterations ?? 25,
    tools: input.tools ?? null,
    egress: input.egress ?? [],
    groups: input.groups ?? "mention",
    groupContext: input.groupContext ?? 0,
    request: requestOf(input),
    extra: input.extra ?? {},
    hostedTools: input.hostedTools ?? {},
    output: input.output ?? null,
    description: input.description,
    handoffs: handoffsOf(input),
    helpers: helpersOf(input),
    access: accessOf(input),
    team: null,
    ...behaviourOf(input),
  };
}

/** A team as an agent: how it behaves in chats is as its first member does. */
function teamAgentOf(name: string, input: TeamInput, agents: Readonly<Record<string, AgentInput>>): AgentConfig {
  const { members, selector = {}, description = `A team: ${members.join(", ")}.` } = input;
  const { busy, sessions, reply, card, language, defaultLanguage, groups, groupContext } =
    agents[members[0] ?? ""] ?? {};
  const behaviour = { busy, sessions, reply, card, language, defaultLanguage, groups, groupContext };
  // Fields that are undefined count as absent.
  const plain = agentOf(name, { ...behaviour, model: selector.model, description, tools: [] } as AgentInput);
  return { ...plain, instructions: "", team: teamOf(input) };
}

/** The problem with the form of the answers of an agent. */
function outputProblems(name: string, { output }: AgentInput): string[] {
  const problem = output === undefined ? undefined : outputFormProblem(output);
  return problem === undefined ? [] : [`agents.${name}.output.${problem}`];
}

const calendarGroups = ["year", "month", "day", "hour", "minute", "second", "zone"];

/** Checks that a timestamp form yields an instant: without one, old requests would pass. */
function timestampForm(source: string): ParseResult<RegExp> {
  const where = `webhook.timestampForms: '${source}'`;
  try {
    const form = new RegExp(`^(?:${source})$`);
    const named = (name: string) => source.includes(`(?<${name}>`);
    if (["seconds", "millis", "micros"].some(named) || calendarGroups.every(named)) return { ok: true, value: form };
    return {
      ok: false,
      error: `${where} has neither the group seconds, millis or micros nor all of ${calendarGroups.join(", ")}`,
    };
  } catch {
    return { ok: false, error: `${where} is not a regular expression` };
  }
}

function resolveWebhook({ timestampForms = [] }: WebhookInput = {}): ParseResult<LarklineConfig["webhook"]> {
  const forms = timestampForms.map(timestampForm);
  const problems = forms.flatMap((form) => (form.ok ? [] : [form.error]));
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return { ok: true, value: { timestampForms: forms.flatMap((form) => (form.ok ? [form.value] : [])) } };
}

function resolveEvents({ modules = [], url }: EventsInput = {}): LarklineConfig["events"] {
  return { modules, url };
}

/** MCP servers, and whom names of tools belong to: those of a server to the runner that mounts it, unless stated otherwise. */
function resolveTools({ mcp, runners = {} }: ConfigInput): ParseResult<Pick<LarklineConfig, "mcp" | "toolOwners">> {
  const resolved = resolveMcp(mcp?.servers ?? {});
  const servers = resolved.ok ? resolved.value.servers : [];
  const owners = new Map<string, string>(
    servers.flatMap(({ name, runner }) => (runner === undefined ? [] : [[`${name}_*`, runner] as const])),
  );
  const said = new Map<string, string>();
  const problems = resolved.ok ? [] : [resolved.error];
  for (const [runner, { tools = [] }] of Object.entries(runners)) {
    for (const tool of tools) {
      const other = said.get(tool) ?? runner;
      if (other !== runner) problems.push(`runners.${runner}.tools: '${tool}' belongs to ${other} already`);
      said.set(tool, runner);
      owners.set(tool, runner);
    }
  }
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return { ok: true, value: { mcp: { servers }, toolOwners: owners } };
}

const mostProblems = { maxProblems: 100 };
const anything = Object.keys(ConfigInput.properties).map((name) => [name, Type.Optional(Type.Unknown())] as const);
const parseNames = parserOf(Type.Object(Object.fromEntries(anything), { additionalProperties: false }), mostProblems);
/** Each setting has a parser of its own, compiled where it is given: to compile all takes a tenth of a worker's start. */
const parsers = Object.entries(ConfigInput.properties).map(([name, schema]) => {
  return { name, parse: parserOf(Type.Object({ [name]: schema }), mostProblems) };
});

function parseInput(input: unknown): ParseResult<ConfigInput> {
  const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
  const given = isObject ? parsers.filter(({ name }) => name in input) : [];
  const results = [parseNames(input), ...given.map(({ parse }) => parse(input))];
  const problems = results.flatMap((result) => (result.ok ? [] : [result.error]));
  return problems.length === 0
    ? { ok: true, value: input as ConfigInput } // its names and each of its settings were checked
    : { ok: false, error: problems.join("; ") };
}

/** Fills in defaults after checking the whole input; the error lists every problem. */
export function resolveConfig(input: unknown): ParseResult<LarklineConfig> {
  const parsed = parseInput(input);
  if (!parsed.ok) return parsed;
  const { agents = {}, teams = {}, models = [], limits, observers = [] } = parsed.value;
  const named = Object.fromEntries(Object.entries(agents).map(([name, agent]) => [name, agentOf(name, agent)]));
  const together = Object.fromEntries(
    Object.entries(teams).map(([name, team]) => [name, teamAgentOf(name, team, agents)]),
  );
  const all = { ...together, ...named, default: agentOf("default", agents["default"] ?? {}) };
  const wrongAgents = [
    ...Object.entries(agents).flatMap(([name, agent]) => outputProblems(name, agent)),
    ...agentLinkProblems(parsed.value, Object.keys(all)),
    ...teamProblems(teams, [...Object.keys(named), "default"]),
  ];
  if (wrongAgents.length > 0) return { ok: false, error: wrongAgents.join("; ") };
  const bots = resolveBots(parsed.value, all);
  const permissions = resolvePermissions(parsed.value);
  const budgets = resolveBudgets(parsed.value);
  const tools = resolveTools(parsed.value);
  const webhook = resolveWebhook(parsed.value.webhook);
  const providers = resolveProviders(parsed.value.providers, models, agents);
  if (!bots.ok || !permissions.ok || !budgets.ok || !tools.ok || !webhook.ok || !providers.ok) {
    const problems = [bots, permissions, budgets, tools, webhook, providers].flatMap((result) =>
      result.ok ? [] : [result.error],
    );
    return { ok: false, error: problems.join("; ") };
  }
  return {
    ok: true,
    value: {
      agents: all,
      models: models.map(completeModelInfo),
      providers: providers.value,
      ...(parsed.value.transcription === undefined ? {} : { transcription: parsed.value.transcription }),
      limits: { ...defaultLimits, ...limits },
      bots: bots.value,
      webhook: webhook.value,
      events: resolveEvents(parsed.value.events),
      permissions: permissions.value,
      budgets: budgets.value,
      ...tools.value,
      observers,
      retention: { ...defaultRetention, ...parsed.value.retention },
      sandbox: { allowUnboundedMemory: parsed.value.sandbox?.allowUnboundedMemory === true },
      consoleUrl: parsed.value.console?.url?.replace(/\/+$/, ""),
      changesAgents: parsed.value.console?.changes === true,
      currency: parsed.value.currency,
    },
  };
}
