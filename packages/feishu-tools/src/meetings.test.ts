import { describe, expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

const zone = "Asia/Shanghai";
const at = (time: string): number => Date.parse(`2026-12-07T${time}+08:00`);
const day = { from: "2026-12-07T00:00+08:00", to: "2026-12-08T00:00+08:00", time_zone: zone };

describe("meetings and minutes", () => {
  it("finds those of the person by time and words, and none of others", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const { meetings } = platform.work;
    const span = { start: at("10:00"), end: at("11:00") };
    const { meetingId } = meetings.addMeeting({
      topic: "Launch review",
      organizer: bob,
      participants: [ann],
      ...span,
    });
    meetings.addMeeting({ topic: "Launch of layoffs", organizer: bob, participants: [], ...span });
    const minutes = {
      title: "Launch review",
      owner: bob,
      participants: [ann],
      summary: "Ship it",
      createdAt: at("11:00"),
    };
    const { token } = meetings.addMinutes(minutes);
    const found = await textOf("find_meetings", { ...day, query: "launch" });
    expect(found).toContain(
      `- meeting Launch review (Mon 2026-12-07T10:00+08:00 Bob; id ${meetingId}) https`,
    );
    expect(found).toContain(
      `- minutes Launch review (Mon 2026-12-07T11:00+08:00 Bob; token ${token}) https`,
    );
    expect(found).not.toContain("layoffs");
    expect(await textOf("find_meetings", { ...day, query: "nothing" })).toContain("were found");
  });

  it("reads the notes of a meeting, otherwise its minutes", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const { meetings, docs } = platform.work;
    const { documentId } = docs.addDocument({
      owner: ann,
      title: "Notes",
      markdown: "We ship on Friday",
    });
    const meeting = {
      topic: "Review",
      organizer: bob,
      participants: [ann],
      start: at("10:00"),
      end: at("11:00"),
    };
    const noted = meetings.addMeeting({ ...meeting, notes: { summary: documentId } });
    const read = await textOf("read_minutes", { of: noted.meetingId, time_zone: zone });
    expect(read).toContain("Review, Mon 2026-12-07T10:00+08:00. There: Bob, Ann.");
    expect(read).toContain("We ship on Friday");
    const bare = meetings.addMeeting({ ...meeting, topic: "Planning" });
    expect(await textOf("read_minutes", { of: bare.meetingId, time_zone: zone })).toContain(
      "neither notes nor minutes",
    );
    meetings.addMinutes({
      title: "Planning",
      owner: bob,
      participants: [ann],
      summary: "Two sprints",
      createdAt: at("11:00"),
    });
    expect(await textOf("read_minutes", { of: bare.meetingId, time_zone: zone })).toContain(
      "Summary: Two sprints",
    );
  });

  it("reads minutes by link, and says when they are not ready, deleted, or not the person's", async () => {
    const { platform, ann, bob, textOf, call } = await toolWorld();
    const { meetings } = platform.work;
    const added = meetings.addMinutes({
      title: "Review",
      owner: ann,
      participants: [],
      summary: "All is well",
      chapters: [{ title: "Start", summary: "Hello", startMs: 0 }],
      todos: [{ content: "Write it up", assignees: [bob] }],
    });
    const link = `https://acme.feishu.cn/minutes/${added.token}`;
    const text = await textOf("read_minutes", { of: link, time_zone: zone });
    expect(text).toContain(
      "Summary: All is well\nChapters:\n- Start: Hello\nTo-dos:\n- [ ] Write it up (Bob)",
    );
    expect(await call("read_minutes", { of: link, time_zone: zone }, { person: bob })).toEqual({
      ok: false,
      error: "The person may not read these minutes; their owner can share them. (code 2091005)",
    });
    added.readyAt = Date.now() + 60_000;
    expect(await call("read_minutes", { of: link, time_zone: zone })).toMatchObject({
      ok: false,
      error: expect.stringContaining("try again in some minutes"),
    });
    added.deleted = true;
    expect(await call("read_minutes", { of: link, time_zone: zone })).toMatchObject({
      ok: false,
      error: expect.stringContaining("deleted"),
    });
  });
});
