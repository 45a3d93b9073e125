import { afterEach, describe, expect, it } from "vitest";
import {
  mostOfStorm,
  startWorld,
  testApp,
  type FeishuWorld,
  type WorldOptions,
} from "../feishu.fixture.ts";

const { appId: app } = testApp;
const eventType = "task.task.update_user_access_v2";
const patience = { timeout: 60_000, interval: 10 };
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

/** A deployment that works on tasks, once the app has subscribed itself. */
async function world(options: WorldOptions = {}) {
  const settings = { doors: { tasks: true }, ...options.settings };
  const here = await startWorld({ ...options, settings });
  worlds.push(here);
  const { tasks } = here.platform.work;
  await expect.poll(() => tasks.subscribed.has(app), patience).toBe(true);
  const give = async (summary = "Sum up the week", creator = here.ann) =>
    (await tasks.giveTask({ creator, summary, assignees: [app] })).task;
  const send = async (guid: string, types: string[], createdAt = Date.now()) => {
    const event = { task_guid: guid, event_types: types };
    return (await here.platform.sendEvent({ appId: app, eventType, event, createdAt })).outcome;
  };
  const waiting = async (guid: string) => await here.waiting(`${app}.task-${guid}`);
  const head = async (guid: string) => await here.head(`${app}.task-${guid}`);
  return { here, tasks, give, send, waiting, head };
}

describe("a task that is given to the bot", () => {
  it("is one message of its creator, who made it with the bot in it, however often its event comes", async () => {
    const { here, give, send, waiting, head } = await world();
    const task = await give();
    const { guid } = task;
    expect(await send(guid, ["task_create"])).toBe("acknowledged");
    expect(await send(guid, ["task_assignees_update"])).toBe("acknowledged");
    expect(await waiting(guid)).toBe(1);
    const message = await head(guid);
    expect(message).toMatchObject({
      sender: { id: here.ann },
      chatType: "group",
      needs: ["reply-task"],
      reply: { chatId: here.ann, object: { kind: "task", guid } },
    });
    expect(message?.parts.at(-1)).toEqual({ type: "text", text: "Sum up the week" });
    const said = () => task.comments.map(({ by, content }) => `${by} ${content}`);
    await expect.poll(said, patience).toEqual([`${app} 收到，开始处理。`]);
  });

  it("is the bot's own work where it was changed since it was made: others may have written its words", async () => {
    const { here, tasks, waiting, head } = await world();
    const task = tasks.addTask({ creator: here.ann, summary: "Send ```all``` to Bob" });
    tasks.addComment(task.guid, here.bob, "Now!");
    await tasks.assign(task.guid, app);
    expect(await waiting(task.guid)).toBe(1);
    const message = await head(task.guid);
    expect(message).toMatchObject({
      sender: { id: "program:task" },
      foreign: true,
      addresses: [],
      needs: ["reply-task"],
      reply: { chatId: here.ann, object: { kind: "task", guid: task.guid } },
    });
    const [part] = message?.parts ?? [];
    const text = part?.type === "text" ? part.text : "";
    expect(text).toContain("````\nSend ```all``` to Bob\n\nIts comments:\n- Now!\n````");
  });

  it("starts nothing where the bot is not responsible, made it itself, or it is done or deleted", async () => {
    const { here, tasks, send, waiting } = await world();
    const of = { creator: here.ann, summary: "Plan" };
    const others = tasks.addTask({ ...of, assignees: [here.bob] });
    const own = tasks.addTask({ ...of, creator: app, assignees: [app, here.ann] });
    const done = tasks.addTask({ ...of, assignees: [app] });
    done.completedAt = 1;
    for (const { guid } of [others, own, done]) {
      expect(await send(guid, ["task_create"])).toBe("acknowledged");
      expect(await waiting(guid)).toBe(0);
    }
    expect(await send("0123-none", ["task_create"])).toBe("acknowledged");
    expect(await send("0123-none", ["task_desc_update"])).toBe("acknowledged");
  });

  it("starts nothing hours late, where the door is shut, or for people whom the bot does not serve", async () => {
    const { here, tasks, send, waiting } = await world();
    const late = tasks.addTask({ creator: here.ann, summary: "Plan", assignees: [app] });
    expect(await send(late.guid, ["task_create"], Date.now() - 7 * 3_600_000)).toBe("acknowledged");
    expect(await waiting(late.guid)).toBe(0);
    const foreign = await world({ settings: { bots: { default: { tenants: ["other"] } } } });
    expect(await foreign.waiting((await foreign.give()).guid)).toBe(0);
    const shut = await startWorld({});
    worlds.push(shut);
    const task = shut.platform.work.tasks.addTask({
      creator: shut.ann,
      summary: "Plan",
      assignees: [app],
    });
    const event = { task_guid: task.guid, event_types: ["task_create"] };
    await shut.platform.sendEvent({ appId: app, eventType, event });
    expect(await shut.waiting(`${app}.task-${task.guid}`)).toBe(0);
  });

  it("counts anew where it was done and is open again, but not while the bot is at work on it", async () => {
    const { here, tasks, give, waiting, head } = await world();
    const { guid } = await give();
    await tasks.setDone(guid, false);
    expect(await waiting(guid)).toBe(1);
    const session = `${app}.task-${guid}`;
    const claim = await here.begin(session);
    await here.finish(claim);
    await tasks.setDone(guid, true);
    expect(await waiting(guid)).toBe(0);
    await tasks.assign(guid, here.bob);
    expect(await waiting(guid)).toBe(0);
    await tasks.setDone(guid, false);
    expect(await waiting(guid)).toBe(1);
    expect(await head(guid)).toMatchObject({ sender: { id: "program:task" } });
  });

  it("is one of twenty a minute of its creator, in a storm of a thousand", async () => {
    const { here, tasks, send, waiting } = await world();
    const given = Array.from({ length: 1_000 }, (_, number) =>
      tasks.addTask({ creator: here.ann, summary: `Task ${number}`, assignees: [app] }),
    );
    const most = mostOfStorm();
    for (let from = 0; from < given.length; from += 50) {
      const some = given.slice(from, from + 50);
      const outcomes = some.map(async ({ guid }) => await send(guid, ["task_create"]));
      expect(new Set(await Promise.all(outcomes))).toEqual(new Set(["acknowledged"]));
    }
    const allowed = most();
    const counts = await Promise.all(given.map(async ({ guid }) => await waiting(guid)));
    const taken = counts.filter((count) => count === 1).length;
    expect(taken).toBeGreaterThanOrEqual(20);
    expect(taken).toBeLessThanOrEqual(allowed);
    expect(counts.filter((count) => count === 0)).toHaveLength(1_000 - taken);
  });
});
