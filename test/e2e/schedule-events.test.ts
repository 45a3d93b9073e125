import { ScheduleStore } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;
let redis: RedisConnection;
let schedules: ScheduleStore;

const patience = { timeout: 60_000, interval: 50 };
/** Where it is noon, and no quiet hour. */
const ahead = (12 - new Date().getUTCHours() + 24) % 24;
const zone = ahead <= 14 ? `Etc/GMT-${ahead}` : `Etc/GMT+${24 - ahead}`;

/** Makes a schedule of what the person asks for; when a meeting has ended it says which. */
const script: ModelScript = ({ messages, tools }) => {
  const last = messages.at(-1);
  const [result] = last?.results ?? [];
  if (result !== undefined) return { text: `made: ${result.content}` };
  const text = messages.findLast(({ role }) => role === "user")?.text ?? "";
  const [, topic] = /because of meeting-ended[^]*\ntopic: (.*)/.exec(text) ?? [];
  if (topic !== undefined) return { text: `Tasks of ${topic}. Tools: ${tools.length}` };
  const task = "Send me the tasks of this meeting.";
  const input = { do: "make", title: "Tasks", task, on: "meeting-ended", zone };
  return { text: "", calls: [{ name: "schedule", arguments: JSON.stringify(input) }] };
};

beforeAll(async () => {
  const config = {
    agents: { default: { schedules: true, tools: [] } },
    doors: { personal: { events: ["meeting-ended"] } },
  };
  const env = { GRANT_KEY: "a1".repeat(32) };
  system = await startSystem({ workers: 2, script, config, env, lines: true });
  redis = connectRedis(system.redis.url);
  schedules = new ScheduleStore({ redis, namespace: system.env["REDIS_NAMESPACE"] ?? "larkline" });
});
afterAll(async () => {
  await closeRedis(redis);
  await system.close();
});

function answers({ chatId }: Writer): string[] {
  return system.feishu
    .messages(chatId)
    .filter(({ senderType }) => senderType === "app")
    .flatMap((message) => /Tasks of [^."]*\. Tools: \d+/.exec(JSON.stringify(message)) ?? []);
}

it("after a meeting the person who waits for that gets its tasks, once, though a worker dies", async () => {
  const ann = system.person("Ann");
  const written = await write(system, ann, "after my meetings, send me the tasks");
  const card = await theQuestion(system, ann.chatId);
  expect(JSON.stringify(card.message)).toContain("each time that a meeting of yours has ended");
  await decide(system, card, { openId: ann.openId, wanted: { decision: "approve" } });
  const { grants, work } = system.feishu;
  const link = await vi.waitFor(() => grants.waiting[0]?.link ?? expect.fail(), patience);
  expect(await schedules.ofPerson(system.appId, ann.openId)).toEqual([]);
  grants.consent(link, ann.openId);
  expect(await answerTo(system, written)).toContain("made: ");
  const subscribed = () => work.subscriptions.subscribed(system.appId, ann.openId);
  await vi.waitFor(() => expect(subscribed()).toHaveLength(1), patience);

  const hold = async (topic: string) => {
    const people = { organizer: ann.openId, participants: [] };
    return await work.meetings.holdMeeting({ topic, ...people, summary: "", todos: [] });
  };
  const [report] = await hold("Launch");
  expect(report?.outcome).toBe("acknowledged");
  await system.workers[0]?.kill();
  await vi.waitFor(() => expect(answers(ann)).toEqual(["Tasks of Launch. Tools: 0"]), patience);
  await hold("Budget");
  await vi.waitFor(() => expect(answers(ann)).toHaveLength(2), patience);

  expect(await answerTo(system, await write(system, ann, "/schedules delete 1"))).toContain(
    "It is deleted.",
  );
  await vi.waitFor(() => expect(subscribed()).toEqual([]), patience);
  expect(await hold("Retreat")).toEqual([]);
  expect(answers(ann)).toEqual(["Tasks of Launch. Tools: 0", "Tasks of Budget. Tools: 0"]);
});
