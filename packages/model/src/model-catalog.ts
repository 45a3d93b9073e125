import type { Usage } from "@larkline/protocol/model-stream";

/** Facts about a model. Prices are USD per million tokens, 0 = free or unknown. */
export interface ModelInfo {
  id: string;
  displayName: string;
  provider: string;
  contextWindow: number;
  maxOutputTokens: number;
  inputPricePer1M: number;
  outputPricePer1M: number;
  cacheReadPricePer1M: number;
  cacheWritePricePer1M: number;
  supportsCaching: boolean;
  supportsBatch: boolean;
  supportsThinking: boolean;
  supportsVision: boolean;
  /** Answers can be bound to a JSON Schema. */
  supportsJsonSchema: boolean;
  /** Least size of the system prompt, in tokens, that is worth caching; 0 = unsupported or unknown. */
  cachingMinTokens: number;
  /** Most tools in one request; 0 = unknown or unlimited. */
  maxTools: number;
  /** True: `maxTools` is proven and larger requests are refused locally. */
  maxToolsExhaustive: boolean;
}

interface Row {
  id: string;
  name: string;
  contextWindow: number;
  maxOutputTokens: number;
  prices: Prices;
  cachingMinTokens: number;
  without?: "thinking" | "vision";
}

/** Input, output, cache read and cache write price: USD per million tokens. */
type Prices = readonly [input: number, output: number, cacheRead: number, cacheWrite: number];

const million = 1_000_000;

const large = { contextWindow: million, maxOutputTokens: 128_000 };

const opus: Prices = [5, 25, 0.5, 6.25];

const medium = { contextWindow: 200_000, maxOutputTokens: 64_000 };

const sonnet: Prices = [3, 15, 0.3, 3.75];

// Vendor pages "Models overview", "Pricing" (5-minute cache writes) and "Prompt caching", read 2026-11.
// Haiku 5.5 costs five times as much for prompts above 100,000 tokens; this table has the base price.
const anthropic: readonly Row[] = [
  row("claude-fable-5-1", "Claude Fable 5.1", {
    ...large,
    prices: [10, 50, 0.25, 12.5],
    cachingMinTokens: 512,
  }),
  row("claude-fable-5", "Claude Fable 5", {
    ...large,
    prices: [10, 50, 1, 12.5],
    cachingMinTokens: 512,
  }),
  row("claude-opus-5-5", "Claude Opus 5.5", {
    ...large,
    prices: [4, 20, 0.2, 5],
    cachingMinTokens: 512,
  }),
  row("claude-opus-5", "Claude Opus 5", { ...large, prices: opus, cachingMinTokens: 512 }),
  row("claude-opus-4-8", "Claude Opus 4.8", { ...large, prices: opus, cachingMinTokens: 1_024 }),
  row("claude-opus-4-7", "Claude Opus 4.7", { ...large, prices: opus, cachingMinTokens: 2_048 }),
  row("claude-opus-4-6", "Claude Opus 4.6", {
    ...medium,
    maxOutputTokens: 128_000,
    prices: opus,
    cachingMinTokens: 1_024,
  }),
  row("claude-opus-4-5", "Claude Opus 4.5", { ...medium, prices: opus, cachingMinTokens: 4_096 }),
  row("claude-sonnet-5-5", "Claude Sonnet 5.5", {
    ...large,
    prices: [2, 10, 0.1, 2.5],
    cachingMinTokens: 512,
  }),
  row("claude-sonnet-5", "Claude Sonnet 5", {
    ...large,
    prices: [2, 10, 0.2, 2.5],
    cachingMinTokens: 1_024,
  }),
  row("claude-sonnet-4-6", "Claude Sonnet 4.6", {
    ...medium,
    prices: sonnet,
    cachingMinTokens: 1_024,
  }),
  row("claude-sonnet-4-5", "Claude Sonnet 4.5", {
    ...medium,
    prices: sonnet,
    cachingMinTokens: 1_024,
  }),
  row("claude-haiku-5-5", "Claude Haiku 5.5", {
    ...large,
    prices: [0.1, 0.5, 0.01, 0.125],
    cachingMinTokens: 512,
  }),
  row("claude-haiku-4-5", "Claude Haiku 4.5", {
    ...medium,
    prices: [1, 5, 0.1, 1.25],
    cachingMinTokens: 4_096,
  }),
];

const wide = { contextWindow: 1_050_000, maxOutputTokens: 128_000, cachingMinTokens: 1_024 };

const gpt5 = { contextWindow: 400_000, maxOutputTokens: 128_000, cachingMinTokens: 1_024 };

const gpt41 = {
  contextWindow: 1_047_576,
  maxOutputTokens: 32_768,
  cachingMinTokens: 1_024,
  without: "thinking",
} as const;

const gpt4o = {
  contextWindow: 128_000,
  maxOutputTokens: 16_384,
  cachingMinTokens: 1_024,
  without: "thinking",
} as const;

const oSeries = { contextWindow: 200_000, maxOutputTokens: 100_000, cachingMinTokens: 1_024 };

// Vendor pages "Pricing" and "Models", read 2026-11; base prices, without the surcharge of long prompts.
const openai: readonly Row[] = [
  row("gpt-6-astra", "GPT-6 Astra", { ...wide, prices: [10, 50, 1, 12.5] }),
  row("gpt-6.1-sol", "GPT-6.1 Sol", { ...wide, prices: [2, 10, 0.1, 2.5] }),
  row("gpt-6.1-terra", "GPT-6.1 Terra", { ...wide, prices: [1, 5, 0.05, 1.25] }),
  row("gpt-6-sol", "GPT-6 Sol", { ...wide, prices: [2, 10, 0.2, 2.5] }),
  row("gpt-6-luna", "GPT-6 Luna", { ...wide, prices: [0.1, 0.5, 0.01, 0.125] }),
  row("gpt-5.6-sol", "GPT-5.6 Sol", { ...wide, prices: [4, 20, 0.4, 0] }),
  row("gpt-5.6-terra", "GPT-5.6 Terra", { ...wide, prices: [2, 12, 0.2, 0] }),
  row("gpt-5.6-luna", "GPT-5.6 Luna", { ...wide, prices: [0.2, 1.2, 0.02, 0] }),
  row("gpt-5.5", "GPT-5.5", { ...wide, prices: [5, 30, 0.5, 0] }),
  row("gpt-5.4", "GPT-5.4", { ...wide, prices: [2.5, 15, 0.25, 0] }),
  row("gpt-5.4-mini", "GPT-5.4 mini", { ...gpt5, prices: [0.75, 4.5, 0.075, 0] }),
  row("gpt-5.2", "GPT-5.2", { ...gpt5, prices: [1.75, 14, 0.175, 0] }),
  row("gpt-5.1", "GPT-5.1", { ...gpt5, prices: [1.25, 10, 0.125, 0] }),
  row("gpt-5", "GPT-5", { ...gpt5, prices: [1.25, 10, 0.125, 0] }),
  row("gpt-5-mini", "GPT-5 mini", { ...gpt5, prices: [0.25, 2, 0.025, 0] }),
  row("gpt-5-nano", "GPT-5 nano", { ...gpt5, prices: [0.05, 0.4, 0.005, 0] }),
  row("gpt-4.1", "GPT-4.1", { ...gpt41, prices: [2, 8, 0.5, 0] }),
  row("gpt-4.1-mini", "GPT-4.1 mini", { ...gpt41, prices: [0.4, 1.6, 0.1, 0] }),
  row("gpt-4.1-nano", "GPT-4.1 nano", { ...gpt41, prices: [0.1, 0.4, 0.025, 0] }),
  row("gpt-4o", "GPT-4o", { ...gpt4o, prices: [2.5, 10, 1.25, 0] }),
  row("gpt-4o-mini", "GPT-4o mini", { ...gpt4o, prices: [0.15, 0.6, 0.075, 0] }),
  row("o3", "o3", { ...oSeries, prices: [2, 8, 0.5, 0] }),
  row("o4-mini", "o4-mini", { ...oSeries, prices: [1.1, 4.4, 0.275, 0] }),
  row("o3-mini", "o3-mini", { ...oSeries, prices: [1.1, 4.4, 0.55, 0], without: "vision" }),
  row("o1", "o1", { ...oSeries, prices: [15, 60, 7.5, 0] }),
];

/** Facts and prices of the common current models. Configuration may add to it or override it. */
export const builtinModels: readonly ModelInfo[] = [
  ...anthropic.map((model) => infoOf("anthropic", model)),
  ...openai.map((model) => infoOf("openai", model)),
];

/**
 * Facts about a model. `extra` wins over the built-in table; a dated id (`-20250929`,
 * `-2025-08-07`, `-latest`) has the facts of its family; an unknown model gets cautious limits,
 * no special abilities and prices of 0. The result always carries the id asked for.
 */
export function findModelInfo(
  provider: string,
  id: string,
  extra: readonly ModelInfo[] = [],
): ModelInfo {
  const found = knownModel(provider, id, extra);
  return found === undefined ? unknownModel(vendorOf(provider), id) : { ...found, id };
}

const datedSuffix = /-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$/;

function knownModel(
  provider: string,
  id: string,
  extra: readonly ModelInfo[],
): ModelInfo | undefined {
  const vendor = vendorOf(provider);
  for (const wanted of [id, id.replace(datedSuffix, "")]) {
    const matches = (info: ModelInfo) => info.id === wanted && vendorOf(info.provider) === vendor;
    const found = extra.find(matches) ?? builtinModels.find(matches);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The vendor behind a provider name: both OpenAI interfaces serve the same models. */
function vendorOf(provider: string): string {
  return provider === "openai-responses" ? "openai" : provider;
}

function row(id: string, name: string, facts: Omit<Row, "id" | "name">): Row {
  return { id, name, ...facts };
}

function infoOf(provider: string, facts: Row): ModelInfo {
  const [input, output, cacheRead, cacheWrite] = facts.prices;
  return {
    id: facts.id,
    displayName: facts.name,
    provider,
    contextWindow: facts.contextWindow,
    maxOutputTokens: facts.maxOutputTokens,
    inputPricePer1M: input,
    outputPricePer1M: output,
    cacheReadPricePer1M: cacheRead,
    cacheWritePricePer1M: cacheWrite,
    supportsCaching: facts.cachingMinTokens > 0,
    supportsBatch: true,
    supportsThinking: facts.without !== "thinking",
    supportsVision: facts.without !== "vision",
    supportsJsonSchema: true, // every row: vendor pages "Structured outputs"
    cachingMinTokens: facts.cachingMinTokens,
    maxTools: provider === "openai" ? 128 : 0,
    maxToolsExhaustive: false,
  };
}

function unknownModel(provider: string, id: string): ModelInfo {
  return completeModelInfo({ id, provider, contextWindow: 32_000, maxOutputTokens: 4_096 });
}

/** Whether `extra` or the built-in table has the model. */
export function isKnownModel(
  provider: string,
  id: string,
  extra: readonly ModelInfo[] = [],
): boolean {
  return knownModel(provider, id, extra) !== undefined;
}

type KnownFacts = Partial<ModelInfo> &
  Pick<ModelInfo, "id" | "provider" | "contextWindow" | "maxOutputTokens">;

/** Fills in the facts that are missing of a model: no special abilities, prices of 0. */
export function completeModelInfo(known: KnownFacts): ModelInfo {
  return {
    displayName: known.id,
    inputPricePer1M: 0,
    outputPricePer1M: 0,
    cacheReadPricePer1M: 0,
    cacheWritePricePer1M: 0,
    supportsCaching: false,
    supportsBatch: false,
    supportsThinking: false,
    supportsVision: false,
    supportsJsonSchema: false,
    cachingMinTokens: 0,
    maxTools: 0,
    maxToolsExhaustive: false,
    ...known,
  };
}

/** What one answer cost, in USD. Unknown prices are 0. */
export function costOf(usage: Usage, info: ModelInfo): number {
  const millionths =
    usage.inputTokens * info.inputPricePer1M +
    usage.outputTokens * info.outputPricePer1M +
    usage.cacheReadTokens * info.cacheReadPricePer1M +
    usage.cacheCreationTokens * info.cacheWritePricePer1M;
  return millionths / 1_000_000;
}

/** The interfaces a model can be reached through. */
export type ProviderType = "anthropic" | "openai" | "openai-responses";

/** One entry of `MODEL`. */
export interface ModelChoice {
  /** Name of a provider: one of the interfaces, or of the configuration's own. */
  provider: string;
  id: string;
}
