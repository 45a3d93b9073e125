import { describe, expect, it } from "vitest";
import { toolWorld, type ToolWorld } from "./world.fixture.ts";

const zone = "Asia/Shanghai";
const tasks = "/open-apis/task/v2/tasks";

function changesOf({ platform }: ToolWorld, kind: string): string[] {
  return platform.work.changes
    .filter((change) => change.kind === kind)
    .map(({ content }) => content);
}

describe("tasks", () => {
  it("lists the person's own, and finds by words only what they may see", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const mine = platform.work.tasks.addTask({
      creator: bob,
      summary: "Write the plan",
      assignees: [ann],
    });
    platform.work.tasks.addTask({ creator: bob, summary: "Plan salaries", assignees: [bob] });
    const list = await textOf("list_tasks", { time_zone: zone });
    expect(list).toContain(`- [ ] Write the plan (no date; for Ann; id ${mine.guid}) https`);
    expect(list).not.toContain("salaries");
    const found = await textOf("list_tasks", { time_zone: zone, query: "plan" });
    expect(found).toContain("Write the plan");
    expect(found).not.toContain("salaries");
    expect(await textOf("list_tasks", { time_zone: zone, state: "done" })).toBe(
      "The person has no such tasks.",
    );
  });

  it("creates a task for others with a due time in the person's zone", async () => {
    const { platform, bob, textOf, call } = await toolWorld();
    const input = {
      summary: "Book flights",
      due: "2026-12-08T18:00+08:00",
      time_zone: zone,
      assignees: [bob],
    };
    const answer = await textOf("create_task", input);
    expect(answer).toMatch(/^Created the task \(id [\w-]{36}\): https/);
    const [task] = [...platform.work.tasks.tasks.values()];
    expect(task).toMatchObject({
      due: { at: Date.parse(input.due) },
      members: [{ id: bob, role: "assignee" }],
    });
    const { time_zone: _, ...bare } = input;
    expect(await call("create_task", bare)).toMatchObject({
      ok: false,
      error: expect.stringContaining("time_zone"),
    });
    const stranger = platform.addUser({ name: "Guest", tenantKey: "other" }).openId;
    expect(await call("create_task", { summary: "x", assignees: [stranger] })).toMatchObject({
      ok: false,
      error: expect.stringContaining("may not give tasks to one of these people"),
    });
  });

  it.each(["same_result", "conflict"] as const)(
    "creates one task although answers are lost (%s)",
    async (how) => {
      const world = await toolWorld();
      world.platform.work.setRepeatedKey(how);
      world.platform.faults.add({
        match: { method: "POST", path: /tasks$/ },
        times: 1,
        action: { kind: "lose_response" },
      });
      world.platform.faults.add({
        match: { method: "POST", path: /tasks$/ },
        times: 1,
        action: { kind: "drop" },
      });
      expect(await world.textOf("create_task", { summary: "Once" })).toContain("Created the task");
      expect(changesOf(world, "task.create")).toEqual(["Once"]);
    },
  );

  it("repeats what never arrived under its key", async () => {
    const world = await toolWorld();
    world.platform.faults.add({
      match: { method: "POST", path: /tasks$/ },
      times: 2,
      action: { kind: "drop" },
    });
    expect(await world.textOf("create_task", { summary: "Once" })).toContain("Created the task");
    expect(changesOf(world, "task.create")).toEqual(["Once"]);
  });

  it("creates one task when the same call runs again, and another one in another call", async () => {
    const world = await toolWorld();
    for (const callId of ["one", "one", "two"]) {
      await world.textOf("create_task", { summary: "Once" }, { callId });
    }
    expect(changesOf(world, "task.create")).toEqual(["Once", "Once"]);
  });

  it("does not take an older task of the same words for its own", async () => {
    const world = await toolWorld();
    await world.textOf("create_task", { summary: "Weekly report" });
    world.platform.faults.add({
      match: { method: "POST", path: /tasks$/ },
      times: 1,
      action: { kind: "drop" },
    });
    await world.textOf("create_task", { summary: "Weekly report" });
    expect(changesOf(world, "task.create")).toEqual(["Weekly report", "Weekly report"]);
  });

  it("completes, opens and changes a task, and says when it was so already", async () => {
    const world = await toolWorld();
    const { platform, ann, bob, textOf } = world;
    const { guid } = platform.work.tasks.addTask({
      creator: ann,
      summary: "Plan",
      assignees: [ann],
    });
    platform.faults.add({
      match: { method: "PATCH" },
      times: 1,
      action: { kind: "lose_response" },
    });
    const answer = await textOf("change_task", {
      task: guid,
      done: true,
      summary: "New plan",
      add_assignees: [bob],
    });
    expect(answer).toMatch(/^The task is now done: "New plan" https\S+ Before: "Plan"\.$/);
    expect(platform.work.tasks.tasks.get(guid)).toMatchObject({
      summary: "New plan",
      members: [{ id: ann }, { id: bob }],
    });
    expect(changesOf(world, "task.change")).toEqual(["New plan summary,completed_at"]);
    expect(await textOf("change_task", { task: guid, done: true })).toContain(
      "It was so already. The task is now done",
    );
    expect(await textOf("change_task", { task: guid, done: false })).toContain(
      "The task is now open",
    );
  });

  it("shows and changes nothing of a task that the person may not see", async () => {
    const { platform, bob, call } = await toolWorld();
    const { guid } = platform.work.tasks.addTask({ creator: bob, summary: "Bob's secret" });
    const outcome = await call("change_task", { task: guid, done: true });
    expect(outcome).toMatchObject({
      ok: false,
      error: expect.stringContaining("may not see or change this task"),
    });
    expect(JSON.stringify(outcome)).not.toContain("secret");
    expect(
      platform.apiCalls.filter(({ path, method }) => path.startsWith(tasks) && method === "PATCH"),
    ).toEqual([]);
  });

  it("writes a comment once although the answer is lost, also beside the same words", async () => {
    const world = await toolWorld();
    const { platform, ann, textOf } = world;
    const { guid } = platform.work.tasks.addTask({ creator: ann, summary: "Plan" });
    await textOf("comment_task", { task: guid, text: "+1" });
    platform.faults.add({
      match: { method: "POST", path: /comments$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await textOf("comment_task", { task: guid, text: "+1" });
    expect(changesOf(world, "task.comment")).toEqual(["+1", "+1"]);
  });

  it("says that it is unknown whether a comment that never arrived was written, and does not repeat it", async () => {
    const world = await toolWorld();
    const { platform, ann, call } = world;
    const { guid } = platform.work.tasks.addTask({ creator: ann, summary: "Plan" });
    platform.faults.add({
      match: { method: "POST", path: /comments$/ },
      times: 1,
      action: { kind: "drop" },
    });
    expect(await call("comment_task", { task: guid, text: "Done" })).toMatchObject({
      ok: false,
      unknown: true,
    });
    expect(changesOf(world, "task.comment")).toEqual([]);
  });
});
