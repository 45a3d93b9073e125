import { ScheduleStore, type StoredSchedule } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;
let redis: RedisConnection;
let schedules: ScheduleStore;

const patience = { timeout: 60_000, interval: 50 };

/** Makes a schedule where the person says `remind me <after>`; when it is due it says so, and names its tools. */
const script: ModelScript = ({ messages, tools }) => {
  const last = messages.at(-1);
  const [result] = last?.results ?? [];
  if (result !== undefined) return { text: `made: ${result.content}` };
  const text = messages.findLast(({ role }) => role === "user")?.text ?? "";
  if (text.includes("[Schedule “")) return { text: `Drink water! Tools: ${tools.length}` };
  const [, after] = /remind me (\S+)/.exec(text) ?? [];
  if (after === undefined) return { text: "hello" };
  const input = { do: "make", title: "Water", task: "Tell the person to drink water.", after };
  return { text: "", calls: [{ name: "schedule", arguments: JSON.stringify(input) }] };
};

beforeAll(async () => {
  const config = { agents: { default: { schedules: true, tools: [] } } };
  system = await startSystem({ workers: 2, script, config, lines: true });
  redis = connectRedis(system.redis.url);
  schedules = new ScheduleStore({ redis, namespace: system.env["REDIS_NAMESPACE"] ?? "larkline" });
});
afterAll(async () => {
  await closeRedis(redis);
  await system.close();
});

/** Says it, confirms the card, and gives what was stored. */
async function remind(person: Writer, after: string): Promise<StoredSchedule> {
  const written = await write(system, person, `remind me ${after}`);
  const card = await theQuestion(system, person.chatId);
  expect(JSON.stringify(card.message)).toMatch(
    /Next: \d{4}-\d\d-\d\d \d\d:\d\d \(Asia\/Shanghai\)\. Does: Tell the person/,
  );
  expect(await schedules.ofPerson(system.appId, person.openId)).toEqual([]);
  await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
  expect(await answerTo(system, written)).toContain("made: ");
  const [made] = await schedules.ofPerson(system.appId, person.openId);
  if (made === undefined) throw new Error("nothing was made");
  return made;
}

/** The time of a single reminder has come: it is moved to now, which is what two hours would do. */
async function comes(made: StoredSchedule): Promise<void> {
  const atMs = Date.now();
  const schedule = { ...made.schedule, timing: { kind: "once", atMs } as const };
  expect(
    await schedules.change({ ...made, schedule }, { state: "active", dueMs: atMs, alarmMs: atMs }),
  ).toBe(true);
}

function reminders({ chatId }: Writer): string[] {
  const shown = system.feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
  return shown
    .map((message) => JSON.stringify(message))
    .filter((text) => text.includes("Drink water!"));
}

describe("a reminder", () => {
  it("is confirmed on a card, and comes once, though a worker dies at that moment", async () => {
    const person = system.person("Ann");
    const made = await remind(person, "PT2H");
    expect(made.dueMs - made.schedule.createdAtMs).toBeGreaterThan(7_100_000);
    expect(made.schedule).toMatchObject({
      owner: { id: person.openId },
      chatId: person.chatId,
      zone: "Asia/Shanghai",
    });
    const [first] = system.workers;
    await comes(made);
    await first?.kill();
    await vi.waitFor(() => expect(reminders(person)).toHaveLength(1), patience);
    await vi.waitFor(
      async () =>
        expect(await schedules.log(made.schedule.id)).toMatchObject([{ state: "started" }]),
      patience,
    );
    expect(await schedules.ofPerson(system.appId, person.openId)).toEqual([]);
    // A run is offered no tool that makes another one.
    expect(reminders(person)[0]).toContain("Tools: 0");
  });

  it("is listed and deleted by a command, and does not come then", async () => {
    const person = system.person("Bob");
    const made = await remind(person, "PT3H");
    const { messageId } = await write(system, person, "/schedules");
    const listed = await system.feishu.waitForReply(messageId, { timeoutMs: 60_000 });
    expect(listed.text).toMatch(
      /1\. Water · at \d{4}-\d\d-\d\d \d\d:\d\d · \d{4}-\d\d-\d\d \d\d:\d\d \(Asia\/Shanghai\)/,
    );
    expect(await answerTo(system, await write(system, person, "/schedules pause 1"))).toContain(
      "It is paused.",
    );
    expect(await answerTo(system, await write(system, person, "/schedules delete 1"))).toContain(
      "It is deleted.",
    );
    expect(await schedules.read(made.schedule.id)).toBeUndefined();
  });
});
