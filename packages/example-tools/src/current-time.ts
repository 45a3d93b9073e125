import { defineTool, type HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";

const numbers = {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
} as const;

function formatterOf(timeZone: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat("en-GB", {
      timeZone,
      hourCycle: "h23",
      weekday: "long",
      timeZoneName: "longOffset",
      ...numbers,
    });
  } catch {
    throw new Error(
      `unknown time zone ${JSON.stringify(timeZone)}; use an IANA name such as Asia/Shanghai or UTC`,
    );
  }
}

/** The moment as local date, time, weekday and offset of an IANA time zone. */
export function localTime(moment: Date, timeZone: string): Record<string, string> {
  const formatter = formatterOf(timeZone);
  const parts = new Map(formatter.formatToParts(moment).map((part) => [part.type, part.value]));
  const part = (type: Intl.DateTimeFormatPartTypes): string => parts.get(type) ?? "";
  const offset = part("timeZoneName").replace("GMT", "") || "+00:00";
  const local = `${part("year")}-${part("month")}-${part("day")}T${part("hour")}:${part("minute")}:${part("second")}`;
  return {
    time: `${local}${offset}`,
    weekday: part("weekday"),
    timeZone: formatter.resolvedOptions().timeZone,
    utc: moment.toISOString(),
  };
}

/** Returns the time. */
export const currentTime: HandlerTool = defineTool({
  name: "current_time",
  description:
    "The current date, time and weekday in a time zone. Use it whenever an answer depends on now.",
  title: { zh: "看时间", en: "Look at the clock" },
  input: Type.Object(
    {
      timeZone: Type.Optional(
        Type.String({
          maxLength: 64,
          description: "IANA name, for instance Asia/Shanghai. Default: UTC.",
        }),
      ),
    },
    { additionalProperties: false },
  ),
  effect: "pure",
  addresses: [],
  risk: "low",
  isolation: "inline", // nothing in it can take time or fail badly
  timeoutMs: 5_000,
  run: ({ timeZone = "UTC" }) => localTime(new Date(), timeZone),
});
