import { Type } from "typebox";

// Times as the tools take and give them: ISO with an offset, and a zone by its name. Neither is guessed.

/** A time with its offset. */
export const Moment = (description: string) =>
  Type.String({
    pattern: "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}(:\\d{2})?(Z|[+-]\\d{2}:\\d{2})$",
    description: `${description} ISO 8601 with the offset of the person's zone, such as 2026-05-04T15:00+08:00.`,
  });

export const TimeZone = Type.String({
  minLength: 1,
  maxLength: 64,
  description:
    "The person's time zone, an IANA name such as Asia/Shanghai. If you do not know it, ask the person; never guess.",
});

/** Epoch ms of a time. Throws with words for the model when there is no such time. */
export function msOf(text: string): number {
  const at = Date.parse(text);
  if (Number.isNaN(at)) throw new Error(`${JSON.stringify(text)} is no time that exists.`);
  return at;
}

/** The same, checked against the zone: an offset that the zone does not have then is a mistake. */
export function msIn(text: string, zone: string): number {
  const at = msOf(text);
  const { offset } = partsOf(at, zone);
  const given = text.endsWith("Z") ? "+00:00" : text.slice(-6);
  if (given !== offset && !(offset === "+00:00" && given === "-00:00")) {
    throw new Error(
      `${text} has the offset ${given}, but ${zone} has ${offset} then. Which time is meant?`,
    );
  }
  return at;
}

/** A range of time, checked: it has a length, and at most that many days. */
export function rangeOf(from: string, to: string, maxDays: number): { from: number; to: number } {
  const range = { from: msOf(from), to: msOf(to) };
  if (range.to <= range.from) throw new Error("The end must be after the beginning.");
  if (range.to - range.from > maxDays * dayMs) throw new Error(`Ask for ${maxDays} days at most.`);
  return range;
}

/** Seconds since the epoch, as operations of the platform take them. */
export function secondsOf(at: number): string {
  return String(Math.floor(at / 1_000));
}

const dayMs = 86_400_000;

/** Such as `Mon 2026-05-04T15:00+08:00`. */
export function shownTime(at: number, zone: string): string {
  const { weekday, date, time, offset } = partsOf(at, zone);
  return `${weekday} ${date}T${time}${offset}`;
}

function partsOf(
  at: number,
  zone: string,
): { weekday: string; date: string; time: string; offset: string } {
  const parts = new Map(
    formatterOf(zone)
      .formatToParts(at)
      .map(({ type, value }) => [type, value]),
  );
  const part = (type: Intl.DateTimeFormatPartTypes): string => parts.get(type) ?? "";
  return {
    weekday: part("weekday"),
    date: `${part("year")}-${part("month")}-${part("day")}`,
    time: `${part("hour")}:${part("minute")}`,
    offset: part("timeZoneName").replace("GMT", "") || "+00:00",
  };
}

function formatterOf(timeZone: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat("en-GB", {
      timeZone,
      hourCycle: "h23",
      weekday: "short",
      timeZoneName: "longOffset",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
    });
  } catch {
    throw new Error(
      `There is no time zone ${JSON.stringify(timeZone)}; use an IANA name such as Asia/Shanghai.`,
    );
  }
}
