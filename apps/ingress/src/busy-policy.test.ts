import { afterEach, describe, expect, it, vi } from "vitest";
import type { BusyPolicy, ConfigInput } from "@larkline/process/config";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(
  busy: BusyPolicy,
  feishu: ConfigInput["feishu"] = {},
  options: WorldOptions = {},
) {
  const started = await startWorld({
    ...options,
    settings: { agents: { default: { busy } }, feishu },
  });
  worlds.push(started);
  return started;
}

/** Counts the calls whose paths it is tested against. */
class CountedPath extends RegExp {
  seen = 0;

  override test(path: string): boolean {
    const isOne = super.test(path);
    if (isOne) this.seen += 1;
    return isOne;
  }
}

/** A message of a group that is for the bot. */
function inGroup(here: FeishuWorld, from: string) {
  return { chatId: here.group, from, mention: true };
}

describe("queue", () => {
  it("a message waits behind the one being answered and shows so by a reaction", async () => {
    const here = await world("queue");
    const session = `${appId}.${here.direct}`;
    const first = await here.say("one");
    await here.begin(session);
    const second = await here.say("two");
    await vi.waitFor(() => expect(here.reactions(second)).toEqual(["OneSecond"]), {
      timeout: 60_000,
    });
    expect(here.reactions(first)).toEqual([]);
    expect(await here.waiting(session)).toBe(2);
    expect(await here.told(session)).toEqual([]);
  });

  it.each([
    ["three", "Messages before this one: 2"],
    ["三", "前面还有 2 条消息"],
  ])("tells the position of %s in a line, once, where that is wanted", async (text, line) => {
    const here = await world("queue", { queueNotice: "line" });
    await here.say("one");
    await here.say("two", { from: here.ann });
    const { messageId } = await here.untilSaid(here.direct);
    expect(
      here.platform.messages(here.direct).find((one) => one.messageId === messageId)?.text,
    ).toContain("1");
    const third = await here.say(text);
    expect((await here.untilSaid(here.direct, 2)).text).toContain(line);
    await here.platform.redeliver(third);
    await here.ingress.close();
    expect(here.said(here.direct)).toHaveLength(2);
  });

  it("says nothing about positions where that is switched off", async () => {
    const here = await world("queue", { queueNotice: "off" });
    await here.say("one");
    const second = await here.say("two");
    await here.ingress.close();
    expect([here.said(here.direct), here.reactions(second)]).toEqual([[], []]);
  });

  it("takes the reaction back by itself when the turn began before the platform had it", async () => {
    const here = await world("queue");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const claim = await here.begin(session);
    const begun = Promise.withResolvers<void>();
    here.platform.faults.add({
      match: { path: /reactions$/ },
      action: { kind: "hold", until: begun.promise },
    });
    const changes: [string, number][] = [];
    here.platform.on("message", ({ messageId, reactions }) =>
      changes.push([messageId, reactions.length]),
    );
    const second = await here.say("two");
    await here.finish(claim);
    begun.resolve();
    await vi.waitFor(
      () =>
        expect(changes.slice(-2)).toEqual([
          [second, 1],
          [second, 0],
        ]),
      { timeout: 60_000 },
    );
  });

  it("asks the platform for a few reactions at a time, however many messages wait", async () => {
    const here = await world("queue");
    await here.say("one");
    await here.begin(`${appId}.${here.direct}`);
    const calls = new CountedPath("reactions$");
    here.platform.faults.add({ match: { path: calls }, action: { kind: "delay", delayMs: 50 } });
    let shown = 0;
    const open: number[] = [];
    here.platform.on("message", ({ reactions }) => {
      open.push(calls.seen - shown);
      shown += reactions.length;
    });
    const waiting = await Promise.all(
      Array.from({ length: 12 }, async (_, index) => await here.say(`no. ${index}`)),
    );
    await vi.waitFor(() => expect(waiting.flatMap((one) => here.reactions(one))).toHaveLength(12), {
      timeout: 60_000,
    });
    expect(Math.max(...open)).toBeLessThanOrEqual(2);
  });

  it("cancels no turn, whichever person writes", async () => {
    const here = await world("queue");
    const session = `${appId}.${here.group}`;
    await here.say("one", inGroup(here, here.ann));
    await here.begin(session);
    await here.say("two", inGroup(here, here.bob));
    await here.say("three", inGroup(here, here.ann));
    expect(await here.told(session)).toEqual([]);
    expect(here.ingress.cancels).toEqual([]);
  });
});

describe("a typing reaction", () => {
  it("is put on a message where that is switched on, and not without", async () => {
    const here = await world("queue", { typing: true });
    const first = await here.say("one");
    await vi.waitFor(() => expect(here.reactions(first)).toEqual(["Typing"]), { timeout: 60_000 });
    const plain = await world("queue");
    const other = await plain.say("one");
    await plain.ingress.close();
    expect(plain.reactions(other)).toEqual([]);
  });

  it("that the platform refuses harms nothing", async () => {
    const here = await world("queue", { typing: true });
    const body = { code: 231_003, msg: "The message is not found." };
    here.platform.faults.add({
      match: { path: /reactions$/ },
      action: { kind: "respond", status: 400, body },
    });
    await here.say("one");
    await here.ingress.close();
    expect(await here.waiting(`${appId}.${here.direct}`)).toBe(1);
  });
});

describe("steer", () => {
  it("a message waits to join the running turn, which is not cancelled", async () => {
    const here = await world("steer");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    const second = await here.say("two");
    await vi.waitFor(() => expect(here.reactions(second)).toEqual(["OneSecond"]), {
      timeout: 60_000,
    });
    expect(
      (await here.ingress.store.waiting(session, 10)).map(({ message }) => message.id),
    ).toEqual([second]);
    expect(await here.told(session)).toEqual([]);
  });

  it.each([
    ["two", "in the answer that is under way"],
    ["二", "正在进行的回答"],
  ])("a line for %s tells no position", async (text, line) => {
    const here = await world("steer", { queueNotice: "line" });
    await here.say("one");
    await here.say(text);
    expect((await here.untilSaid(here.direct)).text).toContain(line);
  });

  it("in a group another person's message waits for a turn of its own, and that person gets a notice", async () => {
    const here = await world("steer", { queueNotice: "line" });
    await here.say("one", inGroup(here, here.ann));
    await here.say("two", inGroup(here, here.bob));
    expect((await here.untilSaid(here.group)).text).toContain("Messages before this one: 1");
  });
});

describe("interrupt", () => {
  it("a person's next message supersedes their running turn before it is acknowledged", async () => {
    const here = await world("interrupt");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    const second = await here.say("two");
    expect(await here.told(session)).toEqual([
      { type: "cancel", turnId: `${session}-1`, reason: "superseded" },
    ]);
    expect(here.ingress.cancels).toEqual([{ session, turnId: `${session}-1` }]);
    await here.ingress.close();
    // It is next: nothing to wait for.
    expect(here.reactions(second)).toEqual([]);
  });

  it("a redelivery makes up for a cancel that failed", async () => {
    const here = await world("interrupt", {}, { retryDelaysMs: [] });
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    here.ingress.trouble.cancel = true;
    const sent = await here.platform.sendMessage({
      appId,
      chatId: here.direct,
      from: here.ann,
      text: "two",
    });
    expect(await sent.delivery).toMatchObject({ outcome: "exhausted" });
    here.ingress.trouble.cancel = false;
    expect(await here.platform.redeliver(sent.messageId)).toMatchObject({
      outcome: "acknowledged",
    });
    expect(await here.told(session)).toMatchObject([{ type: "cancel", reason: "superseded" }]);
    expect(await here.waiting(session)).toBe(2);
  });

  it("a redelivery does not cancel its own turn, nor that of a later message", async () => {
    const here = await world("interrupt");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const claim = await here.begin(session);
    const second = await here.say("two");
    await here.finish(claim);
    await here.platform.redeliver(second);
    expect((await here.head(session))?.id).toBe(second);
    expect(await here.told(session)).toEqual([]);
  });

  it("in a group cancels the writer's own turn only", async () => {
    const here = await world("interrupt");
    const session = `${appId}.${here.group}`;
    await here.say("one", inGroup(here, here.ann));
    await here.begin(session);
    await here.say("two", inGroup(here, here.bob));
    expect(await here.told(session)).toEqual([]);
    await here.say("three", inGroup(here, here.ann));
    expect(await here.told(session)).toMatchObject([{ type: "cancel", turnId: `${session}-1` }]);
    expect(await here.waiting(session)).toBe(3);
  });
});

describe("reject", () => {
  it.each([
    ["two", "still working"],
    ["二", "正在处理上一条消息"],
  ])("refuses %s politely and once while a message is being answered", async (text, line) => {
    const here = await world("reject");
    const session = `${appId}.${here.direct}`;
    const first = await here.say("one");
    await here.begin(session);
    const second = await here.say(text);
    expect((await here.untilSaid(here.direct)).text).toContain(line);
    await here.platform.redeliver(second);
    expect(await here.waiting(session)).toBe(1);
    expect((await here.head(session))?.id).toBe(first);
    await here.ingress.close();
    expect(here.said(here.direct)).toHaveLength(1);
  });

  it("takes the next message when the answer is complete, and a redelivered refused one never", async () => {
    const here = await world("reject");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const claim = await here.begin(session);
    const second = await here.say("two");
    await here.finish(claim);
    await here.platform.redeliver(second);
    expect(await here.waiting(session)).toBe(0);
    const third = await here.say("three");
    expect((await here.head(session))?.id).toBe(third);
  });

  it("takes orders to the session in any case", async () => {
    const here = await world("reject");
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    await here.begin(session);
    await here.say("/new");
    expect(await here.waiting(session)).toBe(2);
  });
});
