import { Type, type Static } from "./type.ts";
import { Sender } from "./session.ts";
import { LocalText } from "./local-text.ts";

/**
 * What a schedule can wait for in place of a time: the platform's event, for which a person has to be subscribed, and
 * what they must have granted for that.
 */
export const scheduleEvents = {
  "meeting-ended": {
    type: "vc.meeting.participant_meeting_ended_v1",
    scopes: ["vc:meeting.meetingevent:read"],
  },
  "minutes-ready": {
    type: "minutes.minute.generated_v1",
    scopes: ["minutes:minutes.basic:read"],
  },
  mail: {
    type: "mail.user_mailbox.event.message_received_v1",
    scopes: ["mail:event"],
  },
  calendar: {
    type: "calendar.calendar.event.changed_v4",
    scopes: ["calendar:calendar:read", "calendar:calendar.event:read"],
  },
} as const satisfies Record<string, { type: string; scopes: readonly string[] }>;
export type ScheduleEvent = keyof typeof scheduleEvents;
export const scheduleEventNames = Object.keys(scheduleEvents) as ScheduleEvent[]; // its own keys

/**
 * When a schedule is due: once, in equal steps, as five cron fields say in the schedule's zone, or whenever an event
 * comes that is for its owner.
 */
export const ScheduleTiming = Type.Union([
  Type.Object({ kind: Type.Literal("once"), atMs: Type.Integer() }),
  Type.Object({
    kind: Type.Literal("every"),
    everyMs: Type.Integer({ minimum: 1 }),
    fromMs: Type.Integer(),
  }),
  Type.Object({ kind: Type.Literal("cron"), cron: Type.String({ minLength: 1, maxLength: 100 }) }),
  Type.Object({ kind: Type.Literal("event"), on: Type.Enum(scheduleEventNames) }),
]);
export type ScheduleTiming = Static<typeof ScheduleTiming>;

/**
 * What becomes of instants at which no worker lived. `skip`: they are logged; `late`: the last one runs if it is not too
 * late; `all`: the last five run.
 */
const missedPolicies = ["skip", "late", "all"] as const;

/** Calls that the runs of a schedule make without asking its person, who has agreed to them on a card. */
export const StandingApproval = Type.Object({
  tool: Type.String({ minLength: 1, maxLength: 64 }),
  /** How people have read the tool's name. */
  title: Type.Optional(LocalText),
  /** The call's own; the text `*` stands for any value, and within a text for other words of one line. */
  arguments: Type.Record(Type.String(), Type.Unknown()),
  /** Stands for the tool as it was then: a changed one is asked about again. */
  definition: Type.String({ minLength: 1, maxLength: 64 }),
  expiresAtMs: Type.Integer(),
});
export type StandingApproval = Static<typeof StandingApproval>;

/** Something that an agent does for a person at its time, in a chat that was fixed when the person confirmed it. */
export const Schedule = Type.Object({
  id: Type.String({ pattern: "^[0-9a-f]{16}$" }),
  app: Type.String({ minLength: 1 }),
  tenant: Type.Optional(Type.String()),
  /** It always runs as this person. */
  owner: Sender,
  chatId: Type.String({ minLength: 1 }),
  /** `api`: it is a client's of the HTTP API, whose name `chatId` is, too. */
  chatType: Type.Enum(["p2p", "group", "api"]),
  /** A message of the thread that it answers in. */
  threadMessageId: Type.Optional(Type.String()),
  title: Type.String({ minLength: 1, maxLength: 100 }),
  /** What the agent reads when it is due. */
  task: Type.String({ minLength: 1, maxLength: 1_000 }),
  timing: ScheduleTiming,
  /** IANA name. */
  zone: Type.String({ minLength: 1, maxLength: 64 }),
  missed: Type.Enum([...missedPolicies]),
  allowed: Type.Optional(Type.Array(StandingApproval, { maxItems: 5 })),
  /** Absent: the default agent. */
  agent: Type.Optional(Type.String()),
  language: Type.Enum(["zh", "en"]),
  createdAtMs: Type.Integer(),
});
export type Schedule = Static<typeof Schedule>;

/** An event that a schedule has waited for: its id, and what the platform says of it, in words of others. */
export const ScheduleCause = Type.Object({
  id: Type.String({ minLength: 1, maxLength: 256 }),
  facts: Type.String({ maxLength: 2_000 }),
});
export type ScheduleCause = Static<typeof ScheduleCause>;

/** On a message that a schedule has written: which one, and the instant at which it was due, or its event came. */
export const ScheduleRun = Type.Object({
  id: Type.String(),
  dueMs: Type.Integer(),
  causes: Type.Optional(Type.Array(ScheduleCause, { maxItems: 20 })),
});
export type ScheduleRun = Static<typeof ScheduleRun>;

/** Where the time zone is kept that the platform has named for a person. */
export function personZoneKey(app: string, openId: string): string {
  return `zone:${app}:${openId}`;
}

/** What became of an instant at which a schedule was due, or of an event; `busy`: too many runs of it wait, or were made. */
const scheduleRunStates = ["started", "late", "skipped", "quiet", "busy"] as const;

/** A line of a schedule's log. Several instants that were missed in a row are one line. */
export const ScheduleLogEntry = Type.Object({
  dueMs: Type.Integer(),
  /** Of the last one, where the line is about several. */
  untilMs: Type.Optional(Type.Integer()),
  count: Type.Integer({ minimum: 1 }),
  state: Type.Enum([...scheduleRunStates]),
  atMs: Type.Integer(),
});
export type ScheduleLogEntry = Static<typeof ScheduleLogEntry>;
