import { sessionKeyOf } from "@larkline/agent/messages";
import {
  quietEnd,
  scheduleMessage,
  scheduleRunId,
  scheduleSessionId,
} from "@larkline/agent/schedules";
import type { Envelope } from "@larkline/feishu";
import { parserOf } from "@larkline/protocol";
import {
  scheduleEventNames,
  scheduleEvents,
  type Schedule,
  type ScheduleCause,
  type ScheduleEvent,
  type ScheduleLogEntry,
} from "@larkline/protocol/schedule";
import { Type } from "@larkline/protocol/type";
import type { Bot } from "../bot.ts";
import { servesPerson } from "../messages.ts";
import type { Services } from "../services.ts";
import { wakeSession } from "../sessions.ts";

// Something has happened to people who have subscribed the app to it: the schedules with which they wait for it run, each
// once for an event. The platform names the subscribers; where it names none, nothing starts.

const Id = Type.String({ minLength: 1, maxLength: 128, pattern: "^[\\w-]+$" });
const People = Type.Optional(
  Type.Array(Type.Object({ open_id: Type.Optional(Type.Union([Id, Type.Literal("")])) }), {
    maxItems: 1_000,
  }),
);
/** Ids of mails and calendars have other letters, too. */
const OtherId = Type.String({ minLength: 1, maxLength: 300 });
const Text = Type.Optional(Type.Union([Type.String({ maxLength: 1_000 }), Type.Null()]));

const parseMeeting = parserOf(
  Type.Object({
    meeting: Type.Object({
      id: Id,
      topic: Text,
      meeting_no: Text,
      start_time: Text,
      end_time: Text,
      calendar_event_id: Text,
    }),
    subscriber_ids: People,
  }),
);
const parseMinutes = parserOf(
  Type.Object({
    minute_token: Id,
    minute_source: Type.Optional(
      Type.Union([Type.Object({ source_type: Text, source_entity_id: Text }), Type.Null()]),
    ),
    subscriber_ids: People,
  }),
);

const parseMail = parserOf(
  Type.Object({
    mail_address: Text,
    message_id: OtherId,
    subscriber: Type.Optional(Type.Object({ user_ids: People })),
  }),
);
const parseCalendar = parserOf(
  Type.Object({
    calendar_id: OtherId,
    calendar_event_id: Text,
    change_type: Text,
    user_id_list: People,
  }),
);

/** What has happened, and to whom. */
interface Happened {
  subscribers: readonly { open_id?: string }[] | undefined;
  /** What a model reads of it, by name. */
  facts: Readonly<Record<string, string | null | undefined>>;
}

/** Reads the platform's events; undefined for one that is not of its documented form. */
const readers: Readonly<Record<ScheduleEvent, (event: unknown) => Happened | undefined>> = {
  "meeting-ended": (event) => {
    const parsed = parseMeeting(event);
    if (!parsed.ok) return undefined;
    const { meeting, subscriber_ids: subscribers } = parsed.value;
    const facts = {
      event: "a meeting has ended",
      meeting_id: meeting.id,
      topic: meeting.topic,
      meeting_number: meeting.meeting_no,
      began: timeOf(meeting.start_time),
      ended: timeOf(meeting.end_time),
      calendar_event_id: meeting.calendar_event_id,
    };
    return { subscribers, facts };
  },
  "minutes-ready": (event) => {
    const parsed = parseMinutes(event);
    if (!parsed.ok) return undefined;
    const {
      minute_token: token,
      minute_source: source,
      subscriber_ids: subscribers,
    } = parsed.value;
    const isMeeting = source?.source_type === "meeting";
    const facts = {
      event: "minutes are ready",
      minute_token: token,
      meeting_id: isMeeting ? source.source_entity_id : undefined,
    };
    return { subscribers, facts };
  },
  mail: (event) => {
    const parsed = parseMail(event);
    if (!parsed.ok) return undefined;
    const { mail_address: mailbox, message_id: id, subscriber } = parsed.value;
    const facts = { event: "a mail has come", mailbox, message_id: id };
    return { subscribers: subscriber?.user_ids, facts };
  },
  calendar: (event) => {
    const parsed = parseCalendar(event);
    if (!parsed.ok) return undefined;
    const { calendar_id: id, calendar_event_id: eventId, change_type: change } = parsed.value;
    const facts = {
      event: "the calendar has changed",
      calendar_id: id,
      calendar_event_id: eventId,
      change,
    };
    return { subscribers: parsed.value.user_id_list, facts };
  },
};

/** Seconds since 1970, as the platform writes times, in ISO 8601. */
function timeOf(seconds: string | null | undefined): string | undefined {
  return typeof seconds === "string" && /^\d{9,11}$/.test(seconds)
    ? new Date(Number(seconds) * 1_000).toISOString()
    : undefined;
}

const [maxFactChars, maxFactsChars] = [300, 2_000];

function factsText(facts: Happened["facts"]): string {
  return Object.entries(facts)
    .flatMap(([name, value]) =>
      value ? [`${name}: ${value.replaceAll(/\s+/g, " ").slice(0, maxFactChars)}`] : [],
    )
    .join("\n")
    .slice(0, maxFactsChars);
}

/** People of an event that are looked at side by side: the platform waits for them. */
const atOnce = 50;
const hourMs = 3_600_000;
/** Runs of one schedule that may wait for the one before. */
const maxWaiting = 10;
/** A change of the calendar so soon after a run may be the run's own, ms. */
const ownChangeMs = 60_000;
/** Quiet hours that end sooner hold nothing back: a worker may be about to run what they have held. */
const leastHeldMs = 60_000;
/** What became of an event is known so long, ms: longer than events are redelivered ("Event subscription overview": 7 hours). */
const knownMs = 24 * hourMs;

/** The handler of each event that can be waited for. */
export const personalDoors = scheduleEventNames.map(
  (on) =>
    [
      scheduleEvents[on].type,
      async (services: Services, bot: Bot, envelope: Envelope) =>
        await personalEventCame(services, bot, envelope, on),
    ] as const,
);

async function personalEventCame(
  services: Services,
  bot: Bot,
  envelope: Envelope,
  on: ScheduleEvent,
): Promise<void> {
  const { schedules, settings } = services;
  if (settings.doors.personal?.events.includes(on) !== true) return;
  const happened = readers[on](envelope.event);
  const people = new Set(
    (happened?.subscribers ?? []).flatMap(({ open_id: id = "" }) => (id === "" ? [] : [id])),
  );
  if (happened === undefined || people.size === 0) {
    const { eventId, type: eventType } = envelope;
    bot.log.warn({ eventId, eventType }, "an event that no person can be found in");
    return;
  }
  const cause = { id: envelope.eventId, facts: factsText(happened.facts) };
  const startAll = async (person: string): Promise<void> => {
    const waiting = (await schedules.ofPerson(bot.app, person)).filter(
      ({ state, schedule: { timing } }) =>
        state === "active" && timing.kind === "event" && timing.on === on,
    );
    if (waiting.length === 0 || !(await servesPerson(bot, person, envelope.tenantKey))) return;
    for (const { schedule } of waiting) {
      await startOne(services, bot, { schedule, cause, envelope });
    }
  };
  const all = [...people];
  while (all.length > 0) await Promise.all(all.splice(0, atOnce).map(startAll));
}

interface Start {
  schedule: Schedule;
  cause: ScheduleCause;
  envelope: Envelope;
}

/** Runs a schedule once for an event, holds it until the quiet hours end, or writes down why it does not run. */
async function startOne(services: Services, bot: Bot, start: Start): Promise<void> {
  const { lookups, clock } = services;
  const { schedule, cause, envelope } = start;
  const session = sessionKeyOf(schedule.app, scheduleSessionId(schedule.id));
  const seq = await services.store.seqOf(session, bot.app, scheduleRunId(schedule.id, cause));
  const known = `event:${schedule.id}:${cause.id}`;
  // A run that is known may have a wake-up to repair.
  if (seq === undefined && (await lookups.get(known)) !== undefined) return;
  const state = seq === undefined ? await fate(services, bot, start) : "started";
  if (state === "started") {
    const run = { session, dueMs: envelope.createdAtMs || clock.now(), nowMs: clock.now() };
    const message = scheduleMessage(schedule, { ...run, causes: [cause] });
    const { result, wakeGen } = await services.store.append(message, { maxWaiting });
    await wakeSession(services, bot, session, wakeGen);
    await note(services, start, { known, state: result === "full" ? "busy" : "started" });
    return;
  }
  if (state !== undefined) await note(services, start, { known, state });
}

/**
 * Whether a run of the schedule is at work, or was until just now: what happens to the calendar then may be its own doing,
 * which must not start the next one.
 */
async function mayBeOwn(
  { clock, schedules, store }: Services,
  { id, app, timing }: Schedule,
): Promise<boolean> {
  if (timing.kind !== "event" || timing.on !== "calendar") return false;
  const { state } = await store.summary(sessionKeyOf(app, scheduleSessionId(id)));
  const { endedMs = 0 } = (await schedules.read(id)) ?? {};
  return state !== "idle" || clock.now() - endedMs < ownChangeMs;
}

/** What is to become of an event that is new here. Undefined: nothing, and no line says so. */
async function fate(
  services: Services,
  bot: Bot,
  { schedule, cause, envelope }: Start,
): Promise<ScheduleLogEntry["state"] | undefined> {
  const { clock, governor, lookups, schedules, settings } = services;
  const { createdAtMs } = envelope;
  const nowMs = clock.now();
  if (createdAtMs > 0 && nowMs - createdAtMs > settings.limits.messageAgeMs) return "skipped";
  if (await mayBeOwn(services, schedule)) return "busy";
  const perHour = settings.doors.personal?.perHour ?? 1;
  const runs = `events of ${schedule.owner.id}`;
  // What has been let in once does not count again where its event comes again.
  const letIn = `event-let-in:${schedule.id}:${cause.id}`;
  const isNew = (await lookups.get(letIn)) === undefined;
  if (isNew && (await governor.takeRequest(bot.app, runs, perHour, hourMs)) > 0) {
    // One line an hour: a storm must not push all others out of the log.
    const lines = `events over the limit of ${schedule.id}`;
    return (await governor.takeRequest(bot.app, lines, 1, hourMs)) > 0 ? undefined : "busy";
  }
  if (isNew) await lookups.set(letIn, "yes", knownMs);
  const untilMs = quietEnd(schedule.zone, nowMs);
  if (untilMs === undefined || untilMs - nowMs < leastHeldMs) return "started";
  const held = await schedules.hold(schedule, cause, untilMs);
  if (held === "gone") return undefined;
  return held === "full" ? "busy" : "quiet";
}

/** Writes down once what became of an event. */
async function note(
  { lookups, schedules, clock }: Services,
  { schedule, envelope }: Start,
  { known, state }: { known: string; state: ScheduleLogEntry["state"] },
): Promise<void> {
  if ((await lookups.get(known)) !== undefined) return;
  const atMs = clock.now();
  const dueMs = envelope.createdAtMs || atMs;
  await schedules.note(schedule, { dueMs, count: 1, state, atMs });
  await lookups.set(known, state, knownMs);
}
