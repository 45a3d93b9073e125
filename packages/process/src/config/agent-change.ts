import {
  budgetPeriods,
  type Budget,
  type BudgetLimit,
  type BudgetPolicy,
} from "@larkline/agent/budgets";
import type { AgentChange } from "@larkline/store/operations";
import { createHash } from "node:crypto";
import type { AgentConfig, LarklineConfig } from "./resolved-config.ts";

// What operators may change of an agent at the console. The file is the bound: a version can narrow what the file gives
// an agent, and choose among what it offers; who may use an agent, what needs approval and what its tools may reach are
// not part of a version.

const limitNames = [
  "maxIterations",
  "maxOutputTokens",
  "maxCallsPerStep",
  "toolTimeoutMs",
] as const;
const units = ["tokens", "usd"] as const;

/** What the file gives an agent: no version goes beyond it. */
export interface AgentBounds {
  instructions: string;
  /** Models that a version may choose among. */
  models: readonly string[];
  /** Those of servers that operators have added, which no file has. */
  added: readonly string[];
  /** Null: every tool of every runner. */
  tools: readonly string[] | null;
  limits: Record<(typeof limitNames)[number], number>;
  /** What is absent has no limit. */
  budgets: Record<Budget["period"], BudgetLimit>;
}

/** A part of a change that the file does not allow; `most`: what it allows. */
export interface ChangeProblem {
  /** As a form names it: `model`, `tools`, `limits.maxIterations`, `budgets.day.usd`. */
  field: string;
  kind: "not_offered" | "above_file";
  /** Names that are not offered, or the file's number. */
  detail: string;
}

/** Tokens of a step where the file does not say: see `maxOutputTokens` of an agent. */
const usualOutput = { fast: 4_096, other: 32_000 };

/** `added`: models of servers that operators have added. */
export function agentBounds(
  { limits, budgets }: LarklineConfig,
  config: AgentConfig,
  added: readonly string[] = [],
): AgentBounds {
  const { instructions, models, tools, maxIterations, request } = config;
  const { maxTokens = request.fastMode === true ? usualOutput.fast : usualOutput.other } = request;
  const { maxCallsPerStep, toolTimeoutMs } = limits;
  return {
    instructions,
    models,
    added,
    tools,
    limits: { maxIterations, maxOutputTokens: maxTokens, maxCallsPerStep, toolTimeoutMs },
    budgets: {
      day: budgetOf(budgets, config.name, "day"),
      month: budgetOf(budgets, config.name, "month"),
    },
  };
}

/** What the file lets an agent spend; who is named has that limit alone. */
function budgetOf({ budgets }: BudgetPolicy, agent: string, period: Budget["period"]): BudgetLimit {
  const own = budgets.filter((budget) => budget.per === "agent" && budget.period === period);
  const { tokens, usd } =
    own.find(({ of }) => of?.includes(agent) === true) ??
    own.find(({ of }) => of === undefined) ??
    {};
  return { ...(tokens === undefined ? {} : { tokens }), ...(usd === undefined ? {} : { usd }) };
}

/** Of the file's agent: whether it is still the one that a version was made for. */
export function agentHash({ added: _added, ...bounds }: AgentBounds): string {
  return createHash("sha256").update(JSON.stringify(bounds)).digest("hex").slice(0, 16);
}

/**
 * The part of a change that counts, and what of it the file does not allow. A new version must have no problems. Of one
 * that the file has changed under, tools that are not offered drop out, and numbers above the file's are the file's: what
 * an operator has taken from an agent stays taken.
 */
export function narrowChange(
  bounds: AgentBounds,
  change: AgentChange,
): { counts: AgentChange; problems: ChangeProblem[] } {
  const problems: ChangeProblem[] = [];
  const { model, tools, limits = {}, budgets = {}, ...counts } = structuredClone(change);
  const atMost = (field: string, wanted: number, most: number | undefined): number => {
    if (most === undefined || wanted <= most) return wanted;
    problems.push({ field, kind: "above_file", detail: String(most) });
    return most;
  };
  const narrowed: AgentChange = counts;
  if (model !== undefined && [...bounds.models, ...bounds.added].includes(model)) {
    narrowed.model = model;
  } else if (model !== undefined) {
    problems.push({ field: "model", kind: "not_offered", detail: model });
  }
  if (tools !== undefined) {
    narrowed.tools = tools.filter((tool) => bounds.tools?.includes(tool) ?? true);
    const others = tools.filter((tool) => bounds.tools?.includes(tool) === false);
    if (others.length > 0) {
      problems.push({ field: "tools", kind: "not_offered", detail: others.join(", ") });
    }
  }
  for (const name of limitNames) {
    const wanted = limits[name];
    if (wanted === undefined) continue;
    narrowed.limits = {
      ...narrowed.limits,
      [name]: atMost(`limits.${name}`, wanted, bounds.limits[name]),
    };
  }
  for (const period of budgetPeriods) {
    for (const unit of units) {
      const wanted = budgets[period]?.[unit];
      if (wanted === undefined) continue;
      const most = bounds.budgets[period][unit];
      const amount = atMost(`budgets.${period}.${unit}`, wanted, most);
      narrowed.budgets = {
        ...narrowed.budgets,
        [period]: { ...narrowed.budgets?.[period], [unit]: amount },
      };
    }
  }
  return { counts: narrowed, problems };
}

/**
 * What the file says of an agent and a version covers: an edit of it there has no effect. As a form names the fields.
 */
export function coveredFields(bounds: AgentBounds, change: AgentChange): string[] {
  const {
    instructions,
    model,
    tools,
    limits = {},
    budgets = {},
  } = narrowChange(bounds, change).counts;
  return [
    ...(instructions === undefined || instructions === bounds.instructions ? [] : ["instructions"]),
    ...(model === undefined ? [] : ["model"]),
    ...(tools === undefined ? [] : ["tools"]),
    ...limitNames.flatMap((name) => (limits[name] === undefined ? [] : [`limits.${name}`])),
    ...budgetPeriods.flatMap((period) =>
      units.flatMap((unit) =>
        budgets[period]?.[unit] === undefined ? [] : [`budgets.${period}.${unit}`],
      ),
    ),
  ];
}

/** The deployment with its agents changed so. Changes of agents that it does not have, and of teams, do not count. */
export function withChanges(
  settings: LarklineConfig,
  changes: ReadonlyMap<string, AgentChange>,
  added: readonly string[] = [],
): ChangedConfig {
  const agents = new Map<string, ChangedAgent>();
  let { budgets } = settings;
  for (const [name, wanted] of changes) {
    const config = Object.hasOwn(settings.agents, name) ? settings.agents[name] : undefined;
    if (config === undefined || config.team !== null) continue;
    const bounds = agentBounds(settings, config, added);
    const {
      instructions = config.instructions,
      model,
      tools = config.tools,
      limits = {},
      ...counts
    } = narrowChange(bounds, wanted).counts;
    const { maxIterations = config.maxIterations, maxOutputTokens, ...ofCalls } = limits;
    const maxTokens = maxOutputTokens === undefined ? {} : { maxTokens: maxOutputTokens };
    const request = { ...config.request, ...maxTokens };
    agents.set(name, {
      config: { ...config, instructions, tools, maxIterations, request },
      limits: { ...settings.limits, ...ofCalls },
      model,
    });
    for (const period of budgetPeriods) {
      const limit = counts.budgets?.[period];
      if (limit === undefined) continue;
      budgets = withBudget(budgets, {
        per: "agent",
        period,
        of: [name],
        ...bounds.budgets[period],
        ...limit,
      });
    }
  }
  return { agents, budgets };
}

/** What may be spent with the versions that count. */
export function budgetsWith(
  settings: LarklineConfig,
  { inForce }: { inForce: ReadonlyMap<string, { change: AgentChange }> },
): BudgetPolicy {
  return withChanges(settings, new Map([...inForce].map(([agent, { change }]) => [agent, change])))
    .budgets;
}

/** What changes of agents make of the file. */
export interface ChangedConfig {
  /** Those that are changed, by name. */
  agents: ReadonlyMap<string, ChangedAgent>;
  budgets: BudgetPolicy;
}

export interface ChangedAgent {
  config: AgentConfig;
  limits: LarklineConfig["limits"];
  /** The one of its `models` that answers where people choose none; undefined: as in the file. */
  model: string | undefined;
}

/** With this budget in place of others for the agent that it names. */
function withBudget(policy: BudgetPolicy, budget: Budget): BudgetPolicy {
  const others = policy.budgets.map((one) =>
    one.per === budget.per && one.period === budget.period && one.of !== undefined
      ? { ...one, of: one.of.filter((id) => budget.of?.includes(id) !== true) }
      : one,
  );
  return { ...policy, budgets: [...others, budget] };
}
