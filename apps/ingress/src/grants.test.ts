import type { InboundMessage } from "@larkline/protocol";
import { pause, systemClock } from "@larkline/protocol/clock";
import { expect, onTestFinished, test, vi } from "vitest";
import { withdrawGrant } from "./grants.ts";
import { startWorld, testApp } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const dayMs = 86_400_000;
const scopes = ["task:task:read", "calendar:calendar.event:create"];

/** Ann has let the bot act as her; `workers` carry ends out, as long as they live. */
async function scene({ workers = true } = {}) {
  const { memory, close } = connectSharedRedis();
  onTestFinished(close);
  const here = await startWorld({ shared: memory });
  onTestFinished(here.close);
  const { grantStore, grantEnds } = memory;
  const ann = { app: testApp.appId, tenant: "t1", openId: here.ann };
  const grant = async (grantedAtMs = Date.now()): Promise<void> => {
    const tokens = { accessToken: "u-ann", refreshToken: "ur-ann" };
    const ends = { accessEndsAtMs: grantedAtMs + 1, refreshEndsAtMs: grantedAtMs + 7 * dayMs };
    const rest = { asked: scopes, granted: scopes, issuer: "https://open.example", unionId: "" };
    const after = (await grantStore.read(ann))?.generation ?? 0;
    await grantStore.write(ann, { tokens, ...ends, grantedAtMs, ...rest }, after);
  };
  await grant();
  const title = { zh: "查找文档", en: "Find documents" };
  await grantStore.noteUse(ann, { tool: "find_documents", title, atMs: Date.now() });
  const taken: object[] = [];
  const stopping = new AbortController();
  const work = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await grantEnds.each(async (end) => {
        taken.push(end);
        await grantStore.revoke(end, end.reason);
      });
      await pause(systemClock, 20, stopping.signal);
    }
  };
  const working = workers ? work() : Promise.resolve();
  onTestFinished(async () => {
    stopping.abort();
    await working;
  });
  const say = async (text: string, chatId: string): Promise<string> =>
    await here.say(text, { chatId, ...(chatId === here.group ? { mention: true } : {}) });
  /** What Ann reads in reply to a message. */
  const answerTo = async (text: string, chatId: string): Promise<string> =>
    (await here.platform.waitForReply(await say(text, chatId), { timeoutMs: 60_000 })).text;
  return { ...here, ann: here.ann, grant, taken, say, answerTo, grants: memory.grants, of: ann };
}

test("/permissions shows a person what they have granted: in words, with times and uses, in both languages", async () => {
  const { say, untilSaid, direct } = await scene();
  await say("/permissions", direct);
  const { text, card } = await untilSaid(direct);
  for (const words of ["see your tasks", "create events in your calendar", "Find documents"]) {
    expect(text).toContain(words);
  }
  expect(text).toMatch(/Granted: [^]*Ends if I do not use it until: [^]*Ends at the latest: /);
  expect(JSON.stringify(card?.json)).not.toContain("u-ann");
  await say("/权限", direct);
  expect((await untilSaid(direct, 2)).text).toMatch(/查看你的任务[^]*最近使用[^]*查找文档/);
});

test("in a group it goes to the person alone, and the group reads no more than that", async () => {
  const { answerTo, untilSaid, said, direct, group } = await scene();
  expect(await answerTo("/permissions", group)).toBe(
    "Nothing is allowed for good here.\n\nWhat you let me do as you is for you alone: I have written to you in our own chat.",
  );
  expect((await untilSaid(direct)).text).toContain("see your tasks");
  expect(said(group)).toHaveLength(1);
});

test("the button on the card takes it back, for the person who clicks", async () => {
  const { say, untilSaid, direct, platform, ann, taken, grants, of, answerTo } = await scene();
  await say("/permissions", direct);
  const { messageId } = await untilSaid(direct);
  const click = { messageId, elementId: "end_grant" };
  expect(await platform.click({ ...click, openId: ann })).toMatchObject({
    toast: { type: "success", content: expect.stringContaining("Taken back") },
  });
  expect((await untilSaid(direct)).text).toMatch(/Taken back(?![^]*see your tasks)/);
  expect(await grants.read(of)).toMatchObject({ state: "revoked" });
  expect(taken).toMatchObject([{ openId: ann, by: ann, reason: "person", tenant: "t1" }]);
  expect(await answerTo("/permissions", direct)).toBe("Nothing is allowed for good here.");
});

test("/permissions withdraw takes it back once, though it is delivered again after another consent", async () => {
  const { platform, say, untilSaid, direct, group, grant, grants, of } = await scene();
  const messageId = await say("/permissions withdraw", group);
  expect((await untilSaid(direct)).text).toContain("Taken back: I cannot act as you any more.");
  expect((await platform.waitForReply(messageId, { timeoutMs: 60_000 })).text).not.toContain(
    "Taken",
  );
  await grant();
  await platform.redeliver(messageId);
  expect(await grants.read(of)).toMatchObject({ state: "active" });
  await say("/权限 收回", direct);
  expect((await untilSaid(direct, 2)).text).toContain("已收回");
  expect(await grants.read(of)).toMatchObject({ state: "revoked" });
});

test("without a worker the order is kept, and said to be on its way", async () => {
  const { answerTo, direct, ingress, of } = await scene({ workers: false });
  expect(await answerTo("/permissions withdraw", direct)).toContain("as soon as a worker has time");
  const kept: object[] = [];
  await ingress.services.grantEnds.each(async (end) => await Promise.resolve(void kept.push(end)));
  expect(kept).toMatchObject([{ openId: of.openId, reason: "person" }]);
});

/** A message of a person alone with the bot, as far as orders read it. */
function orderOf(openId: string, createdAtMs: number) {
  const message: InboundMessage = {
    v: 1,
    session: `${testApp.appId}.oc_1`,
    id: "om_1",
    app: testApp.appId,
    sender: { id: openId },
    chatType: "p2p",
    parts: [{ type: "text", text: "/permissions withdraw" }],
    createdAtMs,
    reply: { channel: "none" },
  };
  return { message, language: "en" } as const;
}

test("an order that comes again after the death of its ingress ends no later grant", async () => {
  const { ingress, grant, grants, of, taken } = await scene();
  const { services } = ingress;
  const order = orderOf(of.openId, Date.now());
  const channel = { ...services.apiChannel, app: testApp.appId };
  // Waits for a worker, and never comes further.
  const dead = { ...services, clock: { ...services.clock, after: () => () => undefined } };
  void withdrawGrant(dead, channel, order);
  await vi.waitFor(() => expect(taken).toHaveLength(1));
  await grant(Date.now() + 1);
  await withdrawGrant(services, channel, order);
  expect(await grants.read(of)).toMatchObject({ state: "active" });
  expect(taken).toHaveLength(1);
});

test("an order that was written long before a consent does not end it, though it comes for the first time", async () => {
  const { ingress, grants, of, taken } = await scene();
  const channel = { ...ingress.services.apiChannel, app: testApp.appId };
  const order = orderOf(of.openId, Date.now() - 3_600_000);
  const answer = await withdrawGrant(ingress.services, channel, order);
  expect(answer).toBe("You let me do nothing as you.");
  expect(await grants.read(of)).toMatchObject({ state: "active" });
  expect(taken).toEqual([]);
});
