import { type LarklineConfig, type ModelOptions, type AgentConfig } from "./resolved-config.ts";
import { allAbilities } from "@larkline/agent";

import { completeModelInfo } from "@larkline/model";
import {
  outputFormProblem,
  parserOf,
  type ParseResult,
  type RunModelOptions,
} from "@larkline/protocol";
import {
  ConfigInput,
  type AgentInput,
  type TeamInput,
  type CardInput,
  type EventsInput,
  type LimitsInput,
  type WebhookInput,
  defaultRetention,
} from "./config-schema.ts";
import { Type } from "@larkline/protocol/type";
import {
  accessOf,
  agentLinkProblems,
  handoffsOf,
  helpersOf,
  teamOf,
  teamProblems,
} from "./agent-links.ts";
import { resolveBots } from "./bot-config.ts";
import { resolveBudgets } from "./budget-config.ts";
import { resolveMcp } from "./mcp-config.ts";
import { resolvePermissions } from "./permission-config.ts";
import { resolveProviders } from "./provider-config.ts";
import { resolveDoors } from "./doors-config.ts";

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
    title: input.title,
    description: input.description,
    handoffs: handoffsOf(input),
    helpers: helpersOf(input),
    access: accessOf(input),
    team: null,
    ...behaviourOf(input),
  };
}

/** A team as an agent: how it behaves in chats is as its first member does. */
function teamAgentOf(
  name: string,
  input: TeamInput,
  agents: Readonly<Record<string, AgentInput>>,
): AgentConfig {
  const { members, selector = {}, title, description = `A team: ${members.join(", ")}.` } = input;
  const { busy, sessions, reply, card, language, defaultLanguage, groups, groupContext } =
    agents[members[0] ?? ""] ?? {};
  const behaviour = {
    busy,
    sessions,
    reply,
    card,
    language,
    defaultLanguage,
    groups,
    groupContext,
  };
  // Fields that are undefined count as absent.
  const plain = agentOf(name, {
    ...behaviour,
    model: selector.model,
    title,
    description,
    tools: [],
  } as AgentInput);
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
    if (["seconds", "millis", "micros"].some(named) || calendarGroups.every(named)) {
      return { ok: true, value: form };
    }
    return {
      ok: false,
      error: `${where} has neither the group seconds, millis or micros nor all of ${calendarGroups.join(", ")}`,
    };
  } catch {
    return { ok: false, error: `${where} is not a regular expression` };
  }
}

function resolveWebhook({ timestampForms = [] }: WebhookInput = {}): ParseResult<
  LarklineConfig["webhook"]
> {
  const forms = timestampForms.map(timestampForm);
  const problems = forms.flatMap((form) => (form.ok ? [] : [form.error]));
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return {
    ok: true,
    value: { timestampForms: forms.flatMap((form) => (form.ok ? [form.value] : [])) },
  };
}

function resolveEvents({ modules = [], url }: EventsInput = {}): LarklineConfig["events"] {
  return { modules, url };
}

/** MCP servers, and whom names of tools belong to: those of a server to the runner that mounts it, unless stated otherwise. */
function resolveTools({
  mcp,
  runners = {},
}: ConfigInput): ParseResult<Pick<LarklineConfig, "mcp" | "toolOwners">> {
  const resolved = resolveMcp(mcp?.servers ?? {});
  const servers = resolved.ok ? resolved.value.servers : [];
  const owners = new Map<string, string>(
    servers.flatMap(({ name, runner }) =>
      runner === undefined ? [] : [[`${name}_*`, runner] as const],
    ),
  );
  const said = new Map<string, string>();
  const problems = resolved.ok ? [] : [resolved.error];
  for (const [runner, { tools = [] }] of Object.entries(runners)) {
    for (const tool of tools) {
      const other = said.get(tool) ?? runner;
      if (other !== runner) {
        problems.push(`runners.${runner}.tools: '${tool}' belongs to ${other} already`);
      }
      said.set(tool, runner);
      owners.set(tool, runner);
    }
  }
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return { ok: true, value: { mcp: { servers }, toolOwners: owners } };
}

const mostProblems = { maxProblems: 100 };
const anything = Object.keys(ConfigInput.properties).map(
  (name) => [name, Type.Optional(Type.Unknown())] as const,
);
const parseNames = parserOf(
  Type.Object(Object.fromEntries(anything), { additionalProperties: false }),
  mostProblems,
);
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
  const { agents = {}, teams = {}, models = [], observers = [], toolTitles = {} } = parsed.value;
  const { limits, transcription } = parsed.value;
  const named = Object.fromEntries(
    Object.entries(agents).map(([name, agent]) => [name, agentOf(name, agent)]),
  );
  const together = Object.fromEntries(
    Object.entries(teams).map(([name, team]) => [name, teamAgentOf(name, team, agents)]),
  );
  const all = { ...together, ...named, default: agentOf("default", agents["default"] ?? {}) };
  const wrongAgents = [
    ...Object.entries(agents).flatMap(([name, agent]) => outputProblems(name, agent)),
    ...agentLinkProblems(parsed.value, Object.keys(all)),
    ...teamProblems(teams, [...Object.keys(named), "default"]),
    ...consoleProblems(parsed.value),
  ];
  if (wrongAgents.length > 0) return { ok: false, error: wrongAgents.join("; ") };
  const bots = resolveBots(parsed.value, all);
  const permissions = resolvePermissions(parsed.value);
  const budgets = resolveBudgets(parsed.value);
  const tools = resolveTools(parsed.value);
  const webhook = resolveWebhook(parsed.value.webhook);
  const providers = resolveProviders(parsed.value.providers, models, agents);
  const doors = resolveDoors(parsed.value, all);
  if (
    !bots.ok ||
    !permissions.ok ||
    !budgets.ok ||
    !tools.ok ||
    !webhook.ok ||
    !providers.ok ||
    !doors.ok
  ) {
    const parts = [bots, permissions, budgets, tools, webhook, providers, doors];
    const problems = parts.flatMap((result) => (result.ok ? [] : [result.error]));
    return { ok: false, error: problems.join("; ") };
  }
  return {
    ok: true,
    value: {
      agents: all,
      models: models.map(completeModelInfo),
      providers: providers.value,
      ...(transcription === undefined ? {} : { transcription }),
      limits: { ...defaultLimits, ...limits },
      bots: bots.value,
      webhook: webhook.value,
      doors: doors.value,
      events: resolveEvents(parsed.value.events),
      toolTitles,
      permissions: permissions.value,
      budgets: budgets.value,
      ...tools.value,
      observers,
      retention: { ...defaultRetention, ...parsed.value.retention },
      sandbox: { allowUnboundedMemory: parsed.value.sandbox?.allowUnboundedMemory === true },
      ...resolveConsole(parsed.value),
      currency: parsed.value.currency,
    },
  };
}

function consoleProblems({ console: given }: ConfigInput): string[] {
  const { changes = false, models = false } = given ?? {};
  return models !== false && !changes
    ? ["console.models needs console.changes: agents are given a model at the console, too"]
    : [];
}

function resolveConsole({ console: given }: ConfigInput) {
  const { url, questions = false, changes = false, models = false } = given ?? {};
  const hosts = typeof models === "object" ? models.hosts : models ? [] : undefined;
  const modelHosts = changes ? hosts : undefined;
  const consoleUrl = url?.replace(/\/+$/, "");
  return { consoleUrl, keepsQuestions: questions, changesAgents: changes, modelHosts };
}
