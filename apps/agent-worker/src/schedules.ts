import { LRUCache } from "lru-cache";
import { noticeText } from "@larkline/agent";
import { isTimeZone } from "@larkline/agent/budgets";
import { sessionKeyOf } from "@larkline/agent/messages";
import {
  alarmOf,
  digestMessage,
  dueWork,
  isHeld,
  localTime,
  offsetText,
  scheduleMessage,
  scheduleRunId,
  scheduleSessionId,
  type DueWork,
  type SchedulesClient,
} from "@larkline/agent/schedules";
import type { ControlEntry, InboundMessage } from "@larkline/protocol";
import { personZoneKey, type Schedule, type ScheduleLogEntry } from "@larkline/protocol/schedule";
import type { DeliveryWatch } from "@larkline/feishu";
import type { DueSchedule, StoredSchedule } from "@larkline/store";
import { noticePerson } from "./person-notices.ts";
import type { Services } from "./services.ts";

// What is due is written into its session as a message of the schedule's owner: append, then wake, then settle. A worker
// that dies in between leaves the claim to the next one, whose append is a duplicate.

/** Schedules that one sweep claims. */
const portion = 200;
/** Other workers may look after a claimed schedule after so long, ms. */
const leaseMs = 30_000;
/** Within this time the ids of messages are known, and none is written twice, ms. */
const rememberedMs = 23 * 3_600_000;
/** Runs of one schedule that may wait for the one before; further ones are skipped. */
const maxWaiting = 2;
/** More than can wait, with those that people have asked for. */
const maxWritten = 20;
/** Runs that fail one after the other before a schedule is paused. */
const maxFailures = 5;

/** Runs what is due. Every worker may call it at any time. */
export async function sweepSchedules(services: Services): Promise<void> {
  const { nowMs, due, unreadable } = await services.schedules.claimDue(portion, leaseMs);
  for (const id of unreadable) await setAside(services, id, "its row is no schedule");
  const ended = await Promise.allSettled(
    byDigest(due, nowMs).map(async ([first, ...others]) => {
      if (others.length === 0 && !mayBeHeld(first, nowMs)) await runDue(services, first, nowMs);
      else await runHeld(services, [first, ...others], nowMs);
    }),
  );
  for (const end of ended) {
    if (end.status === "rejected") services.log.warn({ error: end.reason }, "schedule not run");
  }
}

/** Pauses and logs a schedule that can never run; otherwise its alarm would ring again and again. */
async function setAside(services: Services, id: string, error: unknown): Promise<void> {
  if (await services.schedules.setAside(id)) {
    services.log.error({ id, error }, "a schedule cannot be read: it is paused");
  }
}

type DueSchedules = [DueSchedule, ...DueSchedule[]];

/**
 * Groups the schedules that quiet hours have held for one person, chat and agent; all others stay alone.
 */
function byDigest(due: readonly DueSchedule[], nowMs: number): DueSchedules[] {
  const groups = new Map<string, DueSchedules>();
  for (const one of due) {
    const key = mayBeHeld(one, nowMs) ? digestKey(one) : one.schedule.id;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return [...groups.values()];
}

/** What schedules that run together have in common. */
function digestKey({ schedule, dueMs }: Pick<DueSchedule, "schedule" | "dueMs">): string {
  const { app, owner, chatId, threadMessageId = "", agent = "", zone } = schedule;
  return JSON.stringify([app, owner.id, chatId, threadMessageId, agent, zone, dueMs]);
}

function mayBeHeld(due: DueSchedule, nowMs: number): boolean {
  return nowMs - due.claimedMs < rememberedMs && isHeldWithOthers(due);
}

/** A schedule with standing approvals runs alone, because they hold for it only; a client of the HTTP API reads each run by itself. */
function isHeldWithOthers({ schedule, dueMs }: Pick<DueSchedule, "schedule" | "dueMs">): boolean {
  const { chatType, allowed } = schedule;
  if (chatType === "api" || allowed !== undefined) return false;
  try {
    return isHeld(schedule, dueMs);
  } catch {
    return false; // a time zone that this version of Node does not know: it is set aside by itself
  }
}

/**
 * Runs as one what quiet hours have held. Who runs together is written down before the run, so that another worker, which
 * follows a dead one or has claimed some of them, writes the same message again, which the session takes once.
 */
async function runHeld(services: Services, due: DueSchedules, nowMs: number): Promise<void> {
  const { lookups, schedules } = services;
  const [{ schedule, dueMs }] = due;
  // Before the marks: what another worker has settled since is not found here, but its marks are found then.
  const own = await schedules.ofPerson(schedule.app, schedule.owner.id);
  const key = digestKey({ schedule, dueMs });
  const held = own.filter(
    (one) => one.state === "active" && digestKey(one) === key && isHeldWithOthers(one),
  );
  const ids = [...new Set([...held, ...due].map((one) => one.schedule.id))].toSorted();
  const markOf = (id: string): string => `digest:${id}:${dueMs}`;
  const marks = await Promise.all(ids.map(async (id) => await lookups.get(markOf(id))));
  const known = new Map(ids.map((id, at) => [id, marks[at]]));
  const fresh = ids.filter((id) => known.get(id) === undefined);
  const together = fresh.length > 1 ? fresh.join(" ") : "";
  if (together !== "") {
    await Promise.all(
      fresh.map(async (id) => await lookups.set(markOf(id), together, rememberedMs)),
    );
  }
  for (const [listed, members] of Map.groupBy(
    due,
    (one) => known.get(one.schedule.id) ?? together,
  )) {
    const read = await Promise.all(
      listed.split(" ").map(async (id) => (id === "" ? undefined : await schedules.read(id))),
    );
    const [first, ...others] = read.flatMap((one) => (one === undefined ? [] : [one.schedule]));
    if (first === undefined) for (const one of members) await runDue(services, one, nowMs);
    else await runTogether(services, members, { all: [first, ...others], nowMs });
  }
}

/** Writes the one run of `all`, and settles those of them that are `due`. */
async function runTogether(
  services: Services,
  due: readonly DueSchedule[],
  { all, nowMs }: { all: [Schedule, ...Schedule[]]; nowMs: number },
): Promise<void> {
  const [first] = all;
  const dueMs = due[0]?.dueMs ?? nowMs;
  const decided = due.map((one) => ({
    one,
    work: dueWork(one.schedule, one.dueMs, one.claimedMs),
  }));
  const isRun = decided.some(({ work }) => work.runs.includes(dueMs));
  const session = sessionKeyOf(first.app, scheduleSessionId(first.id));
  const message = digestMessage(all, { session, dueMs, nowMs });
  const isTaken = !isRun || (await appendMessage(services, first, { message, dueMs, nowMs }));
  await Promise.all(
    decided.map(
      async ({ one, work }) => await settleDue(services, one, work, isTaken ? [] : work.runs),
    ),
  );
}

/** Runs, as one, the events that quiet hours have held for a schedule. */
async function runHeldEvents(
  services: Services,
  { schedule, dueMs, generation }: DueSchedule,
  nowMs: number,
): Promise<void> {
  const { schedules } = services;
  const causes = await schedules.held(schedule);
  const session = sessionKeyOf(schedule.app, scheduleSessionId(schedule.id));
  const message = scheduleMessage(schedule, { session, dueMs, nowMs, causes, isHeld: true });
  const isTaken =
    causes.length === 0 || (await appendMessage(services, schedule, { message, dueMs, nowMs }));
  const state = isTaken ? "started" : "busy";
  const line = { dueMs, count: causes.length, state, atMs: nowMs } as const;
  await schedules.settle(
    { schedule, dueMs, generation },
    causes,
    causes.length === 0 ? [] : [line],
  );
}

async function runDue(services: Services, due: DueSchedule, nowMs: number): Promise<void> {
  const { schedule } = due;
  if (schedule.timing.kind === "event") return await runHeldEvents(services, due, nowMs);
  let first: DueWork;
  try {
    // As the first worker that claimed this instant has decided it: it may have died after a run was written.
    first = dueWork(schedule, due.dueMs, due.claimedMs);
  } catch (error) {
    // Such as a time zone that this version of Node does not know any more.
    return await setAside(services, schedule.id, error);
  }
  // If that is so long ago that the store has forgotten the run's id, no worker has lived since, and the run still waits.
  const isOld = nowMs - due.claimedMs >= rememberedMs;
  const written = isOld ? await waitingRuns(services, schedule) : new Set<string>();
  const isWritten = (dueMs: number): boolean => written.has(scheduleRunId(schedule.id, dueMs));
  const work = isOld && !first.runs.some(isWritten) ? dueWork(schedule, due.dueMs, nowMs) : first;
  const busy: number[] = [];
  for (const dueMs of work.runs) {
    if (isWritten(dueMs)) continue;
    if (!(await appendRun(services, schedule, { dueMs, nowMs }))) busy.push(dueMs);
  }
  await settleDue(services, due, work, busy);
}

/** `busy`: instants whose run was not written, because too many wait. */
async function settleDue(
  { schedules }: Services,
  due: DueSchedule,
  work: DueWork,
  busy: readonly number[],
): Promise<void> {
  const log = work.log.map((line): ScheduleLogEntry =>
    busy.includes(line.dueMs) ? { ...line, state: "busy" } : line,
  );
  const { nextMs } = work;
  const next =
    nextMs === undefined ? undefined : { dueMs: nextMs, alarmMs: alarmOf(due.schedule, nextMs) };
  await schedules.settle(due, next, log);
}

/** The ids of the runs of a schedule that are written and not answered. */
async function waitingRuns({ store }: Services, { app, id }: Schedule): Promise<Set<string>> {
  const waiting = await store.waiting(sessionKeyOf(app, scheduleSessionId(id)), maxWritten);
  return new Set(waiting.map(({ message }) => message.id));
}

/** False where too many runs of the schedule wait already. */
async function appendRun(
  services: Services,
  schedule: Schedule,
  { dueMs, nowMs }: { dueMs: number; nowMs: number },
): Promise<boolean> {
  const session = sessionKeyOf(schedule.app, scheduleSessionId(schedule.id));
  const message = scheduleMessage(schedule, { session, dueMs, nowMs });
  return await appendMessage(services, schedule, { message, dueMs, nowMs });
}

async function appendMessage(
  services: Services,
  schedule: Schedule,
  { message, ...times }: { message: InboundMessage; dueMs: number; nowMs: number },
): Promise<boolean> {
  const { store, turns } = services;
  const { result, ahead, wakeGen } = await store.append(message, { maxWaiting });
  if (wakeGen !== undefined) await turns.wake(message.session, wakeGen);
  if (result === "full" || ahead > 0) await noteWaiting(services, schedule, times);
  return result !== "full";
}

/** The schedules of this deployment, for the ability. */
export function schedulesClient(services: Services): SchedulesClient {
  const { clock, schedules } = services;
  return {
    now: () => clock.now(),
    toolOf: (name) => services.toolCatalog.announced(name),
    zoneOf: async (message) => (await zoneOf(services, message)).name,
    add: async (schedule, next) => await schedules.add(schedule, next),
    ofPerson: async (app, person) => await schedules.ofPerson(app, person),
    change: async (of, to) => await schedules.change(of, to),
    remove: async (schedule) => await schedules.remove(schedule),
    runNow: async (schedule) => {
      const nowMs = clock.now();
      await appendRun(services, schedule, { dueMs: nowMs, nowMs });
    },
  };
}

/** A person's time zone. */
export interface PersonZone {
  name: string;
  /** The platform has said it; otherwise it is that of the configuration. */
  isKnown: boolean;
}

/** The time zone of a message's person: what the platform has said of them, else that of the configuration. Never rejects. */
export async function zoneOf(
  { lookups, settings, log }: Services,
  { app, sender, reply }: Pick<InboundMessage, "app" | "sender" | "reply">,
): Promise<PersonZone> {
  const usual = { name: settings.budgets.timeZone, isKnown: false };
  if (reply.channel === "none") return usual;
  try {
    const known = await lookups.get(personZoneKey(app, sender.id));
    return known !== undefined && isTimeZone(known) ? { name: known, isKnown: true } : usual;
  } catch (error) {
    log.warn({ error }, "the time zone of a person was not read");
    return usual;
  }
}

/** Zones keep their offsets, and hours begin, by the quarter of an hour. */
const quarterMs = 900_000;
const timeNotes = new LRUCache<string, string>({ max: 100 });

/** What a model reads of the person's time. By the hour, so that vendors can keep the conversation in their caches. */
export function timeNote(zone: PersonZone, nowMs: number): string {
  const key = `${zone.name} ${zone.isKnown} ${Math.floor(nowMs / quarterMs)}`;
  const note = timeNotes.get(key) ?? timeNoteAt(zone, nowMs);
  timeNotes.set(key, note);
  return note;
}

function timeNoteAt({ name, isKnown }: PersonZone, nowMs: number): string {
  const { text, weekday } = localTime(name, nowMs);
  const hour = `${text.slice(0, -2)}00`;
  const source = isKnown
    ? ""
    : "; it is that of the deployment: ask where it matters and the person may be elsewhere";
  return `The person's local time is ${weekday} ${hour} or later in this hour, UTC${offsetText(name, nowMs)} (${name}${source}).`;
}

/** A turn has ended. A schedule whose runs fail again and again is paused. Never throws, and waits for nothing. */
export function noteScheduleEnd(
  services: Services,
  { schedule, id }: InboundMessage,
  { committed, failed }: { committed: boolean; failed: boolean },
): void {
  if (schedule === undefined || !committed) return;
  const note = async (): Promise<void> => {
    const failures = await services.schedules.ended(schedule.id, id, failed);
    if (failures >= maxFailures) await pauseSchedule(services, schedule.id, "scheduleFailed");
  };
  note().catch((error: unknown) =>
    services.log.warn({ error }, "the end of a schedule's run was not noted"),
  );
}

/** Runs, one after the other, in which people did not answer, before a schedule is paused. */
const maxMissed = 3;

/**
 * What people were asked by a turn is settled. A schedule whose questions are not answered run after run is paused: an
 * approval that expires, or a consent that is not given. Rejects when the store does.
 */
export async function noteUnanswered(
  services: Services,
  { schedule, id }: InboundMessage,
  entries: readonly ControlEntry[],
): Promise<void> {
  const isUnanswered = entries.some(
    (entry) =>
      entry.type === "decision" && (entry.state === "expired" || entry.state === "undeliverable"),
  );
  if (schedule !== undefined && isUnanswered) await noteMissed(services, schedule.id, id);
}

async function noteMissed(services: Services, id: string, run: string): Promise<void> {
  const missed = await services.schedules.missed(id, run);
  if (missed >= maxMissed) await pauseSchedule(services, id, "scheduleUnanswered");
}

/** A question of an earlier run that is open for so long has been missed at a further due time, ms. */
const unansweredMs = 12 * 3_600_000;

/** A run waits behind another one: perhaps for people who do not answer. */
async function noteWaiting(
  services: Services,
  schedule: Schedule,
  { dueMs, nowMs }: { dueMs: number; nowMs: number },
): Promise<void> {
  const session = sessionKeyOf(schedule.app, scheduleSessionId(schedule.id));
  const asked = await services.approvals.pending(session);
  const isUnanswered = asked.some(
    ({ approval: { kind, createdAtMs } }) => kind !== "rule" && nowMs - createdAtMs >= unansweredMs,
  );
  if (isUnanswered) {
    await noteMissed(services, schedule.id, `behind-${scheduleRunId(schedule.id, dueMs)}`);
  }
}

/**
 * Watches deliveries as before, and pauses a schedule whose answer the platform has refused for good, such as where the
 * bot has left the chat.
 */
export function watchSchedules(
  deliveries: DeliveryWatch,
  servicesOf: () => Services,
): DeliveryWatch {
  return (record) => {
    const ended = deliveries(record);
    const id = /\.sched-([0-9a-f]{16})$/.exec(record.session)?.[1];
    if (id === undefined) return ended;
    return (result) => {
      ended(result);
      if (result.state !== "given_up") return;
      const services = servicesOf();
      pauseSchedule(services, id, "scheduleUnreachable").catch((error: unknown) =>
        services.log.warn({ error }, "a schedule was not paused"),
      );
    };
  };
}

/** Pauses a schedule, and tells its owner once, where they talk to the bot alone. */
async function pauseSchedule(
  services: Services,
  id: string,
  why: "scheduleFailed" | "scheduleUnreachable" | "scheduleUnanswered",
): Promise<void> {
  const { schedules } = services;
  const found = await schedules.read(id);
  if (found === undefined || found.state !== "active") return;
  const { schedule, dueMs } = found;
  const isOurs = await schedules.change(found, { state: "paused", why, dueMs, alarmMs: dueMs });
  // A client of the HTTP API reads it where it lists its schedules.
  if (isOurs && schedule.chatType !== "api") {
    await tellOwner(services, found, noticeText(why, schedule.language, { title: schedule.title }));
  }
}

async function tellOwner(
  services: Services,
  { schedule: { id, app, owner }, generation }: StoredSchedule,
  text: string,
): Promise<void> {
  const key = `schedule-${id}-${generation}`;
  const conversation = scheduleSessionId(id);
  await noticePerson(services, { app, to: owner.id, key, conversation, text });
}
