import { parserOf } from "@larkline/protocol";
import { OperatorOrder, type AddedProvider, type OrderResult } from "@larkline/store/operations";
import { sealProviderKey } from "@larkline/store/operations";
import { startModelServer, type ModelServer } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { AddedModels, testModel } from "./added-models.ts";
import { applyOrder, startOrders } from "./operator-orders.ts";
import type { Services } from "./services.ts";
import {
  append,
  inbound,
  newWorld,
  outboxOf,
  runWakes,
  servicesOf,
  type World,
} from "./turn-world.fixture.ts";

const secret = "sk-key-of-the-vendor";
const grantKey = "a".repeat(64);
const configured = {
  agents: { other: {} },
  console: { changes: true, models: { hosts: ["127.0.0.1"] } },
};

let vendor: ModelServer;
let provider: AddedProvider;

beforeAll(async () => {
  vendor = await startModelServer({ apiKey: secret, script: () => ({ text: "From the server." }) });
  provider = { name: "mine", type: "openai", baseUrl: `${vendor.url}/v1`, models: ["small"] };
});
afterAll(async () => await vendor.close());

async function started(world: World, differences: object = {}): Promise<Services> {
  const services = servicesOf(world, { configured, grantKey, ...differences });
  await services.changedAgents.refresh(services);
  return services;
}

/** As the console hands it in. */
async function orderIn(services: Services, act: OperatorOrder["act"]): Promise<OrderResult> {
  const order = parserOf(OperatorOrder)({ v: 1, by: "console:Ann", act });
  if (!order.ok) throw new Error(order.error);
  const result = await applyOrder(services, order.value);
  await services.changedAgents.refresh(services);
  return result;
}

async function addedBy(services: Services, given = provider, key = secret): Promise<OrderResult> {
  const { sealTo = "" } = await services.addedProviders.list();
  const sealedKey = sealProviderKey(sealTo, given, key);
  return await orderIn(services, { do: "set_provider", provider: given, sealedKey });
}

const give = async (services: Services, base: number, model?: string): Promise<OrderResult> =>
  await orderIn(services, {
    do: "change_agent",
    agent: "default",
    base,
    change: model === undefined ? {} : { model },
  });

it("an agent answers by a server that an operator has just added, on every worker, and the key is in no log", async () => {
  const world = newWorld();
  const [services, other] = [await started(world), await started(world)];
  const stopping = new AbortController();
  await other.changedAgents.follow(other, stopping.signal);
  expect(await give(services, 0, "mine/small")).toEqual({ result: "not_possible" });
  expect(await addedBy(services)).toEqual({ result: "done" });
  expect(await give(services, 0, "mine/small")).toEqual({ result: "done" });
  await vi.waitFor(
    async () => {
      const { agents } = await other.changedAgents.servicesOf(other, undefined);
      expect(agents.get("default")?.defaultModel).toBe("mine/small");
    },
    { timeout: 5_000 },
  );
  stopping.abort();
  await append(world, inbound("om_1", "go"));
  await runWakes(world, { configured, grantKey, services: other });
  expect((await outboxOf(world)).at(-1)?.text).toContain("From the server.");
  expect(vendor.requests.at(-1)).toMatchObject({ model: "small" });
  expect(JSON.stringify(world.logged)).not.toContain(secret);
});

it("a server that an agent uses stays, and so does a model of it", async () => {
  const world = newWorld();
  const services = await started(world);
  await addedBy(services);
  await give(services, 0, "mine/small");
  const inUse = { result: "in_use", agents: ["default"] };
  expect(await orderIn(services, { do: "remove_provider", name: "mine" })).toEqual(inUse);
  expect(await addedBy(services, { ...provider, models: ["large"] })).toEqual(inUse);
  expect(await addedBy(services, { ...provider, models: ["small", "large"] })).toEqual({
    result: "done",
  });
  await give(services, 1);
  expect(await orderIn(services, { do: "remove_provider", name: "mine" })).toEqual({
    result: "done",
  });
  expect(services.changedAgents.added.names()).toEqual([]);
});

it("a server that the file does not allow is neither stored nor used", async () => {
  const world = newWorld();
  const services = await started(world);
  const elsewhere = { ...provider, baseUrl: "http://10.0.0.1/v1" };
  for (const wrong of [elsewhere, { ...provider, name: "openai" }]) {
    expect(await addedBy(services, wrong)).toEqual({ result: "not_possible" });
  }
  await addedBy(services);
  await give(services, 0, "mine/small");
  const modelAt = async (console: object): Promise<string | undefined> => {
    const stricter = await started(world, { configured: { agents: {}, console } });
    const { agents } = await stricter.changedAgents.servicesOf(stricter, undefined);
    return agents.get("default")?.defaultModel;
  };
  expect(await modelAt(configured.console)).toBe("mine/small");
  expect(await modelAt({ changes: true, models: true })).toBe("test/model");
  expect(await modelAt({ changes: true })).toBe("test/model");
});

it("a test says what the model answers, or what the vendor says, without the key", async () => {
  const services = await started(newWorld());
  await addedBy(services);
  const test = async (model?: string) =>
    (await orderIn(services, { do: "test_model", ...(model === undefined ? {} : { model }) })).test;
  expect(await test("mine/small")).toMatchObject({
    model: "mine/small",
    answer: "From the server.",
  });
  expect(await test()).toMatchObject({ model: "test/model" });
  await addedBy(services, provider, "sk-wrong");
  const refused = await test("mine/small");
  expect(refused).toMatchObject({
    model: "mine/small",
    code: "api_auth_error",
    message: "invalid x-api-key",
  });
  expect(refused).not.toHaveProperty("answer");
});

it("servers are reached by what looks at each address, but for hosts that the file names", async () => {
  const world = newWorld();
  const services = await started(world);
  await addedBy(services);
  await addedBy(services, { ...provider, name: "far", baseUrl: "https://models.example/v1" });
  const fetched: unknown[] = [];
  const added = new AddedModels(async (input, init) => {
    fetched.push([String(input), init?.redirect]);
    return new Response("no", { status: 404 });
  });
  await added.refresh(servicesOf(world, { configured, grantKey }));
  const changedAgents = { added, models: services.changedAgents.models };
  const test = async (model: string) =>
    (await testModel({ ...services, changedAgents }, model)).test;
  expect(await test("mine/small")).toMatchObject({ answer: "From the server." });
  expect(fetched).toEqual([]);
  expect(await test("far/small")).not.toHaveProperty("answer");
  expect(fetched).toEqual([["https://models.example/v1/chat/completions", "manual"]]);
});

it("a model that does not answer is given up in time", async () => {
  const silent = await startModelServer({ script: () => ({ fault: { kind: "silent" } }) });
  const services = await started(newWorld());
  await addedBy(services, { ...provider, baseUrl: `${silent.url}/v1` });
  const { clock } = services;
  const every: typeof clock.every = (ms, work) => clock.every(ms === 12_000 ? 20 : ms, work);
  const { test } = await testModel({ ...services, clock: { ...clock, every } }, "mine/small");
  expect(test).toMatchObject({ model: "mine/small", code: "timeout" });
  await silent.close();
});

it("while a model is tested, other orders are carried out; at most four tests run at once", async () => {
  const world = newWorld();
  const slow = await startModelServer({
    script: () => ({ text: "late", fault: { kind: "silent" } }),
  });
  const services = await started(world);
  await addedBy(services, { ...provider, baseUrl: `${slow.url}/v1` });
  const worker = startOrders(services);
  const hand = async (act: OperatorOrder["act"]) =>
    await services.orders.handIn({ v: 1, by: "console:Ann", act }, 20_000);
  try {
    const tests = [1, 2, 3, 4].map(
      async () => await hand({ do: "test_model", model: "mine/small" }),
    );
    await vi.waitFor(() => expect(slow.requests).toHaveLength(4), { timeout: 20_000 });
    expect(await hand({ do: "test_model", model: "mine/small" })).toEqual({
      state: "done",
      result: { result: "full" },
    });
    expect(await hand({ do: "pause", what: "agent", name: "default" })).toMatchObject({
      result: { result: "done" },
    });
    await slow.close();
    const answered = { state: "done", result: { result: "done", test: { model: "mine/small" } } };
    expect(await Promise.all(tests)).toMatchObject([answered, answered, answered, answered]);
  } finally {
    await slow.close();
    await worker.close();
  }
});

it("an edit of the file that a version covers is reported, once for each version, and others are not", async () => {
  const world = newWorld();
  const services = await started(world);
  await orderIn(services, {
    do: "change_agent",
    agent: "default",
    base: 0,
    change: { instructions: "of the console" },
  });
  const reports = () => world.logged.filter(({ covered }) => covered !== undefined);
  expect(reports()).toEqual([]);
  const edited = await started(world, { agent: { instructions: "edited" } });
  expect(reports()).toHaveLength(1);
  await orderIn(services, { do: "change_agent", agent: "other", base: 0, change: { tools: [] } });
  await edited.changedAgents.refresh(edited);
  expect(reports()).toMatchObject([
    { level: "warn", agent: "default", covered: "instructions", version: 1, by: "console:Ann" },
  ]);
});
