import { textIn, type InboundMessage } from "@larkline/protocol";
import { scheduleEvents, type Schedule } from "@larkline/protocol/schedule";
import { builtInRunner } from "@larkline/protocol/tool";
import type { CallState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import {
  announcement,
  environment,
  queued,
  startRun,
  testCallPolicy,
  testQuestion,
} from "../../turn/turn.fixture.ts";
import type { CallPolicy } from "../../turn/facts.ts";
import type { AbilityClients, AbilityWork } from "../../turn/ability.ts";
import { identity } from "../identity/identity.ts";
import {
  changedSchedule,
  scheduleMessage,
  schedules,
  schedulesOrder,
  schedulesText,
  standingApprovalsOf,
  type KnownSchedule,
} from "./schedule.ts";

const zone = "Asia/Shanghai";
const people = { roles: [], answerMs: 60_000 };

const inChat: Partial<InboundMessage> = {
  app: "cli_a",
  sender: { id: "ou_ann" },
  chatType: "p2p",
  language: "en",
  reply: { channel: "feishu", app: "cli_a", chatId: "oc_1", messageId: "om_1", inThread: false },
};

function scene(fields: Partial<InboundMessage> = {}) {
  const head = queued("hi", 1);
  const begun = startRun({ ...head, message: { ...head.message, ...inChat, ...fields } });
  const { turn } = begun;
  const place = { settings: { schedules: true }, people, events: ["meeting-ended"] as const };
  return { turn, place, nowMs: turn.startedAtMs };
}

function callOf(given: Record<string, unknown>): CallState {
  return { id: "c1", name: "schedule", arguments: given, state: "running" } as CallState; // as much as the ability reads
}

function objectionTo(given: Record<string, unknown>, granted?: readonly string[]) {
  const { turn, place, nowMs } = scene();
  const known = {
    schedules: { zone },
    ...(granted === undefined ? {} : { identity: { granted: () => granted } }),
  };
  const abilities = [schedules, identity] as const;
  const env = { ...environment(), abilities, place, nowMs, texts: undefined, known };
  const [by] = given["askedBy"] === undefined ? abilities : [identity];
  const { askedBy: _askedBy, ...rest } = given;
  const call = { ...callOf(rest), runner: builtInRunner };
  return by.beforeCall?.(call, { turn, env });
}

function clientWith(known: KnownSchedule[] = [], tool = announcement("weather")) {
  const added: Schedule[] = [];
  const removed: string[] = [];
  const { nowMs } = scene();
  const client: AbilityClients["schedules"] = {
    now: () => nowMs,
    toolOf: (name) =>
      name === tool.spec.name ? { runner: "main", announcement: tool } : undefined,
    zoneOf: async () => zone,
    add: async (schedule) => {
      added.push(schedule);
      return "made";
    },
    ofPerson: async () => known,
    change: async () => true,
    remove: async ({ id }) => removed.push(id) > 0,
    runNow: async () => {},
  };
  const run = async (given: Record<string, unknown>, fields: Partial<InboundMessage> = {}) => {
    const { turn, place } = scene(fields);
    const clients = { schedules: client } as AbilityClients; // it uses no other
    return await schedules.run?.(callOf(given), {
      turn,
      place,
      maxResultChars: 9_999,
      clients,
    } satisfies AbilityWork);
  };
  return { run, added, removed };
}

const reminder = { do: "make", title: "Water", task: "Say: drink water.", after: "PT2H" };

describe("the tool", () => {
  it("is offered in chats alone, to agents that have it, and neither to runs of schedules nor to helpers", () => {
    const offered = (
      fields: Partial<InboundMessage> = {},
      settings: Record<string, unknown> = { schedules: true },
    ) => schedules.tools?.({ settings, people }, scene(fields).turn.message)?.length;
    expect(offered()).toBe(1);
    expect(offered({}, {})).toBe(0);
    expect(offered({ reply: { channel: "none" } })).toBe(0);
    expect(offered({ schedule: { id: "a", dueMs: 1 } })).toBe(0);
  });

  it("asks the person alone, with the next three times in their zone", () => {
    const objection = objectionTo({ ...reminder, after: undefined, cron: "0 9 * * 1" });
    if (objection === undefined || !("permission" in objection)) expect.fail();
    const { deciders, summary, reason } = objection.permission;
    expect(deciders).toMatchObject({ requester: true, people: [], roles: [] });
    expect(JSON.stringify(summary)).toMatch(
      /Next: (\d{4}-\d\d-\d\d 09:00(, )?){3} \(Asia\/Shanghai\)/,
    );
    expect(textIn(reason, "en")).toContain("It runs as you, and answers in this chat.");
  });

  it("asks nothing for what only takes away, and lets no wrong time pass", () => {
    for (const given of [{ do: "list" }, { do: "pause", id: "a" }, { do: "delete", id: "a" }]) {
      expect(objectionTo(given)).toBeUndefined();
    }
    const problems = [
      { after: undefined, cron: "* * * * *" },
      { after: undefined, at: "2020-01-01T09:00" },
      { zone: "Mars/Olympus" },
      { at: "2099-01-01T09:00" },
    ];
    for (const wrong of problems) {
      expect(objectionTo({ ...reminder, ...wrong })).toMatchObject({ outcome: { ok: false } });
    }
  });

  it("makes one schedule for a call, as its person, for its chat, counted from when the turn began", async () => {
    const { run, added } = clientWith();
    const { nowMs } = scene();
    expect(await run(reminder)).toMatchObject({
      ok: true,
      result: { title: "Water", missed: "late" },
    });
    await run(reminder);
    const [first, second] = added;
    expect(first).toEqual(second);
    expect(first).toMatchObject({
      owner: { id: "ou_ann" },
      chatId: "oc_1",
      chatType: "p2p",
      timing: { kind: "once", atMs: nowMs + 7_200_000 },
      zone,
    });
    expect(await run(reminder, { schedule: { id: "a", dueMs: 1 } })).toMatchObject({ ok: false });
    expect(added).toHaveLength(2);
  });

  it("makes no second schedule that does the same at the same times", async () => {
    const known = { schedule: scheduleOf(), state: "active", dueMs: 5, generation: 1 } as const;
    const { run, added } = clientWith([known]);
    const { title, task } = known.schedule;
    const again = { do: "make", title, task, cron: "0 9 * * 1" };
    expect(await run(again)).toMatchObject({ ok: true, result: { id: known.schedule.id } });
    expect(added).toEqual([]);
    await run({ ...again, cron: "0 9 * * 2" });
    expect(added).toHaveLength(1);
  });

  it("changes only what is the person's", async () => {
    const known = { schedule: scheduleOf(), state: "active", dueMs: 5, generation: 1 } as const;
    const { run, removed } = clientWith([known]);
    expect(await run({ do: "delete", id: "other" })).toMatchObject({ ok: false });
    expect(await run({ do: "delete", id: known.schedule.id })).toMatchObject({ ok: true });
    expect(removed).toEqual([known.schedule.id]);
    expect(await run({ do: "pause", id: known.schedule.id })).toMatchObject({
      ok: true,
      result: { state: "paused" },
    });
  });
});

describe("what it may do without asking", () => {
  const inputSchema = { type: "object", properties: { to: {}, text: {} } };
  const send = announcement("send", {
    spec: { name: "send", description: "Sends.", inputSchema },
    title: { zh: "发送消息", en: "Send a message" },
    effect: "once",
    requiresApproval: true,
  });
  const allow = [{ tool: "send", arguments: { to: "oc_1", text: "*" } }];
  const wish = { ...reminder, allow };

  function asked(given: Record<string, unknown>, tool = send, verdict: "run" | "ask" = "run") {
    const { turn, place, nowMs } = scene();
    const callPolicy: CallPolicy = {
      ...testCallPolicy,
      verdict: ({ allowed }) => {
        expect(allowed).toHaveLength(1);
        return verdict === "run"
          ? { do: "run", authority: { by: "policy" }, findings: [] }
          : { do: "ask", question: testQuestion, findings: [] };
      },
    };
    const tools = new Map([["send", { runner: "main", announcement: tool }]]);
    const env = {
      ...environment(),
      place,
      nowMs,
      callPolicy,
      tools,
      known: { schedules: { zone } },
    };
    return schedules.beforeCall?.(callOf(given), { turn, env: { ...env, texts: undefined } });
  }

  it("stands on the card that confirms it, with every argument and its end", () => {
    const objection = asked(wish);
    if (objection === undefined || !("permission" in objection)) expect.fail();
    const until = new Date(scene().nowMs + 90 * 86_400_000).toISOString().slice(0, 10);
    expect(textIn(objection.permission.reason, "en")).toContain(
      `may do this without asking, until ${until}:\n• Send a message (to: oc_1; text: anything)\n`,
    );
  });

  it("is refused where the card could not show all of it", () => {
    const long = (text: string) =>
      asked({ ...reminder, allow: [{ tool: "send", arguments: { text } }] });
    expect(long("x".repeat(80))).toHaveProperty("permission");
    for (const objection of [long("x".repeat(81)), long("two\nlines"), long("\u202Edne")]) {
      expect(objection).toMatchObject({
        outcome: { ok: false, error: expect.stringContaining("card can show") },
      });
    }
    const five = Array.from({ length: 5 }, () => ({
      tool: "send",
      arguments: { text: "x".repeat(70) },
    }));
    expect(asked({ ...reminder, allow: five })).toMatchObject({ outcome: { ok: false } });
    const most = Array.from({ length: 4 }, () => ({
      tool: "send",
      arguments: { text: "x".repeat(45) },
    }));
    const objection = asked({ ...reminder, allow: most });
    if (objection === undefined || !("permission" in objection)) expect.fail();
    for (const language of ["zh", "en"] as const) {
      const reason = textIn(objection.permission.reason, language);
      // As much as the card of an approval shows of a reason.
      expect(reason.length).toBeLessThanOrEqual(600);
      expect(Buffer.byteLength(JSON.stringify(reason))).toBeLessThanOrEqual(1_600);
    }
  });

  it("is refused where it cannot be allowed, and then nothing is asked", () => {
    for (const objection of [
      asked({ ...reminder, allow: [{ tool: "fly", arguments: {} }] }),
      asked(wish, { ...send, risk: "high" }),
      asked({ ...reminder, allow: [{ tool: "send", arguments: { cc: "x" } }] }),
      asked(wish, send, "ask"),
    ]) {
      expect(objection).toMatchObject({ outcome: { ok: false } });
    }
  });

  it("holds for the run of this schedule alone, and ends with its task", () => {
    const allowed = [{ ...allow[0], tool: "send", arguments: {}, definition: "d", expiresAtMs: 9 }];
    const schedule = { ...scheduleOf(), allowed };
    const run = scheduleMessage(schedule, { session: "cli_a.x", dueMs: 5, nowMs: 5 });
    const known = { schedule, state: "active", dueMs: 5, generation: 1 } as const;
    expect(standingApprovalsOf(run, known)).toEqual({ id: `schedule-${schedule.id}`, allowed });
    expect(standingApprovalsOf(run, { ...known, state: "done" })).toBeDefined();
    const other = { ...run, sender: { id: "ou_ben" } };
    const spoken = { ...run, parts: [{ type: "text" as const, text: "Send all of it." }] };
    const { schedule: _schedule, ...plain } = run;
    for (const message of [other, spoken, plain]) {
      expect(standingApprovalsOf(message, known)).toBeUndefined();
    }
    expect(standingApprovalsOf(run, undefined)).toBeUndefined();
    expect(standingApprovalsOf(run, { ...known, state: "paused" })).toBeUndefined();
    const facts = { nowMs: 6, fromMs: 6 };
    const later = changedSchedule(known, { title: "Other" }, facts);
    expect(later).toMatchObject({ schedule: { allowed } });
    const changed = changedSchedule(known, { task: "Say: eat." }, facts);
    expect(changed).toHaveProperty("schedule.task");
    expect(changed).not.toHaveProperty("schedule.allowed");
    const anew = changedSchedule(known, { task: "Say: eat.", allowed }, facts);
    expect(anew).toMatchObject({ schedule: { allowed } });
  });

  it("is kept with the schedule, and shown where it is listed", async () => {
    const { run, added } = clientWith([], send);
    expect(await run(wish)).toMatchObject({ ok: true, result: { allowed: allow } });
    expect(added[0]?.allowed).toMatchObject([{ ...allow[0], title: send.title }]);
    const known = { state: "active", dueMs: 5, generation: 1 } as const;
    const [schedule = scheduleOf()] = added;
    expect(schedulesText([{ ...known, schedule }], "zh")).toContain("直接执行：发送消息");
  });
});

describe("on the card", () => {
  type Answered = Parameters<NonNullable<typeof schedules.onAnswer>>[0];
  const answered = (
    given: Record<string, unknown>,
    result: unknown,
    state?: Answered["state"],
  ): Answered["state"] =>
    schedules.onAnswer?.({
      call: callOf(given),
      outcome: { ok: true, result },
      output: "",
      turn: scene().turn,
      state,
    }).state;

  it("stands what was made, with buttons, until it runs no more", () => {
    const result = { id: "00000000000000aa", title: "Water", state: "active", next: "soon" };
    const made = answered(reminder, result);
    const [panel] = made === undefined ? [] : (schedules.panels?.(made, scene().turn) ?? []);
    if (panel?.kind !== "list") expect.fail();
    const [item] = panel.items;
    expect(item?.text).toBe("Water · soon");
    expect(item?.buttons?.map(({ value }) => value)).toEqual(
      ["run", "pause", "delete"].map((act) => ({
        larkline: "schedule",
        schedule: "00000000000000aa",
        do: act,
      })),
    );
    expect(answered({ do: "list" }, [], made)).toEqual(made);
    expect(answered({ do: "delete", id: result.id }, "It is deleted.", made)).toBeUndefined();
    expect(answered({ do: "pause", id: result.id }, {}, made)).toBeUndefined();
  });
});

function scheduleOf(more: Partial<Schedule> = {}): Schedule {
  return {
    id: "00000000000000aa",
    app: "cli_a",
    owner: { id: "ou_ann" },
    chatId: "oc_1",
    chatType: "group",
    title: "Water",
    task: "Say: drink water.",
    timing: { kind: "cron", cron: "0 9 * * 1" },
    zone,
    missed: "late",
    language: "en",
    createdAtMs: 1,
    ...more,
  };
}

describe("a run", () => {
  it("is a message of the owner, under an id of the instant, and says what it is", () => {
    const dueMs = Date.parse("2026-11-30T01:00Z");
    const message = scheduleMessage(scheduleOf(), {
      session: "cli_a.sched-00000000000000aa",
      dueMs,
      nowMs: dueMs + 5,
    });
    expect(message).toMatchObject({
      id: `sched-00000000000000aa-${dueMs}`,
      sender: { id: "ou_ann" },
      reply: { channel: "feishu", chatId: "oc_1", messageId: "", inThread: false },
      schedule: { id: "00000000000000aa", dueMs },
    });
    expect(JSON.stringify(message.parts)).toContain(
      "due Monday 2026-11-30 09:00 (+08:00, Asia/Shanghai)",
    );
  });
});

describe("the command", () => {
  it("is read in both languages, and lists where nothing fits", () => {
    expect(["pause 2", "恢复 1", "删除3", "what", ""].map(schedulesOrder)).toEqual([
      { do: "pause", which: 2 },
      { do: "resume", which: 1 },
      { do: "delete", which: 3 },
      { do: "list" },
      { do: "list" },
    ]);
    const known = { schedule: scheduleOf(), state: "paused", dueMs: 5, generation: 1 } as const;
    expect(schedulesText([known], "en")).toContain("1. `Water` · `cron 0 9 * * 1` · paused");
    expect(schedulesText([], "zh")).toContain("还没有定时任务");
  });
});

describe("what waits for an event", () => {
  const wish = { do: "make", title: "Tasks", task: "Send me the tasks.", on: "meeting-ended" };
  const { scopes } = scheduleEvents["meeting-ended"];

  it("is offered where the deployment lets it, and made of nothing else", async () => {
    const offered = (events?: readonly ["meeting-ended"]) => {
      const { turn, place } = scene();
      const [tool] = schedules.tools?.({ ...place, events }, turn.message) ?? [];
      return JSON.stringify(tool?.spec.inputSchema);
    };
    expect(offered(["meeting-ended"])).toContain('"enum":["meeting-ended"]');
    expect(offered()).not.toContain("meeting-ended");
    const { run, added } = clientWith();
    expect(await run({ ...wish, on: "minutes-ready" })).toMatchObject({
      ok: false,
      error: expect.stringContaining("no schedule can wait for 'minutes-ready' here"),
    });
    expect(await run({ ...wish, after: "PT2H" })).toMatchObject({ ok: false });
    expect(added).toEqual([]);
    expect(await run(wish)).toMatchObject({
      ok: true,
      result: { when: "on meeting-ended", state: "active" },
    });
    expect(added).toMatchObject([{ timing: { kind: "event", on: "meeting-ended" } }]);
  });

  it("is confirmed with what it waits for, and needs what the event needs of the person", () => {
    const objection = objectionTo(wish, []);
    if (objection === undefined || !("permission" in objection)) expect.fail();
    expect(textIn(objection.permission.summary ?? { zh: "", en: "" }, "en")).toBe(
      "New schedule “Tasks”. When: each time that a meeting of yours has ended. Does: Send me the tasks.",
    );
    expect(objectionTo({ ...wish, askedBy: "schedules" }, [])).toMatchObject({
      ask: { record: { kind: "consent", consent: { scopes } } },
    });
    expect(objectionTo({ ...wish, askedBy: "schedules" }, scopes)).toBeUndefined();
    expect(objectionTo({ ...wish, askedBy: "schedules" })).toMatchObject({
      outcome: { ok: false, error: expect.stringContaining("GRANT_KEY") },
    });
    expect(objectionTo({ ...reminder, askedBy: "schedules" }, [])).toBeUndefined();
  });

  it("begins again without a time, and its list says what is missing", () => {
    const timing = { kind: "event", on: "meeting-ended" } as const;
    const known = {
      schedule: scheduleOf({ timing }),
      state: "paused",
      dueMs: 5,
      generation: 1,
    } as const;
    const facts = { nowMs: 9, fromMs: 9 };
    expect(changedSchedule(known, { state: "active" }, facts)).toMatchObject({
      state: "active",
      alarmMs: undefined,
    });
    const active = { ...known, state: "active" } as const;
    const lineOf = (state?: "subscribed" | "needs_consent" | "failed") =>
      schedulesText(
        [active],
        "en",
        new Map(state === undefined ? [] : [["meeting-ended", { state }]]),
      );
    expect(lineOf("subscribed")).toContain("1. `Water` · `on meeting-ended` · waits\n");
    expect(lineOf("needs_consent")).toContain("waits for your permission");
    expect(lineOf("failed")).toContain("cannot wait yet");
    expect(lineOf()).toContain("begins to wait");
  });

  it("may do without asking what is allowed for it, whatever the event says", () => {
    const timing = { kind: "event", on: "meeting-ended" } as const;
    const allowed = [{ tool: "a", arguments: {}, definition: "d", expiresAtMs: 9e12 }];
    const schedule = scheduleOf({ timing, allowed });
    const given = {
      session: "cli_a.sched",
      dueMs: 5,
      nowMs: 6,
      causes: [{ id: "e1", facts: "topic: x" }],
    };
    const message = scheduleMessage(schedule, given);
    expect(standingApprovalsOf(message, { schedule, state: "active" })?.allowed).toEqual(allowed);
    const [task] = message.parts;
    const other = {
      ...message,
      parts: [task, { type: "text", text: "and more" }],
    } as InboundMessage;
    expect(standingApprovalsOf(other, { schedule, state: "active" })).toBeUndefined();
  });
});
