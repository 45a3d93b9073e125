import { noticeText } from "@larkline/agent";
import { isTimeZone } from "@larkline/agent/budgets";
import { sessionKeyOf } from "@larkline/agent/messages";
import {
  changedSchedule,
  scheduleMessage,
  scheduleSessionId,
  schedulesDone,
  schedulesList,
  schedulesOrder,
  schedulesText,
  type ScheduleAct,
} from "@larkline/agent/schedules";
import type { Envelope } from "@larkline/feishu";
import { listCard } from "@larkline/feishu/cards";
import { chatOf, parserOf } from "@larkline/protocol";
import { personZoneKey, type Schedule } from "@larkline/protocol/schedule";
import { Type } from "@larkline/protocol/type";
import type { StoredSchedule } from "@larkline/store";
import { sendNotice, type Bot } from "./bot.ts";
import type { Channel, Services } from "./services.ts";
import type { Ordered } from "./sessions.ts";

// Schedules as people see them in chats: the command, the buttons, and what events of the platform do to them.

/** Longer than messages are redelivered ("Event subscription overview": 7 hours). */
const orderKeptMs = 24 * 3_600_000;

/** An answer, and the card that is sent in its place where there are cards. */
export interface Shown {
  text: string;
  card?: Record<string, unknown>;
}

/** `/schedules`: those of the person, and changing them. In a group, where others read along, those of the group. */
export async function obeySchedules(
  services: Services,
  { app }: Channel,
  argument: string,
  { message, language }: Ordered,
): Promise<Shown> {
  const chat = message.chatType === "group" ? chatOf(message) : "";
  const listed = await listedOf(services, { app, person: message.sender.id, chat });
  const order = schedulesOrder(argument);
  if (order.do === "list") {
    const events = await services.subscriptions.ofPerson({ app, openId: message.sender.id });
    const text = schedulesText(listed, language, events);
    if (listed.length === 0 || message.chatType === "api") return { text };
    const list = schedulesList(listed, language, { more: { list: "1", chat }, events });
    return { text, card: listCard({ language, bilingual: false }, () => list) };
  }
  // Numbers change when schedules are removed, so a redelivered order must not change another one.
  const key = `schedule:${app}:${message.id}`;
  if ((await services.lookups.get(key)) !== undefined) {
    return { text: schedulesDone(order.do, language) };
  }
  const meant = listed[order.which - 1];
  if (meant === undefined) return { text: schedulesDone("none", language) };
  const done = await actOn(services, meant, order.do);
  if (done === order.do) await services.lookups.set(key, meant.schedule.id, orderKeptMs);
  return { text: schedulesDone(done, language) };
}

/** `chat`: only those of this chat; empty: all. */
async function listedOf(
  { schedules }: Services,
  { app, person, chat }: { app: string; person: string; chat: string },
): Promise<StoredSchedule[]> {
  const own = await schedules.ofPerson(app, person);
  return chat === "" ? own : own.filter(({ schedule }) => schedule.chatId === chat);
}

/** Does what a person wants done with a schedule of theirs, or says why it was not done. */
export async function actOn(
  services: Services,
  meant: StoredSchedule,
  act: ScheduleAct,
): Promise<ScheduleAct | "none" | "past" | "changed" | "busy"> {
  const { schedules, clock } = services;
  const { schedule } = meant;
  if (act === "delete") return (await schedules.remove(schedule)) ? act : "none";
  if (act === "run") return (await runNow(services, schedule)) === undefined ? "busy" : act;
  const nowMs = clock.now();
  const state = act === "pause" ? "paused" : "active";
  const next = changedSchedule(meant, { state }, { nowMs, fromMs: nowMs });
  if ("problem" in next) return "past";
  return (await schedules.change({ ...meant, schedule: next.schedule }, next)) ? act : "changed";
}

/** Runs of a schedule that may wait for the one before. */
const maxWaiting = 2;

/** A run outside its times. Undefined where too many wait already; otherwise the number of its message. */
export async function runNow(services: Services, schedule: Schedule): Promise<number | undefined> {
  const { store, clock, turns } = services;
  const nowMs = clock.now();
  const session = sessionKeyOf(schedule.app, scheduleSessionId(schedule.id));
  const message = scheduleMessage(schedule, { session, dueMs: nowMs, nowMs });
  const { result, seq, wakeGen } = await store.append(message, { maxWaiting });
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
  return result === "accepted" || result === "duplicate" ? seq : undefined;
}

const parseClick = parserOf(
  Type.Object({
    schedule: Type.String({ pattern: "^[0-9a-f]{16}$" }),
    do: Type.Enum(["run", "pause", "resume", "delete"]),
    /** The button stands on the card of `/schedules`, which is drawn anew. */
    list: Type.Optional(Type.Literal("1")),
    chat: Type.Optional(Type.String({ maxLength: 128 })),
  }),
);

/** What a click on the button of a schedule came to. */
export interface ScheduleClicked {
  done: Parameters<typeof schedulesDone>[0];
  card?: Record<string, unknown>;
}

/** A button of a schedule, below an answer or on the card of `/schedules`. Undefined: it is none of ours. */
export async function scheduleClicked(
  services: Services,
  { app }: Bot,
  { value, by }: { value: unknown; by: string },
): Promise<ScheduleClicked | undefined> {
  const parsed = parseClick(value);
  if (!parsed.ok) return undefined;
  const { schedule: id, do: act, list, chat = "" } = parsed.value;
  const found = await services.schedules.read(id);
  if (found === undefined || found.schedule.app !== app || found.state === "done") {
    return { done: "none" };
  }
  const { owner, language } = found.schedule;
  if (owner.id !== by) return { done: "notYours" };
  const done = await actOn(services, found, act);
  if (list === undefined) return { done };
  const left = await listedOf(services, { app, person: by, chat });
  const events = await services.subscriptions.ofPerson({ app, openId: by });
  const card = listCard({ language, bilingual: false }, () =>
    schedulesList(left, language, { more: { list: "1", chat }, events }),
  );
  return { done, card };
}

/** What the platform has said of a person or chat, that ends what is done for them until they say so. */
export interface SchedulesEnd {
  why: "schedulesLeft" | "schedulesRevoked" | "schedulesBotGone";
  /** The owner of the schedules, or the chat that they answer in. */
  of: { person: string } | { chat: string };
}

/**
 * Pauses schedules, and sends one message: to their owner, or where that person has left, to each group that they ran
 * in. First sent, then paused, each once: an event that comes again completes it. Schedules that are younger than the
 * event stay.
 */
export async function endSchedules(
  services: Services,
  bot: Bot,
  { eventId, createdAtMs }: Pick<Envelope, "eventId" | "createdAtMs">,
  { why, of }: SchedulesEnd,
): Promise<void> {
  const { schedules, lookups } = services;
  const key = `schedules-ended:${bot.app}:${eventId}`;
  const found =
    "person" in of
      ? await schedules.ofPerson(bot.app, of.person)
      : await schedules.ofChat(bot.app, of.chat);
  const ending = found.filter(
    ({ state, schedule }) =>
      state === "active" && (createdAtMs === 0 || schedule.createdAtMs <= createdAtMs),
  );
  if (ending.length === 0 || (await lookups.get(key)) !== undefined) return;
  for (const [chatId, theirs] of recipients(ending, why)) {
    await tell(services, bot, { key: `${eventId}-${chatId}`, chatId, of: theirs, why });
  }
  const ends = await Promise.all(
    ending.map(async ({ dueMs, ...one }) => {
      return await schedules.change(one, { state: "paused", why, dueMs, alarmMs: dueMs });
    }),
  );
  if (ends.includes(false)) throw new Error("a schedule has changed while it was to be paused");
  await lookups.set(key, "yes", orderKeptMs);
}

/** Whom to tell of which schedules; of those that a person had for themselves alone there is no one to tell. */
function recipients(
  ending: readonly StoredSchedule[],
  why: SchedulesEnd["why"],
): Map<string, StoredSchedule[]> {
  const hasLeft = why === "schedulesLeft";
  const told = hasLeft ? ending.filter(({ schedule }) => schedule.chatType === "group") : ending;
  return Map.groupBy(told, ({ schedule }) => (hasLeft ? schedule.chatId : schedule.owner.id));
}

async function tell(
  services: Services,
  bot: Bot,
  told: {
    key: string;
    chatId: string;
    of: readonly StoredSchedule[];
    why: SchedulesEnd["why"] | "schedulesZone";
    values?: Record<string, string>;
  },
): Promise<void> {
  const { app } = bot;
  const [first] = told.of;
  if (first === undefined) return;
  const { id, language } = first.schedule;
  const titles = told.of
    .map(({ schedule }) => (language === "zh" ? `「${schedule.title}」` : `“${schedule.title}”`))
    .join(language === "zh" ? "" : ", ");
  await sendNotice(services, bot, {
    purpose: "notice",
    key: `schedules-${told.key}`,
    // Apart from conversations: an unsent message there would hold them up.
    session: sessionKeyOf(app, `${scheduleSessionId(id)}-notices`),
    target: { app, chatId: told.chatId, messageId: "", inThread: false },
    text: noticeText(told.why, language, { ...told.values, titles }),
  });
}

const parseZone = parserOf(
  Type.Object({ action: Type.Object({ timezone: Type.String({ minLength: 1, maxLength: 64 }) }) }),
);
const zoneKeptMs = 90 * 86_400_000;

/**
 * Keeps the time zone that the callbacks of some components carry ("Card callback"). Schedules stay in the zone in which
 * they were made: their owner reads once that they do. Waits for nothing; never throws.
 */
export function noteZone(services: Services, bot: Bot, { event, eventId }: Envelope, by: string) {
  const parsed = parseZone(event);
  if (!parsed.ok || !isTimeZone(parsed.value.action.timezone)) return;
  const { timezone: zone } = parsed.value.action;
  bot.background.run("time zone", async () => {
    const { lookups, schedules, settings } = services;
    const key = personZoneKey(bot.app, by);
    const before = (await lookups.get(key)) ?? settings.budgets.timeZone;
    await lookups.set(key, zone, zoneKeptMs);
    if (before === zone) return;
    const left = (await schedules.ofPerson(bot.app, by)).filter(
      ({ state, schedule }) =>
        state === "active" && schedule.zone === before && schedule.timing.kind === "cron",
    );
    const why = "schedulesZone";
    await tell(services, bot, {
      key: eventId,
      chatId: by,
      of: left,
      why,
      values: { zone, before },
    });
  });
}
