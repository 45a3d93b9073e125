import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { namesOf, PersonId } from "../people.ts";
import { isRefusal, type Platform, quoted, type Settings } from "../platform.ts";
import { Moment, rangeOf, secondsOf, shownTime, TimeZone } from "../time.ts";
import { calendarRemedies, type Event, ownCalendar, shownSpan } from "./platform-calendar.ts";
import { workTool } from "../work-tool.ts";

// The person's own events, and when people and rooms are free.

const maxShown = 60;

export function listTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "list_events",
    description:
      "Lists the events of the person's own calendar in a time of at most 40 days, repeated ones included. Gives ids for changes, and links.",
    title: { zh: "查看日程", en: "List events" },
    summary: { zh: "查看 {from} 到 {to} 的日程", en: "List events from {from} to {to}" },
    input: {
      from: Moment("Beginning of the time."),
      to: Moment("End of the time, at most 40 days later."),
      time_zone: TimeZone,
      query: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 100,
          description: "Only events whose title has these words.",
        }),
      ),
    },
    effect: "pure",
    scopes: ["calendar:calendar:read", "calendar:calendar.event:read"],
    reach: "reads",
    run: async ({ from, to, time_zone: zone, query }, platform) => {
      const range = rangeOf(from, to, 40);
      const all = await eventsBetween(platform, await ownCalendar(platform), range);
      const words = query?.toLowerCase() ?? "";
      const found = all.filter(({ summary = "" }) => summary.toLowerCase().includes(words));
      if (found.length === 0) {
        return "There are no such events in the person's calendar in this time.";
      }
      const lines = found.slice(0, maxShown).map((event) => lineOf(event, zone));
      const more =
        found.length > maxShown
          ? `\n[${found.length - maxShown} more: ask for a shorter time]`
          : "";
      return quoted("calendar", lines.join("\n") + more);
    },
  });
}

function lineOf(event: Event, zone: string): string {
  const {
    summary = "",
    event_id: id = "",
    location,
    vchat,
    event_organizer: organizer,
    self_rsvp_status: answer,
  } = event;
  const facts = [
    `by ${organizer?.display_name ?? ""}`,
    ...(location?.name === undefined || location.name === "" ? [] : [`at ${location.name}`]),
    ...(answer === undefined || answer === "accept" ? [] : [`the person: ${answer}`]),
    ...(vchat?.meeting_url === undefined ? [] : [vchat.meeting_url]),
    `id ${id}`,
  ];
  return `- ${shownSpan(event, zone)}: ${summary} (${facts.join("; ")})`;
}

/** Events of a calendar in order; times are epoch ms. */
export async function eventsBetween(
  platform: Platform,
  calendarId: string,
  { from, to }: { from: number; to: number },
): Promise<Event[]> {
  const { items = [] } = await platform.read((client, as) =>
    client.calendar.v4.calendarEvent.instanceView(
      {
        path: { calendar_id: calendarId },
        params: { start_time: secondsOf(from), end_time: secondsOf(to), user_id_type: "open_id" },
      },
      as,
    ),
  );
  return items;
}

interface Span {
  from: number;
  to: number;
}

const maxRooms = 10;
const maxSlots = 12;

export function freeTimeTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "find_free_time",
    description:
      "Finds times when all of these people are free, and rooms that are free then. Names when each is busy, never with what. Look here before you create an event with others.",
    title: { zh: "查找空闲时间", en: "Find free time" },
    summary: {
      zh: "在 {from} 到 {to} 之间查找空闲时间",
      en: "Find free time between {from} and {to}",
    },
    input: {
      people: Type.Array(PersonId, {
        maxItems: 10,
        description: "People besides the person who asks.",
      }),
      from: Moment("Beginning of the time to search."),
      to: Moment(
        "End of it, at most 14 days later. Ask for working hours alone: nights are not left out.",
      ),
      minutes: Type.Integer({ minimum: 5, maximum: 1_440, description: "How long it takes." }),
      time_zone: TimeZone,
      room: Type.Optional(
        Type.String({
          maxLength: 60,
          description:
            "Part of a room's name, or empty for any. Without it no rooms are looked for.",
        }),
      ),
    },
    effect: "pure",
    scopes: [
      "calendar:calendar.free_busy:read",
      "vc:room:readonly",
      "contact:user.basic_profile:readonly",
    ],
    reach: "reads",
    run: async ({ people, from, to, minutes, time_zone: zone, room }, platform) => {
      const range = rangeOf(from, to, 14);
      const everybody = [
        ...new Set([...(platform.openId === undefined ? [] : [platform.openId]), ...people]),
      ];
      const nameOf = await namesOf(platform, everybody);
      const busy: Span[] = [];
      const lines: string[] = [];
      for (const openId of everybody) {
        const spans = await busyTimes(platform, { user_id: openId }, range);
        lines.push(
          `- ${nameOf(openId)}: ${spans === undefined ? "does not show when they are busy" : shownBusy(spans, zone)}`,
        );
        busy.push(...(spans ?? []));
      }
      const slots = freeSpans(busy, range).filter(
        (span) => span.to - span.from >= minutes * 60_000,
      );
      const rooms = room === undefined ? undefined : await roomsOf(platform, room, range);
      const free = slots.slice(0, maxSlots).map((slot) => slotLine(slot, { zone, minutes, rooms }));
      const none = "- none: search another time, or a shorter one";
      return quoted(
        "calendar",
        ["Busy:", ...lines, "Free for all of them:", ...(free.length === 0 ? [none] : free)].join(
          "\n",
        ),
      );
    },
  });
}

/** When a person or a room is busy; undefined where the person may not see that. */
async function busyTimes(
  platform: Platform,
  of: { user_id: string } | { room_id: string },
  { from, to }: Span,
): Promise<Span[] | undefined> {
  const data = {
    ...of,
    time_min: new Date(from).toISOString(),
    time_max: new Date(to).toISOString(),
    only_busy: true,
  };
  try {
    const { freebusy_list: list = [] } = await platform.read((client, as) =>
      client.calendar.v4.freebusy.list({ data, params: { user_id_type: "open_id" } }, as),
    );
    return list.map(({ start_time: start, end_time: end }) => ({
      from: Date.parse(start),
      to: Date.parse(end),
    }));
  } catch (error) {
    if (isRefusal(error, 193002)) return undefined;
    throw error;
  }
}

interface Room {
  id: string;
  name: string;
  capacity: number;
  busy: readonly Span[];
}

async function roomsOf(platform: Platform, keyword: string, range: Span): Promise<Room[]> {
  const { rooms = [] } = await platform.read((client, as) =>
    client.vc.v1.room.search({ data: { keyword, page_size: maxRooms } }, as),
  );
  const found: Room[] = [];
  for (const { room_id: id, name = "", capacity = 0 } of rooms.slice(0, maxRooms)) {
    const busy = id === undefined ? undefined : await busyTimes(platform, { room_id: id }, range);
    if (id !== undefined && busy !== undefined) found.push({ id, name, capacity, busy });
  }
  return found;
}

/** What is left of a time. */
export function freeSpans(busy: readonly Span[], { from, to }: Span): Span[] {
  const free: Span[] = [];
  let at = from;
  for (const span of busy.toSorted((left, right) => left.from - right.from)) {
    if (span.from > at) free.push({ from: at, to: Math.min(span.from, to) });
    at = Math.max(at, span.to);
    if (at >= to) return free;
  }
  return [...free, { from: at, to }];
}

function shownBusy(spans: readonly Span[], zone: string): string {
  if (spans.length === 0) return "free all the time";
  const shown = spans
    .slice(0, maxSlots)
    .map(({ from, to }) => `${shownTime(from, zone)} to ${shownTime(to, zone)}`);
  return `busy ${shown.join(", ")}${spans.length > maxSlots ? " and more" : ""}`;
}

function slotLine(
  { from, to }: Span,
  { zone, minutes, rooms }: { zone: string; minutes: number; rooms: readonly Room[] | undefined },
): string {
  const span = `- ${shownTime(from, zone)} to ${shownTime(to, zone)}`;
  if (rooms === undefined) return span;
  const fit = rooms.flatMap(({ id, name, capacity, busy }) => {
    const [first] = freeSpans(busy, { from, to }).filter(
      (free) => free.to - free.from >= minutes * 60_000,
    );
    if (first === undefined) return [];
    const since = first.from === from ? "" : ` from ${shownTime(first.from, zone)}`;
    return [`${name} (${capacity} seats, ${id})${since}`];
  });
  return `${span}; rooms: ${fit.length === 0 ? "none" : fit.join(", ")}`;
}
