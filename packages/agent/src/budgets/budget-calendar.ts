import type { BudgetPeriod } from "./budget-policy.ts";

/** One day or month. */
export interface PeriodSpan {
  /** Names it in keys: `2026-11-22`, `2026-11`. */
  readonly bucket: string;
  /** First moment of the next one, epoch ms. */
  readonly endsAtMs: number;
}

export type BudgetCalendar = (period: BudgetPeriod, nowMs: number) => PeriodSpan;

/** Longer than any day, and than any month: clocks are moved by hours at most. */
const longestMs: Readonly<Record<BudgetPeriod, number>> = { day: 27 * 3_600_000, month: 32 * 86_400_000 };

/** Whether the runtime knows a time zone by this name. */
export function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name }).resolvedOptions().timeZone !== "";
  } catch {
    return false;
  }
}

/** The first moment after `fromMs` at which `bucketAt` says something else; it does so by `untilMs`. */
function changeAfter(bucketAt: (ms: number) => string, fromMs: number, untilMs: number): number {
  const bucket = bucketAt(fromMs);
  let [same, other] = [fromMs, untilMs];
  while (other - same > 1) {
    const middle = Math.floor((same + other) / 2);
    if (bucketAt(middle) === bucket) same = middle;
    else other = middle;
  }
  return other;
}

/**
 * The days and months of a time zone. A period ends where the calendar on the wall changes, also on
 * days of 23 or 25 hours. Throws a RangeError for an unknown zone.
 */
export function createBudgetCalendar(timeZone: string): BudgetCalendar {
  const format = new Intl.DateTimeFormat("en", { timeZone, year: "numeric", month: "2-digit", day: "2-digit" });
  const known = new Map<BudgetPeriod, PeriodSpan & { fromMs: number }>();

  const bucketOf = (period: BudgetPeriod) => (ms: number) => {
    const parts = new Map(format.formatToParts(ms).map(({ type, value }) => [type, value]));
    const month = `${parts.get("year")}-${parts.get("month")}`;
    return period === "month" ? month : `${month}-${parts.get("day")}`;
  };

  return (period, nowMs) => {
    const last = known.get(period);
    if (last !== undefined && nowMs >= last.fromMs && nowMs < last.endsAtMs) return last;
    const bucketAt = bucketOf(period);
    const endsAtMs = changeAfter(bucketAt, nowMs, nowMs + longestMs[period]);
    const span = { bucket: bucketAt(nowMs), endsAtMs, fromMs: nowMs };
    known.set(period, span);
    return span;
  };
}

/** A moment in a zone, to the minute: `2026-11-23 00:00`. */
export function localMinute(timeZone: string, atMs: number): string {
  const format = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
  return format.format(atMs);
}
