import type { Schedule } from "@larkline/protocol/schedule";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";

const { appId: app } = testApp;
const worlds: FeishuWorld[] = [];
const patience = { timeout: 60_000, interval: 10 };

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

async function world(): Promise<FeishuWorld> {
  const started = await startWorld();
  worlds.push(started);
  return started;
}

function scheduleOf(here: FeishuWorld, number: number, more: Partial<Schedule> = {}): Schedule {
  return {
    id: number.toString(16).padStart(16, "0"),
    app,
    owner: { id: here.ann },
    chatId: here.direct,
    chatType: "p2p",
    title: `number ${number}`,
    task: `do ${number}`,
    timing: { kind: "cron", cron: "0 9 * * 1" },
    zone: "Asia/Shanghai",
    missed: "late",
    language: "en",
    createdAtMs: 1,
    ...more,
  };
}

/** A schedule of Ann's, which is due in a day. */
async function add(here: FeishuWorld, number: number, more: Partial<Schedule> = {}) {
  const schedule = scheduleOf(here, number, more);
  const dueMs = Date.now() + 86_400_000;
  expect(await here.ingress.schedules.add(schedule, { dueMs, alarmMs: dueMs })).toBe("made");
  return schedule;
}

async function stateOf(here: FeishuWorld, { id }: Schedule): Promise<string | undefined> {
  const found = await here.ingress.schedules.read(id);
  return found?.why ?? found?.state;
}

const inGroup = (here: FeishuWorld) => ({ chatId: here.group, chatType: "group" }) as const;

describe("/schedules", () => {
  it("is a card whose buttons pause, resume, run and delete, for the owner alone", async () => {
    const here = await world();
    const water = await add(here, 1);
    const tea = await add(here, 2, inGroup(here));
    const messageId = await here.say("/schedules", { chatId: here.group, mention: true });
    const card = await here.platform.waitForReply(messageId, { timeoutMs: 60_000 });
    expect(card.text).toContain("1. number 2");
    expect(card.text).not.toContain("number 1");
    const click = async (act: string, openId = here.ann, of = tea) => {
      const value = {
        larkline: "schedule",
        schedule: of.id,
        do: act,
        list: "1",
        chat: here.group,
      };
      const clicked = await here.platform.click({ messageId: card.messageId, openId, value });
      return [clicked.toast?.content, clicked.cardChanged];
    };
    expect(await click("pause", here.bob)).toEqual([
      "Only the person whose schedule it is can do this.",
      false,
    ]);
    expect(await click("pause")).toEqual([
      "It is paused. Begin again with /schedules resume and its number.",
      true,
    ]);
    expect(await stateOf(here, tea)).toBe("paused");
    expect((await click("resume"))[0]).toBe("It runs again.");
    expect(await stateOf(here, tea)).toBe("active");
    expect((await click("run"))[0]).toBe("It runs now.");
    const session = `${app}.sched-${tea.id}`;
    await expect.poll(() => here.ingress.wakes.map((one) => one.session)).toEqual([session]);
    expect(await here.head(session)).toMatchObject({
      sender: { id: here.ann },
      schedule: { id: tea.id },
    });
    expect((await click("delete"))[0]).toBe("It is deleted.");
    expect((await click("delete"))[0]).toContain("There is no schedule");
    expect(await stateOf(here, tea)).toBeUndefined();
    expect(await stateOf(here, water)).toBe("active");
  });
});

/** What the bot has written to a person or in a chat about schedules. */
function told(here: FeishuWorld, chatId: string): string[] {
  return here.said(chatId).flatMap(({ text }) => (text.includes("number") ? [text] : []));
}

/** An event, delivered twice. */
async function twice(here: FeishuWorld, eventType: string, event: Record<string, unknown>) {
  const eventId = `event-${eventType}`;
  for (let delivery = 0; delivery < 2; delivery += 1) {
    const sent = await here.platform.sendEvent({ appId: app, eventType, event, eventId });
    expect(sent).toMatchObject({ outcome: "acknowledged" });
  }
}

describe("the platform says", () => {
  it("that a person has left: what ran for them is paused, and each group reads it once", async () => {
    const here = await world();
    const own = await add(here, 1);
    const shared = await add(here, 2, inGroup(here));
    const also = await add(here, 3, inGroup(here));
    const bobs = await add(here, 4, { ...inGroup(here), owner: { id: here.bob } });
    await twice(here, "contact.user.deleted_v3", { object: { open_id: here.ann } });
    const states = await Promise.all([own, shared, also, bobs].map((one) => stateOf(here, one)));
    expect(states).toEqual(["schedulesLeft", "schedulesLeft", "schedulesLeft", "active"]);
    await expect.poll(() => told(here, here.group), patience).toHaveLength(1);
    expect(told(here, here.group)[0]).toMatch(/left the organisation.*number 2.*number 3/);
    expect(told(here, here.direct)).toEqual([]);
  });

  it("that a person takes their grant back: they read once that their schedules are paused", async () => {
    const here = await world();
    const own = await add(here, 1);
    const event = { open_id: here.ann, revoke_token_type: "access_token" };
    await twice(here, "auth.user_access_token.revoked_v4", event);
    expect(await stateOf(here, own)).toBe("active");
    const eventType = "auth.user_access_token.revoked_v4";
    const ended = { ...event, revoke_token_type: "refresh_token" };
    await here.platform.sendEvent({ appId: app, eventType, event: ended, eventId: "ended" });
    expect(await stateOf(here, own)).toBe("schedulesRevoked");
    await expect.poll(() => told(here, here.direct), patience).toHaveLength(1);
    // The same event again does not undo what its person has done since.
    const paused = await here.ingress.schedules.read(own.id);
    if (paused === undefined) expect.fail();
    const { dueMs } = paused;
    await here.ingress.schedules.change(paused, { state: "active", dueMs, alarmMs: dueMs });
    await here.platform.sendEvent({ appId: app, eventType, event: ended, eventId: "ended" });
    expect(await stateOf(here, own)).toBe("active");
    expect(told(here, here.direct)).toHaveLength(1);
  });

  it("that the bot is not in a chat any more: each owner reads it once, alone", async () => {
    const here = await world();
    const shared = await add(here, 1, inGroup(here));
    const other = await add(here, 2);
    await twice(here, "im.chat.member.bot.deleted_v1", { chat_id: here.group });
    expect(await stateOf(here, shared)).toBe("schedulesBotGone");
    expect(await stateOf(here, other)).toBe("active");
    await expect.poll(() => told(here, here.direct), patience).toHaveLength(1);
    expect(told(here, here.direct)[0]).toMatch(/not in the chat.*number 1/);
  });

  it("another time zone of a person: schedules stay where they are, and they read it once", async () => {
    const here = await world();
    const own = await add(here, 1);
    await add(here, 2, { timing: { kind: "every", everyMs: 600_000, fromMs: 1 } });
    const click = async () =>
      await here.platform.sendEvent({
        appId: app,
        eventType: "card.action.trigger",
        event: {
          operator: { open_id: here.ann },
          action: {
            value: { larkline: "schedule", schedule: "0".repeat(16), do: "pause" },
            timezone: "Europe/Berlin",
          },
        },
      });
    await click();
    await expect.poll(() => told(here, here.direct), patience).toHaveLength(1);
    await click();
    expect(told(here, here.direct)[0]).toMatch(/Europe\/Berlin.*Asia\/Shanghai: “number 1”\./);
    expect((await here.ingress.schedules.read(own.id))?.schedule.zone).toBe("Asia/Shanghai");
    await here.ingress.close();
    expect(told(here, here.direct)).toHaveLength(1);
  });
});
