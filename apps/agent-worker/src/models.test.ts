import { readProviders, resolveConfig, type LarklineConfig } from "@larkline/process/config";
import { systemClock, systemRandom } from "@larkline/protocol/clock";
import { describe, expect, it } from "vitest";
import { Agent, createAgentModels, type AgentModels } from "./agent.ts";

const keys = { ANTHROPIC_API_KEY: "a", OPENAI_API_KEY: "o" };

function resolved(input: object): LarklineConfig {
  const config = resolveConfig(input);
  if (!config.ok) throw new Error(config.error);
  return config.value;
}

const machine = { clock: systemClock, random: systemRandom };

function settings(agent: object = {}, models: readonly object[] = []): LarklineConfig {
  return resolved({ agents: { default: agent }, models });
}

function made(
  config: LarklineConfig,
  env: Record<string, string> = keys,
  model = "anthropic/claude-sonnet-4-6",
) {
  const providers = readProviders(env, config.providers);
  if (!providers.ok) throw new Error(providers.error);
  const given = { providers: providers.value, modules: new Map() };
  return createAgentModels({ model, concurrency: 1 }, config, given, machine);
}

function choices(agent: object = {}) {
  const models = made(settings(agent));
  if (!models.ok) throw new Error(models.error);
  return ofDefault(models.value);
}

function ofDefault({ ofAgents }: AgentModels): Agent {
  const config = settings();
  const models = ofAgents.get("default") ?? expect.fail();
  return new Agent(config, config.agents.default, models);
}

describe("the models of a deployment", () => {
  it("without a choice are those of the agent, else of the environment", () => {
    expect(choices().modelOf(undefined).name).toBe("anthropic/claude-sonnet-4-6");
    const own = choices({ model: "openai/gpt-5,anthropic/claude-opus-4-6" });
    expect(own.defaultModel).toBe("openai/gpt-5");
    expect(own.modelOf(undefined).chain.models.map(({ id }) => id)).toEqual([
      "gpt-5",
      "claude-opus-4-6",
    ]);
  });

  it("begin with the one that was chosen, and fall back to the usual ones", () => {
    const offered = choices({ models: ["openai-responses/gpt-5", "anthropic/claude-sonnet-4-6"] });
    expect(offered.modelOf("openai-responses/gpt-5").chain.models.map(({ id }) => id)).toEqual([
      "gpt-5",
      "claude-sonnet-4-6",
    ]);
    expect(offered.modelOf("anthropic/claude-sonnet-4-6").chain.models.map(({ id }) => id)).toEqual(
      ["claude-sonnet-4-6"],
    );
  });

  it("are the usual ones for a choice that is not offered any more", () => {
    expect(choices({ models: ["openai/gpt-5"] }).modelOf("openai/gpt-4o")).toMatchObject({
      name: "anthropic/claude-sonnet-4-6",
      chain: { primary: { id: "claude-sonnet-4-6" } },
    });
  });

  it.each([
    [{ model: "openai/gpt-5" }, "agents.default.model: openai/gpt-5 needs OPENAI_API_KEY."],
    [{ models: ["openai/gpt-5"] }, "agents.default.models: openai/gpt-5 needs OPENAI_API_KEY."],
  ])("that cannot be reached for want of a key are refused at the start: %j", (agent, error) => {
    expect(made(settings(agent), { ANTHROPIC_API_KEY: "a" })).toEqual({
      ok: false,
      error: `larkline.config.ts: ${error}`,
    });
  });

  it.each([
    [
      { model: "deepsek/chat" },
      "'deepsek/chat' names an unknown provider, did you mean 'deepseek'?",
    ],
    [
      { model: "mistral/large" },
      "unknown provider; there are anthropic, openai, openai-responses, deepseek",
    ],
    [
      { model: "anthropic/claude-sonet-4-6" },
      "is an unknown model, did you mean 'anthropic/claude-sonnet-4-6'?",
    ],
    [
      { models: ["openai/gtp-5"] },
      "'openai/gtp-5' is an unknown model, did you mean 'openai/gpt-5'?",
    ],
    [{ model: "openai-responses/gpt5" }, "unknown model, did you mean 'openai-responses/gpt-5'?"],
    [{ model: "openai/o7-colossal" }, "is an unknown model; describe it in models[] if it is new"],
    [{ model: "deepseek/chat" }, "deepseek/chat needs DEEPSEEK_KEY."],
  ])("that are unknown are refused at the start: %j", (agent, error) => {
    const providers = {
      deepseek: { type: "openai", baseUrl: "http://127.0.0.1:1/v1", keyEnv: "DEEPSEEK_KEY" },
    };
    const refused = made(resolved({ agents: { default: agent }, providers }));
    expect(refused).toMatchObject({ ok: false, error: expect.stringContaining(error) });
  });

  it("of another server may have any name, as those of a vendor's interface at another address", () => {
    const providers = {
      deepseek: { type: "openai", baseUrl: "http://127.0.0.1:1/v1", keyEnv: "DEEPSEEK_KEY" },
      local: { type: "anthropic", baseUrl: "http://127.0.0.1:2" },
    };
    const env = { ...keys, DEEPSEEK_KEY: "d", OPENAI_BASE_URL: "http://127.0.0.1:3/v1" };
    const model = "deepseek/chat,local/own,openai/mine,anthropic/claude-opus-4-6";
    const all = made(resolved({ agents: { default: { model } }, providers }), env);
    if (!all.ok) throw new Error(all.error);
    const chain = ofDefault(all.value).modelOf(undefined).chain;
    expect(chain.models.map(({ id, provider }) => [provider, id])).toEqual([
      ["deepseek", "chat"],
      ["local", "own"],
      ["openai", "mine"],
      ["anthropic", "claude-opus-4-6"],
    ]);
  });

  it("have the facts and prices of the configuration, and cost what the one that answered costs", () => {
    const facts = {
      provider: "openai",
      contextWindow: 5_000,
      maxOutputTokens: 1_000,
      inputPricePer1M: 1,
    };
    const models = [
      { ...facts, id: "small" },
      { ...facts, id: "dear", inputPricePer1M: 100 },
    ];
    const all = made(settings({ model: "openai/small,openai/dear" }, models));
    if (!all.ok) throw new Error(all.error);
    const { model } = ofDefault(all.value).modelOf(undefined);
    expect(model.info).toMatchObject({ id: "small", contextWindow: 5_000 });
    const usage = {
      inputTokens: 1_000_000,
      outputTokens: 0,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
    };
    expect([
      model.costUsd(usage),
      model.costUsd(usage, "dear"),
      model.costUsd(usage, "unknown"),
    ]).toEqual([1, 100, 1]);
  });
});
