import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import { knownFeatures } from "@larkline/protocol";
import type { AgentChange, OperatorOrder } from "@larkline/store/operations";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it, vi } from "vitest";
import { startOrders } from "./operator-orders.ts";
import {
  append,
  inbound,
  newWorld,
  outboxOf,
  runTools,
  runWakes,
  servicesOf,
  session,
  settle,
  instructionsOf,
} from "./turn-world.fixture.ts";
import type { Differences, World } from "./turn-world.fixture.ts";

const configured = { agents: {}, console: { changes: true } };

/** A model that calls `echo` once for each message, and what it was asked. */
function asking(asked: ModelRequest[] = []): Differences & { asked: ModelRequest[] } {
  const backend: LlmBackend = {
    async *stream(request): AsyncIterable<ModelChunk> {
      asked.push(request);
      if (request.messages.at(-1)?.role === "tool") {
        yield { type: "text_delta", text: "done" };
        yield messageStop("end_turn");
        return;
      }
      yield toolCallDelta(0, { id: "c1", name: "echo", arguments: "{}" });
      yield messageStop("tool_use");
    },
  };
  return { backend, asked, configured };
}

/** A process that has just started: what it knows of versions is what is stored. */
async function started(world: World, differences: Differences): Promise<Differences> {
  const services = servicesOf(world, differences);
  const { changedAgents, agentVersions } = services;
  await changedAgents.refresh(services);
  return { ...differences, services: { ...differences.services, changedAgents, agentVersions } };
}

async function change(world: World, base: number, changes: AgentChange): Promise<void> {
  const { agentVersions } = servicesOf(world, { configured });
  const about = { agent: "default", by: "console:Ann", atMs: 1, file: "" };
  expect(await agentVersions.add({ ...about, base, change: changes })).toBe("done");
}

/** The system prompts of the steps so far. */
function prompts(asked: readonly ModelRequest[]): (string | undefined)[] {
  return asked.map(instructionsOf);
}

it("a message keeps the version that it began with, also on the worker that takes it over; the next one has the new one", async () => {
  const world = newWorld();
  const model = asking();
  await change(world, 0, { instructions: "first" });
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  await change(world, 1, { instructions: "second", tools: [] });
  await settle(world, await started(world, model));
  await append(world, inbound("om_2", "go"));
  await runWakes(world, await started(world, model));
  expect(prompts(model.asked)).toEqual(["first", "first", "second", "second"]);
  const offered = model.asked.map(({ tools = [] }) => tools.some(({ name }) => name === "echo"));
  expect(offered).toEqual([true, true, false, false]);
  expect([...world.ran.values()]).toEqual([1]);
});

it("a message that began with the file keeps the file, and one of a version has it where changes are switched off", async () => {
  const world = newWorld();
  const model = asking();
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  await change(world, 0, { instructions: "first" });
  await settle(world, await started(world, model));
  await append(world, inbound("om_2", "go"));
  await runWakes(world, await started(world, model));
  await settle(world, { ...model, configured: { agents: {} } });
  expect(prompts(model.asked)).toEqual(["test", "test", "first", "test"]);
});

it("a worker that missed the news of a version reads it for a message that began with it", async () => {
  const world = newWorld();
  const model = asking();
  const late = await started(world, model);
  await change(world, 0, { instructions: "first" });
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  await settle(world, late);
  expect(prompts(model.asked)).toEqual(["first", "first"]);
});

it("an agent that a turn is handed over to later has the version of the turn's beginning, too", async () => {
  const world = newWorld();
  const asked: ModelRequest[] = [];
  const calls = ["echo", "transfer_to_expert"];
  const backend: LlmBackend = {
    async *stream(request): AsyncIterable<ModelChunk> {
      asked.push(request);
      const name = calls[asked.length - 1];
      if (name === undefined) {
        yield { type: "text_delta", text: "done" };
        yield messageStop("end_turn");
        return;
      }
      yield toolCallDelta(0, {
        id: "c1",
        name,
        arguments: name === "echo" ? "{}" : '{"reason":"wine"}',
      });
      yield messageStop("tool_use");
    },
  };
  const agents = { default: { handoffs: ["expert"] }, expert: { description: "Knows wine." } };
  const agent = { handoffs: [{ agent: "expert", context: "all" as const }] };
  const model = { backend, agent, configured: { ...configured, agents } };
  await change(world, 0, { instructions: "first" });
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  const { agentVersions } = servicesOf(world, model);
  const about = { agent: "expert", by: "console", atMs: 1, file: "", base: 0 };
  expect(await agentVersions.add({ ...about, change: { instructions: "changed expert" } })).toBe(
    "done",
  );
  await settle(world, await started(world, model));
  expect(prompts(asked)).toEqual(["first", "first", "expert"]);
  await append(world, inbound("om_2", "go"));
  await settle(world, await started(world, model));
  expect(prompts(asked).at(-1)).toBe("changed expert");
});

it("only workers that know versions take up a message of one; a message of the file needs nothing", async () => {
  const older = knownFeatures.filter((feature) => feature !== "agent-versions");
  const refusedAfter = async (world: World): Promise<unknown> => {
    await append(world, inbound("om_1", "go"));
    await runWakes(world, await started(world, asking()));
    await runTools(world);
    const gen = world.wakes.shift() ?? expect.fail();
    return await world.store
      .claim(session, gen, "older", { features: older })
      .catch((error: unknown) => error);
  };
  expect(await refusedAfter(newWorld())).toMatchObject({ head: { seq: 1 } });
  const world = newWorld();
  await change(world, 0, { instructions: "first" });
  expect(String(await refusedAfter(world))).toContain("it needs agent-versions");
});

it("limits, models and budgets of a version count", async () => {
  const world = newWorld();
  const model = { ...asking(), agent: { models: ["test/other"] } };
  await change(world, 0, {
    model: "test/other",
    limits: { maxIterations: 1, maxOutputTokens: 77 },
    budgets: { day: { tokens: 0 } },
  });
  const with0 = await started(world, model);
  await append(world, inbound("om_1", "hello", { language: "en" }));
  await settle(world, with0);
  expect(model.asked).toEqual([]);
  expect((await outboxOf(world)).at(-1)?.text).toContain("agent");
  await change(world, 1, {
    model: "test/other",
    limits: { maxIterations: 1, maxOutputTokens: 77 },
  });
  const with1 = await started(world, model);
  await append(world, inbound("om_2", "go"));
  await append(
    world,
    inbound("om_3", "/model", { command: { name: "model", argument: "" }, language: "en" }),
  );
  await settle(world, with1);
  expect(model.asked.map(({ maxTokens }) => maxTokens)).toContain(77);
  expect(model.asked.filter(({ tools = [] }) => tools.length > 0)).toHaveLength(1);
  expect((await outboxOf(world)).at(-1)?.text).toContain("test/other");
});

it("workers take a version up without a restart; an order is done once, in the file's bounds, and on its base", async () => {
  const world = newWorld();
  const [one, other] = [servicesOf(world, { configured }), servicesOf(world, { configured })];
  const off = servicesOf(world, {});
  const stopping = new AbortController();
  const all = [one, other, off];
  await Promise.all(
    all.map(async (services) => await services.changedAgents.follow(services, stopping.signal)),
  );
  let workers = [one, other].map((services) => startOrders(services));
  const hand = async (base: number, wanted: AgentChange, agent = "default") => {
    const act: OperatorOrder["act"] = {
      do: "change_agent",
      agent,
      base,
      change: wanted,
      note: "why",
    };
    return await one.orders.handIn({ v: 1, by: "console:Ann", act }, 20_000);
  };
  const promptAt = async (services: typeof one): Promise<string | undefined> =>
    (await services.changedAgents.servicesOf(services, undefined)).agents.get("default")?.config
      .instructions;
  try {
    expect(await hand(0, { instructions: "first" })).toMatchObject({ result: { result: "done" } });
    for (const services of [one, other]) {
      await vi.waitFor(async () => expect(await promptAt(services)).toBe("first"), {
        timeout: 60_000,
      });
    }
    expect(await promptAt(off)).toBe("test");
    expect(await hand(0, { instructions: "lost" })).toMatchObject({
      result: { result: "conflict" },
    });
    expect(await hand(1, { limits: { maxIterations: 1_000 } })).toMatchObject({
      result: { result: "not_possible" },
    });
    expect(await hand(0, { instructions: "x" }, "none")).toMatchObject({
      result: { result: "not_possible" },
    });
    expect(await hand(1, {})).toMatchObject({ result: { result: "done" } });
    await vi.waitFor(async () => expect(await promptAt(one)).toBe("test"), { timeout: 60_000 });
    const records = [];
    for await (const { kind, agent, from, to, userId } of world.audit.export(
      0,
      Number.MAX_SAFE_INTEGER,
    )) {
      records.push([kind, agent, from, to, userId]);
    }
    expect(records).toEqual([
      ["agent_changed", "default", 0, 1, "console:Ann"],
      ["agent_changed", "default", 1, 2, "console:Ann"],
    ]);
    await Promise.all(workers.map(async (worker) => await worker.close()));
    workers = [startOrders(off)];
    expect(await hand(2, { instructions: "x" })).toMatchObject({
      result: { result: "not_possible" },
    });
  } finally {
    await Promise.all(workers.map(async (worker) => await worker.close()));
    stopping.abort();
  }
});

it("a forged version does not count: the last good one stays, and the log has it", async () => {
  const world = newWorld();
  const model = asking();
  await change(world, 0, { instructions: "good" });
  await change(world, 1, { instructions: "edited" });
  const key = `{${world.namespace}}:agent-versions`;
  const sealed = (await world.redis.hget(key, "version:default:2")) ?? "";
  await world.redis.hset(key, "version:default:2", sealed.replace("edited", "EVIL!!"));
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  expect(prompts(model.asked)).toEqual(["good"]);
  expect(world.logged).toContainEqual(
    expect.objectContaining({ level: "error", agent: "default", number: 2 }),
  );
});

it("a message that outlives its version has the oldest that is kept", async () => {
  const world = newWorld();
  const model = asking();
  await change(world, 0, { instructions: "version 1" });
  await append(world, inbound("om_1", "go"));
  await runWakes(world, await started(world, model));
  for (let base = 1; base <= 50; base += 1) {
    await change(world, base, { instructions: `version ${base + 1}` });
  }
  await settle(world, await started(world, model));
  expect(prompts(model.asked)).toEqual(["version 1", "version 2"]);
});
