import { createBudgetBook } from "@larkline/agent/budgets";
import { LiveReplies } from "@larkline/feishu";
import { readProviders, resolveConfig } from "@larkline/process/config";
import type { ToolAnnouncement } from "@larkline/protocol";
import type { AvailableTool } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { Metrics, silentLogger } from "@larkline/process/telemetry";
import { describe, expect, it } from "vitest";
import { createAgentSides, limitsOf, createAgentModels } from "./agents.ts";
import { createBuiltInTools } from "./tools.ts";
import { inbound } from "./turn-world.fixture.ts";
import { createCounters } from "./services.ts";

function tool(name: string): [string, AvailableTool] {
  const spec = { name, description: `Tool ${name}.`, inputSchema: { type: "object" } };
  const announcement: ToolAnnouncement = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 };
  return [name, { runner: "test", announcement }];
}

/** The agents of a deployment with two bots. */
function agentsOf() {
  const resolved = resolveConfig({
    agents: {
      default: { instructions: "Help." },
      support: {
        instructions: "Support.",
        model: "openai/gpt-5,anthropic/claude-opus-4-6",
        models: ["anthropic/claude-sonnet-4-6"],
        tools: ["search"],
        maxIterations: 2,
        busy: "steer",
        reply: "text",
        language: "zh",
      },
      ops: { card: { cost: false } },
    },
    bots: { desk: { appId: "cli_dddddddddddddddd", agent: "support" } },
  });
  const settings = resolved.ok ? resolved.value : expect.fail(resolved.error);
  const providers = readProviders({ ANTHROPIC_API_KEY: "a", OPENAI_API_KEY: "o" }, settings.providers);
  const models = createAgentModels(
    { concurrency: 1 },
    settings,
    providers.ok ? providers.value : expect.fail(providers.error),
  );
  const tools = new Map([tool("search"), tool("shell")]);
  const stores = openTestStores();
  const limits = limitsOf(settings, settings.agents.default);
  return createAgentSides({
    settings,
    models: models.ok ? models.value : expect.fail(models.error),
    catalog: { tools: () => tools },
    builtIns: createBuiltInTools({ desk: stores, limits, logger: silentLogger }),
    authorities: { rulesInForce: async () => [] },
    groupsOf: async () => [],
    replies: new LiveReplies({ apis: new Map(), ledger: stores.cards }),
    blobs: stores.blobs,
    lookups: stores.lookups,
    prepare: async (message) => message,
    budgets: { book: createBudgetBook(settings.budgets), store: stores.budgets },
    counters: createCounters(new Metrics({ service: "test" })),
    logger: silentLogger,
  });
}

const sideOf = agentsOf();

describe("the agent of a message", () => {
  it("brings its instructions, models, tools and limits", () => {
    const side = sideOf(inbound("om_1", "hi", { agent: "support" }), {});
    expect(side).toMatchObject({ instructions: "Support.", followUps: "join" });
    expect(side.chain.models.map(({ id }) => id)).toEqual(["gpt-5", "claude-opus-4-6"]);
    const { limits, tools, texts } = side.facts();
    expect([limits.maxIterations, texts]).toEqual([2, "zh"]);
    expect([...tools.keys()]).toEqual(["search", "read_result"]);
    expect(side.viewOf(inbound("om_1", "hi"))).toBeUndefined();
    expect(side.commandFacts()).toMatchObject({ defaultModel: "openai/gpt-5" });
  });

  it("is `default` where the message names none", () => {
    const side = sideOf(inbound("om_1", "hi"), {});
    expect(side.instructions).toBe("Help.");
    expect([...side.facts().tools.keys()]).toEqual(["search", "shell", "read_result"]);
  });

  it("shows its own card", () => {
    const view = sideOf(inbound("om_1", "hi", { agent: "ops" }), {}).viewOf(inbound("om_1", "hi"));
    expect(view?.show).toMatchObject({ cost: false, tokens: true });
  });

  it("gives a choice of model that another agent offered its own model", () => {
    const chosen = { model: "anthropic/claude-sonnet-4-6" };
    expect(sideOf(inbound("om_1", "hi", { agent: "support" }), chosen).chain.primary.id).toBe("claude-sonnet-4-6");
    expect(sideOf(inbound("om_1", "hi", { agent: "ops" }), { model: "openai/gpt-5" }).chain.primary.id).not.toBe(
      "gpt-5",
    );
  });

  it("that is configured no more is answered by the one that the bot has now", () => {
    const reply = {
      channel: "feishu",
      app: "cli_dddddddddddddddd",
      chatId: "oc_1",
      messageId: "om_1",
      inThread: false,
    } as const;
    const gone = inbound("om_1", "hi", { app: "cli_dddddddddddddddd", agent: "gone", reply });
    expect(sideOf(gone, {}).instructions).toBe("Support.");
    expect(sideOf(inbound("om_1", "hi", { agent: "gone", reply: { channel: "none" } }), {}).instructions).toBe("Help.");
  });
});
