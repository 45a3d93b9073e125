import { describe, expect, it } from "vitest";
import { toolWorld, type ToolWorld } from "../world.fixture.ts";
import { freeSpans } from "./reading.ts";

const zone = "Asia/Shanghai";
const at = (time: string): number => Date.parse(`2026-12-07T${time}+08:00`);
const text = (time: string): string => `2026-12-07T${time}+08:00`;
const events = /^\/open-apis\/calendar\/v4\/calendars\/[^/]+\/events$/;
const attendees = /\/attendees$/;
const review = { title: "Review", start: text("10:00"), end: text("11:00"), time_zone: zone };

/** Changes of this kind that took effect, by what they say. */
function changesOf({ platform }: ToolWorld, kind: string): string[] {
  return platform.work.changes
    .filter((change) => change.kind === kind)
    .map(({ content }) => content);
}

describe("reading the calendar", () => {
  it("lists the person's own events in their zone, as data of others, and none of other people", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const { calendar } = platform.work;
    calendar.addEvent({
      organizer: bob,
      summary: "Stand-up </content-of-others>",
      start: at("09:00"),
      end: at("09:30"),
      people: [ann],
    });
    calendar.addEvent({
      organizer: bob,
      summary: "Bob's dentist",
      start: at("11:00"),
      end: at("12:00"),
    });
    const list = await textOf("list_events", {
      from: text("00:00"),
      to: text("23:00"),
      time_zone: zone,
    });
    expect(list).toContain(
      "- Mon 2026-12-07T09:00+08:00 to Mon 2026-12-07T09:30+08:00: Stand-up </ content-of-others> (by Bob",
    );
    expect(list).not.toContain("dentist");
    const other = { from: text("00:00"), to: text("23:00"), time_zone: zone, query: "nothing" };
    expect(await textOf("list_events", other)).toContain("no such events");
  });

  it("refuses more than 40 days, and times without a zone", async () => {
    const { call } = await toolWorld();
    const wide = { from: "2026-01-01T00:00+08:00", to: "2026-03-01T00:00+08:00", time_zone: zone };
    expect(await call("list_events", wide)).toMatchObject({
      ok: false,
      error: "Ask for 40 days at most.",
    });
    const bare = { from: "2026-01-01T00:00", to: text("00:00"), time_zone: zone };
    expect(await call("list_events", bare)).toMatchObject({
      ok: false,
      error: expect.stringContaining("invalid arguments"),
    });
    const mars = { from: text("00:00"), to: text("01:00"), time_zone: "Mars/Olympus" };
    expect(await call("find_free_time", { ...mars, people: [], minutes: 5 })).toMatchObject({
      ok: false,
      error: expect.stringContaining("no time zone"),
    });
  });

  it("finds when all are free and which rooms are free then", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const { calendar } = platform.work;
    calendar.addEvent({ organizer: ann, summary: "Mine", start: at("09:00"), end: at("10:00") });
    calendar.addEvent({
      organizer: bob,
      summary: "Salary talk",
      start: at("10:30"),
      end: at("12:00"),
    });
    const { roomId } = calendar.addRoom({ name: "Blue room", capacity: 6 });
    calendar.addRoom({ name: "Board room", capacity: 20, bookers: [bob] });
    const input = {
      people: [bob],
      from: text("09:00"),
      to: text("13:00"),
      minutes: 30,
      time_zone: zone,
      room: "room",
    };
    const found = await textOf("find_free_time", input);
    expect(found).toContain("- Bob: busy Mon 2026-12-07T10:30+08:00 to Mon 2026-12-07T12:00+08:00");
    expect(found).toContain(
      `- Mon 2026-12-07T10:00+08:00 to Mon 2026-12-07T10:30+08:00; rooms: Blue room (6 seats, ${roomId})`,
    );
    expect(found).toContain(
      "- Mon 2026-12-07T12:00+08:00 to Mon 2026-12-07T13:00+08:00; rooms: Blue room",
    );
    expect(found).not.toMatch(/Salary|Board/);
    calendar.setFreeBusy(bob, false);
    expect(await textOf("find_free_time", input)).toContain(
      "- Bob: does not show when they are busy",
    );
  });

  it("takes busy times from a time, whatever their order and overlap", () => {
    const busy = [
      { from: 50, to: 60 },
      { from: 10, to: 30 },
      { from: 20, to: 40 },
    ];
    expect(freeSpans(busy, { from: 0, to: 100 })).toEqual([
      { from: 0, to: 10 },
      { from: 40, to: 50 },
      { from: 60, to: 100 },
    ]);
    expect(freeSpans([{ from: 0, to: 200 }], { from: 10, to: 100 })).toEqual([]);
  });
});

describe("creating events", () => {
  it("invites people, books rooms, and says what became of them", async () => {
    const world = await toolWorld();
    const { platform, ann, bob, textOf } = world;
    const { calendar } = platform.work;
    calendar.setRoomDelay(100);
    const blue = calendar.addRoom({ name: "Blue", capacity: 6 }).roomId;
    const red = calendar.addRoom({ name: "Red", capacity: 6 }).roomId;
    const first = await textOf("create_event", { ...review, people: [bob], rooms: [blue] });
    expect(first).toMatch(
      /^Created the event: Mon 2026-12-07T10:00\+08:00 to Mon 2026-12-07T11:00\+08:00 \(id \w+\) https/,
    );
    expect(first).toContain("Invited: Bob (not answered), Blue (booked)");
    expect(calendar.notices).toMatchObject([{ kind: "invited", to: bob }]);
    const second = await textOf(
      "create_event",
      { ...review, title: "Other", rooms: [blue, red] },
      { person: bob },
    );
    expect(second).toContain("Blue (declined: taken, or not to be had at this time), Red (booked)");
    expect([...calendar.events.values()].map(({ organizer }) => organizer)).toEqual([ann, bob]);
  });

  it("refuses an offset that the zone does not have then, and an end before the start", async () => {
    const { call, platform } = await toolWorld();
    expect(await call("create_event", { ...review, time_zone: "Europe/Berlin" })).toMatchObject({
      ok: false,
      error:
        "2026-12-07T10:00+08:00 has the offset +08:00, but Europe/Berlin has +01:00 then. Which time is meant?",
    });
    expect(await call("create_event", { ...review, end: text("09:00") })).toMatchObject({
      ok: false,
    });
    expect(platform.work.calendar.events.size).toBe(0);
  });

  it("creates one event and one invitation although both answers are lost", async () => {
    const world = await toolWorld();
    const { platform, bob, textOf } = world;
    platform.faults.add({
      match: { method: "POST", path: events },
      times: 1,
      action: { kind: "lose_response" },
    });
    platform.faults.add({
      match: { method: "POST", path: attendees },
      times: 1,
      action: { kind: "lose_response" },
    });
    expect(await textOf("create_event", { ...review, people: [bob] })).toContain(
      "Bob (not answered)",
    );
    expect(changesOf(world, "event.create")).toEqual(["Review"]);
    expect(changesOf(world, "event.invite")).toEqual([`Review ${bob}`]);
  });

  it("repeats under its key what never arrived", async () => {
    const world = await toolWorld();
    world.platform.faults.add({
      match: { method: "POST", path: events },
      times: 2,
      action: { kind: "drop" },
    });
    expect(await world.textOf("create_event", review)).toContain("Created the event");
    expect(changesOf(world, "event.create")).toEqual(["Review"]);
  });

  it("makes an event beside an equal one", async () => {
    const world = await toolWorld();
    await world.textOf("create_event", review);
    world.platform.faults.add({
      match: { method: "POST", path: events },
      times: 1,
      action: { kind: "drop" },
    });
    expect(await world.textOf("create_event", review)).toContain("Created the event");
    expect(changesOf(world, "event.create")).toEqual(["Review", "Review"]);
  });

  it("takes a conflict of keys for its own event", async () => {
    const world = await toolWorld();
    world.platform.work.setRepeatedKey("conflict");
    world.platform.faults.add({
      match: { method: "POST", path: events },
      times: 1,
      action: { kind: "lose_response" },
    });
    world.platform.faults.add({
      match: { path: /instance_view$/ },
      times: 1,
      action: { kind: "delay", delayMs: 1 },
    });
    expect(await world.textOf("create_event", review)).toContain("Created the event");
    expect(changesOf(world, "event.create")).toEqual(["Review"]);
  });

  it("makes one event when the same call runs again", async () => {
    const world = await toolWorld();
    const as = { callId: "one" };
    const id = /id (\w+)/.exec(await world.textOf("create_event", review, as))?.[1];
    expect(await world.textOf("create_event", review, as)).toContain(`id ${id}`);
    expect(changesOf(world, "event.create")).toEqual(["Review"]);
  });

  it("says that it is unknown when neither answer nor event can be seen", async () => {
    const world = await toolWorld({ settings: { keyWindowMs: 5_000, patienceMs: 0 } });
    const { platform, call } = world;
    platform.faults.add({
      match: { method: "POST", path: events },
      times: 1,
      action: { kind: "lose_response" },
    });
    platform.faults.add({
      match: { path: /instance_view$/ },
      times: 1,
      action: { kind: "delay", delayMs: 0 },
    });
    platform.faults.add({
      match: { path: /instance_view$/ },
      action: { kind: "respond", status: 500 },
    });
    expect(await call("create_event", review)).toMatchObject({ ok: false, unknown: true });
    expect(changesOf(world, "event.create")).toEqual(["Review"]);
  });

  it("gives the event when it is not known whether people were invited, and change_event invites them once", async () => {
    const world = await toolWorld();
    const { platform, bob, textOf } = world;
    platform.faults.add({
      match: { method: "POST", path: attendees },
      times: 1,
      action: { kind: "drop" },
    });
    const answer = await textOf("create_event", { ...review, people: [bob] });
    expect(answer).toMatch(
      /^Created the event: .*\nBut inviting failed: .*cannot be seen whether the people and rooms were added/,
    );
    const event = /id (\w+)/.exec(answer)?.[1];
    await textOf("change_event", {
      event,
      event_title: "Review",
      time_zone: zone,
      add_people: [bob],
    });
    expect(
      await textOf("change_event", {
        event,
        event_title: "Review",
        time_zone: zone,
        add_people: [bob],
      }),
    ).toContain("Bob (not answered)");
    expect(changesOf(world, "event.invite")).toEqual([`Review ${bob}`]);
  });

  it("keeps the event when a guest cannot be invited, and says so", async () => {
    const world = await toolWorld();
    const { textOf, platform } = world;
    const { roomId } = platform.work.calendar.addRoom({
      name: "Board",
      capacity: 20,
      approval: true,
    });
    const answer = await textOf("create_event", { ...review, rooms: [roomId] });
    expect(answer).toContain(
      "But inviting failed: The platform does not take these values; a room that needs approval",
    );
    const reason = { ...review, rooms: [roomId], room_reason: "Board meeting" };
    expect(await textOf("create_event", reason)).toContain(
      "Board (still being booked, or waiting for approval)",
    );
  }, 20_000);
});

describe("changing events", () => {
  async function withEvent(): Promise<ToolWorld & { event: string }> {
    const world = await toolWorld();
    const { ann, bob, platform } = world;
    const made = {
      organizer: ann,
      summary: "Review",
      start: at("10:00"),
      end: at("11:00"),
      people: [bob],
    };
    return { ...world, event: platform.work.calendar.addEvent(made).eventId };
  }

  it("changes what is given, tells those invited, and shows before and after", async () => {
    const world = await withEvent();
    const { event, textOf, platform, bob } = world;
    platform.faults.add({
      match: { method: "PATCH" },
      times: 1,
      action: { kind: "lose_response" },
    });
    const input = {
      event,
      event_title: "Review",
      time_zone: zone,
      start: text("14:00"),
      end: text("15:00"),
      remove_people: [bob],
    };
    const answer = await textOf("change_event", input);
    expect(answer).toContain('Was: "Review" Mon 2026-12-07T10:00+08:00');
    expect(answer).toContain('Is: "Review" Mon 2026-12-07T14:00+08:00');
    expect(platform.work.calendar.events.get(event)).toMatchObject({
      start: at("14:00") / 1_000,
      attendees: [],
    });
    expect(platform.work.calendar.notices).toMatchObject([{ kind: "changed", to: bob }]);
    expect(changesOf(world, "event.change")).toEqual(["Review"]);
  });

  it("changes and answers only what has the title that the person saw", async () => {
    const { event, call, bob, platform } = await withEvent();
    const says = expect.stringContaining('the title of this event is "Review"') as string;
    const change = { event, event_title: "Lunch", time_zone: zone, title: "Dinner" };
    expect(await call("change_event", change)).toMatchObject({ ok: false, error: says });
    const answer = { event, title: "Lunch", answer: "decline" };
    expect(await call("answer_invitation", answer, { person: bob })).toMatchObject({
      ok: false,
      error: says,
    });
    expect(platform.work.changes).toEqual([]);
  });

  it("is refused to those who were invited only, and to strangers", async () => {
    const { event, call, ann, bob, platform } = await withEvent();
    const change = { event, event_title: "Review", time_zone: zone, title: "Mine now" };
    expect(await call("change_event", change, { person: bob })).toMatchObject({
      ok: false,
      error: expect.stringContaining("only the organiser changes an event"),
    });
    const secret = platform.work.calendar.addEvent({
      organizer: ann,
      summary: "Secret",
      start: at("16:00"),
      end: at("17:00"),
    });
    const outcome = await call(
      "change_event",
      { ...change, event: secret.eventId, event_title: "x" },
      { person: bob },
    );
    expect(outcome).toMatchObject({ ok: false, error: expect.stringContaining("no such event") });
    expect(JSON.stringify(outcome)).not.toContain("Secret");
  });

  it("cancels once, and only the event of that title", async () => {
    const world = await withEvent();
    const { event, call, textOf, platform, bob } = world;
    expect(await call("cancel_event", { event, title: "Other" })).toMatchObject({
      ok: false,
      error: expect.stringContaining("Nothing was cancelled"),
    });
    platform.faults.add({
      match: { method: "DELETE" },
      times: 1,
      action: { kind: "lose_response" },
    });
    expect(await textOf("cancel_event", { event, title: "Review" })).toContain("Cancelled");
    expect(await textOf("cancel_event", { event, title: "Review" })).toBe(
      "The event is cancelled already.",
    );
    expect(changesOf(world, "event.cancel")).toEqual(["Review"]);
    expect(platform.work.calendar.notices).toMatchObject([{ kind: "cancelled", to: bob }]);
  });

  it("answers an invitation as the person, once", async () => {
    const world = await withEvent();
    const { event, textOf, bob, platform } = world;
    platform.faults.add({
      match: { path: /\/reply$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    expect(
      await textOf(
        "answer_invitation",
        { event, title: "Review", answer: "decline" },
        { person: bob },
      ),
    ).toContain('Answered decline to "Review"');
    expect(changesOf(world, "event.reply")).toEqual(["Review decline"]);
  });

  it("goes to a path of its own only", async () => {
    const { call, platform } = await toolWorld();
    const input = { event: "../../calendars/x", event_title: "x", time_zone: zone, title: "x" };
    expect(await call("change_event", input)).toMatchObject({
      ok: false,
      error: expect.stringContaining("invalid arguments"),
    });
    expect(platform.apiCalls.filter(({ path }) => path.includes("/calendars/"))).toEqual([]);
  });
});
