import { describe, expect, it } from "vitest";
import { parserOf } from "@larkline/protocol";
import { AgentChange } from "@larkline/store/operations";
import {
  agentBounds,
  agentHash,
  coveredFields,
  narrowChange,
  withChanges,
  type AgentBounds,
} from "./agent-change.ts";
import { resolveConfig } from "./larkline-config.ts";
import type { LarklineConfig } from "./resolved-config.ts";

function settingsOf(input: unknown): LarklineConfig {
  const resolved = resolveConfig(input);
  return resolved.ok ? resolved.value : expect.fail(resolved.error);
}

const file = {
  agents: {
    default: {
      tools: ["read", "pay"],
      models: ["openai/a", "openai/b"],
      maxIterations: 10,
      maxOutputTokens: 2_000,
    },
    free: { people: ["ou_1"], egress: ["docs.example.com"] },
  },
  teams: { both: { members: ["default", "free"], select: "round_robin" } },
  limits: { maxCallsPerStep: 8, toolTimeoutMs: 60_000 },
  budgets: {
    limits: [
      { per: "agent", period: "day", tokens: 1_000 },
      { per: "agent", period: "day", of: ["free", "other"], usd: 5 },
      { per: "person", period: "day", usd: 1 },
    ],
  },
};
const settings = settingsOf(file);

function boundsOf(name: string, of = settings): AgentBounds {
  const config = of.agents[name];
  return config === undefined ? expect.fail(name) : agentBounds(of, config);
}

const tooMuch: AgentChange = {
  instructions: "Be brief.",
  model: "openai/c",
  tools: ["read", "shell"],
  limits: { maxIterations: 11, maxOutputTokens: 2_001, maxCallsPerStep: 9, toolTimeoutMs: 60_001 },
  budgets: { day: { tokens: 1_001, usd: 1 }, month: { usd: 10 } },
};

describe("what operators may change of an agent", () => {
  it("is bounded by what the file gives it", () => {
    expect(boundsOf("default")).toMatchObject({
      models: ["openai/a", "openai/b"],
      tools: ["read", "pay"],
      limits: {
        maxIterations: 10,
        maxOutputTokens: 2_000,
        maxCallsPerStep: 8,
        toolTimeoutMs: 60_000,
      },
      budgets: { day: { tokens: 1_000 }, month: {} },
    });
    expect(boundsOf("free")).toMatchObject({
      models: [],
      tools: null,
      limits: { maxIterations: 25, maxOutputTokens: 32_000 },
      budgets: { day: { usd: 5 } },
    });
  });

  it("names each part that goes beyond it, and keeps of that what the file allows", () => {
    const { counts, problems } = narrowChange(boundsOf("default"), tooMuch);
    expect(problems).toEqual([
      { field: "model", kind: "not_offered", detail: "openai/c" },
      { field: "tools", kind: "not_offered", detail: "shell" },
      { field: "limits.maxIterations", kind: "above_file", detail: "10" },
      { field: "limits.maxOutputTokens", kind: "above_file", detail: "2000" },
      { field: "limits.maxCallsPerStep", kind: "above_file", detail: "8" },
      { field: "limits.toolTimeoutMs", kind: "above_file", detail: "60000" },
      { field: "budgets.day.tokens", kind: "above_file", detail: "1000" },
    ]);
    expect(counts).toEqual({
      instructions: "Be brief.",
      tools: ["read"],
      limits: {
        maxIterations: 10,
        maxOutputTokens: 2_000,
        maxCallsPerStep: 8,
        toolTimeoutMs: 60_000,
      },
      budgets: { day: { tokens: 1_000, usd: 1 }, month: { usd: 10 } },
    });
  });

  it("whatever a change says, nothing becomes more than in the file, and nothing else changes", () => {
    const { agents, budgets } = withChanges(settings, new Map([["default", tooMuch]]));
    const changed = agents.get("default");
    expect([...agents.keys()]).toEqual(["default"]);
    expect(changed).toEqual({
      config: {
        ...settings.agents.default,
        instructions: "Be brief.",
        tools: ["read"],
        maxIterations: 10,
        request: { maxTokens: 2_000 },
      },
      limits: { ...settings.limits, maxCallsPerStep: 8, toolTimeoutMs: 60_000 },
      model: undefined,
    });
    expect(budgets.budgets).toEqual([
      ...settings.budgets.budgets,
      { per: "agent", period: "day", of: ["default"], tokens: 1_000, usd: 1 },
      { per: "agent", period: "month", of: ["default"], usd: 10 },
    ]);
  });

  it("never becomes more than in the file, whatever files and changes there are", () => {
    let seed = 1;
    const below = (most: number): number => (seed = (seed * 48_271) % 2_147_483_647) % most;
    const some = (names: readonly string[]): string[] => names.filter(() => below(2) === 0);
    const names = ["a", "b", "c", "d"];
    for (let round = 0; round < 2_000; round += 1) {
      const tools = below(4) === 0 ? {} : { tools: some(names) };
      const ofFile = {
        ...tools,
        models: some(names).map((name) => `openai/${name}`),
        maxIterations: 1 + below(9),
      };
      const limits = [
        { per: "agent", period: "day", of: ["default"], tokens: below(9) },
        { per: "agent", period: "day", usd: below(9) },
      ];
      const own = settingsOf({
        agents: { default: ofFile },
        budgets: { limits: limits.slice(below(3)) },
      });
      const change = {
        tools: some([...names, "e"]),
        model: `openai/${names[below(4)]}`,
        limits: { maxIterations: 1 + below(9), maxCallsPerStep: 1 + below(200) },
        budgets: { day: { tokens: below(9), usd: below(9) } },
      };
      const { agents, budgets } = withChanges(own, new Map([["default", change]]));
      const { config, limits: changed, model } = agents.get("default") ?? expect.fail();
      const bounds = boundsOf("default", own);
      expect(config.tools?.every((tool) => bounds.tools?.includes(tool) ?? true)).toBe(true);
      expect(config.tools).not.toBeNull();
      expect(model === undefined || bounds.models.includes(model)).toBe(true);
      expect(config.maxIterations).toBeLessThanOrEqual(bounds.limits.maxIterations);
      expect(changed.maxCallsPerStep).toBeLessThanOrEqual(bounds.limits.maxCallsPerStep);
      const after = agentBounds({ ...own, budgets }, own.agents.default).budgets.day;
      for (const unit of ["tokens", "usd"] as const) {
        expect(after[unit] ?? Infinity).toBeLessThanOrEqual(bounds.budgets.day[unit] ?? Infinity);
      }
      const { tools: _tools, maxIterations: _steps, ...same } = config;
      expect(own.agents.default).toMatchObject(same);
    }
  });

  it("has no words for approvals, people, roles or egress", () => {
    const parse = parserOf(AgentChange);
    for (const field of [
      "approvals",
      "people",
      "roles",
      "egress",
      "chats",
      "memory",
      "files",
      "handoffs",
    ]) {
      expect(parse({ [field]: [] })).toMatchObject({ ok: false });
    }
    const { agents } = withChanges(settings, new Map([["free", { tools: [], instructions: "x" }]]));
    const { access, egress, tools } = agents.get("free")?.config ?? {};
    expect({ access, egress, tools }).toEqual({
      access: settings.agents["free"]?.access,
      egress: ["docs.example.com"],
      tools: [],
    });
  });

  it("does not reach teams and agents that the file does not have; a budget takes the place of the one that named it", () => {
    const change = { instructions: "x", budgets: { day: { usd: 2 } } };
    const { agents, budgets } = withChanges(
      settings,
      new Map(["both", "gone", "constructor", "free"].map((name) => [name, change])),
    );
    expect([...agents.keys()]).toEqual(["free"]);
    expect(
      budgets.budgets.filter(({ per, period }) => per === "agent" && period === "day"),
    ).toEqual([
      { per: "agent", period: "day", tokens: 1_000 },
      { per: "agent", period: "day", of: ["other"], usd: 5 },
      { per: "agent", period: "day", of: ["free"], usd: 2 },
    ]);
  });

  it("stays taken away when the file changes under it, and what the file takes away is gone", () => {
    const later = settingsOf({
      ...file,
      agents: { default: { tools: ["pay", "new"], models: ["openai/b"] } },
      teams: {},
    });
    const change = { tools: ["read"], model: "openai/a", limits: { maxIterations: 5 } };
    expect(narrowChange(boundsOf("default"), change).problems).toEqual([]);
    const { agents } = withChanges(later, new Map([["default", change]]));
    expect(agents.get("default")).toMatchObject({
      config: { tools: [], maxIterations: 5 },
      model: undefined,
    });
    expect(agentHash(boundsOf("default"))).not.toBe(agentHash(boundsOf("default", later)));
    expect(agentHash(boundsOf("default"))).toBe(agentHash(boundsOf("default", settingsOf(file))));
  });

  it("includes models of servers that operators have added, which leave the file's agent as it was", () => {
    const config = settings.agents.default;
    const bounds = agentBounds(settings, config, ["deepseek/chat"]);
    const change = { model: "deepseek/chat" };
    expect(narrowChange(bounds, change)).toEqual({ counts: change, problems: [] });
    expect(agentHash(bounds)).toBe(agentHash(boundsOf("default")));
    const changes = new Map([["default", change]]);
    expect(withChanges(settings, changes).agents.get("default")?.model).toBeUndefined();
    const added = withChanges(settings, changes, ["deepseek/chat"]);
    expect(added.agents.get("default")?.model).toBe("deepseek/chat");
  });

  it("covers those fields of the file that it changes", () => {
    const bounds = boundsOf("default");
    expect(coveredFields(bounds, tooMuch)).toEqual([
      "instructions",
      "tools",
      "limits.maxIterations",
      "limits.maxOutputTokens",
      "limits.maxCallsPerStep",
      "limits.toolTimeoutMs",
      "budgets.day.tokens",
      "budgets.day.usd",
      "budgets.month.usd",
    ]);
    expect(coveredFields(bounds, { instructions: bounds.instructions })).toEqual([]);
  });
});
