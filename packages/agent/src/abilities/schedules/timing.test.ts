import type { ScheduleTiming } from "@larkline/protocol/schedule";
import { describe, expect, it } from "vitest";
import {
  alarmOf,
  cronProblem,
  dueWork,
  durationOf,
  instantOf,
  localTime,
  nextTimes,
  offsetText,
} from "./timing.ts";

const newYork = "America/New_York";
const shanghai = "Asia/Shanghai";
const anns = { zone: shanghai, owner: { id: "ou_ann" }, chatId: "oc_1" };
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

const at = (text: string): number => Date.parse(text);
const cronTimes = (cron: string, zone: string, after: string, count = 3): string[] =>
  nextTimes({ kind: "cron", cron }, zone, at(after), count).map(
    (ms) => `${localTime(zone, ms).text} ${offsetText(zone, ms)}`,
  );

describe("when a schedule is due", () => {
  it("follows the clock on the wall of its zone", () => {
    expect(cronTimes("0 9 * * 1", shanghai, "2026-11-28T00:00Z")).toEqual([
      "2026-11-30 09:00 +08:00",
      "2026-12-07 09:00 +08:00",
      "2026-12-14 09:00 +08:00",
    ]);
    expect(cronTimes("0 9 * * *", "Europe/Berlin", "2026-03-28T00:00Z")).toEqual([
      "2026-03-28 09:00 +01:00",
      "2026-03-29 09:00 +02:00",
      "2026-03-30 09:00 +02:00",
    ]);
  });

  it("runs as much later what does not exist where clocks go forward", () => {
    expect(cronTimes("30 2 * * *", newYork, "2026-03-07T12:00Z")).toEqual([
      "2026-03-08 03:30 -04:00",
      "2026-03-09 02:30 -04:00",
      "2026-03-10 02:30 -04:00",
    ]);
    expect(instantOf("2026-03-08T02:30", newYork)).toBe(at("2026-03-08T07:30Z"));
  });

  it("runs once, the first time, what comes twice where clocks go back; hourly keeps both", () => {
    expect(cronTimes("30 1 * * *", newYork, "2026-10-31T12:00Z", 2)).toEqual([
      "2026-11-01 01:30 -04:00",
      "2026-11-02 01:30 -05:00",
    ]);
    expect(cronTimes("30 * * * *", newYork, "2026-11-01T04:00Z")).toEqual([
      "2026-11-01 00:30 -04:00",
      "2026-11-01 01:30 -04:00",
      "2026-11-01 01:30 -05:00",
    ]);
    expect(instantOf("2026-11-01T01:30", newYork)).toBe(at("2026-11-01T05:30Z"));
  });

  it("skips months without a day 31, and knows the last day", () => {
    expect(cronTimes("0 9 31 * *", shanghai, "2026-03-01T00:00Z", 2)).toEqual([
      "2026-03-31 09:00 +08:00",
      "2026-05-31 09:00 +08:00",
    ]);
    expect(cronTimes("0 9 L * *", shanghai, "2027-02-01T00:00Z", 1)).toEqual([
      "2027-02-28 09:00 +08:00",
    ]);
  });

  it("keeps equal steps, and a single time once", () => {
    const every: ScheduleTiming = { kind: "every", everyMs: hourMs, fromMs: 1_000 };
    expect(nextTimes(every, shanghai, 1_000)).toEqual([
      1_000 + hourMs,
      1_000 + 2 * hourMs,
      1_000 + 3 * hourMs,
    ]);
    expect(nextTimes({ kind: "once", atMs: 5 }, shanghai, 4)).toEqual([5]);
    expect(nextTimes({ kind: "once", atMs: 5 }, shanghai, 5)).toEqual([]);
  });
});

describe("what people and models write of times", () => {
  it("reads durations and wall times, and nothing else", () => {
    expect([durationOf("PT2H"), durationOf("P1DT30M"), durationOf("pt90s")]).toEqual([
      2 * hourMs,
      24.5 * hourMs,
      90_000,
    ]);
    expect(["", "P", "PT", "2h", "PT0S", "P1Y"].map(durationOf)).toEqual(
      Array.from({ length: 6 }, () => undefined),
    );
    expect(instantOf("2026-11-30T09:00", shanghai)).toBe(at("2026-11-30T01:00Z"));
    for (const wrong of ["2026-02-30T09:00", "2026-11-30T24:00", "tomorrow", "2026-11-30"]) {
      expect(instantOf(wrong, shanghai)).toBeUndefined();
    }
  });

  it("refuses cron fields that are none, name no day, or come more often than every five minutes", () => {
    const problem = (cron: string): string => cronProblem(cron, shanghai, 0) ?? "";
    expect(problem("0 9 * * 1")).toBe("");
    expect(problem("*/5 * * * *")).toBe("");
    expect(problem("* * * * *")).toContain("every 5 minutes at most");
    expect(problem("58,1 * * * *")).toContain("every 5 minutes at most");
    expect(problem("0 0 9 * * 1")).toContain("five fields");
    expect(problem("0 9 30 2 *")).not.toBe("");
    expect(problem("0 25 * * *")).toContain("cannot be read");
  });
});

describe("what is done with instants that have passed", () => {
  const hourly = {
    timing: { kind: "cron", cron: "0 * * * *" },
    zone: shanghai,
    missed: "late",
  } as const;
  const due = at("2026-11-30T01:00Z");

  it("runs what is in time, and waits for the next one", () => {
    expect(dueWork(hourly, due, due + 1_000)).toEqual({
      runs: [due],
      log: [{ dueMs: due, count: 1, state: "started", atMs: due + 1_000 }],
      nextMs: due + hourMs,
    });
  });

  it("logs each instant of an absence, and runs what the policy says", () => {
    const nowMs = due + 9 * hourMs + 10 * minuteMs;
    const skipped = (count: number) => ({
      dueMs: due,
      untilMs: due + (count - 1) * hourMs,
      count,
      state: "skipped",
      atMs: nowMs,
    });
    const late = (hours: number) => ({
      dueMs: due + hours * hourMs,
      count: 1,
      state: "late",
      atMs: nowMs,
    });
    expect(dueWork(hourly, due, nowMs).log).toEqual([skipped(9), late(9)]);
    expect(dueWork({ ...hourly, missed: "skip" }, due, nowMs)).toEqual({
      runs: [],
      log: [skipped(10)],
      nextMs: due + 10 * hourMs,
    });
    expect(dueWork({ ...hourly, missed: "all" }, due, nowMs).log).toEqual([
      skipped(5),
      ...[5, 6, 7, 8, 9].map(late),
    ]);
    expect(dueWork(hourly, due, due + 40 * minuteMs).runs).toEqual([]);
  });

  it("looks at a very long absence in portions, and runs nothing before the last one", () => {
    const nowMs = due + 150 * hourMs + minuteMs;
    const first = dueWork(hourly, due, nowMs);
    expect(first).toMatchObject({
      runs: [],
      log: [{ count: 100, state: "skipped" }],
      nextMs: due + 100 * hourMs,
    });
    const second = dueWork(hourly, first.nextMs ?? 0, nowMs);
    expect(second).toMatchObject({ runs: [due + 150 * hourMs], nextMs: due + 151 * hourMs });
    expect(second.log.reduce((sum, { count }) => sum + count, 0)).toBe(51);
  });

  it("runs a single reminder up to 23 hours late, and is done either way", () => {
    const once = { timing: { kind: "once", atMs: due }, zone: shanghai, missed: "late" } as const;
    expect(dueWork(once, due, due + 22 * hourMs)).toMatchObject({
      runs: [due],
      log: [{ state: "late" }],
      nextMs: undefined,
    });
    expect(dueWork(once, due, due + 24 * hourMs)).toMatchObject({
      runs: [],
      log: [{ state: "skipped" }],
      nextMs: undefined,
    });
  });

  it("holds what is due in steps through the night, and runs it once in the morning", () => {
    const night = at("2026-11-30T14:30Z"); // 22:30 in Shanghai
    const morning = at("2026-12-01T00:00Z");
    const every = {
      timing: { kind: "every", everyMs: hourMs, fromMs: night - 5 * hourMs },
      zone: shanghai,
      missed: "late",
    } as const;
    expect(dueWork(every, night, night)).toEqual({
      runs: [],
      log: [{ dueMs: night, untilMs: night + 9 * hourMs, count: 10, state: "quiet", atMs: night }],
      nextMs: morning,
    });
    expect(dueWork(every, morning, morning)).toMatchObject({
      runs: [morning],
      nextMs: morning + 30 * minuteMs,
    });
    // A time that was set to the minute is kept.
    expect(dueWork(hourly, at("2026-11-30T15:00Z"), at("2026-11-30T15:00Z")).runs).toHaveLength(1);
  });

  it("spreads the alarms of repeated work at whole and half hours over half a minute, and no reminder's", () => {
    const alarms = Array.from({ length: 500 }, (_, index) => {
      const id = ((index * 2_654_435_761) % 4_294_967_296)
        .toString(16)
        .padStart(8, "0")
        .padEnd(16, "0");
      return (alarmOf({ ...anns, id, timing: hourly.timing }, due) ?? 0) - due;
    });
    expect(Math.max(...alarms)).toBeLessThan(30_000);
    expect(new Set(alarms.map((ms) => Math.floor(ms / 1_000))).size).toBe(30);
    expect(alarmOf({ ...anns, id: "f".repeat(16), timing: { kind: "once", atMs: due } }, due)).toBe(
      due,
    );
    expect(alarmOf({ ...anns, id: "f".repeat(16), timing: hourly.timing }, due + minuteMs)).toBe(
      due + minuteMs,
    );
  });

  it("rings at one moment for all that quiet hours have held for a person and chat", () => {
    const morning = at("2026-12-01T00:00Z");
    const held = { kind: "every", everyMs: hourMs, fromMs: 0 } as const;
    const alarm = (id: string, chatId = "oc_1") =>
      alarmOf({ ...anns, chatId, id: id.repeat(16), timing: held }, morning);
    expect(alarm("1")).toBe(alarm("f"));
    expect(alarm("1", "oc_2")).not.toBe(alarm("1"));
  });
});
