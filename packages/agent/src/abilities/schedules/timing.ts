import { hash } from "node:crypto";
import type { Schedule, ScheduleLogEntry, ScheduleTiming } from "@larkline/protocol/schedule";
import { CronExpressionParser } from "cron-parser";

// When schedules are due. All instants are epoch ms; a zone is an IANA name. Pure.

export const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** Two runs of a schedule are at least so far apart. */
export const shortestPeriodMs = 5 * minuteMs;

/**
 * The first instant after `afterMs`; undefined: there is none. Where clocks are set forward, a time that does not exist
 * is due as much later; where they are set back, a time that comes twice is due the first time.
 */
export function nextDue(timing: ScheduleTiming, zone: string, afterMs: number): number | undefined {
  switch (timing.kind) {
    case "once":
      return timing.atMs > afterMs ? timing.atMs : undefined;
    case "every": {
      const { everyMs, fromMs } = timing;
      const steps = Math.max(1, Math.floor((afterMs - fromMs) / everyMs) + 1);
      return fromMs + steps * everyMs;
    }
    case "cron": {
      const next = CronExpressionParser.parse(timing.cron, {
        currentDate: new Date(afterMs),
        tz: zone,
      });
      try {
        return next.next().getTime();
      } catch {
        return undefined; // no such day within the years that are looked at
      }
    }
    case "event":
      return undefined;
  }
}

/** The next instants, at most `count`. */
export function nextTimes(
  timing: ScheduleTiming,
  zone: string,
  afterMs: number,
  count = 3,
): number[] {
  const times: number[] = [];
  for (let at = nextDue(timing, zone, afterMs); at !== undefined && times.length < count;) {
    times.push(at);
    at = nextDue(timing, zone, at);
  }
  return times;
}

const fiveFields = /^\S+(?: \S+){4}$/;

/** Instants that show whether cron fields ever come too often. */
const sampledTimes = 50;

/** Why cron fields cannot be used; undefined: they can. */
export function cronProblem(cron: string, zone: string, nowMs: number): string | undefined {
  if (!fiveFields.test(cron)) {
    return "cron must have five fields: minute, hour, day of month, month, day of week";
  }
  try {
    const timing = { kind: "cron", cron } as const;
    const times = nextTimes(timing, zone, nowMs, sampledTimes);
    if (times.length === 0) return "these cron fields name no day that exists";
    const isDense = times.some(
      (at, index) => index > 0 && at - (times[index - 1] ?? 0) < shortestPeriodMs,
    );
    return isDense ? "a schedule runs every 5 minutes at most" : undefined;
  } catch (error) {
    return `the cron fields cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
}

const formats = new Map<string, Intl.DateTimeFormat>();
const maxFormats = 100;

function formatOf(zone: string): Intl.DateTimeFormat {
  const known = formats.get(zone);
  if (known !== undefined) return known;
  const made = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    weekday: "long",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  if (formats.size >= maxFormats) formats.clear();
  formats.set(zone, made);
  return made;
}

function partsOf(zone: string, atMs: number): Record<string, string> {
  return Object.fromEntries(
    formatOf(zone)
      .formatToParts(atMs)
      .map(({ type, value }) => [type, value]),
  );
}

/** The clock on the wall as if it were one of UTC. */
function wallOf(zone: string, atMs: number): number {
  const { year, month, day, hour, minute, second } = partsOf(zone, atMs);
  return Date.UTC(
    Number(year),
    Number(month) - 1,
    Number(day),
    Number(hour),
    Number(minute),
    Number(second),
  );
}

/** How far the clock of a zone is ahead of UTC, ms. */
function offsetAt(zone: string, atMs: number): number {
  const wholeMs = Math.floor(atMs / 1_000) * 1_000;
  return wallOf(zone, wholeMs) - wholeMs;
}

function digits(value: number): string {
  return String(value).padStart(2, "0");
}

/** `+08:00` */
export function offsetText(zone: string, atMs: number): string {
  const minutes = Math.round(offsetAt(zone, atMs) / minuteMs);
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${digits(Math.floor(size / 60))}:${digits(size % 60)}`;
}

/** A moment on the clock of a zone: `2026-11-30 09:00`, and the day of the week in English. */
export function localTime(zone: string, atMs: number): { text: string; weekday: string } {
  const { year, month, day, hour, minute, weekday = "" } = partsOf(zone, atMs);
  return { text: `${year}-${month}-${day} ${hour}:${minute}`, weekday };
}

const wallForm = /^(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2})(?::(\d{2}))?$/;

/** The instant of a time on the clock of a zone, such as `2026-11-30T09:00`. Undefined: it is no such time. */
export function instantOf(local: string, zone: string): number | undefined {
  const found = wallForm.exec(local.trim());
  if (found === null) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = found
    .slice(1)
    .map((part) => Number(part ?? 0));
  const wall = Date.UTC(year, month - 1, day, hour, minute, second);
  const read = new Date(wall);
  if (read.getUTCMonth() !== month - 1 || read.getUTCDate() !== day || hour > 23 || minute > 59) {
    return undefined;
  }
  const before = wall - offsetAt(zone, wall - dayMs);
  const after = wall - offsetAt(zone, wall + dayMs);
  const [first, other] = before <= after ? [before, after] : [after, before];
  if (wallOf(zone, first) === wall) return first;
  return wallOf(zone, other) === wall ? other : before;
}

const durationForm = /^P(?:(\d{1,4})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,7})S)?)?$/;

/**
 * The length of an ISO 8601 duration of days, hours, minutes and seconds, ms. Undefined: the text is none, or is empty.
 */
export function durationOf(text: string): number | undefined {
  const found = durationForm.exec(text.trim().toUpperCase());
  if (found === null) return undefined;
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = found
    .slice(1)
    .map((part) => Number(part ?? 0));
  const ms = days * dayMs + hours * hourMs + minutes * minuteMs + seconds * 1_000;
  return ms > 0 ? ms : undefined;
}

/** When a person is not disturbed by what is due in steps, whole hours on their clock. */
const quiet = { fromHour: 22, untilHour: 8 };

/** The end of the quiet hours in which an instant lies; undefined: it lies in none. */
export function quietEnd(zone: string, atMs: number): number | undefined {
  const wall = new Date(wallOf(zone, atMs));
  const hour = wall.getUTCHours();
  if (hour >= quiet.untilHour && hour < quiet.fromHour) return undefined;
  if (hour >= quiet.fromHour) wall.setUTCDate(wall.getUTCDate() + 1);
  return instantOf(
    `${wall.toISOString().slice(0, 10)}T${String(quiet.untilHour).padStart(2, "0")}:00`,
    zone,
  );
}

/** Longest spread of what is due at a whole or half hour, ms: many schedules are due at nine. */
const jitterMs = 30_000;

/**
 * When the alarm of an instant rings; undefined for what waits for an event: reminders at once, repeated work some seconds later where many are due together.
 * What quiet hours have held rings at one moment for a person and chat, so that it can come as one.
 */
export function alarmOf(
  schedule: Pick<Schedule, "id" | "timing" | "zone" | "owner" | "chatId">,
  dueMs: number,
): number | undefined {
  const { id, timing, owner, chatId } = schedule;
  if (timing.kind === "event") return undefined;
  if (timing.kind === "once" || dueMs % (30 * minuteMs) !== 0) return dueMs;
  const spread = isHeld(schedule, dueMs)
    ? hash("sha256", JSON.stringify([owner.id, chatId]), "hex")
    : id;
  return dueMs + (Number.parseInt(spread.slice(0, 8), 16) % jitterMs);
}

/** Whether an instant is the end of quiet hours, to which runs in steps are held. */
export function isHeld(
  { timing, zone }: Pick<Schedule, "timing" | "zone">,
  dueMs: number,
): boolean {
  return timing.kind === "every" && quietEnd(zone, dueMs - 1) === dueMs;
}

/** So late an instant is still in time, ms. */
const inTimeMs = 2 * minuteMs;
/** How late a repeated run may be at most, ms: half of its period, within these bounds. */
const [leastLateMs, mostLateMs] = [2 * minuteMs, 2 * hourMs];
/** How late a single one may be, ms: less than the store remembers the ids of messages, so that none is written twice. */
const onceLateMs = 23 * hourMs;
/** Most missed instants that run with the policy `all`. */
const maxCaughtUp = 5;
/** Instants of a long absence that are looked at in one go. */
const maxMissed = 100;

/** What is done with a schedule that is due. */
export interface DueWork {
  /** Instants that run, the oldest first. */
  runs: number[];
  log: ScheduleLogEntry[];
  /** Perhaps passed already; undefined: the schedule is done. */
  nextMs: number | undefined;
}

/** Decides what becomes of the instant at which a schedule was due, and of all that have passed since. */
export function dueWork(
  schedule: Pick<Schedule, "timing" | "zone" | "missed">,
  dueMs: number,
  nowMs: number,
): DueWork {
  const { timing, zone, missed } = schedule;
  const end = timing.kind === "every" ? quietEnd(zone, dueMs) : undefined;
  if (timing.kind === "every" && end !== undefined) {
    const count = Math.max(1, Math.ceil((end - dueMs) / timing.everyMs));
    const untilMs = dueMs + (count - 1) * timing.everyMs;
    return {
      runs: [],
      log: [lineOf("quiet", { dueMs, untilMs, count, atMs: nowMs })],
      nextMs: end,
    };
  }
  const due = [dueMs];
  let nextMs = nextDue(timing, zone, dueMs);
  while (nextMs !== undefined && nextMs <= nowMs && due.length < maxMissed) {
    due.push(nextMs);
    nextMs = nextDue(timing, zone, nextMs);
  }
  const isAll = nextMs === undefined || nextMs > nowMs;
  const last = due.at(-1) ?? dueMs;
  const lateMs = nowMs - last;
  const half = timing.kind === "once" ? onceLateMs : ((nextMs ?? last + mostLateMs) - last) / 2;
  const limitMs = timing.kind === "once" ? half : Math.min(mostLateMs, Math.max(leastLateMs, half));
  const latest =
    missed === "all"
      ? due.slice(-maxCaughtUp)
      : lateMs <= (missed === "late" ? limitMs : inTimeMs)
        ? [last]
        : [];
  const runs = isAll ? latest : [];
  const skipped = due.slice(0, due.length - runs.length);
  const log = runs.map((at) =>
    lineOf(nowMs - at <= inTimeMs ? "started" : "late", {
      dueMs: at,
      untilMs: at,
      count: 1,
      atMs: nowMs,
    }),
  );
  const [first] = skipped;
  if (first !== undefined) {
    const untilMs = skipped.at(-1) ?? first;
    log.unshift(lineOf("skipped", { dueMs: first, untilMs, count: skipped.length, atMs: nowMs }));
  }
  return { runs, log, nextMs };
}

function lineOf(
  state: ScheduleLogEntry["state"],
  { dueMs, untilMs, count, atMs }: Required<Omit<ScheduleLogEntry, "state">>,
): ScheduleLogEntry {
  return { dueMs, ...(count === 1 ? {} : { untilMs }), count, state, atMs };
}
