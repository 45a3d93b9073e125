import type { BudgetPolicy } from "@larkline/budgets";
import { completeModelInfo, type ModelInfo } from "@larkline/model";
import type { PermissionPolicy } from "@larkline/permissions";
import { parserOf, type ParseResult } from "@larkline/protocol";
import {
  ConfigInput,
  type AgentInput,
  type BusyPolicy,
  type CardInput,
  type GroupPolicy,
  type LimitsInput,
  type SessionScope,
} from "./config-schema.ts";
import { resolveBots, type BotConfig } from "./bot-config.ts";
import { resolveBudgets } from "./budget-config.ts";
import { resolveMcp, type McpConfig } from "./mcp-config.ts";
import { resolvePermissions } from "./permission-config.ts";
import { defaultRetention, type RetentionSettings } from "./retention-config.ts";

/** An agent with its defaults filled in. `null` in `model` and `tools` means "no own choice". */
export interface AgentConfig {
  readonly name: string;
  readonly instructions: string;
  readonly model: string | null;
  readonly maxIterations: number;
  readonly tools: readonly string[] | null;
  readonly groups: GroupPolicy;
  readonly models: readonly string[];
  readonly busy: BusyPolicy;
  readonly sessions: SessionScope;
  readonly reply: "card" | "text";
  readonly card: Readonly<Required<CardInput>>;
  readonly language: "auto" | "zh" | "en";
  readonly commands: Readonly<Record<string, { description: string; prompt: string }>>;
}

/** The configuration of a deployment, complete. `agents` and `bots` always have `default`. */
export interface LarklineConfig {
  readonly agents: Readonly<Record<string, AgentConfig>> & { readonly default: AgentConfig };
  readonly models: readonly ModelInfo[];
  readonly limits: Readonly<Required<LimitsInput>>;
  readonly bots: Readonly<Record<string, BotConfig>> & { readonly default: BotConfig };
  readonly permissions: PermissionPolicy;
  readonly budgets: BudgetPolicy;
  readonly mcp: McpConfig;
  /** Modules with observers; `loadConfigFile` makes URLs of them. */
  readonly observers: readonly string[];
  readonly retention: RetentionSettings;
}

const defaultLimits: Required<LimitsInput> = {
  messageAgeMs: 600_000,
  messageChars: 50_000,
  attachmentBytes: 20_000_000,
  attachmentChars: 60_000,
  attachmentTimeoutMs: 30_000,
  maxCallsPerStep: 64,
  toolTimeoutMs: 600_000,
  toolWaitMs: 30_000,
  maxResultChars: 100_000,
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
    commands: input.commands ?? {},
  } as const;
}

function agentOf(name: string, input: AgentInput): AgentConfig {
  return {
    name,
    instructions: input.instructions ?? defaultInstructions,
    model: input.model ?? null,
    maxIterations: input.maxIterations ?? 8,
    tools: input.tools ?? null,
    groups: input.groups ?? "mention",
    ...behaviourOf(input),
  };
}

const parseInput = parserOf(ConfigInput, { maxProblems: 100 });

/** Fills in defaults after checking the whole input; the error lists every problem. */
export function resolveConfig(input: unknown): ParseResult<LarklineConfig> {
  const parsed = parseInput(input);
  if (!parsed.ok) return parsed;
  const { agents = {}, models = [], limits = {} } = parsed.value;
  const named = Object.fromEntries(Object.entries(agents).map(([name, agent]) => [name, agentOf(name, agent)]));
  const all = { ...named, default: agentOf("default", agents["default"] ?? {}) };
  const bots = resolveBots(parsed.value, all);
  const permissions = resolvePermissions(parsed.value);
  const budgets = resolveBudgets(parsed.value);
  const mcp = resolveMcp(parsed.value.mcp?.servers ?? {});
  if (!bots.ok || !permissions.ok || !budgets.ok || !mcp.ok) {
    const problems = [bots, permissions, budgets, mcp].flatMap((result) => (result.ok ? [] : [result.error]));
    return { ok: false, error: problems.join("; ") };
  }
  return {
    ok: true,
    value: {
      agents: all,
      models: models.map(completeModelInfo),
      limits: { ...defaultLimits, ...limits },
      bots: bots.value,
      permissions: permissions.value,
      budgets: budgets.value,
      mcp: mcp.value,
      observers: parsed.value.observers ?? [],
      retention: { ...defaultRetention, ...parsed.value.retention },
    },
  };
}

/** Gives `larkline.config.ts` its types: `export default defineConfig({ ... })`. */
export function defineConfig(input: ConfigInput): ConfigInput {
  return input;
}
