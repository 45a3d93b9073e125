import { createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import {
  createServer,
  type IncomingHttpHeaders,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text as textOf } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { resolveConfig } from "@larkline/process/config";
import { followClock, forgetClock, sharedNow, systemClock } from "@larkline/protocol/clock";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";
import { eventConsumers, type EventConsumer, type OtherEvent } from "./other-events.ts";

const { appId } = testApp;
const key = "the key that signs what is sent to the address";
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

async function world(...consumers: EventConsumer[]): Promise<FeishuWorld> {
  return await hastyWorld({}, ...consumers);
}

async function hastyWorld(
  options: WorldOptions,
  ...consumers: EventConsumer[]
): Promise<FeishuWorld> {
  const here = await startWorld({ ...options, consumers });
  closing.unshift(async () => await here.close());
  return here;
}

async function deliver(here: FeishuWorld, eventType: string, event: Record<string, unknown>) {
  return await here.platform.sendEvent({ appId, eventType, event });
}

/** A card with a button of another program. */
async function foreignClick(here: FeishuWorld, value: Record<string, unknown>) {
  const question = await here.say("one", { chatId: here.group, mention: true });
  const behaviors = [{ type: "callback", value }];
  const button = {
    tag: "button",
    element_id: "b",
    text: { tag: "plain_text", content: "Vote" },
    behaviors,
  };
  const content = JSON.stringify({
    schema: "2.0",
    config: { update_multi: true },
    body: { elements: [button] },
  });
  const card = {
    messageId: question,
    messageType: "interactive",
    content,
    uuid: "card",
    inThread: false,
  } as const;
  const { messageId } = await here.api.messages.reply(card);
  return async () => await here.platform.click({ messageId, openId: here.ann, elementId: "b" });
}

interface Received {
  headers: IncomingHttpHeaders;
  body: string;
}

/** A server that answers as the test says, and the consumer that sends to it. */
async function address(
  answer: (response: ServerResponse, received: Received, count: number) => void,
) {
  const received: Received[] = [];
  const server: Server = createServer(async (request, response) => {
    const one = { headers: request.headers, body: await textOf(request) };
    received.push(one);
    answer(response, one, received.length);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`; // it listens on TCP
  const consumers = await eventConsumers(systemClock, { modules: [], url }, key);
  if (!consumers.ok) throw new Error(consumers.error);
  return { received, consumers: consumers.value };
}

async function counted(here: FeishuWorld, kind: string, outcome: string): Promise<number> {
  const text = await here.ingress.metrics.text();
  const pattern = new RegExp(
    `larkline_ingress_other_events_total\\{[^}]*kind="${kind}",outcome="${outcome}"[^}]*\\} (\\d+)`,
  );
  return Number(pattern.exec(text)?.[1] ?? 0);
}

/** Never ends by itself. */
async function hang(signal: AbortSignal): Promise<void> {
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}

describe("an event that is not ours", () => {
  it("AL-62: reaches a module and the address, signed, with all that the platform said", async () => {
    // The address judges how old an event is by a clock of its own: that of a wrong machine says nothing.
    followClock(Date.now() + 100_000, performance.now());
    onTestFinished(forgetClock);
    const told: OtherEvent[] = [];
    const { received, consumers } = await address((response) => void response.end());
    const here = await world({ event: (event) => void told.push(event) }, ...consumers);
    await deliver(here, "contact.user.created_v3", { object: { name: "陈" } });
    await deliver(here, "im.message.reaction.created_v1", { message_id: "om_1" });
    await vi.waitFor(() => expect([told.length, received.length]).toEqual([2, 2]), 60_000);
    const created = told.find(({ type }) => type === "contact.user.created_v3");
    expect(created).toMatchObject({
      bot: "default",
      app: appId,
      event: { object: { name: "陈" } },
    });
    expect(created?.eventId).not.toBe("");
    for (const { headers, body } of received) {
      expect(told).toContainEqual({ ...JSON.parse(body), v: undefined });
      const timestamp = String(headers["x-larkline-timestamp"]);
      expect(Math.abs(Number(timestamp) - sharedNow() / 1_000)).toBeLessThan(50);
      const expected = createHmac("sha256", key).update(`${timestamp}.${body}`).digest("hex");
      expect(headers["x-larkline-signature"]).toBe(`v1=${expected}`);
    }
    await vi.waitFor(async () => expect(await counted(here, "event", "passed")).toBe(4), {
      timeout: 60_000,
    });
  });

  it("AL-62: is acknowledged whatever a module does with it, and the others still get theirs", async () => {
    const told: string[] = [];
    const here = await hastyWorld(
      { answerWithinMs: 1_500, retryDelaysMs: [] },
      { event: async (_event, signal) => await hang(signal) },
      {
        event: () => {
          throw new Error("broken on purpose");
        },
      },
      { event: ({ type }) => void told.push(type) },
    );
    expect(await deliver(here, "contact.user.created_v3", {})).toMatchObject({
      outcome: "acknowledged",
    });
    await vi.waitFor(() => expect(told).toEqual(["contact.user.created_v3"]), { timeout: 60_000 });
    await vi.waitFor(async () => expect(await counted(here, "event", "failed")).toBe(1), {
      timeout: 60_000,
    });
  });

  it("AL-62: is acknowledged before any consumer gets it", async () => {
    const heard = Promise.withResolvers<string>();
    const here: FeishuWorld = await world({
      event: async () => heard.resolve(await here.ingress.metrics.text()),
    });
    await deliver(here, "contact.user.created_v3", {});
    expect(await heard.promise).toMatch(
      /larkline_ingress_events_total\{[^}]*outcome="acknowledged"[^}]*\} 1/,
    );
  });

  it("is dropped and counted when too many wait", async () => {
    let [started, running, most] = [0, 0, 0];
    const here = await world({
      event: async (_event, signal) => {
        started += 1;
        running += 1;
        most = Math.max(most, running);
        await hang(signal).finally(() => (running -= 1));
      },
    });
    const send = async () => await deliver(here, "contact.user.created_v3", {});
    for (let round = 0; round < 11; round += 1) {
      await Promise.all(Array.from({ length: 100 }, send));
    }
    expect(most).toBe(16);
    const dropped = await counted(here, "event", "dropped");
    expect(dropped).toBeLessThanOrEqual(1_100 - 16 - 1_000);
    // Where the deadline of the first ones has passed, others have taken their places.
    expect(dropped).toBeGreaterThanOrEqual(1_100 - started - 1_000);
    expect(dropped).toBeGreaterThan(0);
  });

  it("is sent again when the server fails, and not when it refuses", async () => {
    const { received, consumers } = await address((response, _received, count) => {
      response.writeHead(count === 1 ? 500 : count === 2 ? 204 : 400).end();
    });
    const here = await world(...consumers);
    await deliver(here, "contact.user.created_v3", {});
    await vi.waitFor(() => expect(received).toHaveLength(2), 60_000);
    expect(received[1]?.body).toBe(received[0]?.body);
    await vi.waitFor(async () => expect(await counted(here, "event", "passed")).toBe(1), {
      timeout: 60_000,
    });
    await deliver(here, "contact.user.updated_v3", {});
    await vi.waitFor(async () => expect(await counted(here, "event", "failed")).toBe(1), 60_000);
    expect(received).toHaveLength(3);
  });

  it("is nothing that Larkline deals with itself", async () => {
    const told: string[] = [];
    const here = await world({
      event: ({ type }) => void told.push(type),
      click: ({ type }) => void told.push(type),
    });
    await here.say("hello");
    await deliver(here, "im.chat.updated_v1", { chat_id: here.group });
    await deliver(here, "contact.user.created_v3", {});
    await vi.waitFor(() => expect(told).toEqual(["contact.user.created_v3"]), { timeout: 60_000 });
  });
});

describe("a click that is not ours", () => {
  it("AL-62: is answered by the first consumer that knows it", async () => {
    const asked: unknown[] = [];
    const here = await world(
      { click: () => undefined },
      {
        click: ({ event }) => {
          asked.push(event["action"]);
          return { toast: { type: "success", content: "voted" } };
        },
      },
      { click: () => ({ toast: { type: "error", content: "never asked" } }) },
    );
    const click = await foreignClick(here, { vote: "yes" });
    expect(await click()).toMatchObject({ code: 0, toast: { type: "success", content: "voted" } });
    expect(asked).toMatchObject([{ value: { vote: "yes" } }]);
  });

  it.each([
    [200, '{"toast":{"type":"info","content":"noted"}}', { toast: { content: "noted" } }],
    [404, "", { toast: { content: "no pending approval" } }],
    [500, "", { toast: { content: "no pending approval" } }],
    [200, "no JSON", { toast: { content: "no pending approval" } }],
    [200, '"text"', { toast: { content: "no pending approval" } }],
    [200, `{"card":"${"x".repeat(70_000)}"}`, { toast: { content: "no pending approval" } }],
  ])("AL-62: over HTTP %d %.40s decides what the person sees", async (status, body, shown) => {
    const { received, consumers } = await address(
      (response) => void response.writeHead(status).end(body),
    );
    const here = await world(...consumers);
    const click = await foreignClick(here, { vote: "yes" });
    expect(await click()).toMatchObject({ code: 0, ...shown });
    expect(received).toHaveLength(1);
    expect(received[0]?.headers["x-larkline-signature"]).toMatch(/^v1=[0-9a-f]{64}$/);
  });

  it("AL-62: of a consumer that is too slow gets an empty answer within the platform's three seconds", async () => {
    const { consumers } = await address(() => undefined);
    const here = await hastyWorld({ answerWithinMs: 2_800 }, ...consumers);
    const click = await foreignClick(here, { vote: "yes" });
    const clicked = await click();
    expect(clicked.code).toBe(0);
    expect(clicked.toast).toBeUndefined();
  });

  it("AL-62: does not reach a consumer when it is an approval's", async () => {
    const asked: unknown[] = [];
    const here = await world({ click: (event) => void asked.push(event) });
    const click = await foreignClick(here, { __approval__: "x", decision: "approve" });
    expect(await click()).toMatchObject({ toast: { content: "no pending approval" } });
    expect(asked).toEqual([]);
  });
});

describe("what the configuration names", () => {
  async function moduleOf(source: string): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), "larkline-events-"));
    closing.push(async () => await rm(folder, { recursive: true }));
    const file = join(folder, "module.ts");
    await writeFile(file, source);
    return pathToFileURL(file).href;
  }

  it("is loaded, a module with one consumer or with several", async () => {
    const one = await moduleOf("export default { event() {} };");
    const two = await moduleOf("export default [{ click() {} }, { event() {}, click() {} }];");
    const loaded = await eventConsumers(
      systemClock,
      { modules: [one, two], url: undefined },
      undefined,
    );
    expect(loaded.ok ? loaded.value : loaded.error).toHaveLength(3);
  });

  it("refuses the start with every problem: modules that are none, and an address without a key", async () => {
    const modules = await Promise.all(
      ["export default 7;", "export default {};", "export default { event: 1 };"].map(moduleOf),
    );
    const loaded = await eventConsumers(
      systemClock,
      { modules: [...modules, "file:///nowhere.ts"], url: undefined },
      undefined,
    );
    expect(loaded.ok ? [] : loaded.error.split("\n")).toHaveLength(4);
    const keyless = await eventConsumers(
      systemClock,
      { modules: [], url: "https://hooks.example" },
      undefined,
    );
    expect(keyless).toEqual({ ok: false, error: expect.stringContaining("EVENTS_SIGNING_KEY") });
    for (const url of ["http://hooks.example", "ftp://x", "https:/x"]) {
      expect(resolveConfig({ events: { url } }).ok).toBe(false);
    }
    expect(resolveConfig({ events: { url: "https://hooks.example/larkline" } }).ok).toBe(true);
  });
});
