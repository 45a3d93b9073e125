import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nextDue } from "@larkline/agent/schedules";
import type { ControlEntry, InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { stopScriptClock } from "@larkline/store/testing";
import type { Schedule, ScheduleTiming } from "@larkline/protocol/schedule";
import type { ApprovalStatus } from "@larkline/store";
import { openTestStores, replaced } from "@larkline/store/testing";
import { startRedis } from "@larkline/testkit";
import { describe, expect, it, onTestFinished } from "vitest";
import { noteUnanswered, sweepSchedules } from "./schedules.ts";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const start = Date.parse("2026-01-01T00:00Z");

function scheduleWith(number: number, timing: ScheduleTiming, zone: string): Schedule {
  return {
    id:
      ((number * 2_654_435_761) % 4_294_967_296).toString(16).padStart(8, "0") +
      number.toString(16).padStart(8, "0"),
    app: "cli_app",
    owner: { id: `ou_${Math.floor(number / 20)}` },
    chatId: `oc_${Math.floor(number / 20)}`,
    chatType: "p2p",
    title: "a",
    task: "b",
    timing,
    zone,
    missed: number % 3 === 0 ? "skip" : "late",
    language: "en",
    createdAtMs: start,
  };
}

const messageOf: InboundMessage = {
  v: 1,
  session: "cli_app.sched",
  id: "om_1",
  app: "cli_app",
  sender: { id: "ou_1" },
  chatType: "p2p",
  parts: [{ type: "text", text: "b" }],
  createdAtMs: start,
  reply: { channel: "none" },
};

class Crash extends Error {}

/** Workers whose clock the test moves; sessions take each message once. `crashes`: whether a step kills its worker. */
function scene(crashes: () => boolean = () => false, redisUrl?: string) {
  const world = newWorld(openTestStores({}, redisUrl));
  const runs = new Map<string, number>();
  const messages: InboundMessage[] = [];
  let writes = 0;
  const dies = <T>(value: T): T => {
    if (crashes()) throw new Crash();
    return value;
  };
  const append = async (message: InboundMessage) => {
    const { id } = message;
    dies(undefined);
    const isNew = !runs.has(id);
    if (isNew) messages.push(message);
    runs.set(id, (runs.get(id) ?? 0) + (isNew ? 1 : 0));
    writes += 1;
    return dies({
      result: isNew ? ("accepted" as const) : ("duplicate" as const),
      seq: 1,
      ahead: 0,
    });
  };
  // No worker has answered it since.
  const waiting: typeof world.store.waiting = async (session) =>
    [...runs.keys()].flatMap((id, at) =>
      session.endsWith(id.slice(0, id.lastIndexOf("-")))
        ? [{ seq: at, message: { ...messageOf, id, session } }]
        : [],
    );
  const settle: typeof world.schedules.settle = async (...given) => {
    dies(undefined);
    return dies(await world.schedules.settle(...given));
  };
  const services = servicesOf(world, {
    services: {
      store: replaced(world.store, { append, waiting }),
      schedules: replaced(world.schedules, { settle }),
    },
  });
  return {
    world,
    services,
    messages,
    runs,
    written: () => writes,
    add: async (schedule: Schedule) => {
      const dueMs = nextDue(schedule.timing, schedule.zone, start) ?? expect.fail();
      expect(await world.schedules.add(schedule, { dueMs, alarmMs: dueMs })).toBe("made");
    },
    at: async (nowMs: number) => {
      stopScriptClock(world.redis, nowMs);
      await sweepSchedules(services);
    },
  };
}

it("writes nothing twice where its worker dies after the append, and no other lives for two days", async () => {
  const kinds = [
    { kind: "once", atMs: start + hourMs },
    { kind: "cron", cron: "0 1 * * *" },
  ] as const;
  for (const timing of kinds) {
    let steps = 0;
    const { world, runs, written, add, at } = scene(() => (steps += 1) === 2);
    const schedule: Schedule = { ...scheduleWith(1, timing, "UTC"), missed: "all" };
    await add(schedule);
    await at(start + hourMs);
    expect(await world.schedules.log(schedule.id)).toEqual([]);
    await at(start + 2 * dayMs + 2 * hourMs);
    await at(start + 2 * dayMs + 2 * hourMs + 31_000);
    const lines = await world.schedules.log(schedule.id);
    expect(lines.toReversed().map(({ state, dueMs }) => [state, dueMs])).toEqual(
      [...runs.keys()].map((_, day) => [
        day === 0 ? "started" : "late",
        start + hourMs + day * dayMs,
      ]),
    );
    expect([runs.size, written()]).toEqual(timing.kind === "once" ? [1, 1] : [3, 3]);
  }
});

/** 10,000 take three minutes. */
const howMany = 1_000;

const zones = [
  "America/New_York",
  "Europe/Berlin",
  "Asia/Shanghai",
  "Australia/Lord_Howe",
] as const;
const wallTimes = ["30 2", "30 1", "0 9", "15 2"] as const;

function timingOf(number: number): { timing: ScheduleTiming; zone: string } {
  const zone = zones[number % zones.length] ?? zones[0];
  const wallTime = wallTimes[(number >> 2) % wallTimes.length] ?? wallTimes[0];
  if (number % 10 === 0) {
    return { zone, timing: { kind: "cron", cron: `${wallTime} ${1 + (number % 28)},L * *` } };
  }
  if (number % 100 === 1) return { zone, timing: { kind: "cron", cron: `${wallTime} * 3,11 *` } };
  if (number % 10 === 5) {
    return {
      zone: "UTC",
      timing: { kind: "every", everyMs: 20 * dayMs, fromMs: start + 12 * hourMs + number * 1_000 },
    };
  }
  return {
    zone,
    timing: { kind: "once", atMs: start + 1 + ((number * 7_919) % (360 * 24)) * hourMs },
  };
}

/** A Redis of the test's own, which can be killed and started again. */
async function ownRedis() {
  const directory = await mkdtemp(join(tmpdir(), "larkline-schedules-"));
  let server = await startRedis({ directory });
  const { url, port } = server;
  onTestFinished(async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });
  return {
    url,
    restart: async () => {
      const ended = once(server.process, "exit");
      server.process.kill("SIGKILL");
      await ended;
      server = await startRedis({ directory, port });
    },
  };
}

it(
  "deals once with each instant of many schedules in a year, though workers and Redis die and workers are away",
  { timeout: 280_000 },
  async () => {
    let steps = 0;
    const redis = await ownRedis();
    const { world, runs, add, at } = scene(() => (steps += 1) % 97 === 0, redis.url);
    const all = Array.from({ length: howMany }, (_, number) => {
      const { timing, zone } = timingOf(number);
      return scheduleWith(number, timing, zone);
    });
    await Promise.all(all.map(add));
    const end = start + 365 * dayMs;
    for (let nowMs = start; nowMs < end; nowMs += hourMs) {
      // No worker lives on the fifteenth of a month, nor in the last week of March.
      const day = new Date(nowMs);
      const isAway = day.getUTCDate() === 15 || (day.getUTCMonth() === 2 && day.getUTCDate() > 24);
      if (!isAway) await at(nowMs);
      // Four times in the year, while workers live.
      if (day.getUTCMonth() % 3 === 0 && day.getUTCDate() === 20 && day.getUTCHours() === 7) {
        // Not the one of node:events, which rejects with the first refused connection.
        const isBack = new Promise<void>((resolve) => world.redis.once("ready", resolve));
        // The runs are kept outside of Redis here: a kill must not lose the writes of the last second.
        await world.redis.config("SET", "appendfsync", "always");
        await world.redis.set("written", "before the kill");
        await redis.restart();
        await isBack;
      }
    }
    // What is due in this last hour, and what dead workers have left.
    for (let nowMs = end; nowMs < end + 120_000; nowMs += 31_000) await at(nowMs);
    const wrong: string[] = [];
    for (const { id, timing, zone } of all) {
      const due: number[] = [];
      for (
        let next = nextDue(timing, zone, start);
        next !== undefined && next <= end;
        next = nextDue(timing, zone, next)
      ) {
        due.push(next);
      }
      const lines = await world.schedules.log(id);
      const counted = lines.reduce((sum, { count }) => sum + count, 0);
      const ran = lines
        .filter(({ state }) => state === "started" || state === "late")
        .map(({ dueMs }) => dueMs);
      const isRight =
        counted === due.length &&
        ran.every((dueMs) => due.includes(dueMs) && runs.has(`sched-${id}-${dueMs}`));
      if (!isRight) wrong.push(`${id}: ${counted} of ${due.length}`);
    }
    expect(wrong).toEqual([]);
    const logged = await Promise.all(all.map(async ({ id }) => await world.schedules.log(id)));
    const started = logged
      .flat()
      .filter(({ state }) => state === "started" || state === "late").length;
    expect([...runs.values()].every((times) => times === 1)).toBe(true);
    expect(started).toBe(runs.size);
    expect(logged.flat().some(({ state }) => state === "skipped")).toBe(true);
  },
);

describe("what quiet hours have held", () => {
  const morning = Date.parse("2026-01-02T00:00Z"); // 08:00 in Shanghai
  const every = (number: number, everyMs = hourMs, more: Partial<Schedule> = {}): Schedule => ({
    ...scheduleWith(
      number,
      { kind: "every", everyMs, fromMs: morning - 10 * hourMs },
      "Asia/Shanghai",
    ),
    missed: "late",
    title: `number ${number}`,
    ...more,
  });
  const addAtNight = async ({ world }: ReturnType<typeof scene>, schedule: Schedule) => {
    const dueMs = morning - 9 * hourMs;
    expect(await world.schedules.add(schedule, { dueMs, alarmMs: dueMs })).toBe("made");
  };
  const night = async ({ at }: ReturnType<typeof scene>) => {
    await at(morning - 9 * hourMs);
    for (let second = 0; second <= 30; second += 1) await at(morning + second * 1_000);
  };

  it("runs as one for each person and chat, and each schedule's log says so", async () => {
    const place = scene();
    const allowed = [{ tool: "a", arguments: {}, definition: "d", expiresAtMs: morning * 2 }];
    await addAtNight(place, every(1));
    await addAtNight(place, every(2, 3 * hourMs));
    await addAtNight(place, every(3, hourMs, { chatId: "oc_else" }));
    await addAtNight(place, every(4, hourMs, { allowed }));
    await night(place);
    expect(place.runs.size).toBe(3);
    const digest = place.messages.find(({ parts }) => JSON.stringify(parts).includes("one digest"));
    expect(JSON.stringify(digest?.parts)).toMatch(/2 schedules .*number [12].*number [12]/);
    for (const number of [1, 2, 3, 4]) {
      const lines = await place.world.schedules.log(every(number).id);
      expect(lines.map(({ state }) => state)).toEqual(["started", "quiet"]);
    }
  });

  it("runs as one also where workers look after a part of it each, one after the other or at once", async () => {
    for (const order of ["after", "at once"]) {
      const place = scene();
      for (const number of [1, 2, 3]) {
        await place.world.schedules.add(every(number), { dueMs: morning, alarmMs: morning });
      }
      stopScriptClock(place.world.redis, morning);
      const { due, ...claim } = await place.world.schedules.claimDue(10, 30_000);
      const sweepers = due.map((one) => async () => {
        const schedules = replaced(place.services.schedules, {
          claimDue: async () => ({ ...claim, due: [one] }),
        });
        await sweepSchedules({ ...place.services, schedules });
      });
      expect(sweepers).toHaveLength(3);
      if (order === "at once") await Promise.all(sweepers.map(async (sweep) => await sweep()));
      else for (const sweep of sweepers) await sweep();
      expect([order, place.messages.length]).toEqual([order, 1]);
      const text = JSON.stringify(place.messages[0]?.parts);
      expect(
        ["3 schedules", "number 1", "number 2", "number 3"].filter((one) => !text.includes(one)),
      ).toEqual([]);
      for (const number of [1, 2, 3]) {
        const lines = await place.world.schedules.log(every(number).id);
        expect(lines.map(({ state }) => state)).toEqual(["started"]);
      }
    }
  });

  it("is written once where its worker dies at any step", async () => {
    for (let fatal = 1; fatal <= 6; fatal += 1) {
      let steps = 0;
      const place = scene(() => (steps += 1) === fatal);
      for (const number of [1, 2]) {
        const dueMs = morning;
        await place.world.schedules.add(every(number), { dueMs, alarmMs: dueMs });
      }
      for (let second = 0; second <= 62; second += 31) await place.at(morning + second * 1_000);
      expect([fatal, place.messages.length]).toEqual([fatal, 1]);
      for (const number of [1, 2]) {
        const lines = await place.world.schedules.log(every(number).id);
        expect(lines.map(({ state }) => state)).toEqual(["started"]);
      }
    }
  });
});

describe("a schedule that asks and gets no answer", () => {
  const daily = scheduleWith(1, { kind: "cron", cron: "0 1 * * *" }, "UTC");
  const run = { ...messageOf, schedule: { id: daily.id, dueMs: 1 } };
  const expired: ControlEntry = {
    type: "decision",
    approvalId: "a",
    argumentsHash: "h",
    state: "expired",
    decisions: [],
  };

  it("pauses after three runs, and says so once to its owner alone", async () => {
    const { world, services, add } = scene();
    await add(daily);
    for (const id of ["om_1", "om_1", "om_2", "om_3", "om_4"]) {
      expect((await world.schedules.read(daily.id))?.state).toBe(
        id === "om_4" ? "paused" : "active",
      );
      await noteUnanswered(services, { ...run, id }, [expired]);
    }
    expect(await world.schedules.read(daily.id)).toMatchObject({
      state: "paused",
      why: "scheduleUnanswered",
    });
    expect(world.sent.map(({ target, text }) => [target.chatId, text])).toEqual([
      ["ou_0", expect.stringContaining("asked at three times and got no answer")],
    ]);
  });

  it("pauses at the third due time behind a question that has been open for half a day", async () => {
    const { world, services, add, at } = scene();
    await add(daily);
    const approval = { kind: "consent", createdAtMs: start } as Approval; // as much as is looked at
    services.approvals.pending = async () => [{ approval } as ApprovalStatus];
    const { store } = services;
    services.store = replaced(store, {
      append: async (message) => ({ ...(await store.append(message)), ahead: 1 }),
    });
    const states: (string | undefined)[] = [];
    for (let day = 0; day < 4; day += 1) {
      await at(start + hourMs + day * dayMs + 30_000);
      states.push((await world.schedules.read(daily.id))?.state);
    }
    // On the first day the question is an hour old.
    expect(states).toEqual(["active", "active", "active", "paused"]);
    expect(world.sent).toHaveLength(1);
  });
});

it("runs 500 schedules of nine o'clock within half a minute, 200 in a sweep", async () => {
  const { runs, add, at } = scene();
  const nine = start + hourMs;
  for (let number = 0; number < 500; number += 1) {
    await add(scheduleWith(number, { kind: "cron", cron: "0 9 * * *" }, "Asia/Shanghai"));
  }
  const bySecond: number[] = [];
  for (let second = 0; second <= 3; second += 1) {
    await at(nine + second * 1_000);
    bySecond.push(runs.size);
  }
  // As they were added their alarms have no jitter; each sweep takes 200.
  expect(bySecond).toEqual([200, 400, 500, 500]);
  // From the next day on the alarms are spread.
  const next = nine + dayMs;
  const spread: number[] = [];
  for (let second = 0; second <= 30; second += 1) {
    await at(next + second * 1_000);
    spread.push(runs.size - 500);
  }
  expect(spread.at(-1)).toBe(500);
  const most = Math.max(...spread.map((count, second) => count - (spread[second - 1] ?? 0)));
  expect(most).toBeLessThan(40);
});

it("costs one script in a sweep while 1,000 schedules sleep", async () => {
  const { world, runs, add, at } = scene();
  for (let number = 0; number < 1_000; number += 1) {
    await add(scheduleWith(number, { kind: "once", atMs: start + 90 * dayMs }, "Asia/Shanghai"));
  }
  let commands = 0;
  const send = world.redis.sendCommand.bind(world.redis);
  world.redis.sendCommand = (...given: Parameters<typeof send>) => {
    commands += 1;
    return Reflect.apply(send, undefined, given);
  };
  for (let second = 0; second < 10; second += 1) await at(start + second * 1_000);
  expect(commands).toBe(10);
  expect(runs.size).toBe(0);
});

it("runs as one what quiet hours have held of the events that a schedule waits for", async () => {
  const { world, at, messages, runs } = scene();
  const timing = { kind: "event", on: "meeting-ended" } as const;
  const schedule = scheduleWith(1, timing, "Asia/Shanghai");
  await world.schedules.add(schedule, { dueMs: start, alarmMs: undefined });
  const morning = start + dayMs;
  for (const id of ["e1", "e2", "e1"]) {
    await world.schedules.hold(schedule, { id, facts: `event ${id}` }, morning);
  }
  await at(morning - 1_000);
  expect(runs.size).toBe(0);
  for (let second = 0; second < 3; second += 1) await at(morning + second * 1_000);
  expect(messages.map(({ schedule: run }) => run?.causes?.map(({ id }) => id))).toEqual([
    ["e1", "e2"],
  ]);
  expect(await world.schedules.held(schedule)).toEqual([]);
  expect(await world.schedules.read(schedule.id)).toMatchObject({ state: "active" });
  const [line] = await world.schedules.log(schedule.id);
  expect(line).toMatchObject({ state: "started", count: 2, dueMs: morning });
  // What comes in the next night is another run.
  await world.schedules.hold(schedule, { id: "e3", facts: "event e3" }, morning + dayMs);
  await at(morning + dayMs);
  expect(messages).toHaveLength(2);
});
