import type { Platform } from "../platform.ts";
import type { SimSubscriptions } from "./subscriptions.ts";
import { type WorkWorld, actorOf } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  randomHex,
  success,
  type JsonObject,
  PlatformError,
  fieldError,
  isJsonObject,
  pageOf,
} from "../open-api.ts";

// Calendars with events, the people and rooms of them, and who is busy ("Calendar overview", "Room overview").

/** What a person or a room says to an event. */
type Rsvp = "accept" | "decline" | "tentative" | "needs_action";

interface Attendee {
  attendeeId: string;
  kind: "user" | "resource";
  /** Open id or room id. */
  id: string;
  rsvp: Rsvp;
  optional: boolean;
  /** When the booking of a room is decided. */
  decidedAt?: number;
}

/** Times are seconds since the epoch; an event of whole days has dates. */
interface SimEvent {
  eventId: string;
  calendarId: string;
  organizer: string;
  summary: string;
  description: string;
  location: string;
  start: number;
  end: number;
  timeZone: string;
  dates?: { start: string; end: string };
  cancelled: boolean;
  attendees: Attendee[];
  createdAt: number;
}

interface SimRoom {
  roomId: string;
  name: string;
  capacity: number;
  /** Open ids of those who may book it; absent: all. */
  bookers?: readonly string[];
  /** A booking needs a reason and an approval. */
  approval?: boolean;
}

export interface CalendarControls {
  readonly events: ReadonlyMap<string, SimEvent>;
  readonly rooms: ReadonlyMap<string, SimRoom>;
  addRoom(room: Omit<SimRoom, "roomId"> & { roomId?: string }): SimRoom;
  /**
   * An event of a person, as if made in the client; apps whom its people have subscribed get the event. `start` and `end`
   * are epoch ms.
   */
  addEvent(event: {
    organizer: string;
    summary: string;
    start: number;
    end: number;
    people?: string[];
  }): SimEvent;
  /** Whether others see when the person is busy. Default yes. */
  setFreeBusy(openId: string, shown: boolean): void;
  /** How long the booking of a room takes, in ms. Default 1 s. */
  setRoomDelay(ms: number): void;
  /** Notices of invitations, changes and cancellations that people got: `summary` and who. */
  readonly notices: readonly {
    kind: "invited" | "changed" | "cancelled";
    eventId: string;
    to: string;
  }[];
}

/** How long the platform knows the key of an event; the page names no time. */
const keyWindowMs = 10 * 60_000;
const maxViewSeconds = 40 * 86_400;
const maxFreeBusyMs = 90 * 86_400_000;
const noRight = 193002;

const reading = ["calendar:calendar.event:read", "calendar:calendar", "calendar:calendar:readonly"];
const creating = ["calendar:calendar.event:create", "calendar:calendar"];
const updating = ["calendar:calendar.event:update", "calendar:calendar"];

export class SimCalendar implements CalendarControls {
  readonly events = new Map<string, SimEvent>();
  readonly rooms = new Map<string, SimRoom>();
  readonly notices: { kind: "invited" | "changed" | "cancelled"; eventId: string; to: string }[] =
    [];
  readonly #world: WorkWorld;
  readonly calendars = new Map<string, string>();
  readonly #hidden = new Set<string>();
  #roomDelayMs = 1_000;

  readonly #subscriptions: SimSubscriptions;

  constructor(world: WorkWorld, subscriptions: SimSubscriptions) {
    this.#world = world;
    this.#subscriptions = subscriptions;
  }

  addRoom({
    roomId = `omm_${randomHex(32)}`,
    ...room
  }: Omit<SimRoom, "roomId"> & { roomId?: string }): SimRoom {
    const added = { roomId, ...room };
    this.rooms.set(roomId, added);
    return added;
  }

  addEvent(given: {
    organizer: string;
    summary: string;
    start: number;
    end: number;
    people?: string[];
  }): SimEvent {
    const event = this.#kept({
      organizer: given.organizer,
      summary: given.summary,
      start: Math.floor(given.start / 1_000),
      end: Math.floor(given.end / 1_000),
    });
    for (const id of given.people ?? []) event.attendees.push(attendeeOf("user", id, "accept"));
    this.#announce("created", event);
    return event;
  }

  setFreeBusy(openId: string, shown: boolean): void {
    if (shown) this.#hidden.delete(openId);
    else this.#hidden.add(openId);
  }

  setRoomDelay(ms: number): void {
    this.#roomDelayMs = ms;
  }

  routes(platform: Platform): ApiRoute[] {
    const calendars = "/open-apis/calendar/v4/calendars";
    const events = `${calendars}/:calendar_id/events`;
    const attendees = `${events}/:event_id/attendees`;
    return [
      {
        method: "POST",
        path: `${calendars}/primary`,
        personScopes: ["calendar:calendar:read", ...reading],
        handle: (call) => this.#primary(call),
      },
      {
        method: "GET",
        path: `${events}/instance_view`,
        personScopes: reading,
        handle: (call) => this.#view(platform, call),
      },
      {
        method: "GET",
        path: `${events}/:event_id`,
        personScopes: reading,
        handle: (call) =>
          success({ event: this.#eventView(platform, this.#seen(call), actorOf(call)) }),
      },
      {
        method: "POST",
        path: events,
        personScopes: creating,
        handle: (call) => this.#create(platform, call),
      },
      {
        method: "PATCH",
        path: `${events}/:event_id`,
        personScopes: updating,
        handle: (call) => this.#patch(platform, call),
      },
      {
        method: "DELETE",
        path: `${events}/:event_id`,
        personScopes: ["calendar:calendar.event:delete", "calendar:calendar"],
        handle: (call) => this.#cancel(call),
      },
      {
        method: "POST",
        path: `${events}/:event_id/reply`,
        personScopes: ["calendar:calendar.event:reply", "calendar:calendar"],
        handle: (call) => this.#reply(call),
      },
      {
        method: "POST",
        path: attendees,
        personScopes: updating,
        handle: (call) => this.#invite(platform, call),
      },
      {
        method: "GET",
        path: attendees,
        personScopes: reading,
        handle: (call) => this.#attendees(platform, call),
      },
      {
        method: "POST",
        path: `${attendees}/batch_delete`,
        personScopes: updating,
        handle: (call) => this.#uninvite(call),
      },
      {
        method: "POST",
        path: "/open-apis/calendar/v4/freebusy/list",
        personScopes: [
          "calendar:calendar.free_busy:read",
          "calendar:calendar",
          "calendar:calendar:readonly",
        ],
        handle: (call) => this.#freeBusy(platform, call),
      },
      {
        method: "POST",
        path: "/open-apis/vc/v1/rooms/search",
        personScopes: ["vc:room:readonly", "vc:room"],
        handle: (call) => this.#searchRooms(call),
      },
    ];
  }

  /** The primary calendar of a person or a bot. */
  calendarOf(who: string): string {
    const known = this.calendars.get(who);
    if (known !== undefined) return known;
    const made = `feishu.cn_${randomHex(20)}@group.calendar.feishu.cn`;
    this.calendars.set(who, made);
    return made;
  }

  #kept(
    fields: Pick<SimEvent, "organizer" | "summary" | "start" | "end"> & Partial<SimEvent>,
  ): SimEvent {
    const event: SimEvent = {
      eventId: `${randomHex(32)}_0`,
      calendarId: this.calendarOf(fields.organizer),
      description: "",
      location: "",
      timeZone: "Asia/Shanghai",
      cancelled: false,
      attendees: [],
      createdAt: this.#world.clock.now(),
      ...fields,
    };
    this.events.set(event.eventId, event);
    return event;
  }

  #primary(call: ApiCallContext): JsonObject {
    const who = actorOf(call);
    const calendar = {
      calendar_id: this.calendarOf(who),
      summary: call.person?.name ?? call.app.name,
      type: "primary",
      role: "owner",
    };
    return success({ calendars: [{ calendar, user_id: who }] });
  }

  /** A calendar is open to its owner alone. */
  #ownCalendar(call: ApiCallContext): string {
    const id = call.params.calendar_id ?? "";
    const own = this.calendarOf(actorOf(call));
    if (id !== own && id !== "primary") {
      throw new PlatformError(noRight, "no calendar access_role", { status: 403 });
    }
    return own;
  }

  /** The event that the path names, when it is in the calendar of the caller. */
  #seen(call: ApiCallContext): SimEvent {
    this.#ownCalendar(call);
    const event = this.events.get(call.params.event_id ?? "");
    if (event === undefined || !concerns(event, actorOf(call))) {
      throw new PlatformError(193001, "event not found", { status: 404 });
    }
    if (event.cancelled) throw new PlatformError(193003, "event is deleted", { status: 400 });
    return event;
  }

  /** The event that the call names, when the caller is its organizer. */
  #own(call: ApiCallContext, code = noRight): SimEvent {
    const event = this.#seen(call);
    if (event.organizer !== actorOf(call)) {
      throw new PlatformError(code, "not the organizer", { status: 403 });
    }
    return event;
  }

  #view(platform: Platform, call: ApiCallContext): JsonObject {
    this.#ownCalendar(call);
    const [start, end] = [Number(call.query.get("start_time")), Number(call.query.get("end_time"))];
    if (!(start > 0 && end > start)) {
      throw fieldError("start_time", "must be before end_time, in seconds");
    }
    if (end - start > maxViewSeconds) {
      throw new PlatformError(193103, "the time range exceeds 40 days");
    }
    const who = actorOf(call);
    const found = [...this.events.values()]
      .filter(
        (event) =>
          !event.cancelled && concerns(event, who) && event.start < end && event.end > start,
      )
      .toSorted((left, right) => left.start - right.start);
    return success({ items: found.map((event) => this.#eventView(platform, event, who)) });
  }

  #eventView(platform: Platform, event: SimEvent, who: string): JsonObject {
    this.#decideRooms();
    const time = (at: number, date?: string) =>
      date === undefined
        ? { timestamp: String(at), timezone: event.timeZone }
        : { date, timezone: "UTC" };
    const self = event.attendees.find(({ id }) => id === who);
    return {
      event_id: event.eventId,
      organizer_calendar_id: event.calendarId,
      summary: event.summary,
      description: event.description,
      start_time: time(event.start, event.dates?.start),
      end_time: time(event.end, event.dates?.end),
      location: { name: event.location },
      status: "confirmed",
      app_link: `https://applink.feishu.cn/client/calendar/event/detail?calendarId=${event.calendarId}&key=${event.eventId}`,
      vchat: {
        vc_type: "vc",
        meeting_url: `https://vc.feishu.cn/j/${event.createdAt % 1_000_000_000}`,
      },
      event_organizer: {
        user_id: event.organizer,
        display_name: platform.directory.users.get(event.organizer)?.name ?? "",
      },
      create_time: String(Math.floor(event.createdAt / 1_000)),
      ...(self === undefined ? {} : { self_rsvp_status: self.rsvp }),
    };
  }

  #create(platform: Platform, call: ApiCallContext): JsonObject {
    const calendarId = this.#ownCalendar(call);
    const key = call.query.get("idempotency_key") ?? undefined;
    if (key !== undefined && !/^.{32,128}$/.test(key)) {
      throw fieldError("idempotency_key", "must have 32 to 128 characters");
    }
    const conflict = new PlatformError(190010, "the current operation is in progress");
    return this.#world.once(
      call,
      { api: `event ${calendarId}`, key, windowMs: keyWindowMs, conflict },
      () => {
        const { summary = "", description = "" } = call.body;
        if (typeof summary !== "string" || summary.length > 1_000) {
          throw new PlatformError(190002, "invalid summary");
        }
        const event = this.#kept({
          organizer: actorOf(call),
          summary,
          description: typeof description === "string" ? description : "",
          location: locationOf(call.body.location) ?? "",
          ...timesOf(call.body),
        });
        this.#world.record(call, "event.create", summary);
        this.#announce("created", event);
        return success({ event: this.#eventView(platform, event, actorOf(call)) });
      },
    );
  }

  #patch(platform: Platform, call: ApiCallContext): JsonObject {
    const event = this.#own(call);
    const { summary, description, start_time: start, end_time: end } = call.body;
    if ((start === undefined) !== (end === undefined)) {
      throw new PlatformError(190002, "both times are needed");
    }
    if (typeof summary === "string") event.summary = summary;
    if (typeof description === "string") event.description = description;
    event.location = locationOf(call.body.location) ?? event.location;
    if (start !== undefined) {
      const { dates, ...times } = timesOf(call.body);
      delete event.dates;
      Object.assign(event, times, dates === undefined ? {} : { dates });
      for (const room of event.attendees) if (room.kind === "resource") this.#askRoom(room);
    }
    if (call.body.need_notification !== false) this.#tell("changed", event);
    this.#world.record(call, "event.change", event.summary);
    return success({ event: this.#eventView(platform, event, actorOf(call)) });
  }

  #cancel(call: ApiCallContext): JsonObject {
    const event = this.#own(call);
    event.cancelled = true;
    if (call.query.get("need_notification") !== "false") this.#tell("cancelled", event);
    this.#world.record(call, "event.cancel", event.summary);
    return success({});
  }

  #reply(call: ApiCallContext): JsonObject {
    const event = this.#seen(call);
    const self = event.attendees.find(({ id }) => id === actorOf(call));
    if (self === undefined) throw new PlatformError(noRight, "not invited", { status: 403 });
    const { rsvp_status: rsvp } = call.body;
    if (rsvp !== "accept" && rsvp !== "decline" && rsvp !== "tentative") {
      throw fieldError("rsvp_status", "is invalid");
    }
    self.rsvp = rsvp;
    this.#world.record(call, "event.reply", `${event.summary} ${rsvp}`);
    return success({});
  }

  #invite(platform: Platform, call: ApiCallContext): JsonObject {
    const event = this.#own(call, 194002);
    const given = Array.isArray(call.body.attendees)
      ? call.body.attendees.filter(isJsonObject)
      : [];
    const invited = given.map((one) => this.#newAttendee(platform, call, one));
    for (const attendee of invited) {
      if (event.attendees.some(({ id }) => id === attendee.id)) continue;
      event.attendees.push(attendee);
      this.#world.record(call, "event.invite", `${event.summary} ${attendee.id}`);
      const isTold = attendee.kind === "user" && call.body.need_notification !== false;
      if (isTold) this.notices.push({ kind: "invited", eventId: event.eventId, to: attendee.id });
    }
    return success({ attendees: invited.map((one) => this.#attendeeView(platform, one)) });
  }

  #newAttendee(platform: Platform, call: ApiCallContext, given: JsonObject): Attendee {
    const {
      type,
      user_id: user,
      room_id: roomId,
      is_optional: optional,
      approval_reason: reason,
    } = given;
    if (type === "user" && typeof user === "string") {
      if (!platform.directory.users.has(user)) {
        throw new PlatformError(195100, "the user is dismissed or not existed");
      }
      return {
        ...attendeeOf("user", user, user === actorOf(call) ? "accept" : "needs_action"),
        optional: optional === true,
      };
    }
    const room = typeof roomId === "string" ? this.rooms.get(roomId) : undefined;
    if (type !== "resource" || room === undefined) {
      throw new PlatformError(190002, "invalid attendee");
    }
    if (room.bookers?.includes(actorOf(call)) === false) {
      throw new PlatformError(noRight, "no right to the room", { status: 403 });
    }
    if (room.approval === true && (typeof reason !== "string" || reason === "")) {
      throw new PlatformError(190002, "approval_reason is required");
    }
    const attendee = attendeeOf("resource", room.roomId, "needs_action");
    if (room.approval !== true) this.#askRoom(attendee);
    return attendee;
  }

  #askRoom(attendee: Attendee): void {
    attendee.rsvp = "needs_action";
    attendee.decidedAt = this.#world.clock.now() + this.#roomDelayMs;
  }

  /** Books rooms whose time has come, in the order of the requests: the first one gets the room. */
  #decideRooms(): void {
    const now = this.#world.clock.now();
    const due = [...this.events.values()]
      .flatMap((event) => event.attendees.map((attendee) => ({ event, attendee })))
      .filter(
        ({ event, attendee: { decidedAt } }) =>
          !event.cancelled && decidedAt !== undefined && decidedAt <= now,
      )
      .toSorted((left, right) => (left.attendee.decidedAt ?? 0) - (right.attendee.decidedAt ?? 0));
    for (const { event, attendee } of due) {
      delete attendee.decidedAt;
      const isTaken = this.#bookings(attendee.id).some(
        (other) => other !== event && overlap(other, event),
      );
      attendee.rsvp = isTaken ? "decline" : "accept";
    }
  }

  #bookings(roomId: string): SimEvent[] {
    const booked = ({ id, rsvp }: Attendee): boolean => id === roomId && rsvp === "accept";
    return [...this.events.values()].filter(
      ({ cancelled, attendees }) => !cancelled && attendees.some(booked),
    );
  }

  #uninvite(call: ApiCallContext): JsonObject {
    const event = this.#own(call, 194002);
    const { attendee_ids: given, delete_ids: named } = call.body;
    const ids: readonly unknown[] = Array.isArray(given) ? given : [];
    const others = (Array.isArray(named) ? named.filter(isJsonObject) : []).map(
      ({ user_id, room_id }) => user_id ?? room_id,
    );
    event.attendees = event.attendees.filter(
      ({ attendeeId, id }) => !ids.includes(attendeeId) && !others.includes(id),
    );
    this.#world.record(call, "event.uninvite", event.summary);
    return success({});
  }

  #attendees(platform: Platform, call: ApiCallContext): JsonObject {
    const event = this.#seen(call);
    this.#decideRooms();
    const { items, ...page } = pageOf(event.attendees, call.query, 100);
    return success({ ...page, items: items.map((one) => this.#attendeeView(platform, one)) });
  }

  #attendeeView(
    platform: Platform,
    { attendeeId, kind, id, rsvp, optional }: Attendee,
  ): JsonObject {
    const isRoom = kind === "resource";
    return {
      type: kind,
      attendee_id: attendeeId,
      rsvp_status: rsvp,
      is_optional: optional,
      display_name:
        (isRoom ? this.rooms.get(id)?.name : platform.directory.users.get(id)?.name) ?? "",
      ...(isRoom ? { room_id: id } : { user_id: id }),
    };
  }

  /** One event for each of its people: it names a calendar. */
  #announce(change: string, { eventId, organizer, attendees }: SimEvent): void {
    const people = attendees.flatMap(({ kind, id }) => (kind === "user" ? [id] : []));
    for (const id of new Set([organizer, ...people])) {
      const event = {
        calendar_id: this.calendarOf(id),
        calendar_event_id: eventId,
        change_type: change,
      };
      void this.#subscriptions.announce("calendar.calendar.event.changed_v4", [id], event);
    }
  }

  #tell(kind: "changed" | "cancelled", event: SimEvent): void {
    const { eventId, attendees } = event;
    this.#announce(kind, event);
    for (const { kind: type, id } of attendees) {
      if (type === "user") this.notices.push({ kind, eventId, to: id });
    }
  }

  /** Times only: neither titles nor who else is there. */
  #freeBusy(platform: Platform, call: ApiCallContext): JsonObject {
    const { user_id: user, room_id: room } = call.body;
    const [from, to] = [
      Date.parse(String(call.body.time_min)),
      Date.parse(String(call.body.time_max)),
    ];
    if (!(to > from) || to - from > maxFreeBusyMs) {
      throw new PlatformError(190002, "time_min and time_max are invalid");
    }
    this.#decideRooms();
    const id = typeof user === "string" ? user : room;
    const isPerson = typeof user === "string";
    if (
      typeof id !== "string" ||
      !(isPerson ? platform.directory.users.has(id) : this.rooms.has(id))
    ) {
      throw new PlatformError(190002, "user_id or room_id is invalid");
    }
    if (isPerson && id !== actorOf(call) && this.#hidden.has(id)) {
      throw new PlatformError(noRight, "no free_busy_reader access", { status: 403 });
    }
    const busy = [...this.events.values()].filter(
      (event) =>
        !event.cancelled &&
        occupies(event, id) &&
        event.start * 1_000 < to &&
        event.end * 1_000 > from,
    );
    const list = busy.toSorted((left, right) => left.start - right.start);
    return success({
      freebusy_list: list.map(({ start, end }) => ({
        start_time: isoOf(start),
        end_time: isoOf(end),
      })),
    });
  }

  /** Rooms that the caller may book. */
  #searchRooms(call: ApiCallContext): JsonObject {
    const { keyword } = call.body;
    const words = typeof keyword === "string" ? keyword.toLowerCase() : "";
    const found = [...this.rooms.values()].filter(
      ({ name, bookers }) =>
        name.toLowerCase().includes(words) && bookers?.includes(actorOf(call)) !== false,
    );
    const rooms = found.map(({ roomId, name, capacity }) => ({
      room_id: roomId,
      name,
      capacity,
      room_status: { status: true },
    }));
    return success({ rooms, has_more: false, page_token: "" });
  }
}

function attendeeOf(kind: Attendee["kind"], id: string, rsvp: Rsvp): Attendee {
  return { attendeeId: `${kind}_${randomHex(16)}`, kind, id, rsvp, optional: false };
}

/** Whether the event is in the calendar of this person. */
function concerns({ organizer, attendees }: SimEvent, who: string): boolean {
  return organizer === who || attendees.some(({ kind, id }) => kind === "user" && id === who);
}

function occupies({ organizer, attendees }: SimEvent, id: string): boolean {
  const attendee = attendees.find((one) => one.id === id);
  if (attendee === undefined) return organizer === id;
  return attendee.rsvp === "accept" || (attendee.kind === "user" && attendee.rsvp !== "decline");
}

function overlap(left: SimEvent, right: SimEvent): boolean {
  return left.start < right.end && right.start < left.end;
}

function isoOf(seconds: number): string {
  return new Date(seconds * 1_000).toISOString();
}

function locationOf(location: unknown): string | undefined {
  return isJsonObject(location) && typeof location.name === "string" ? location.name : undefined;
}

/** A time is a `timestamp` or, for whole days, a `date`, never both. */
function timesOf({
  start_time: start,
  end_time: end,
}: JsonObject): Pick<SimEvent, "start" | "end" | "timeZone" | "dates"> {
  const [from, to] = [timeOf(start), timeOf(end)];
  if (!(to.at > from.at) || (from.date === undefined) !== (to.date === undefined)) {
    throw new PlatformError(190002, "the times are invalid");
  }
  const dates =
    from.date === undefined || to.date === undefined
      ? {}
      : { dates: { start: from.date, end: to.date } };
  return { start: from.at, end: to.at, timeZone: from.zone, ...dates };
}

function timeOf(value: unknown): { at: number; zone: string; date?: string } {
  const { timestamp, date, timezone } = isJsonObject(value) ? value : {};
  const zone = typeof timezone === "string" ? timezone : "Asia/Shanghai";
  if ((timestamp === undefined) === (date === undefined)) {
    throw new PlatformError(190002, "either timestamp or date");
  }
  if (typeof date === "string") {
    return { at: Date.parse(`${date}T00:00:00Z`) / 1_000, zone: "UTC", date };
  }
  if (typeof timestamp !== "string" || !/^\d{9,11}$/.test(timestamp)) {
    throw new PlatformError(190002, "timestamp is in seconds");
  }
  return { at: Number(timestamp), zone };
}
