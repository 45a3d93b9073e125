import type { Schedule } from "@larkline/protocol/schedule";
import { describe, expect, it } from "vitest";
import { openElsewhere, openTestStores } from "./testing.ts";

const lease = 30_000;

function scheduleWith(number: number, more: Partial<Schedule> = {}): Schedule {
  return {
    id: number.toString(16).padStart(16, "0"),
    app: "cli_a",
    owner: { id: "ou_ann" },
    chatId: "oc_team",
    chatType: "group",
    title: `number ${number}`,
    task: "say hello",
    timing: { kind: "every", everyMs: 600_000, fromMs: 0 },
    zone: "Asia/Shanghai",
    missed: "late",
    language: "en",
    createdAtMs: 1,
    ...more,
  };
}

function scene() {
  const here = openTestStores({ isClockStill: true });
  const { redis, namespace, schedules, subscriptions, now, advance } = here;
  const elsewhere = openElsewhere(here).schedules;
  const add = async (schedule: Schedule, dueMs = now()) =>
    await schedules.add(schedule, { dueMs, alarmMs: dueMs });
  const claim = async (store = schedules, limit = 100) => (await store.claimDue(limit, lease)).due;
  return { redis, namespace, schedules, subscriptions, elsewhere, now, advance, add, claim };
}

describe("the schedule store", () => {
  it("keeps a schedule once, for every process, until it is removed", async () => {
    const { schedules, elsewhere, add, now } = scene();
    const schedule = scheduleWith(1);
    expect([await add(schedule), await add(schedule)]).toEqual(["made", "known"]);
    const stored = { schedule, state: "active", dueMs: now(), generation: 1, failures: 0 };
    expect(await elsewhere.read(schedule.id)).toEqual(stored);
    expect(await elsewhere.ofPerson("cli_a", "ou_ann")).toEqual([stored]);
    expect(await elsewhere.ofChat("cli_a", "oc_team")).toEqual([stored]);
    expect(await elsewhere.newest(10)).toEqual({ count: 1, schedules: [stored] });
    expect(await elsewhere.ofPerson("cli_b", "ou_ann")).toEqual([]);
    expect([await elsewhere.remove(schedule), await schedules.remove(schedule)]).toEqual([
      true,
      false,
    ]);
    expect(await schedules.read(schedule.id)).toBeUndefined();
    expect(await schedules.newest(10)).toEqual({ count: 0, schedules: [] });
  });

  it("keeps at most twenty of a person, and of a chat", async () => {
    const { add } = scene();
    const results: string[] = [];
    for (let number = 0; number < 21; number += 1) results.push(await add(scheduleWith(number)));
    expect(results.filter((one) => one === "made")).toHaveLength(20);
    expect(results.at(-1)).toBe("full");
    expect(await add(scheduleWith(30, { owner: { id: "ou_ben" } }))).toBe("full");
    expect(await add(scheduleWith(30, { owner: { id: "ou_ben" }, chatId: "oc_b" }))).toBe("made");
  });

  it("gives what is due to one process; where it dies, to another one after the lease", async () => {
    const { elsewhere, add, advance, claim, now } = scene();
    const schedule = scheduleWith(1);
    const later = scheduleWith(2);
    await add(schedule);
    await add(later, now() + 3_600_000);
    const claims = await Promise.all([claim(), claim(elsewhere), claim()]);
    expect(claims.flat().map((one) => one.schedule.id)).toEqual([schedule.id]);
    await advance(lease - 1);
    expect(await claim(elsewhere)).toEqual([]);
    await advance(1);
    expect(await claim(elsewhere)).toEqual(claims.flat());
  });

  it("settles an instant once, however many processes have claimed it, and waits for the next one", async () => {
    const { schedules, elsewhere, add, advance, claim, now } = scene();
    const schedule = scheduleWith(1);
    await add(schedule);
    const [first] = await claim();
    await advance(lease);
    const [second] = await claim(elsewhere);
    if (first === undefined || second === undefined) expect.fail();
    const next = { dueMs: now() + 600_000, alarmMs: now() + 600_500 };
    const line = { dueMs: first.dueMs, count: 1, state: "started", atMs: now() } as const;
    expect(await schedules.settle(second, next, [line])).toBe(true);
    expect(await schedules.settle(first, next, [line])).toBe(false);
    expect(await elsewhere.log(schedule.id)).toEqual([line]);
    expect(await elsewhere.read(schedule.id)).toMatchObject({
      dueMs: next.dueMs,
      generation: 1,
      state: "active",
    });
    await advance(600_499);
    expect(await claim()).toEqual([]);
    await advance(1);
    expect((await claim()).map(({ dueMs }) => dueMs)).toEqual([next.dueMs]);
  });

  it("is done without a next instant, and known for thirty days", async () => {
    const { schedules, add, claim, now, advance } = scene();
    const schedule = scheduleWith(1);
    await add(schedule);
    const [due] = await claim();
    if (due === undefined) expect.fail();
    await schedules.settle(due, undefined, [
      { dueMs: now(), count: 1, state: "started", atMs: now() },
    ]);
    expect(await schedules.ofPerson("cli_a", "ou_ann")).toEqual([]);
    expect(await schedules.read(schedule.id)).toMatchObject({ state: "done" });
    expect(await schedules.log(schedule.id)).toHaveLength(1);
    await advance(lease);
    expect(await claim()).toEqual([]);
  });

  it("keeps a change that came between claim and settlement, and logs the run", async () => {
    const { schedules, elsewhere, add, claim, advance, now } = scene();
    const schedule = scheduleWith(1);
    await add(schedule);
    const [due] = await claim();
    const read = await elsewhere.read(schedule.id);
    if (due === undefined || read === undefined) expect.fail();
    const at = now() + 7_000_000;
    const moved = { ...read, schedule: { ...schedule, title: "moved" } };
    expect(await elsewhere.change(moved, { state: "active", dueMs: at, alarmMs: at })).toBe(true);
    expect(await elsewhere.change(read, { state: "paused", dueMs: at, alarmMs: at })).toBe(false);
    const line = { dueMs: due.dueMs, count: 1, state: "started", atMs: now() } as const;
    expect(await schedules.settle(due, { dueMs: 1, alarmMs: 1 }, [line])).toBe(true);
    expect(await schedules.read(schedule.id)).toMatchObject({
      schedule: { title: "moved" },
      dueMs: at,
      generation: 2,
    });
    expect(await schedules.log(schedule.id)).toEqual([line]);
    await advance(lease);
    expect(await claim()).toEqual([]);
  });

  it("rings no alarm of a paused schedule, and again of one that is resumed", async () => {
    const { schedules, add, claim, now } = scene();
    await add(scheduleWith(1));
    const read = await schedules.read(scheduleWith(1).id);
    if (read === undefined) expect.fail();
    await schedules.change(read, {
      state: "paused",
      why: "scheduleFailed",
      dueMs: now(),
      alarmMs: now(),
    });
    expect(await claim()).toEqual([]);
    const paused = await schedules.read(read.schedule.id);
    expect(paused).toMatchObject({ state: "paused", why: "scheduleFailed", generation: 2 });
    if (paused === undefined) expect.fail();
    await schedules.change(paused, { state: "active", dueMs: now(), alarmMs: now() });
    expect(await claim()).toHaveLength(1);
    expect(await schedules.read(read.schedule.id)).not.toHaveProperty("why");
  });

  it("sets a row aside once that cannot be read, and claims it no more", async () => {
    const { redis, namespace, schedules, elsewhere, add, advance, now } = scene();
    await add(scheduleWith(1));
    await redis.hset(`{${namespace}}:schedule:${scheduleWith(1).id}`, "schedule", "{broken");
    const claimed = await schedules.claimDue(10, lease);
    expect(claimed).toEqual({ nowMs: now(), due: [], unreadable: [scheduleWith(1).id] });
    const [id = ""] = claimed.unreadable;
    expect([await schedules.setAside(id), await elsewhere.setAside(id)]).toEqual([true, false]);
    await advance(lease);
    expect(await elsewhere.claimDue(10, lease)).toMatchObject({ due: [], unreadable: [] });
    expect(await schedules.setAside("0000000000000009")).toBe(false);
  });

  it("counts each run once in which people did not answer, until one ends in which they did", async () => {
    const { schedules, elsewhere, add } = scene();
    const { id } = scheduleWith(1);
    await add(scheduleWith(1));
    const missed = async (run: string) => await schedules.missed(id, run);
    expect([await missed("a"), await elsewhere.missed(id, "a"), await missed("b")]).toEqual([
      1, 1, 2,
    ]);
    await schedules.ended(id, "b", false);
    expect(await missed("c")).toBe(3);
    await schedules.ended(id, "d", false);
    expect(await missed("e")).toBe(1);
    expect(await schedules.missed("0000000000000009", "a")).toBe(0);
  });

  it("counts runs that fail one after the other", async () => {
    const { schedules, add } = scene();
    const { id } = scheduleWith(1);
    expect(await schedules.ended(id, "run-1", true)).toBe(0);
    await add(scheduleWith(1));
    expect([
      await schedules.ended(id, "run-2", true),
      await schedules.ended(id, "run-3", true),
    ]).toEqual([1, 2]);
    expect([
      await schedules.ended(id, "run-4", false),
      await schedules.ended(id, "run-5", true),
    ]).toEqual([0, 1]);
  });
});

describe("a schedule that waits for an event", () => {
  const timing = { kind: "event", on: "meeting-ended" } as const;
  const cause = (id: string) => ({ id, facts: `event ${id}` });

  it("has no alarm, and makes its subscription due whenever it changes", async () => {
    const { schedules, claim, subscriptions, now } = scene();
    const schedule = scheduleWith(1, { timing, tenant: "t1" });
    const due = async () =>
      (await subscriptions.claimDue(10, now() + lease)).map(({ owner }) => owner);
    const owner = { app: "cli_a", tenant: "t1", openId: "ou_ann", on: "meeting-ended" };
    expect(await schedules.add(schedule, { dueMs: 1, alarmMs: undefined })).toBe("made");
    expect([await due(), await due(), await claim()]).toEqual([[owner], [], []]);
    const stored = await schedules.read(schedule.id);
    if (stored === undefined) expect.fail();
    const timed = { ...stored, schedule: scheduleWith(1, { tenant: "t1" }) };
    expect(await schedules.change(timed, { state: "active", dueMs: 1, alarmMs: 1 })).toBe(true);
    expect([await due(), (await claim()).length]).toEqual([[owner], 1]);
    await schedules.remove(schedule);
    expect(await due()).toEqual([]);
  });

  it("holds at most twenty events, each once, while it is active", async () => {
    const { schedules, now, advance, claim } = scene();
    const schedule = scheduleWith(1, { timing });
    await schedules.add(schedule, { dueMs: 1, alarmMs: undefined });
    const untilMs = now() + 1_000;
    const hold = async (id: string) => await schedules.hold(schedule, cause(id), untilMs);
    expect([await hold("e0"), await hold("e0")]).toEqual(["held", "known"]);
    for (let number = 1; number < 20; number += 1) await hold(`e${number}`);
    expect(await hold("e20")).toBe("full");
    expect(await claim()).toEqual([]);
    await advance(1_000);
    const [due] = await claim();
    if (due === undefined) expect.fail();
    const held = await schedules.held(schedule);
    expect(held).toHaveLength(20);
    // One that has come since is a run of its own.
    const [first, ...others] = held;
    expect(await schedules.settle(due, others, [])).toBe(true);
    expect(await schedules.held(schedule)).toEqual([first]);
    expect((await claim()).map(({ dueMs }) => dueMs)).toEqual([untilMs + 1]);
    await schedules.remove(schedule);
    expect([await schedules.held(schedule), await hold("e9")]).toEqual([[], "gone"]);
  });

  it("loses no change that comes while a worker looks at its subscription", async () => {
    const { schedules, subscriptions, now, advance } = scene();
    const schedule = scheduleWith(1, { timing });
    await schedules.add(schedule, { dueMs: 1, alarmMs: undefined });
    const [due] = await subscriptions.claimDue(10, now() + lease);
    if (due === undefined) expect.fail();
    await schedules.remove(schedule);
    const subscription = { state: "subscribed", atMs: now(), tries: 0 } as const;
    await subscriptions.settle(due, { subscription, againAtMs: now() + 10 * lease });
    const [again] = await subscriptions.claimDue(10, now() + lease);
    if (again === undefined) expect.fail();
    await subscriptions.settle(again, undefined);
    await advance(100 * lease);
    expect(await subscriptions.claimDue(10, now() + lease)).toEqual([]);
    expect(await subscriptions.ofPerson({ app: "cli_a", openId: "ou_ann" })).toEqual(new Map());
  });
});
