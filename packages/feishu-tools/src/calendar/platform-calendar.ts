import { checkedId, type Platform, type Remedies } from "../platform.ts";
import { shownTime } from "../time.ts";

// The person's own calendar, as all tools of the calendar see it.

export const calendarRemedies: Remedies = {
  190002: "The platform does not take these values; a room that needs approval wants room_reason.",
  190004: "The calendar is busy; try again in a moment.",
  190005: "The calendar is busy; try again in a moment.",
  190010: "The platform is still working at the same request.",
  190013: "The company's filter refuses these words.",
  193001: "There is no such event in the person's calendar.",
  193002:
    "The person has no right to this calendar, event or room; only the organiser changes an event.",
  193003: "The event was cancelled.",
  193103: "Ask for 40 days at most.",
  193104: "There are too many events in this time; ask for a shorter one.",
  194002: "Only the organiser of an event changes who is invited.",
  195100: "One of these people has left the company, or there is no such person.",
};

/** An event as the platform gives it, as far as it is read. */
export interface Event {
  event_id?: string;
  summary?: string | undefined;
  description?: string | undefined;
  start_time?: EventTime | undefined;
  end_time?: EventTime | undefined;
  location?: { name?: string | undefined } | undefined;
  vchat?: { meeting_url?: string | undefined } | undefined;
  event_organizer?: { user_id?: string | undefined; display_name?: string | undefined } | undefined;
  self_rsvp_status?: string | undefined;
  app_link?: string | undefined;
  /** In seconds. */
  create_time?: string | undefined;
}

interface EventTime {
  date?: string | undefined;
  timestamp?: string | undefined;
  timezone?: string | undefined;
}

/** The id of the person's primary calendar. */
export async function ownCalendar(platform: Platform): Promise<string> {
  const { calendars = [] } = await platform.read((client, as) =>
    client.calendar.v4.calendar.primary({ params: { user_id_type: "open_id" } }, as),
  );
  const id = calendars[0]?.calendar?.calendar_id ?? "";
  // It becomes part of a path, and has `@` and dots.
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._@-]{0,199}$/.test(id)) {
    throw new Error("The platform gives no calendar of the person.");
  }
  return id;
}

/** The path of an event in the person's calendar. */
export async function eventPath(
  platform: Platform,
  eventId: string,
): Promise<{ calendar_id: string; event_id: string }> {
  return { calendar_id: await ownCalendar(platform), event_id: checkedId(eventId, "an event") };
}

export async function eventAt(
  platform: Platform,
  path: { calendar_id: string; event_id: string },
): Promise<Event> {
  const { event = {} } = await platform.read((client, as) =>
    client.calendar.v4.calendarEvent.get({ path, params: { user_id_type: "open_id" } }, as),
  );
  return event;
}

/** Who is invited, and which rooms are asked for. */
export interface Invited {
  kind: "user" | "room" | "other";
  id: string;
  name: string;
  /** `accept`, `decline`, `tentative`, `needs_action`. */
  answer: string;
}

export async function invitedTo(
  platform: Platform,
  path: { calendar_id: string; event_id: string },
): Promise<Invited[]> {
  const { items = [] } = await platform.read((client, as) =>
    client.calendar.v4.calendarEventAttendee.list(
      { path, params: { user_id_type: "open_id", page_size: 100 } },
      as,
    ),
  );
  return items.map(
    ({
      type,
      user_id: user,
      room_id: room,
      display_name: name = "",
      rsvp_status: answer = "",
    }) => ({
      kind: type === "user" ? "user" : type === "resource" ? "room" : "other",
      id: user ?? room ?? "",
      name,
      answer,
    }),
  );
}

/** Epoch ms; undefined for an event of whole days. */
function msOfTime(time: EventTime | undefined): number | undefined {
  return time?.timestamp === undefined ? undefined : Number(time.timestamp) * 1_000;
}

/** When an event is, in this zone. */
export function shownSpan({ start_time: start, end_time: end }: Event, zone: string): string {
  const [from, to] = [msOfTime(start), msOfTime(end)];
  if (from === undefined || to === undefined) {
    return `all day ${start?.date ?? ""} to ${end?.date ?? ""}`;
  }
  return `${shownTime(from, zone)} to ${shownTime(to, zone)}`;
}

const answers: Readonly<Record<string, string>> = {
  accept: "accepted",
  decline: "declined",
  tentative: "tentative",
  needs_action: "not answered",
};

const bookings: Readonly<Record<string, string>> = {
  accept: "booked",
  decline: "declined: taken, or not to be had at this time",
  needs_action: "still being booked, or waiting for approval",
};

/** Who is invited and what they say. */
export function shownInvited(invited: readonly Invited[]): string {
  return invited
    .map(
      ({ kind, name, id, answer }) =>
        `${name === "" ? id : name} (${(kind === "room" ? bookings : answers)[answer] ?? answer})`,
    )
    .join(", ");
}
