import { type HandlerTool, type ToolContext } from "@larkline/tool-kit";
import { pause } from "@larkline/protocol/clock";
import { Type } from "typebox";
import { changeOnce, earlier, keyOf, makeOnce, onlyOne } from "../exactly-once.ts";
import { PersonId } from "../people.ts";
import { isRefusal, type Platform, type Settings } from "../platform.ts";
import { Moment, msIn, secondsOf, TimeZone } from "../time.ts";
import {
  calendarRemedies,
  type Event,
  eventAt,
  eventPath,
  invitedTo,
  ownCalendar,
  shownInvited,
  shownSpan,
} from "./platform-calendar.ts";
import { eventsBetween } from "./reading.ts";
import { workTool } from "../work-tool.ts";

// Events that the person makes, changes, cancels and answers. All of it reaches other people: they are notified.

const RoomId = Type.String({
  pattern: "^omm_[A-Za-z0-9_-]{1,80}$",
  description: "Id of a room, as find_free_time gives it.",
});
const EventId = Type.String({
  pattern: "^[A-Za-z0-9_-]{1,100}$",
  description: "Id of an event, as list_events gives it.",
});
const CurrentTitle = Type.String({
  maxLength: 1_000,
  description: "Title of this event as it is now, exactly: the person checks it.",
});
const People = Type.Array(PersonId, { maxItems: 50 });
const Rooms = Type.Array(RoomId, { maxItems: 10 });
const changeScopes = [
  "calendar:calendar:read",
  "calendar:calendar.event:read",
  "calendar:calendar.event:update",
];

type Path = { calendar_id: string; event_id: string };

export function createTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "create_event",
    description:
      "Creates an event in the person's calendar, invites people and books rooms; they are notified. Waits some seconds for rooms and says whether they are booked. " +
      "The person is asked first. Give start and end with the offset of the person's zone.",
    title: { zh: "创建日程", en: "Create an event" },
    summary: {
      zh: "创建日程「{title}」：{start} 到 {end}，并发出邀请",
      en: "Create the event {title}: {start} to {end}, and send the invitations",
    },
    input: {
      title: Type.String({ minLength: 1, maxLength: 300 }),
      start: Moment("Beginning."),
      end: Moment("End."),
      time_zone: TimeZone,
      people: Type.Optional(People),
      rooms: Type.Optional(Rooms),
      room_reason: Type.Optional(
        Type.String({ maxLength: 200, description: "Why, for rooms that need approval." }),
      ),
      description: Type.Optional(Type.String({ maxLength: 2_000 })),
      location: Type.Optional(
        Type.String({ maxLength: 200, description: "A place that is no room of the company." }),
      ),
    },
    effect: "once",
    looks: true,
    scopes: [...changeScopes, "calendar:calendar.event:create"],
    reach: "sends",
    run: async (input, platform, context) => {
      const [start, end] = [msIn(input.start, input.time_zone), msIn(input.end, input.time_zone)];
      if (end <= start) throw new Error("The end must be after the start.");
      const calendarId = await ownCalendar(platform);
      const wanted = { ...input, start, end, calendarId };
      const event = await createdOnce(platform, context, {
        wanted,
        windowMs: settings.keyWindowMs,
      });
      const path = { calendar_id: calendarId, event_id: event.event_id ?? "" };
      const facts = `${shownSpan(event, input.time_zone)} (id ${path.event_id}) ${event.app_link ?? ""}`;
      const { people = [], rooms = [], room_reason: reason } = input;
      if (people.length + rooms.length === 0) return `Created the event: ${facts}`;
      try {
        await invite(platform, path, { people, rooms, reason });
      } catch (error) {
        // The event is there: a failed invitation must not hide it, and can be made again without harm.
        if (platform.signal.aborted || !(error instanceof Error)) throw error;
        return `Created the event: ${facts}\nBut inviting failed: ${error.message}. Use change_event to invite those who are missing, or cancel_event.`;
      }
      return `Created the event: ${facts}\nInvited: ${await settledInvited(platform, path)}`;
    },
  });
}

interface Wanted {
  title: string;
  start: number;
  end: number;
  time_zone: string;
  description?: string;
  location?: string;
  calendarId: string;
}

/** The key protects the event alone; people are invited in a second write. */
async function createdOnce(
  platform: Platform,
  context: ToolContext,
  { wanted, windowMs }: { wanted: Wanted; windowMs: number },
): Promise<Event> {
  const { title, start, end, time_zone: timezone, description, location, calendarId } = wanted;
  const time = (at: number) => ({ timestamp: secondsOf(at), timezone });
  const data = {
    summary: title,
    start_time: time(start),
    end_time: time(end),
    need_notification: false,
    vchat: { vc_type: "vc" as const },
    attendee_ability: "can_see_others" as const,
    ...(description === undefined ? {} : { description }),
    ...(location === undefined ? {} : { location: { name: location } }),
  };
  const same = async (): Promise<Event[]> =>
    (await eventsBetween(platform, calendarId, { from: start, to: end })).filter(
      (event) => isSame(event, wanted) && event.event_organizer?.user_id === platform.openId,
    );
  const there = earlier(platform, await same(), ({ create_time: at }) => Number(at) * 1_000);
  const before = there.map(({ event_id: id }) => id);
  return await makeOnce(platform, {
    run: async (client, as) =>
      await client.calendar.v4.calendarEvent.create(
        {
          data,
          path: { calendar_id: calendarId },
          params: { idempotency_key: keyOf(context, "event"), user_id_type: "open_id" },
        },
        as,
      ),
    result: ({ event = {} }): Event => event,
    find: async () => onlyOne((await same()).filter(({ event_id: id }) => !before.includes(id))),
    windowMs,
    // Contention, or the key: either way a repeat under it harms nothing.
    isDuplicate: (error) => isRefusal(error, 190005, 190010),
    open: "whether the event was created",
  });
}

function isSame({ summary, start_time: start, end_time: end }: Event, wanted: Wanted): boolean {
  return (
    summary === wanted.title &&
    start?.timestamp === secondsOf(wanted.start) &&
    end?.timestamp === secondsOf(wanted.end)
  );
}

interface Guests {
  people: readonly string[];
  rooms: readonly string[];
  reason: string | undefined;
}

/** Invites those who are not invited. Without a key: after a lost answer the list says who is. */
async function invite(
  platform: Platform,
  path: Path,
  { people, rooms, reason }: Guests,
): Promise<void> {
  const missing = async (): Promise<string[]> => {
    const there = new Set((await invitedTo(platform, path)).map(({ id }) => id));
    return [...people, ...rooms].filter((id) => !there.has(id));
  };
  const wanted = await missing();
  if (wanted.length === 0) return;
  const attendees = wanted.map((id) =>
    id.startsWith("omm_")
      ? {
          type: "resource" as const,
          room_id: id,
          ...(reason === undefined ? {} : { approval_reason: reason }),
        }
      : { type: "user" as const, user_id: id },
  );
  await changeOnce(platform, {
    run: async (client, as) =>
      await client.calendar.v4.calendarEventAttendee.create(
        { data: { attendees, need_notification: true }, path, params: { user_id_type: "open_id" } },
        as,
      ),
    isDone: async () => (await missing()).length === 0,
    open: "whether the people and rooms were added to the event",
  });
}

/** Rooms are booked a moment after the request: waits some seconds for them. */
async function settledInvited(platform: Platform, path: Path): Promise<string> {
  for (const waitMs of roomWaitsMs) {
    const invited = await invitedTo(platform, path);
    if (!invited.some(({ kind, answer }) => kind === "room" && answer === "needs_action")) {
      return shownInvited(invited);
    }
    await pause(platform.clock, waitMs, platform.signal);
  }
  return shownInvited(await invitedTo(platform, path));
}

const roomWaitsMs = [500, 1_000, 2_000, 4_000];

export function changeTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "change_event",
    description:
      "Changes an event that the person organises: title, time, description, place, who is invited, rooms. Only what is given is changed; those invited are notified. The person is asked first.",
    title: { zh: "修改日程", en: "Change an event" },
    summary: {
      zh: "修改日程「{event_title}」：{title} {start} {end}",
      en: "Change the event {event_title}: {title} {start} {end}",
    },
    input: {
      event: EventId,
      event_title: CurrentTitle,
      title: Type.Optional(
        Type.String({ minLength: 1, maxLength: 300, description: "The new title." }),
      ),
      start: Type.Optional(Moment("New beginning, together with end.")),
      end: Type.Optional(Moment("New end.")),
      time_zone: TimeZone,
      description: Type.Optional(Type.String({ maxLength: 2_000 })),
      location: Type.Optional(Type.String({ maxLength: 200 })),
      add_people: Type.Optional(People),
      remove_people: Type.Optional(People),
      add_rooms: Type.Optional(Rooms),
      remove_rooms: Type.Optional(Rooms),
      room_reason: Type.Optional(
        Type.String({ maxLength: 200, description: "Why, for rooms that need approval." }),
      ),
    },
    effect: "idempotent",
    scopes: changeScopes,
    reach: "sends",
    run: async (input, platform) => {
      const path = await eventPath(platform, input.event);
      const before = await eventAt(platform, path);
      checkTitle(before, input.event_title, input.title); // the new one where a former run has set it
      const change = changeOf(input);
      if (Object.keys(change).length > 0) await patched(platform, path, change);
      const removed = [...(input.remove_people ?? []), ...(input.remove_rooms ?? [])];
      if (removed.length > 0) await uninvite(platform, path, removed);
      const [people, rooms] = [input.add_people ?? [], input.add_rooms ?? []];
      if (people.length + rooms.length > 0) {
        await invite(platform, path, { people, rooms, reason: input.room_reason });
      }
      const after = await eventAt(platform, path);
      const zone = input.time_zone;
      const was = `${JSON.stringify(before.summary ?? "")} ${shownSpan(before, zone)}`;
      const invited = await settledInvited(platform, path);
      return `Was: ${was}\nIs: ${JSON.stringify(after.summary ?? "")} ${shownSpan(after, zone)} ${after.app_link ?? ""}\nInvited: ${invited}`;
    },
  });
}

/** What the person approved must be what is changed: a title is what people check. */
function checkTitle({ summary = "" }: Event, ...titles: (string | undefined)[]): void {
  if (titles.some((title) => title?.trim() === summary.trim())) return;
  throw new Error(`Nothing was changed: the title of this event is ${JSON.stringify(summary)}.`);
}

interface EventChange {
  summary?: string;
  description?: string;
  location?: { name: string };
  start_time?: { timestamp: string; timezone: string };
  end_time?: { timestamp: string; timezone: string };
}

function changeOf(input: {
  title?: string;
  start?: string;
  end?: string;
  time_zone: string;
  description?: string;
  location?: string;
}): EventChange {
  const { title, start, end, time_zone: timezone, description, location } = input;
  if ((start === undefined) !== (end === undefined)) throw new Error("Give both start and end.");
  const time = (text: string) => ({ timestamp: secondsOf(msIn(text, timezone)), timezone });
  const times =
    start === undefined || end === undefined
      ? {}
      : { start_time: time(start), end_time: time(end) };
  if (
    times.start_time !== undefined &&
    Number(times.end_time.timestamp) <= Number(times.start_time.timestamp)
  ) {
    throw new Error("The end must be after the start.");
  }
  return {
    ...(title === undefined ? {} : { summary: title }),
    ...(description === undefined ? {} : { description }),
    ...(location === undefined ? {} : { location: { name: location } }),
    ...times,
  };
}

async function patched(platform: Platform, path: Path, change: EventChange): Promise<void> {
  await changeOnce(platform, {
    run: async (client, as) =>
      await client.calendar.v4.calendarEvent.patch(
        { data: { ...change, need_notification: true }, path },
        as,
      ),
    isDone: async () => hasChange(await eventAt(platform, path), change),
    open: "whether the event was changed",
  });
}

function hasChange(
  event: Event,
  { summary, description, location, start_time: start, end_time: end }: EventChange,
): boolean {
  return (
    (summary === undefined || event.summary === summary) &&
    (description === undefined || event.description === description) &&
    (location === undefined || event.location?.name === location.name) &&
    (start === undefined || event.start_time?.timestamp === start.timestamp) &&
    (end === undefined || event.end_time?.timestamp === end.timestamp)
  );
}

async function uninvite(platform: Platform, path: Path, ids: readonly string[]): Promise<void> {
  const delete_ids = ids.map((id) =>
    id.startsWith("omm_")
      ? { type: "resource" as const, room_id: id }
      : { type: "user" as const, user_id: id },
  );
  await changeOnce(platform, {
    run: async (client, as) =>
      await client.calendar.v4.calendarEventAttendee.batchDelete(
        {
          data: { delete_ids, need_notification: true },
          path,
          params: { user_id_type: "open_id" },
        },
        as,
      ),
    isDone: async () => !(await invitedTo(platform, path)).some(({ id }) => ids.includes(id)),
    open: "whether they were removed from the event",
  });
}

export function cancelTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "cancel_event",
    description:
      "Cancels an event that the person organises, for everybody; those invited are notified, and rooms become free. It cannot be undone. The person is asked first. Needs the event's title, as list_events gives it.",
    title: { zh: "取消日程", en: "Cancel an event" },
    summary: { zh: "取消日程「{title}」（{event}）", en: "Cancel the event {title} ({event})" },
    input: {
      event: EventId,
      title: CurrentTitle,
    },
    effect: "idempotent",
    scopes: [
      "calendar:calendar:read",
      "calendar:calendar.event:read",
      "calendar:calendar.event:delete",
    ],
    reach: "destroys",
    run: async ({ event, title }, platform) => {
      const path = await eventPath(platform, event);
      const isThere = async (): Promise<boolean> => {
        try {
          const { summary = "" } = await eventAt(platform, path);
          if (summary.trim() === title.trim()) return true;
          throw new Error(
            `Nothing was cancelled: the title of this event is ${JSON.stringify(summary)}.`,
          );
        } catch (error) {
          if (isRefusal(error, 193003)) return false;
          throw error;
        }
      };
      if (!(await isThere())) return "The event is cancelled already.";
      await changeOnce(platform, {
        run: async (client, as) =>
          await client.calendar.v4.calendarEvent.delete(
            { path, params: { need_notification: "true" } },
            as,
          ),
        isDone: async () => !(await isThere()),
        open: "whether the event was cancelled",
      });
      return `Cancelled ${JSON.stringify(title)}; those invited were notified.`;
    },
  });
}

export function answerTool(settings: Settings): HandlerTool {
  return workTool(settings, calendarRemedies, {
    name: "answer_invitation",
    description:
      "Accepts or declines an invitation to an event for the person, or says maybe. The organiser sees it. The person is asked first.",
    title: { zh: "回复日程邀请", en: "Answer an invitation" },
    summary: { zh: "回复日程「{title}」：{answer}", en: "Answer the invitation {title}: {answer}" },
    input: {
      event: EventId,
      title: CurrentTitle,
      answer: Type.Enum(["accept", "decline", "tentative"]),
    },
    effect: "idempotent",
    scopes: [
      "calendar:calendar:read",
      "calendar:calendar.event:read",
      "calendar:calendar.event:reply",
    ],
    reach: "sends",
    run: async ({ event, title, answer }, platform) => {
      const path = await eventPath(platform, event);
      checkTitle(await eventAt(platform, path), title);
      const isSo = async (): Promise<boolean> =>
        (await eventAt(platform, path)).self_rsvp_status === answer;
      if (await isSo()) return `The answer is ${answer} already.`;
      await changeOnce(platform, {
        run: async (client, as) =>
          await client.calendar.v4.calendarEvent.reply({ data: { rsvp_status: answer }, path }, as),
        isDone: async () => await isSo(),
        open: "whether the invitation was answered",
      });
      return `Answered ${answer} to ${JSON.stringify(title)}.`;
    },
  });
}
