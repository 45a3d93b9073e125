import { LongConnection } from "@larkline/feishu";
import type { EventWatchReport } from "@larkline/store/operations";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { EventWatch } from "./long-connection.ts";

const { appId: app } = testApp;
const patienceMs = 60_000;
const opened: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.close();
});

/** An ingress on a long connection, and a watch that does not wait for late deliveries. */
async function scene(): Promise<{
  world: FeishuWorld;
  watch: EventWatch;
  /** A message came in Ann's chat. */
  note: () => void;
  report: () => Promise<EventWatchReport | undefined>;
}> {
  const world = await startWorld({ transport: "websocket" });
  opened.push(world);
  const { services, bots } = world.ingress;
  const [bot = expect.fail("no bot")] = bots;
  const watch = new EventWatch(services, bot, 0);
  opened.push(watch);
  await expect
    .poll(async () => (await fetch(`${world.ingress.url}/ready`)).ok, { timeout: patienceMs })
    .toBe(true);
  const note = () => bot.recentChats.note(world.direct, services.clock.now());
  return { world, watch, note, report: async () => await services.eventWatches.of(app) };
}

/** Another program with the same app id and secret, which acknowledges whatever it gets. */
async function startThief({ platform }: FeishuWorld): Promise<void> {
  const thief = new LongConnection({
    ...testApp,
    domain: platform.url,
    onEvent: async () => undefined,
  });
  opened.push(thief);
  thief.start();
  await expect.poll(() => thief.state(), { timeout: patienceMs }).toBe("connected");
}

/** Each event goes to one of the two at random: writes until both have some. */
async function writeUntilStolen(world: FeishuWorld): Promise<{ ours: string[]; stolen: string[] }> {
  await startThief(world);
  const [ours, stolen]: [string[], string[]] = [[], []];
  while (ours.length === 0 || stolen.length === 0) {
    const messageId = await world.say("hello");
    const came = await world.ingress.store.seen(`${app}.${world.direct}`, app, messageId);
    (came ? ours : stolen).push(messageId);
  }
  return { ours, stolen };
}

describe("a second program with the same app", () => {
  it("is found out by the direct messages that only the platform knows of", async () => {
    const { world, watch, report } = await scene();
    const { ours, stolen } = await writeUntilStolen(world);
    await watch.look();
    const found = await report();
    expect(found).toMatchObject({ app, compared: ours.length + stolen.length });
    // Those of one moment come in any order.
    expect(found?.missed.map(({ messageId }) => messageId).sort()).toEqual(stolen.sort());
  });

  it("is not suspected where everything came, orders and refusals too", async () => {
    const { world, watch, report } = await scene();
    for (const text of ["hello", "/stop", " ／stop", "/status", "again", "x".repeat(60_000)]) {
      await world.say(text);
    }
    await world.say("", { post: { content: [[{ tag: "text", text: "/stop" }]] } });
    await watch.look();
    expect(await report()).toMatchObject({ compared: 3, missed: [] });
  });

  it("is not suspected any more when a message comes late after all", async () => {
    const { world, watch, note, report } = await scene();
    await writeUntilStolen(world);
    await watch.look();
    const before = (await report())?.missed ?? [];
    expect(before.length).toBeGreaterThan(0);
    for (const { messageId } of before) {
      const [session, sender] = [`${app}.${world.direct}`, { id: world.ann }];
      const reply = { channel: "none" } as const;
      const parts = [{ type: "text" as const, text: "late" }];
      await world.ingress.store.append({
        v: 1,
        session,
        id: messageId,
        app,
        sender,
        chatType: "p2p",
        parts,
        createdAtMs: 1,
        reply,
      });
    }
    note();
    await watch.look();
    expect(await report()).toMatchObject({ missed: [] });
  });

  it("cannot be found out without the right to read chats, which is said", async () => {
    const { world, watch, report } = await scene();
    world.platform.faults.add({
      match: { method: "GET", path: /\/im\/v1\/messages$/ },
      action: { kind: "respond", status: 400, body: { code: 230027, msg: "no" } },
    });
    await world.say("hello");
    await watch.look();
    expect(await report()).toMatchObject({ compared: 0, missed: [], problem: "forbidden 230027" });
  });
});

it("an ingress tells others who it is, and how events come to it", async () => {
  const { world } = await scene();
  await world.say("hello");
  const { instances } = world.ingress;
  await expect
    .poll(async () => (await instances.instances()).length, { timeout: patienceMs })
    .toBe(1);
  const [told] = await instances.instances();
  expect(told).toMatchObject({
    service: "ingress",
    apps: [app],
    feeds: [{ app, transport: "websocket" }],
  });
});
