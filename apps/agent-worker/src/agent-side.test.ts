import { readProviders, resolveConfig } from "@larkline/process/config";
import { systemRandom, systemClock } from "@larkline/protocol/clock";
import { builtInRunner, readResultName, type ToolAnnouncement } from "@larkline/protocol/tool";
import type { AvailableTool } from "@larkline/store/runners";
import { describe, expect, it } from "vitest";
import { agentsOf, createAgentModels, type Agent } from "./agent.ts";
import { agentFor } from "./agents.ts";
import type { Services } from "./services.ts";
import { append, inbound, newWorld, offer, servicesOf, settle } from "./turn-world.fixture.ts";

function tool(name: string): [string, AvailableTool] {
  const spec = { name, description: `Tool ${name}.`, inputSchema: { type: "object" } };
  const announcement: ToolAnnouncement = {
    spec,
    effect: "pure",
    requiresApproval: false,
    timeoutMs: 1_000,
  };
  return [name, { runner: "test", announcement }];
}

/** The agents of a deployment with two bots. */
function deployment(): Services {
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
      alone: { tools: [] },
    },
    bots: { desk: { appId: "cli_dddddddddddddddd", agent: "support" } },
  });
  const settings = resolved.ok ? resolved.value : expect.fail(resolved.error);
  const providers = readProviders(
    { ANTHROPIC_API_KEY: "a", OPENAI_API_KEY: "o" },
    settings.providers,
  );
  const models = createAgentModels(
    { concurrency: 1 },
    settings,
    {
      providers: providers.ok ? providers.value : expect.fail(providers.error),
      modules: new Map(),
    },
    { clock: systemClock, random: systemRandom },
  );
  const found = models.ok ? models.value : expect.fail(models.error);
  const agents = agentsOf(settings, found);
  const services = { ...servicesOf(newWorld()), settings, agents };
  offer(services.runners, new Map([tool("search"), tool("shell")]));
  return services;
}

const services = deployment();

/** The names of the tools that an agent is offered. */
function offeredTo(agent: Agent | undefined): string[] {
  const turn = { message: inbound("om_1", "hi") };
  const found = agent ?? expect.fail("no such agent");
  return [...services.toolCatalog.ofTurn({ agent: found, stored: { turn } }).keys()];
}

describe("the tools of an agent", () => {
  it("are those of runners with the built-in ones, and none where it may use none of them", async () => {
    await services.toolCatalog.refresh();
    expect(offeredTo(services.agents.get("ops"))).toEqual(["search", "shell", readResultName]);
    expect(offeredTo(services.agents.get("support"))).toEqual(["search", readResultName]);
    expect(offeredTo(services.agents.get("alone"))).toEqual([]);
  });

  it("stay the same map while runners say the same", async () => {
    const turn = { message: inbound("om_1", "hi") };
    const agent = services.agents.get("ops") ?? expect.fail("no such agent");
    const offered = () => services.toolCatalog.ofTurn({ agent, stored: { turn } });
    await services.toolCatalog.refresh();
    const before = offered();
    await services.toolCatalog.refresh();
    expect(offered()).toBe(before);
  });

  it("have no runner's tool under a built-in tool's name", async () => {
    const { runners } = services;
    const view = runners.view.bind(runners);
    offer(runners, new Map([tool(readResultName), tool("search")]));
    await services.toolCatalog.refresh();
    const turn = { message: inbound("om_1", "hi") };
    const agent = services.agents.get("ops") ?? expect.fail("no such agent");
    const offered = services.toolCatalog.ofTurn({ agent, stored: { turn } });
    expect(offered.get(readResultName)?.runner).toBe(builtInRunner);
    runners.view = view;
  });
});

describe("the agent of a message", () => {
  it("brings its instructions, models, tools and limits", async () => {
    const agent = agentFor(services, inbound("om_1", "hi", { agent: "support" }));
    expect(agent.config).toMatchObject({ instructions: "Support.", busy: "steer", reply: "text" });
    expect(agent.modelOf(undefined).chain.models.map(({ id }) => id)).toEqual([
      "gpt-5",
      "claude-opus-4-6",
    ]);
    expect([agent.limits.maxIterations, agent.speech.texts]).toEqual([2, "zh"]);
    await services.toolCatalog.refresh();
    expect(offeredTo(agent)).toEqual(["search", "read_result"]);
    expect(agent.defaultModel).toBe("openai/gpt-5");
  });

  it("is `default` where the message names none", async () => {
    const agent = agentFor(services, inbound("om_1", "hi"));
    expect(agent.config.instructions).toBe("Help.");
    await services.toolCatalog.refresh();
    expect(offeredTo(agent)).toEqual(["search", "shell", "read_result"]);
  });

  it.each([true, false])("shows its own card: with tokens %j", async (tokens) => {
    const world = newWorld();
    await append(world, inbound("om_1", "hi"));
    await settle(world, {
      agent: { reply: "card", card: { ...services.settings.agents.default.card, tokens } },
    });
    const footer = world.sent[0]?.view?.footer;
    expect(footer?.model).toBeDefined();
    expect(footer?.inputTokens !== undefined).toBe(tokens);
  });

  it("gives a choice of model that another agent offered its own model", () => {
    const chosen = "anthropic/claude-sonnet-4-6";
    const modelFor = (agent: string, name: string): string =>
      agentFor(services, inbound("om_1", "hi", { agent })).modelOf(name).chain.primary.id;
    expect(modelFor("support", chosen)).toBe("claude-sonnet-4-6");
    expect(modelFor("ops", "openai/gpt-5")).not.toBe("gpt-5");
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
    expect(agentFor(services, gone).config.instructions).toBe("Support.");
    const overHttp = inbound("om_1", "hi", { agent: "gone", reply: { channel: "none" } });
    expect(agentFor(services, overHttp).config.instructions).toBe("Help.");
  });
});
