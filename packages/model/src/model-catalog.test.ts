import { describe, expect, it } from "vitest";
import { builtinModels, costOf, findModelInfo } from "./index.ts";

describe("findModelInfo", () => {
  it("knows every model of the table under its own id, once per provider", () => {
    const keys = builtinModels.map((model) => `${model.provider}/${model.id}`);
    expect(new Set(keys).size).toBe(keys.length);
    for (const model of builtinModels) {
      expect(findModelInfo(model.provider, model.id)).toEqual(model);
    }
  });

  it("gives a dated id the facts of its family under the id that was asked for", () => {
    const family = findModelInfo("anthropic", "claude-sonnet-4-5");
    expect(findModelInfo("anthropic", "claude-sonnet-4-5-20250929")).toEqual({
      ...family,
      id: "claude-sonnet-4-5-20250929",
    });
    expect(findModelInfo("openai", "gpt-5-2025-08-07").inputPricePer1M).toBe(1.25);
  });

  it("finds OpenAI models for both of its interfaces", () => {
    expect(findModelInfo("openai-responses", "gpt-5.4")).toEqual(
      findModelInfo("openai", "gpt-5.4"),
    );
  });

  it("lets configured facts win, for exact ids and for families", () => {
    const own = { ...findModelInfo("anthropic", "claude-sonnet-4-5"), inputPricePer1M: 99 };
    expect(findModelInfo("anthropic", "claude-sonnet-4-5", [own]).inputPricePer1M).toBe(99);
    expect(findModelInfo("anthropic", "claude-sonnet-4-5-20250929", [own]).inputPricePer1M).toBe(
      99,
    );
    expect(findModelInfo("openai", "claude-sonnet-4-5", [own]).inputPricePer1M).toBe(0);
  });

  it("EE-11: gives an unknown model cautious facts and prices of 0", () => {
    const info = findModelInfo("openai", "house-model");
    expect(info).toMatchObject({
      id: "house-model",
      supportsVision: false,
      supportsCaching: false,
      maxTools: 0,
    });
    expect(
      costOf(
        { inputTokens: 1e6, outputTokens: 1e6, cacheReadTokens: 1, cacheCreationTokens: 1 },
        info,
      ),
    ).toBe(0);
  });
});

describe("costOf", () => {
  it("EE-11: counts every kind of token at its own price", () => {
    const info = findModelInfo("anthropic", "claude-sonnet-4-5");
    const usage = {
      inputTokens: 1_000_000,
      outputTokens: 100_000,
      cacheReadTokens: 2_000_000,
      cacheCreationTokens: 400_000,
    };
    expect(costOf(usage, info)).toBeCloseTo(3 + 1.5 + 0.6 + 1.5, 10);
  });
});
