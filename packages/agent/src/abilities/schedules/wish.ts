import {
  scheduleEventNames,
  type Schedule,
  type ScheduleEvent,
  type ScheduleTiming,
  type StandingApproval,
} from "@larkline/protocol/schedule";
import { Type, type Static } from "@larkline/protocol/type";
import { oneLine } from "../../texts/index.ts";
import { isTimeZone } from "../budget/budgets.ts";
import {
  alarmOf,
  cronProblem,
  durationOf,
  instantOf,
  nextDue,
  shortestPeriodMs,
} from "./timing.ts";

// What is asked of a schedule, by a model in the arguments of its tool or by a client of the HTTP API, and the schedule
// that this makes or changes. Pure.

/** A schedule as the ability knows it. */
export interface KnownSchedule {
  readonly schedule: Schedule;
  readonly state: "active" | "paused" | "done";
  readonly why?: string;
  readonly dueMs: number;
  readonly generation: number;
}

export const wishFields = {
  title: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  task: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1_000,
      description:
        "What you are to do then, as an order that stands alone: you will not see this conversation.",
    }),
  ),
  after: Type.Optional(
    Type.String({ maxLength: 40, description: "Once, so long from now: `PT2H`, `P1DT30M`." }),
  ),
  at: Type.Optional(
    Type.String({
      maxLength: 19,
      description: "Once, at this time on the person's clock: `2026-11-30T09:00`.",
    }),
  ),
  every: Type.Optional(
    Type.String({ maxLength: 40, description: "In steps of 5 minutes or more: `PT30M`." }),
  ),
  cron: Type.Optional(
    Type.String({
      maxLength: 100,
      description:
        "Five cron fields on the person's clock: `0 9 * * 1` is each Monday at nine. Never for something once.",
    }),
  ),
  zone: Type.Optional(
    Type.String({
      maxLength: 64,
      description: "Time zone, such as `Europe/Berlin`, where the person names one.",
    }),
  ),
  missed: Type.Optional(
    Type.Enum(["skip", "late", "all"], {
      description:
        "Times at which nothing could run: `late` (default) runs the last one if it is not too late.",
    }),
  ),
};
/** An event that only a person's schedule can wait for. */
export const eventField = Type.Optional(
  Type.Enum(scheduleEventNames, {
    description:
      "Whenever this happens to the person, in place of a time: a meeting of theirs has ended, its minutes are ready, a mail has come, their calendar has changed. `change` with the same value asks for a permission that is missing.",
  }),
);
const Wish = Type.Object({ ...wishFields, on: eventField });
export type Wish = Static<typeof Wish>;

/**
 * The zone in which times are read, the present time, the time from which durations count, and the events that can be
 * waited for; absent: none.
 */
export interface WishFacts {
  zone: string;
  nowMs: number;
  fromMs: number;
  events?: readonly ScheduleEvent[] | undefined;
}

export function hasTiming({ after, at, every, cron, on }: Wish): boolean {
  return [after, at, every, cron, on].some((way) => way !== undefined);
}

/** When a schedule is to run, or why that cannot be. */
export type Wanted = { timing: ScheduleTiming; zone: string; dueMs: number } | { problem: string };

/** Reads when a schedule is to run. */
export function wantedTiming(wish: Wish, given: WishFacts): Wanted {
  const { after, at, every, cron, on } = wish;
  const { nowMs, fromMs, events = [] } = given;
  const zone = wish.zone ?? given.zone;
  if (!isTimeZone(zone)) {
    return { problem: `zone: '${zone}' is no time zone; write a name such as Asia/Shanghai` };
  }
  const ways = [after, at, every, cron, on].filter((way) => way !== undefined);
  if (ways.length !== 1) return { problem: "give exactly one of after, at, every, cron and on" };
  if (on !== undefined) {
    return events.includes(on)
      ? { timing: { kind: "event", on }, zone, dueMs: nowMs }
      : { problem: `on: no schedule can wait for '${on}' here` };
  }
  const timing = timingOf(wish, zone, fromMs);
  if ("problem" in timing) return timing;
  const dueMs = nextDue(timing, zone, nowMs);
  if (dueMs === undefined) return { problem: "this time has passed" };
  return { timing, zone, dueMs };
}

/** How far ahead a schedule may be, ms. */
const furthestMs = 5 * 366 * 86_400_000;

function timingOf(
  { after, at, every, cron = "" }: Wish,
  zone: string,
  fromMs: number,
): ScheduleTiming | { problem: string } {
  if (after !== undefined || at !== undefined) {
    const afterMs = after === undefined ? undefined : durationOf(after);
    const atMs =
      at === undefined
        ? afterMs === undefined
          ? undefined
          : fromMs + afterMs
        : instantOf(at, zone);
    if (atMs === undefined) {
      return { problem: "write `after` as PT2H, and `at` as 2026-11-30T09:00" };
    }
    return atMs > fromMs + furthestMs
      ? { problem: "this is more than five years ahead" }
      : { kind: "once", atMs };
  }
  if (every !== undefined) {
    const everyMs = durationOf(every);
    if (everyMs === undefined) return { problem: "write `every` as PT30M or P1D" };
    if (everyMs < shortestPeriodMs) return { problem: "a schedule runs every 5 minutes at most" };
    return everyMs > furthestMs
      ? { problem: "this is more than five years ahead" }
      : { kind: "every", everyMs, fromMs };
  }
  const problem = cronProblem(cron, zone, fromMs);
  return problem === undefined ? { kind: "cron", cron } : { problem };
}

/** A schedule as the store takes it: `alarmMs` is when it is looked at next; undefined: when its event comes. */
export interface WishedSchedule {
  schedule: Schedule;
  state: "active" | "paused";
  dueMs: number;
  alarmMs: number | undefined;
}

/** Makes a schedule of a wish with a title and a task; `of`: whose it is, and where. */
export function newSchedule(
  wish: Wish,
  of: Omit<Schedule, "title" | "task" | "timing" | "zone" | "missed">,
  facts: WishFacts,
): WishedSchedule | { problem: string } {
  const { title, task, missed = "late" } = wish;
  if (title === undefined || task === undefined) return { problem: "give a title and a task" };
  const wanted = wantedTiming(wish, facts);
  if ("problem" in wanted) return wanted;
  const { timing, zone, dueMs } = wanted;
  const schedule = { ...of, title: oneLine(title, 100), task, timing, zone, missed };
  return { schedule, state: "active", dueMs, alarmMs: alarmOf(schedule, dueMs) };
}

/**
 * Changes what the wish names. One that begins again is due at its next time from now on. What it may do without asking
 * was allowed for its task: it ends with that, unless `allowed` says anew what it may.
 */
export function changedSchedule(
  { schedule, state: before, dueMs: dueBefore }: Omit<KnownSchedule, "generation">,
  {
    state = before === "paused" ? "paused" : "active",
    allowed,
    ...wish
  }: Wish & { state?: "active" | "paused"; allowed?: StandingApproval[] | undefined },
  facts: Omit<WishFacts, "zone">,
): WishedSchedule | { problem: string } {
  const { title, task, missed } = wish;
  const { allowed: allowedBefore, ...plain } = schedule;
  const isOther = task !== undefined && task !== schedule.task;
  const kept = allowed ?? (isOther ? undefined : allowedBefore);
  const retold = {
    ...plain,
    ...(kept === undefined || kept.length === 0 ? {} : { allowed: kept }),
    ...(title === undefined ? {} : { title: oneLine(title, 100) }),
    ...(task === undefined ? {} : { task }),
    ...(missed === undefined ? {} : { missed }),
  };
  if (hasTiming(wish)) {
    const wanted = wantedTiming(wish, { ...facts, zone: schedule.zone });
    if ("problem" in wanted) return wanted;
    const { timing, zone, dueMs } = wanted;
    const next = { ...retold, timing, zone };
    return { schedule: next, state, dueMs, alarmMs: alarmOf(next, dueMs) };
  }
  if (schedule.timing.kind === "event") {
    return { schedule: retold, state, dueMs: dueBefore, alarmMs: undefined };
  }
  const begins = state === "active" && before !== "active";
  const dueMs = begins ? nextDue(schedule.timing, schedule.zone, facts.nowMs) : dueBefore;
  if (dueMs === undefined) return { problem: "its time has passed; make a new one" };
  return { schedule: retold, state, dueMs, alarmMs: alarmOf(retold, dueMs) };
}

/**
 * Finds the schedule that does the same at the same times in the same chat, and may do as much without asking.
 */
export function equalOf(
  known: readonly KnownSchedule[],
  wanted: Schedule,
): KnownSchedule | undefined {
  const same = whatOf(wanted);
  return known.find(({ schedule, state }) => state === "active" && whatOf(schedule) === same);
}

function whatOf({ task, timing, zone, chatId, allowed = [] }: Schedule): string {
  const calls = allowed.map(({ tool, arguments: bounds }) => [tool, bounds]);
  return JSON.stringify([task, whenOf(timing), zone, chatId, calls]);
}

/** The timing without the instant that steps are counted from. */
function whenOf(timing: ScheduleTiming): unknown[] {
  switch (timing.kind) {
    case "once":
      return [timing.kind, timing.atMs];
    case "every":
      return [timing.kind, timing.everyMs];
    case "cron":
      return [timing.kind, timing.cron];
    case "event":
      return [timing.kind, timing.on];
  }
}
