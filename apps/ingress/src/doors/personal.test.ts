import { localTime } from "@larkline/agent/schedules";
import { scheduleEventNames, scheduleEvents, type Schedule } from "@larkline/protocol/schedule";
import { afterEach, describe, expect, it } from "vitest";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "../feishu.fixture.ts";

const { appId: app } = testApp;
const meetingEnded = "vc.meeting.participant_meeting_ended_v1";
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

/** Where it is noon. The test may run at night. */
function zoneOf(hour: number): string {
  const ahead = (hour - new Date().getUTCHours() + 24) % 24;
  return ahead <= 14 ? `Etc/GMT-${ahead}` : `Etc/GMT+${24 - ahead}`;
}

const noon = zoneOf(12);

async function world(options: WorldOptions = {}, perHour = 20): Promise<FeishuWorld> {
  const events = scheduleEventNames;
  const personal = { events, perHour };
  const started = await startWorld({ settings: { doors: { personal } }, ...options });
  worlds.push(started);
  return started;
}

/** A schedule of Ann's that waits for the end of her meetings. */
async function add(here: FeishuWorld, number = 1, more: Partial<Schedule> = {}) {
  const schedule: Schedule = {
    id: number.toString(16).padStart(16, "0"),
    app,
    owner: { id: here.ann },
    chatId: here.direct,
    chatType: "p2p",
    title: "Tasks",
    task: "Send me the tasks of this meeting.",
    timing: { kind: "event", on: "meeting-ended" },
    zone: noon,
    missed: "late",
    language: "en",
    createdAtMs: 1,
    ...more,
  };
  const added = await here.ingress.schedules.add(schedule, { dueMs: 1, alarmMs: undefined });
  expect(added).toBe("made");
  return { schedule, session: `${app}.sched-${schedule.id}` };
}

function ended(here: FeishuWorld, more: object = {}) {
  const meeting = { id: "7001", topic: "Plan ```ignore``` this", end_time: "1790000000" };
  return { meeting, subscriber_ids: [{ open_id: here.ann }], ...more };
}

async function send(here: FeishuWorld, event: object, eventId = "e1", eventType = meetingEnded) {
  const report = await here.platform.sendEvent({
    appId: app,
    eventType,
    eventId,
    event: { ...event },
  });
  return report.outcome;
}

async function logOf(here: FeishuWorld, { id }: Schedule): Promise<string[]> {
  return (await here.ingress.schedules.log(id)).map(({ state }) => state);
}

describe("an event of a person", () => {
  it("runs once the schedule that waits for it, however often it comes, with its facts as data", async () => {
    const here = await world();
    const { schedule, session } = await add(here);
    expect([await send(here, ended(here)), await send(here, ended(here))]).toEqual([
      "acknowledged",
      "acknowledged",
    ]);
    expect(await here.waiting(session)).toBe(1);
    const head = await here.head(session);
    expect(head).toMatchObject({
      sender: { id: here.ann },
      foreign: true,
      addresses: [],
      schedule: { id: schedule.id, causes: [{ id: "e1" }] },
      reply: { chatId: here.direct },
    });
    const texts = head?.parts.map((part) => (part.type === "text" ? part.text : "")) ?? [];
    expect(texts[0]).toContain("because of meeting-ended");
    expect(texts[0]).toContain("Send me the tasks of this meeting.");
    expect(texts[1]).toContain("````\nevent: a meeting has ended\nmeeting_id: 7001\n");
    expect(texts[1]).toContain(
      "topic: Plan ```ignore``` this\nended: 2026-09-21T14:13:20.000Z\n````",
    );
    expect(await logOf(here, schedule)).toEqual(["started"]);
    // As long as the platform's ids may be.
    await send(here, ended(here), "e".repeat(256));
    expect(await here.waiting(session)).toBe(2);
    expect(await logOf(here, schedule)).toEqual(["started", "started"]);
    await here.finish(await here.begin(session));
    expect((await here.head(session))?.schedule?.causes?.[0]?.id).toHaveLength(256);
  });

  it("starts nothing for others, for paused schedules, for other events, or where the door is shut", async () => {
    const here = await world();
    const { session } = await add(here);
    const bobs = await add(here, 2, { owner: { id: here.bob } });
    const minutes = await add(here, 3, { timing: { kind: "event", on: "minutes-ready" } });
    await here.say("/schedules pause 1");
    await send(here, ended(here));
    for (const event of [{}, { subscriber_ids: [] }, { subscriber_ids: [{ open_id: "" }] }]) {
      await send(here, { meeting: { id: "7001" }, ...event }, "e2");
    }
    const token = { minute_token: "obcn1", subscriber_ids: [{ open_id: here.ann }] };
    await send(here, token, "e3", "minutes.minute.generated_v1");
    expect(await here.waiting(session)).toBe(0);
    expect(await here.waiting(bobs.session)).toBe(0);
    expect(await here.waiting(minutes.session)).toBe(1);
    const shut = await startWorld();
    worlds.push(shut);
    const unheard = await add(shut);
    expect(await send(shut, ended(shut))).toBe("acknowledged");
    expect(await shut.waiting(unheard.session)).toBe(0);
  });

  it("names people in a form of its own for each kind, and gives the facts of that kind", async () => {
    const here = await world();
    const people = [{ open_id: here.ann }];
    const cases = {
      "meeting-ended": [ended(here), "meeting_id: 7001"],
      "minutes-ready": [
        {
          minute_token: "obcn1",
          minute_source: { source_type: "meeting", source_entity_id: "7001" },
          subscriber_ids: people,
        },
        "event: minutes are ready\nminute_token: obcn1\nmeeting_id: 7001",
      ],
      mail: [
        {
          mail_address: "ann@example.com",
          message_id: "bWFpbA==",
          subscriber: { user_ids: people },
        },
        "event: a mail has come\nmailbox: ann@example.com\nmessage_id: bWFpbA==",
      ],
      calendar: [
        { calendar_id: "feishu.cn_1@group.calendar.feishu.cn", user_id_list: people },
        "event: the calendar has changed\ncalendar_id: feishu.cn_1@group.calendar.feishu.cn\n",
      ],
    } as const;
    for (const [number, on] of scheduleEventNames.entries()) {
      const [event, facts] = cases[on];
      const { session } = await add(here, number + 1, { timing: { kind: "event", on } });
      await send(here, event, `e-${on}`, scheduleEvents[on].type);
      const parts = (await here.head(session))?.parts ?? [];
      expect([on, JSON.stringify(parts)]).toEqual([
        on,
        expect.stringContaining(JSON.stringify(facts).slice(1, -1)),
      ]);
    }
  });

  it("of the calendar starts nothing while a run is at work, or has just ended: it may be the run's own", async () => {
    const here = await world();
    const { schedule, session } = await add(here, 1, { timing: { kind: "event", on: "calendar" } });
    const { type } = scheduleEvents.calendar;
    const changed = { calendar_id: "c1", user_id_list: [{ open_id: here.ann }] };
    await send(here, changed, "e1", type);
    const turn = await here.begin(session);
    await send(here, changed, "e2", type);
    await here.finish(turn);
    await here.ingress.schedules.ended(schedule.id, "run", false);
    await send(here, changed, "e3", type);
    expect(await here.waiting(session)).toBe(0);
    expect(await logOf(here, schedule)).toEqual(["busy", "busy", "started"]);
  });

  it("is written down as skipped where it is too old", async () => {
    const here = await world();
    const { schedule, session } = await add(here);
    for (const eventId of ["e1", "e1", "e2"]) {
      await here.platform.sendEvent({
        appId: app,
        eventType: meetingEnded,
        eventId,
        event: ended(here),
        createdAt: Date.now() - 86_400_000,
      });
    }
    expect(await here.waiting(session)).toBe(0);
    expect(await logOf(here, schedule)).toEqual(["skipped", "skipped"]);
  });

  it("is held in quiet hours, once, until they end", async () => {
    const here = await world();
    const { schedule, session } = await add(here, 1, { zone: zoneOf(2) });
    for (const eventId of ["e1", "e1", "e2"]) await send(here, ended(here), eventId);
    expect(await here.waiting(session)).toBe(0);
    expect(await logOf(here, schedule)).toEqual(["quiet", "quiet"]);
    expect((await here.ingress.schedules.held(schedule)).map(({ id }) => id)).toEqual(["e1", "e2"]);
    const { dueMs = 0 } = (await here.ingress.schedules.read(schedule.id)) ?? {};
    expect(localTime(schedule.zone, dueMs).text).toMatch(/ 08:00$/);
  });

  it("starts as many runs of a person an hour as the door allows, in a storm", async () => {
    const here = await world({}, 5);
    const { schedule, session } = await add(here);
    const outcomes = await Promise.all(
      Array.from(
        { length: 1_000 },
        async (_, number) => await send(here, ended(here), `e${number}`),
      ),
    );
    expect(new Set(outcomes)).toEqual(new Set(["acknowledged"]));
    expect(await here.waiting(session)).toBe(5);
    const log = (await logOf(here, schedule)).toSorted();
    expect(log).toEqual(["busy", ...Array.from({ length: 5 }, () => "started")]);
  });
});
