import { resolveConfig, type LarklineConfig } from "@larkline/config";
import { describe, expect, it } from "vitest";
import type { WorkerConfig } from "./config.ts";
import { createAgentModels, turnModelOf } from "./models.ts";

const anthropic = { apiKey: "a" };
const openai = { apiKey: "o" };

function config(fields: Partial<WorkerConfig> = {}): WorkerConfig {
  return {
    redisUrl: "redis://127.0.0.1",
    namespace: "larkline",
    host: "127.0.0.1",
    port: 0,
    logLevel: "silent",
    concurrency: 1,
    models: [{ provider: "anthropic", id: "claude-sonnet-4-6" }],
    callSigningKey: "k".repeat(32),
    anthropic,
    openai,
    ...fields,
  };
}

function settings(agent: object = {}, models: readonly object[] = []): LarklineConfig {
  const resolved = resolveConfig({ agents: { default: agent }, models });
  if (!resolved.ok) throw new Error(resolved.error);
  return resolved.value;
}

function choices(agent: object = {}, fields: Partial<WorkerConfig> = {}) {
  const made = createAgentModels(config(fields), settings(agent));
  if (!made.ok) throw new Error(made.error);
  return made.value.of("default");
}

describe("the models of a deployment", () => {
  it("without a choice are those of the agent, else of the environment", () => {
    expect(choices().choose(undefined).name).toBe("anthropic/claude-sonnet-4-6");
    const own = choices({ model: "openai/gpt-5,anthropic/claude-opus-4-6" });
    expect(own.defaultName).toBe("openai/gpt-5");
    expect(own.choose(undefined).chain.models.map(({ id }) => id)).toEqual(["gpt-5", "claude-opus-4-6"]);
  });

  it("begin with the one that was chosen, and fall back to the usual ones", () => {
    const offered = choices({ models: ["openai-responses/gpt-5", "anthropic/claude-sonnet-4-6"] });
    expect(offered.choose("openai-responses/gpt-5").chain.models.map(({ id }) => id)).toEqual([
      "gpt-5",
      "claude-sonnet-4-6",
    ]);
    expect(offered.choose("anthropic/claude-sonnet-4-6").chain.models.map(({ id }) => id)).toEqual([
      "claude-sonnet-4-6",
    ]);
  });

  it("are the usual ones for a choice that is not offered any more", () => {
    expect(choices({ models: ["openai/gpt-5"] }).choose("openai/gpt-4o")).toMatchObject({
      name: "anthropic/claude-sonnet-4-6",
      chain: { primary: { id: "claude-sonnet-4-6" } },
    });
  });

  it.each([
    [{ model: "openai/gpt-5" }, "agents.default.model: openai/gpt-5 needs OPENAI_API_KEY."],
    [{ models: ["openai/gpt-5"] }, "agents.default.models: openai/gpt-5 needs OPENAI_API_KEY."],
  ])("that cannot be reached for want of a key are refused at the start: %j", (agent, error) => {
    const { openai: _openai, ...withoutKey } = config();
    expect(createAgentModels(withoutKey, settings(agent))).toEqual({
      ok: false,
      error: `larkline.config.ts: ${error}`,
    });
  });

  it("have the facts and prices of the configuration, and cost what the one that answered costs", () => {
    const facts = { provider: "openai", contextWindow: 5_000, maxOutputTokens: 1_000, inputPricePer1M: 1 };
    const models = [
      { ...facts, id: "small" },
      { ...facts, id: "dear", inputPricePer1M: 100 },
    ];
    const made = createAgentModels(config(), settings({ model: "openai/small,openai/dear" }, models));
    if (!made.ok) throw new Error(made.error);
    const model = turnModelOf(made.value.of("default").choose(undefined).chain);
    expect(model.info).toMatchObject({ id: "small", contextWindow: 5_000 });
    const usage = { inputTokens: 1_000_000, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };
    expect([model.costUsd(usage), model.costUsd(usage, "dear"), model.costUsd(usage, "unknown")]).toEqual([1, 100, 1]);
  });
});
