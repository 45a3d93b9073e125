import { setTimeout as sleep } from "node:timers/promises";
import { alarmOf } from "@larkline/agent/schedules";
import type { Schedule } from "@larkline/protocol/schedule";
import { ScheduleStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { isClosed } from "../system/answer.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import {
  processNames,
  redisUse,
  restCpu,
  spread,
  type PerProcess,
  type Spread,
} from "./measure.ts";
import { table } from "./report.ts";

// What schedules cost while they sleep, and what happens when many of them are due at once.

export interface SchedulesNumbers {
  sleeping: number;
  /** Beside none: of each process, % of a core, and commands of Redis a second. */
  none: AtRest;
  asleep: AtRest;
  due: number;
  /** From the alarm of each to its message in its session. */
  latenessMs: Spread;
  /** From the first alarm to the last answer in its chat. */
  allOutS: number;
  /** From nine o'clock to the last alarm. */
  jitterS: number;
  /** Calls that the platform refused because of a limit. */
  refusals: number;
}

interface AtRest {
  cpu: PerProcess;
  commands: number;
}

const zone = "Asia/Shanghai";
/** A nine o'clock, whose jitter the alarms get. */
const nineMs = Date.parse("2026-11-30T01:00:00Z");
const restMs = 30_000;

/** Adds sleeping schedules, then lets others be due at one moment, under the limits of the platform. */
export async function measureSchedules(sleeping: number, due: number): Promise<SchedulesNumbers> {
  const system = await startProcesses({
    env: { LOG_LEVEL: "error" },
    config: { agents: { default: { schedules: true } } },
    simulator: { limits: "enforced" },
  });
  const redis = connectRedis(system.redis.url);
  try {
    const schedules = new ScheduleStore({ redis, namespace: "larkline" });
    const one = (number: number, person: { openId: string; chatId: string }): Schedule => ({
      // The first digits decide the jitter.
      id: `${((number * 2_654_435_761) % 4_294_967_296).toString(16).padStart(8, "0")}${number.toString(16).padStart(8, "0")}`,
      app: system.appId,
      owner: { id: person.openId },
      chatId: person.chatId,
      chatType: "p2p",
      title: `number ${number}`,
      task: "say that it is nine",
      timing: { kind: "cron", cron: "0 9 * * *" },
      zone,
      missed: "late",
      language: "en",
      createdAtMs: Date.now(),
    });
    await sleep(restMs);
    const none = await atRest(system);
    const laterMs = Date.now() + 30 * 86_400_000;
    for (let number = 0; number < sleeping; number += 1) {
      const nameless = { openId: `ou_${number % 1_000}`, chatId: `oc_${number % 1_000}` };
      await schedules.add(one(number, nameless), { dueMs: laterMs, alarmMs: laterMs });
    }
    const asleep = await atRest(system);
    return {
      sleeping,
      none,
      asleep,
      ...(await nineOClock(system, schedules, { due, from: sleeping, one })),
    };
  } finally {
    await closeRedis(redis);
    await system.close();
  }
}

/** What runs without messages. */
async function atRest(system: ProcessSystem): Promise<AtRest> {
  const before = redisUse(system).commands;
  const cpu = await restCpu(system, restMs);
  return { cpu, commands: ((redisUse(system).commands - before) * 1_000) / restMs };
}

/** Most time that all answers may take. */
const patienceMs = 180_000;

async function nineOClock(
  { feishu, person }: ProcessSystem,
  schedules: ScheduleStore,
  given: {
    due: number;
    from: number;
    one: (number: number, person: { openId: string; chatId: string }) => Schedule;
  },
): Promise<Pick<SchedulesNumbers, "due" | "latenessMs" | "allOutS" | "jitterS" | "refusals">> {
  const { due, from, one } = given;
  const people = Array.from({ length: due }, (_, at) => person(`nine ${at}`));
  const all = people.map((whose, at) => one(from + at, whose));
  const nowMs = Date.now() + 5_000;
  const alarms = new Map(
    all.map((schedule) => [schedule.id, nowMs + (alarmOf(schedule, nineMs) ?? nineMs) - nineMs]),
  );
  for (const schedule of all) {
    const alarmMs = alarms.get(schedule.id) ?? nowMs;
    await schedules.add(schedule, { dueMs: nowMs, alarmMs });
  }
  const isOut = ({ chatId }: { chatId: string }): boolean => {
    const messages = feishu.messages(chatId);
    return messages.length > 0 && messages.every(isClosed);
  };
  const endMs = nowMs + patienceMs;
  while (!people.every(isOut)) {
    if (Date.now() > endMs) {
      throw new Error(`${people.filter(isOut).length} of ${due} were answered`);
    }
    await sleep(100);
  }
  const outMs = Date.now();
  const lateness = await Promise.all(
    all.map(async ({ id }) => {
      const [line] = await schedules.log(id);
      return (line?.atMs ?? Number.NaN) - (alarms.get(id) ?? 0);
    }),
  );
  const last = Math.max(...alarms.values());
  return {
    due,
    latenessMs: spread(lateness),
    allOutS: (outMs - Math.min(...alarms.values())) / 1_000,
    jitterS: (last - nowMs) / 1_000,
    refusals: feishu.refusals.length,
  };
}

export function schedulesTables(numbers: SchedulesNumbers): string[] {
  const { sleeping, none, asleep, due, latenessMs, allOutS, jitterS, refusals } = numbers;
  const names = processNames.filter((name) => name !== "tool-runner");
  const rest = (label: string, { cpu, commands }: AtRest) => [
    label,
    ...names.map((name) => cpu[name].toFixed(2)),
    commands.toFixed(1),
  ];
  return [
    table(
      ["at rest", ...names.map((name) => `${name}, % of a core`), "Redis commands/s"],
      [rest("no schedules", none), rest(`${sleeping} that sleep`, asleep)],
    ),
    table(
      [`${due} schedules of nine o'clock, each in a chat of its own`, ""],
      [
        ["spread of their alarms, s", jitterS.toFixed(1)],
        [
          "alarm to message in the session p50 / p99, ms",
          `${latenessMs.p50.toFixed(0)} / ${latenessMs.p99.toFixed(0)}`,
        ],
        ["first alarm to last answer, s", allOutS.toFixed(1)],
        ["calls that a limit of the platform has refused", String(refusals)],
      ],
    ),
  ];
}
