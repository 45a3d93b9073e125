import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { answersIn, metricOf, repeats, untilAnswered, write } from "../system/answers.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;
beforeAll(async () => {
  system = await startSystem({ workers: 3 });
});
afterAll(async () => await system.close());

const chats = 8;
const messagesPerChat = 10;

/** A message and its answer; every second one has a tool call, every fifth three that run at once. */
function exchange(chat: number, position: number): { text: string; answer: string } {
  const key = `${chat}-${position}`;
  const name = `m${key} pause ${(position * 37) % 120}`;
  const keys = position % 5 === 0 ? ["a", "b", "c"] : position % 2 === 0 ? ["a"] : [];
  const calls = keys.map((part, index) => ({ key: `${key}${part}`, ms: (keys.length - index) * 30 }));
  return {
    text: [name, ...calls.map((input) => `call note_once ${JSON.stringify(input)}`)].join("\n"),
    answer: [`[${name}]`, ...calls.map((call) => `ok:{"key":"${call.key}"}`)].join(" "),
  };
}

it("three workers answer what many chats write without waiting: each message once, in its chat's order", async () => {
  const conversations = Array.from({ length: chats }, (_, chat) => ({
    person: system.person(`person ${chat}`),
    exchanges: Array.from({ length: messagesPerChat }, (_none, position) => exchange(chat, position)),
  }));
  const written = await Promise.all(
    conversations.map(async ({ person, exchanges }) => {
      const sent = [];
      for (const { text } of exchanges) sent.push(await write(system, person, text));
      return sent;
    }),
  );
  await untilAnswered(system, written.flat(), 60_000);
  for (const { person, exchanges } of conversations) {
    expect(answersIn(system, person.chatId)).toEqual(exchanges.map(({ answer }) => answer));
  }
  expect(repeats(await system.recorded(), "once")).toEqual({ started: chats * 10, repeated: 0 });
  for (const worker of system.workers) expect(await metricOf(worker, "larkline_turn_runs_total")).toBeGreaterThan(0);
});

it("a chat waits for its own slow answer, and no other chat does", async () => {
  const slow = system.person("slow");
  await write(system, slow, 'first\ncall meet {"key":"slow","of":2}');
  const second = await write(system, slow, "second");
  for (const round of [1, 2, 3]) {
    const answers = await Promise.all(
      Array.from({ length: 4 }, async (_, at) => await system.ask(system.person(`quick ${at}`), `quick ${round}`)),
    );
    expect(answers).toEqual(Array(4).fill(`[quick ${round}]`));
  }
  expect(answersIn(system, slow.chatId)).toEqual([]);
  // The slow call ends when somebody makes the same one.
  await system.ask(system.person("other"), 'other\ncall meet {"key":"slow","of":2}');
  await waitForAnswer(system.feishu, second.messageId, { timeoutMs: 60_000 });
  expect(answersIn(system, slow.chatId)).toEqual(["[first] ok:met", "[second]"]);
});

it("a conversation goes on from worker to worker with everything that was said before", async () => {
  const person = system.person("long");
  for (let round = 1; round <= 6; round += 1) await system.ask(person, `round ${round}`);
  const request = await vi.waitUntil(() =>
    system.model.requests.findLast(({ messages }) => messages.at(-1)?.text === "round 6"),
  );
  const rounds = [1, 2, 3, 4, 5, 6].flatMap((round) => [`round ${round}`, `[round ${round}]`]);
  expect(request?.messages.map(({ text }) => text)).toEqual(rounds.slice(0, -1));
});
