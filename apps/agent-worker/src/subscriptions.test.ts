import { GrantsApi } from "@larkline/feishu";
import { systemClock } from "@larkline/protocol/clock";
import { scheduleEventNames, scheduleEvents, type Schedule } from "@larkline/protocol/schedule";
import { startFeishuSimulator } from "@larkline/simulator";
import { GrantStore } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { expect, onTestFinished, test } from "vitest";
import { PersonTokens } from "./person-tokens.ts";
import { sweepSubscriptions } from "./subscriptions.ts";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const { type, scopes } = scheduleEvents["meeting-ended"];
const [minuteMs, dayMs] = [60_000, 86_400_000];

/** Ann's schedules wait for the end of her meetings; `sweep()` is what a worker does once in a while, so much later. */
async function scene() {
  const stores = openTestStores();
  const world = newWorld(stores);
  const clock = { ...systemClock, now: stores.now };
  const simulator = await startFeishuSimulator({ apps: [app], retryDelaysMs: [], clock });
  onTestFinished(() => simulator.close());
  const ann = simulator.addUser({ name: "Ann" }).openId;
  const owner = { app: app.appId, tenant: "t1", openId: ann };
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const grants = new GrantStore({ ...stores, grantKeys: ["a".repeat(64)] });
  const { schedules, subscriptions } = stores;
  const personTokens = new PersonTokens({
    grants,
    apiOf: () => api,
    changed: async (changed) => await subscriptions.grantChanged(changed, clock.now()),
    clock,
  });
  const plain = servicesOf(world, { services: { grants, personTokens, clock } });
  const [bot] = plain.bots.values();
  const bots = new Map([[app.appId, { ...bot, api: { baseUrl: simulator.url } }]]);
  const services = { ...plain, bots: bots as unknown as typeof plain.bots }; // nothing else of it is used
  const schedule: Schedule = {
    id: "0".repeat(16),
    app: app.appId,
    tenant: "t1",
    owner: { id: ann },
    chatId: "oc_1",
    chatType: "p2p",
    title: "Tasks",
    task: "b",
    timing: { kind: "event", on: "meeting-ended" },
    zone: "UTC",
    missed: "late",
    language: "en",
    createdAtMs: 1,
  };
  return {
    world,
    simulator,
    personTokens,
    owner,
    schedule,
    schedules,
    add: async (more: Partial<Schedule> = {}) =>
      await schedules.add({ ...schedule, ...more }, { dueMs: 1, alarmMs: undefined }),
    setState: async (state: "active" | "paused") => {
      const stored = await schedules.read(schedule.id);
      if (stored === undefined) expect.fail();
      await schedules.change(stored, { state, dueMs: 1, alarmMs: undefined });
    },
    sweep: async (afterMs = 0): Promise<void> => {
      await stores.advance(afterMs);
      await sweepSubscriptions(services, new AbortController().signal);
    },
    consent: async (asked: readonly string[] = scopes): Promise<void> => {
      const begun = await api.startDevice(asked);
      if (begun.state !== "started") throw new Error(begun.state);
      simulator.grants.consent(begun.device.link, ann);
      const given = await api.poll(begun.device.deviceCode);
      if (given.state !== "granted") throw new Error(given.state);
      await personTokens.accept(owner, given.tokens, { asked, issuer: api.endpoints.token });
    },
    /** As the platform has it. */
    subscribed: () => simulator.work.subscriptions.subscribed(app.appId, ann),
    calls: () => simulator.apiCalls.filter(({ path }) => path.includes("subscription")).length,
    state: async () => (await subscriptions.ofPerson(owner)).get("meeting-ended")?.state,
    lacking: async () => await subscriptions.lacking(),
  };
}

test("is made with the first schedule that waits, once a day anew, and ended with the last one", async () => {
  const { add, sweep, consent, subscribed, calls, state, lacking, schedule, schedules } =
    await scene();
  await consent();
  await add();
  await add({ id: "1".repeat(16), task: "c" });
  expect(await state()).toBeUndefined();
  await sweep();
  expect([subscribed(), await state(), calls()]).toEqual([[type], "subscribed", 1]);
  expect(await lacking()).toEqual({ count: 0, events: [] });
  await sweep(dayMs - minuteMs);
  expect(calls()).toBe(1);
  await sweep(minuteMs);
  expect(calls()).toBe(2);
  await schedules.remove(schedule);
  await sweep();
  expect([subscribed(), calls()]).toEqual([[type], 3]);
  await schedules.remove({ ...schedule, id: "1".repeat(16) });
  await sweep();
  expect([subscribed(), await state(), calls()]).toEqual([[], undefined, 4]);
  await sweep(10 * dayMs);
  expect(calls()).toBe(4);
});

test("without the permission its person reads so once, and it is made after they have granted it", async () => {
  const { world, owner, add, sweep, consent, subscribed, state, lacking } = await scene();
  await add();
  await sweep();
  for (let day = 0; day < 3; day += 1) await sweep(dayMs);
  expect([await state(), await lacking()]).toEqual([
    "needs_consent",
    { count: 1, events: ["meeting-ended"] },
  ]);
  expect(world.sent.map(({ target, text }) => [target.chatId, text])).toEqual([
    [owner.openId, expect.stringContaining("permission, and that is missing: “Tasks”")],
  ]);
  // Another permission does not help.
  await consent(["task:task:read"]);
  await sweep();
  expect(await state()).toBe("needs_consent");
  await consent();
  await sweep();
  expect([subscribed(), await state(), (await lacking()).count]).toEqual([[type], "subscribed", 0]);
});

test("is ended when the schedule pauses, and dropped without a call when the grant has ended", async () => {
  const { personTokens, owner, add, setState, sweep, consent, subscribed, calls, state } =
    await scene();
  await consent();
  await add();
  await sweep();
  await setState("paused");
  await sweep();
  expect([subscribed(), await state(), calls()]).toEqual([[], undefined, 2]);
  await setState("active");
  await sweep();
  expect([subscribed(), await state(), calls()]).toEqual([[type], "subscribed", 3]);
  await personTokens.end(owner, { reason: "revoked", atMs: Number.MAX_SAFE_INTEGER });
  await sweep();
  expect([await state(), calls()]).toEqual(["needs_consent", 3]);
  await setState("paused");
  await sweep();
  expect([await state(), calls()]).toEqual([undefined, 3]);
});

test("is tried again, later each time, where the platform does not answer", async () => {
  const { simulator, add, sweep, consent, calls, state, lacking, subscribed } = await scene();
  await consent();
  await add();
  simulator.faults.add({
    match: { path: "/open-apis/vc/v1/meetings/subscription" },
    times: 3,
    action: { kind: "respond", status: 500, body: { code: 2200, msg: "internal error" } },
  });
  await sweep();
  expect([await state(), (await lacking()).count, calls()]).toEqual(["failed", 1, 1]);
  for (const [afterMs, count] of [
    [29_000, 1],
    [1_000, 2],
    [59_000, 2],
    [1_000, 3],
    [119_000, 3],
    [1_000, 4],
  ] as const) {
    await sweep(afterMs);
    expect(calls()).toBe(count);
  }
  expect([subscribed(), await state(), (await lacking()).count]).toEqual([[type], "subscribed", 0]);
});

test("is made with a fresh token where the platform refuses the one that is there", async () => {
  const { simulator, owner, add, sweep, consent, subscribed, calls } = await scene();
  await consent([...scopes, "offline_access"]);
  await add();
  simulator.grants.expireAccess(owner.openId);
  await sweep();
  expect([subscribed(), calls()]).toEqual([[type], 2]);
});

test("is made and ended for each kind of event where the platform has it", async () => {
  const { schedules, schedule, simulator, owner, sweep, consent } = await scene();
  await consent(Object.values(scheduleEvents).flatMap((event) => event.scopes));
  const made = scheduleEventNames.map((on, number) => ({
    ...schedule,
    id: `${number}`.repeat(16),
    timing: { kind: "event", on } as const,
  }));
  for (const one of made) await schedules.add(one, { dueMs: 1, alarmMs: undefined });
  await sweep();
  const { subscriptions } = simulator.work;
  const types = Object.values(scheduleEvents).map((event) => event.type);
  expect(subscriptions.subscribed(app.appId, owner.openId).toSorted()).toEqual(types.toSorted());
  for (const one of made) await schedules.remove(one);
  await sweep();
  expect(subscriptions.subscribed(app.appId, owner.openId)).toEqual([]);
});
