import { afterEach, describe, expect, it } from "vitest";
import type { ConfigInput } from "@larkline/process/config";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const { appId } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

async function world(settings: ConfigInput = {}): Promise<FeishuWorld> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const started = await startWorld({ settings, shared: memory });
  closing.push(started.close);
  return started;
}

describe("replicas that share a Redis", () => {
  it("release a late message once, whichever of them gets which click", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    await here.say("hi", { createdAtMs: Date.now() - 3_600_000 });
    const { messageId } = await here.untilSaid(here.direct);
    const other = await here.replica();
    const clicks = Array.from({ length: 6 }, async (_, index) => {
      here.platform.setWebhookUrl(
        appId,
        `${index % 2 === 0 ? here.ingress.url : other.url}/feishu/events`,
      );
      return await here.platform.click({ messageId, openId: here.ann, elementId: "run" });
    });
    const toasts = (await Promise.all(clicks)).map(({ toast }) => toast?.type);
    expect(toasts.filter((type) => type === "success")).toHaveLength(1);
    expect(await here.waiting(session)).toBe(1);
    expect([...here.ingress.wakes, ...other.wakes]).toEqual([{ session, gen: 1 }]);
  });

  it("aim a redelivered /stop at the run that it was meant for", async () => {
    const here = await world();
    const session = `${appId}.${here.direct}`;
    await here.say("one");
    const claim = await here.begin(session);
    const stop = await here.say("/stop");
    expect(await here.told(session)).toMatchObject([{ type: "cancel", turnId: `${session}-1` }]);
    await here.say("two");
    await here.finish(await here.begin(session));
    expect(claim.head?.seq).toBe(1);
    const other = await here.replica();
    await here.platform.redeliver(stop);
    expect(await here.told(session)).toEqual([]);
    expect(other.cancels).toEqual([]);
  });

  it("supersede, refuse, drop what was recalled, and greet once", async () => {
    const interrupt = await world({ agents: { default: { busy: "interrupt" } } });
    const session = `${appId}.${interrupt.direct}`;
    await interrupt.say("one");
    await interrupt.begin(session);
    const other = await interrupt.replica();
    const second = await interrupt.say("two");
    expect(await interrupt.told(session)).toMatchObject([{ type: "cancel", reason: "superseded" }]);
    expect(other.cancels).toEqual([{ session, turnId: `${session}-1` }]);
    await interrupt.platform.recall(second);
    await expect.poll(async () => await interrupt.waiting(session)).toBe(1);

    const reject = await world({ agents: { default: { busy: "reject" } } });
    await reject.say("one");
    const another = await reject.replica();
    await reject.say("two");
    expect((await reject.untilSaid(reject.direct)).text).toContain("still working");
    const { chatId, reports } = reject.platform.enterChat(reject.bob, appId);
    await reports;
    await reject.untilSaid(chatId);
    await reject.platform.enterChat(reject.bob, appId).reports;
    await another.close();
    expect(reject.said(chatId)).toHaveLength(1);
  });
});
