import { Type, type Static } from "./type.ts";
import { Sender } from "./session.ts";
import { LocalText } from "./local-text.ts";

/** When a schedule is due: once, in equal steps, or as five cron fields say in the schedule's zone. */
export const ScheduleTiming = Type.Union([
  Type.Object({ kind: Type.Literal("once"), atMs: Type.Integer() }),
  Type.Object({
    kind: Type.Literal("every"),
    everyMs: Type.Integer({ minimum: 1 }),
    fromMs: Type.Integer(),
  }),
  Type.Object({ kind: Type.Literal("cron"), cron: Type.String({ minLength: 1, maxLength: 100 }) }),
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

/** On a message that a schedule has written: which one, and the instant at which it was due. */
export const ScheduleRun = Type.Object({ id: Type.String(), dueMs: Type.Integer() });
export type ScheduleRun = Static<typeof ScheduleRun>;

/** Where the time zone is kept that the platform has named for a person. */
export function personZoneKey(app: string, openId: string): string {
  return `zone:${app}:${openId}`;
}

/** What became of an instant at which a schedule was due. */
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
