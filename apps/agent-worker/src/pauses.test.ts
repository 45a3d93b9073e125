import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import type { OperatorOrder } from "@larkline/store/operations";
import { textOf } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it, vi } from "vitest";
import { followPauses } from "./background-jobs.ts";
import { startOrders } from "./operator-orders.ts";
import {
  askPeople,
  append,
  inbound,
  newWorld,
  outboxOf,
  runTools,
  runWakes,
  servicesOf,
  session,
  settle,
} from "./turn-world.fixture.ts";
import type { Differences, World } from "./turn-world.fixture.ts";

/** A model that calls a tool first, and what it was asked. */
function calling(
  name: string,
  asked: ModelRequest[] = [],
): Differences & { asked: ModelRequest[] } {
  const backend: LlmBackend = {
    async *stream(request): AsyncIterable<ModelChunk> {
      asked.push(request);
      if (request.messages.at(-1)?.role === "tool") {
        yield { type: "text_delta", text: "done" };
        yield messageStop("end_turn");
        return;
      }
      yield toolCallDelta(0, { id: "c1", name, arguments: "{}" });
      yield messageStop("tool_use");
    },
  };
  return { backend, asked };
}

/** A worker with what is paused in this world. */
async function pausing(
  world: World,
  what: "agent" | "tool",
  name: string,
): Promise<Partial<Differences>> {
  const { pauses } = servicesOf(world);
  await pauses.set({ what, name }, true, "console:Ann");
  await pauses.refresh();
  return { services: { pauses } };
}

async function resultsOf({ store }: World): Promise<string[]> {
  const answered = (await store.history(session)).filter(({ role }) => role === "tool");
  return answered.map(({ content }) => JSON.stringify(content));
}

it("a paused agent answers with a notice in the language of its person, and asks no model", async () => {
  const world = newWorld();
  const model = calling("echo");
  const paused = await pausing(world, "agent", "default");
  await append(world, inbound("om_1", "你好"), inbound("om_2", "hello", { language: "en" }));
  await settle(world, { ...model, ...paused });
  const [zh, en] = await outboxOf(world);
  expect([zh?.text, en?.text]).toEqual([
    expect.stringContaining("管理员已暂停智能体 default"),
    expect.stringContaining("An operator has paused the agent default"),
  ]);
  expect(model.asked).toEqual([]);
  const ends = (await world.events.read(session, 0, 1_000)).filter(
    ({ event }) => event.type === "error",
  );
  expect(ends.map(({ event }) => event)).toMatchObject([
    { code: "permission_denied", retryable: true },
    { code: "permission_denied", retryable: true },
  ]);
});

it("commands work for a paused agent, and what was said counts when it works again", async () => {
  const world = newWorld();
  const model = calling("echo");
  const paused = await pausing(world, "agent", "default");
  await append(world, inbound("om_1", "first"));
  await settle(world, { ...model, ...paused });
  await append(
    world,
    inbound("om_2", "/agent", { command: { name: "agent", argument: "" }, language: "en" }),
  );
  await settle(world, { ...model, ...paused });
  await append(world, inbound("om_3", "second"));
  await settle(world, model);
  const texts = (await outboxOf(world)).map(({ text }) => text);
  expect(texts[1]).toContain("Who answers");
  expect(texts[2]).toBe("done");
  expect(model.asked[0]?.messages.filter(({ role }) => role === "user").map(textOf)).toEqual([
    "first",
    "second",
  ]);
});

it("a turn under way ends with the notice when its calls are answered, and its text stays", async () => {
  const world = newWorld();
  const model = calling("echo");
  await append(world, inbound("om_1", "go", { language: "en" }));
  await runWakes(world, model);
  await runTools(world);
  const paused = await pausing(world, "agent", "default");
  await settle(world, { ...model, ...paused });
  expect(model.asked).toHaveLength(1);
  expect((await outboxOf(world)).map(({ text }) => text)).toEqual([
    expect.stringContaining("paused the agent"),
  ]);
  expect([...world.ran.values()]).toEqual([1]);
});

it("a call of a paused tool is not run, and the model reads why", async () => {
  const world = newWorld();
  const paused = await pausing(world, "tool", "echo");
  await append(world, inbound("om_1", "go"));
  await settle(world, { ...calling("echo"), ...paused });
  expect([...world.ran.keys()]).toEqual([]);
  expect(await resultsOf(world)).toEqual([
    expect.stringContaining("an operator has paused the tool 'echo'"),
  ]);
  expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["done"]);
});

it("people are not asked about a call of a paused tool, and one that is approved meanwhile is not run", async () => {
  const world = newWorld();
  await append(world, inbound("om_1", "go"));
  await runWakes(world, calling("pay"));
  const paused = await pausing(world, "tool", "pay");
  await askPeople(world);
  await settle(world, { ...calling("pay"), ...paused });
  await append(world, inbound("om_2", "again"));
  await settle(world, { ...calling("pay"), ...paused });
  expect([...world.ran.keys()]).toEqual([]);
  const results = await resultsOf(world);
  expect(results).toHaveLength(2);
  for (const result of results) expect(result).toContain("an operator has paused the tool 'pay'");
  expect(await world.approvals.pending(session)).toEqual([]);
});

it("a paused agent is handed nothing over, and is no helper", async () => {
  const world = newWorld();
  const model = calling("echo");
  const configured = {
    agents: { default: { handoffs: ["expert"] }, expert: { description: "Knows wine." } },
  };
  const agent = { handoffs: [{ agent: "expert", context: "all" as const }] };
  await append(world, inbound("om_1", "go"));
  await settle(world, { ...model, configured, agent });
  const paused = await pausing(world, "agent", "expert");
  await append(world, inbound("om_2", "go"));
  await settle(world, { ...model, configured, agent, ...paused });
  const offered = model.asked.map(({ tools = [] }) =>
    tools.some(({ name }) => name === "transfer_to_expert"),
  );
  expect(offered).toEqual([true, true, false, false]);
});

it("workers that receive an order pause once, with one record; an agent that does not exist cannot be paused", async () => {
  const world = newWorld();
  const [one, other] = [servicesOf(world), servicesOf(world)];
  const stopping = new AbortController();
  await Promise.all(
    [one, other].map(async (services) => await followPauses(services, stopping.signal)),
  );
  const workers = [one, other].map((services) => startOrders(services));
  const order = (act: OperatorOrder["act"]): OperatorOrder => ({ v: 1, by: "console:Ann", act });
  const hand = async (act: OperatorOrder["act"]) => await one.orders.handIn(order(act), 20_000);
  try {
    const pause = { do: "pause", what: "agent", name: "default" } as const;
    expect(await hand(pause)).toMatchObject({ result: { result: "done" } });
    expect(await hand(pause)).toMatchObject({ result: { result: "nothing" } });
    for (const services of [one, other]) {
      const known = (): unknown => services.pauses.of("agent", "default")?.by;
      await vi.waitFor(() => expect(known()).toBe("console:Ann"), { timeout: 60_000 });
    }
    expect(await hand({ ...pause, name: "none" })).toMatchObject({
      result: { result: "not_possible" },
    });
    expect(await hand({ ...pause, what: "tool", name: "none" })).toMatchObject({
      result: { result: "not_possible" },
    });
    expect(await hand({ ...pause, do: "resume" })).toMatchObject({ result: { result: "done" } });
    const records = [];
    for await (const { kind, agent } of world.audit.export(0, Number.MAX_SAFE_INTEGER)) {
      records.push([kind, agent]);
    }
    expect(records).toEqual([
      ["agent_paused", "default"],
      ["agent_resumed", "default"],
    ]);
  } finally {
    await Promise.all(workers.map(async (worker) => await worker.close()));
    stopping.abort();
  }
});
