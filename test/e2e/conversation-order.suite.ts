import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { answersIn, metricOf, repeats, untilAnswered, write } from "../system/answers.ts";
import { system } from "./conversation-deployment.ts";

describe.each(["websocket", "webhook"] as const)("a conversation over %s", (transport) => {
  beforeAll(() => system.feishu.setTransport(system.appId, transport));
  afterAll(() => system.feishu.setTransport(system.appId, "auto"));

  it("a message is answered", async () => {
    expect(await system.ask(system.person("Ann"), "hello")).toBe("[hello]");
  });

  it("a tool is called by its runner and its result reaches the answer", async () => {
    const answer = await system.ask(
      system.person("Bob"),
      `add\ncall note_pure {"key":"${transport}"}`,
    );
    expect(answer).toBe(`[add] ok:{"key":"${transport}"}`);
    expect(await system.recorded()).toContain(`pure ${transport}`);
  });

  it("calls of one step run in parallel and are answered in call order", async () => {
    const answer = await system.ask(
      system.person("Cai"),
      `both\ncall meet {"key":"${transport}","of":2}\ncall note_pure {"key":"k2"}\ncall meet {"key":"${transport}","of":2}`,
    );
    expect(answer).toBe('[both] ok:met ok:{"key":"k2"} ok:met');
  });

  it("a failing tool, an unknown tool and bad arguments are answered, and the turn continues", async () => {
    const answer = await system.ask(
      system.person("Dan"),
      'try\ncall fail {}\ncall nothing {}\ncall note_once {"key":7}',
    );
    expect(answer).toContain("failed:this tool always fails");
    expect(answer).toContain("failed:tool_not_found");
    expect(answer).toMatch(/failed:.*key must be string/);
  });

  it("AL-46: a redelivered event is answered once", async () => {
    const { feishu, appId } = system;
    const { openId, chatId } = system.person("Eve");
    const { messageId } = await feishu.sendMessage({ appId, chatId, from: openId, text: "once" });
    await waitForAnswer(feishu, messageId, { timeoutMs: 60_000 });
    await feishu.redeliver(messageId);
    await system.ask({ openId, chatId }, "after");
    expect(answersIn(system, chatId)).toEqual(["[once]", "[after]"]);
  });
});

const chats = 8;
const messagesPerChat = 10;

/** A message and its answer; every second one has a tool call, every fifth three that run at once. */
function exchange(chat: number, position: number): { text: string; answer: string } {
  const key = `${chat}-${position}`;
  const name = `m${key} pause ${(position * 37) % 120}`;
  const keys = position % 5 === 0 ? ["a", "b", "c"] : position % 2 === 0 ? ["a"] : [];
  const calls = keys.map((part, index) => ({
    key: `${key}${part}`,
    ms: (keys.length - index) * 30,
  }));
  return {
    text: [name, ...calls.map((input) => `call note_once ${JSON.stringify(input)}`)].join("\n"),
    answer: [`[${name}]`, ...calls.map((call) => `ok:{"key":"${call.key}"}`)].join(" "),
  };
}

it("three workers answer what many chats write without waiting: each message once, in its chat's order", async () => {
  const conversations = Array.from({ length: chats }, (_, chat) => ({
    person: system.person(`person ${chat}`),
    exchanges: Array.from({ length: messagesPerChat }, (_none, position) =>
      exchange(chat, position),
    ),
  }));
  const written = await Promise.all(
    conversations.map(async ({ person, exchanges }) => {
      const sent = [];
      for (const { text } of exchanges) sent.push(await write(system, person, text));
      return sent;
    }),
  );
  await untilAnswered(system, written.flat(), 120_000);
  for (const { person, exchanges } of conversations) {
    expect(answersIn(system, person.chatId)).toEqual(exchanges.map(({ answer }) => answer));
  }
  expect(repeats(await system.recorded(), "once")).toEqual({ started: chats * 10, repeated: 0 });
  for (const worker of system.workers) {
    expect(await metricOf(worker, "larkline_turn_runs_total")).toBeGreaterThan(0);
  }
});

it("a chat waits for its own slow answer, and no other chat does", async () => {
  const slow = system.person("slow");
  await write(system, slow, 'first\ncall meet {"key":"slow","of":2}');
  const second = await write(system, slow, "second");
  for (const round of [1, 2, 3]) {
    const answers = await Promise.all(
      Array.from(
        { length: 4 },
        async (_, at) => await system.ask(system.person(`quick ${at}`), `quick ${round}`),
      ),
    );
    expect(answers).toEqual(Array(4).fill(`[quick ${round}]`));
  }
  expect(answersIn(system, slow.chatId)).toEqual([]);
  // The slow call ends when another person's turn makes the same one.
  await system.ask(system.person("other"), 'other\ncall meet {"key":"slow","of":2}');
  await waitForAnswer(system.feishu, second.messageId, { timeoutMs: 60_000 });
  expect(answersIn(system, slow.chatId)).toEqual(["[first] ok:met", "[second]"]);
});

it("a conversation continues from worker to worker with everything that was said before", async () => {
  const person = system.person("long");
  for (let round = 1; round <= 6; round += 1) await system.ask(person, `round ${round}`);
  const request = await vi.waitUntil(
    () => system.model.requests.findLast(({ messages }) => messages.at(-1)?.text === "round 6"),
    { timeout: 60_000 },
  );
  const rounds = [1, 2, 3, 4, 5, 6].flatMap((round) => [`round ${round}`, `[round ${round}]`]);
  expect(request?.messages.map(({ text }) => text)).toEqual(rounds.slice(0, -1));
});
