import { expect, it } from "vitest";
import { addedProviderProblem } from "./added-providers.ts";
import { resolveConfig } from "./larkline-config.ts";
import type { LarklineConfig } from "./resolved-config.ts";

function settingsOf(models: unknown): LarklineConfig {
  const resolved = resolveConfig({
    console: { changes: true, models },
    providers: { mine: { type: "openai", baseUrl: "https://models.example/v1" } },
  });
  return resolved.ok ? resolved.value : expect.fail(resolved.error);
}

it.each([
  ["deepseek", "https://api.deepseek.com/v1", undefined],
  ["claude", undefined, undefined],
  ["mine", "https://api.deepseek.com/v1", "in_file"],
  ["openai", undefined, "in_file"],
  ["a", "http://api.deepseek.com/v1", "no_https"],
  ["a", "https://user:word@api.deepseek.com/v1", "no_address"],
  ["a", "https://api.deepseek.com/v1?x=1", "no_address"],
  ["a", "https://", "no_address"],
  ["a", "https://127.0.0.1:11434/v1", "private_host"],
  ["a", "https://[::1]/v1", "private_host"],
  ["a", "https://0x7f000001/v1", "private_host"],
  ["a", "https://redis/v1", "private_host"],
])("operators may add %s at %s unless: %s", (name, baseUrl, problem) => {
  const server = baseUrl === undefined ? { name } : { name, baseUrl };
  expect(addedProviderProblem(settingsOf(true), server)).toBe(problem);
});

it("the file says whether operators add servers, and which hosts may be private", () => {
  const local = { name: "local", baseUrl: "http://10.0.0.7:11434/v1" };
  expect(addedProviderProblem(settingsOf(false), local)).toBe("not_allowed");
  for (const hosts of [["10.0.0.7"], ["10.0.0.7:11434"]]) {
    expect(addedProviderProblem(settingsOf({ hosts }), local)).toBeUndefined();
  }
  expect(addedProviderProblem(settingsOf({ hosts: ["10.0.0.7:80"] }), local)).toBe("no_https");
  const alone = resolveConfig({ console: { models: true } });
  expect(alone).toMatchObject({ error: expect.stringContaining("needs console.changes") });
});
