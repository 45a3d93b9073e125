import { expect, it } from "vitest";
import { noLogger } from "../transport/sdk.ts";
import { simulatedApi } from "../simulated-api.fixture.ts";
import { answerObject } from "./objects.ts";

async function given(assignees: (app: string, ann: string) => string[]) {
  const { simulator, appId, person, api } = await simulatedApi();
  const { tasks } = simulator.work;
  const task = tasks.addTask({
    creator: person.openId,
    summary: "Plan",
    assignees: assignees(appId, person.openId),
  });
  const answer = async (text: string, isDone: boolean) =>
    await answerObject(
      api,
      { kind: "task", guid: task.guid },
      { text, sinceMs: task.createdAt, isDone },
      { logger: noLogger, nowMs: Date.now() },
    );
  return { simulator, task, answer, api };
}

it("an answer becomes comments of its task, once, which is completed only where the run has ended well", async () => {
  const { simulator, task, answer } = await given((app) => [app]);
  await answer("It failed.", false);
  expect(task.completedAt).toBe(0);
  const long = `${"a".repeat(2_999)}\n${"b".repeat(10)}`;
  await answer(long, true);
  await answer(long, true);
  const [first, second, third] = task.comments.map(({ content }) => content);
  expect([first, second?.length, third]).toEqual(["It failed.", 2_999, "b".repeat(10)]);
  expect(task.comments).toHaveLength(3);
  expect(task.completedAt).toBeGreaterThan(0);
  const completions = simulator.work.changes.filter(({ kind }) => kind === "task.change");
  expect(completions).toHaveLength(1);
});

it("a task for which others are responsible, too, is theirs to complete; one that may not be completed is answered", async () => {
  const shared = await given((app, ann) => [app, ann]);
  await shared.answer("Done.", true);
  expect([shared.task.comments.length, shared.task.completedAt]).toEqual([1, 0]);
  const closed = await given((app) => [app]);
  const body = { code: 1470403, msg: "no permission" };
  const action = { kind: "respond", status: 403, body } as const;
  closed.simulator.faults.add({ match: { method: "PATCH" }, action });
  await closed.answer("Done.", true);
  expect([closed.task.comments.length, closed.task.completedAt]).toEqual([1, 0]);
});

it("an app that has subscribed itself before does it again in vain, and without harm", async () => {
  const { simulator, api, appId } = await simulatedApi();
  await api.subscribe("tasks");
  await api.subscribe("tasks");
  expect([...simulator.work.tasks.subscribed.keys()]).toEqual([appId]);
});
