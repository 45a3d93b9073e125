import type { FaultAction } from "@larkline/simulator";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { answersIn, answersTo, untilAnswered, type Written } from "../system/answers.ts";
import { chat } from "../system/chat-stream.ts";
import { obedientModel } from "../system/model-script.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;
beforeAll(async () => {
  system = await startSystem({ transport: "webhook", workers: 2 });
});
afterAll(async () => await system.close());
afterEach(() => system.model.setScript(obedientModel));

/** How often the model was asked for an answer to this message. */
function asked(text: string): number {
  return system.model.requests.filter(
    ({ messages }) => messages.findLast(({ role }) => role === "user")?.text === text,
  ).length;
}

/** Writes and does not wait for the acknowledgement. */
async function post(name: string, text: string): Promise<Written> {
  const { openId, chatId } = system.person(name);
  const { messageId } = await system.feishu.sendMessage({
    appId: system.appId,
    chatId,
    from: openId,
    text,
  });
  return { chatId, messageId, text };
}

describe("while the Feishu API is broken", () => {
  const limited = { code: 99991400, msg: "request trigger frequency limit" };
  const cases: [string, FaultAction, number][] = [
    ["answers 503", { kind: "respond", status: 503 }, 4],
    ["cuts connections", { kind: "drop" }, 2],
    ["does not answer", { kind: "hang" }, 1],
    ["sends, but its response is lost", { kind: "lose_response" }, 2],
    [
      "limits the rate",
      { kind: "respond", status: 429, body: limited, headers: { "x-ogw-ratelimit-reset": "1" } },
      2,
    ],
    [
      "refuses the token",
      { kind: "respond", status: 400, body: { code: 99991663, msg: "invalid token" } },
      1,
    ],
  ];

  it.concurrent.each(cases)(
    "and %s, an answer waits, is sent once, and costs no second model call",
    async (name, action, times) => {
      const written = await post(name, `${name} pause 400`);
      system.feishu.faults.add({
        match: { method: "POST", path: new RegExp(written.messageId) },
        times,
        action,
      });
      const attempts = () =>
        system.feishu.apiCalls.filter(
          ({ method, path }) => method === "POST" && path.includes(written.messageId),
        ).length;
      await vi.waitUntil(() => attempts() > times, { timeout: 60_000, interval: 50 });
      await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
      expect(answersIn(system, written.chatId)).toEqual([`[${written.text}]`]);
      expect(asked(written.text)).toBe(1);
    },
  );

  it("expired tokens are fetched again", async () => {
    system.feishu.expireTokens();
    expect(await system.ask(system.person("Tim"), "fresh token")).toBe("[fresh token]");
    expect(asked("fresh token")).toBe(1);
  });
});

describe("while Redis is away", () => {
  it("events are not acknowledged, and everything is answered once when it is back", async () => {
    const before = await post("early", "early pause 500");
    await vi.waitUntil(() => asked(before.text) > 0, { timeout: 60_000, interval: 10 });
    const during: Written[] = [];
    await system.withoutRedis(async () => {
      for (const name of ["one", "two", "three"]) during.push(await post(name, `${name} during`));
      // Three attempts take longer than the model: its answer finds no Redis to be stored in.
      const refused = ({ messageId }: Written) =>
        system.feishu.deliveries.filter((attempt) => attempt.messageId === messageId).length >= 3;
      await vi.waitUntil(() => during.every(refused), { timeout: 60_000, interval: 20 });
    });
    const all = [before, ...during];
    await untilAnswered(system, all, 60_000);
    for (const { messageId } of during) {
      const attemptsOf = () =>
        system.feishu.deliveries.filter((attempt) => attempt.messageId === messageId);
      // An answer may come before the acknowledgement of what it answers.
      await vi.waitUntil(() => attemptsOf().at(-1)?.acknowledged === true, {
        timeout: 60_000,
        interval: 20,
      });
      const attempts = attemptsOf();
      expect(attempts.map(({ status }) => status)).toContain(500);
      expect(attempts.map(({ acknowledged }) => acknowledged)).toEqual([
        ...attempts.slice(1).map(() => false),
        true,
      ]);
    }
    for (const written of all) {
      expect(answersTo(system, written).map(({ text }) => text)).toEqual([`[${written.text}]`]);
    }
    for (const { url } of [...system.workers, ...system.runners, ...system.ingresses]) {
      await vi.waitFor(async () => expect((await fetch(`${url}/ready`)).status).toBe(200), {
        timeout: 60_000,
      });
    }
    expect(await system.ask(system.person("after"), 'after\ncall note_pure {"key":"after"}')).toBe(
      '[after] ok:{"key":"after"}',
    );
  });
});

describe("when the model fails", () => {
  /** Goes wrong at the first request for the message only. */
  function failOnce(text: string, reply: ReturnType<typeof obedientModel>): void {
    system.model.setScript((request) => (asked(text) === 1 ? reply : obedientModel(request)));
  }

  it("an overloaded model is asked again, and the person sees one answer", async () => {
    failOnce("busy", {
      fault: {
        kind: "status",
        status: 529,
        type: "overloaded_error",
        headers: { "retry-after": "0" },
      },
    });
    expect(await system.ask(system.person("Ann"), "busy")).toBe("[busy]");
    expect(asked("busy")).toBe(2);
  });

  it("a stream that breaks off in the middle is begun anew, and only the complete answer is sent", async () => {
    failOnce("broken", {
      text: ["half ", "an ", "answer"],
      firstDelayMs: 1,
      fault: { kind: "cut", afterFrames: 4 },
    });
    const person = system.person("Bob");
    expect(await system.ask(person, "broken")).toBe("[broken]");
    expect(asked("broken")).toBe(2);
    expect(answersIn(system, person.chatId)).toEqual(["[broken]"]);
  });

  it("a stream that breaks off in the middle of a call runs nothing of it", async () => {
    const calls = [{ name: "note_once", arguments: { key: "cut off" } }];
    failOnce("cut call", { calls, firstDelayMs: 1, fault: { kind: "cut", afterFrames: 3 } });
    expect(await system.ask(system.person("Cai"), "cut call")).toBe("[cut call]");
    expect(await system.recorded()).not.toContain("once cut off");
  });

  it("refused credentials are reported to the person in short, once, and end the run in an error", async () => {
    system.model.setScript(() => ({
      fault: { kind: "status", status: 401, type: "authentication_error", message: "bad key sk-1" },
    }));
    const person = system.person("Dan");
    expect(await system.ask(person, "no key")).toBe(
      "Sorry, the model service refuses this bot: its key, or the credit of its account. Trying again does not help; please tell the people who run this bot.",
    );
    expect(asked("no key")).toBe(1);
    const frames = await (
      await chat(system.ingresses[0]?.url ?? "", "no-key", "no key, over HTTP")
    ).end();
    expect(frames.at(-1)).toMatchObject({ type: "error" });
    expect(JSON.stringify(frames)).not.toContain("sk-1");
    system.model.setScript(obedientModel);
    const { openId, chatId } = person;
    expect(await system.ask({ openId, chatId }, "and now")).toBe("[and now]");
  });
});
