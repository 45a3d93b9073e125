import { describe, expect, it, vi } from "vitest";
import { visibleAnswers, waitForAnswer } from "../system/answer.ts";
import type { Written } from "../system/answers.ts";
import { decide, untilRetired, type AskedCard } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { untilShown } from "../system/card-watch.ts";
import { answerTo, groupOf, lastRequest, send, takeBack, type Writer } from "../system/sending.ts";
import type { System } from "../system/system.ts";
import { model, useBot, useDeployment } from "./policies-deployment.ts";
import "./policies-events.suite.ts";

useDeployment();

const approve = { decision: "approve" };
let system: System;

/** The bot of the tests of a block. */
function withBot(name: string): void {
  useBot(name, (its) => (system = its));
}

async function untilHeld(key: string): Promise<void> {
  const held = async () => (await system.recorded()).some((line) => line.endsWith(` ${key}`));
  await vi.waitUntil(held, { timeout: 60_000, interval: 10 });
}

/** A person asks for a call that lasts until `key` is released. */
async function hold(person: Writer, key: string, mention = false): Promise<Written> {
  const text = `hold ${key}\ncall hold_pure ${JSON.stringify({ key })}`;
  const written = await send(system, person, { text, mention });
  await untilHeld(key);
  return written;
}

function twoPeople(): [Writer, Writer] {
  const [first, second] = groupOf(system, ["Ann", "Bob"]).people;
  if (first === undefined || second === undefined) throw new Error("nobody");
  return [first, second];
}

function reactionsOn({ chatId, messageId }: Written): string[] {
  const message = system.feishu.messages(chatId).find((one) => one.messageId === messageId);
  return (message?.reactions ?? []).map(({ emojiType }) => emojiType);
}

async function untilReactions(written: Written, ...emojis: string[]): Promise<void> {
  await vi.waitFor(() => expect(reactionsOn(written)).toEqual(emojis), {
    timeout: 60_000,
    interval: 10,
  });
}

function lines(text: string): string[] {
  return text.split("\n");
}

describe("queue", () => {
  withBot("queue");

  it("a message that waits is marked, answered in turn, and the mark goes", async () => {
    const person = system.person("Ann");
    const held = await hold(person, "first");
    const waiting = await send(system, person, { text: "second" });
    await untilReactions(waiting, "OneSecond");
    await system.release("first");
    expect(await answerTo(system, held)).toBe("[hold first] ok:released");
    expect(await answerTo(system, waiting)).toBe("[second]");
    await untilReactions(waiting);
  });

  it("people in a group wait for one another", async () => {
    const [ann, bob] = twoPeople();
    const held = await hold(ann, "hers", true);
    const waiting = await send(system, bob, { text: "his", mention: true });
    expect(visibleAnswers(system.feishu, waiting)).toEqual([]);
    await system.release("hers");
    expect(await answerTo(system, held)).toContain("ok:released");
    expect(await answerTo(system, waiting)).toBe("[Bob: his]");
  });
});

describe("steer", () => {
  withBot("steer");

  it("a message joins the running turn before its next model step, and the one answer is to both", async () => {
    const person = system.person("Dan");
    const held = await hold(person, "joined");
    const joining = await send(system, person, { text: "also this" });
    await untilReactions(joining, "OneSecond");
    await system.release("joined");
    await answerTo(system, held);
    const { messages } = lastRequest(system);
    expect(messages.map(({ role }) => role).slice(0, 2)).toEqual(["user", "assistant"]);
    expect(messages.at(-1)?.text).toContain("also this");
    expect(messages.flatMap(({ results }) => results.map(({ content }) => content))).toEqual([
      "released",
    ]);
    await untilReactions(joining);
    expect(await system.ask(person, "and then")).toBe("[and then]");
    expect(visibleAnswers(system.feishu, joining)).toEqual([]);
  });

  it("the joined message can be recalled as long as the turn runs: that stops it", async () => {
    const person = system.person("Eve");
    model.promptSteps("and a long one", {
      text: Array.from({ length: 500 }, (_, index) => `word ${index}, `),
      delayMs: 30,
    });
    const held = await hold(person, "recalled");
    const joining = await send(system, person, { text: "and a long one" });
    await system.release("recalled");
    await untilShown(system, held, "word 5,");
    await takeBack(system, joining);
    expect(await answerTo(system, held)).toMatch(/word 5,[^]*The message was recalled/);
  });

  it("another person's message waits for a turn of its own", async () => {
    const [ann, bob] = twoPeople();
    const held = await hold(ann, "own", true);
    const waiting = await send(system, bob, { text: "not mine", mention: true });
    const mine = await send(system, ann, { text: "mine", mention: true });
    await system.release("own");
    await answerTo(system, held);
    expect(await answerTo(system, waiting)).toBe("[Bob: not mine]");
    expect(await answerTo(system, mine)).toBe("[Ann: mine]");
  });

  it("a message with a file waits for a turn of its own, in which the file is read", async () => {
    const person = system.person("Pat");
    const held = await hold(person, "file");
    const bytes = Buffer.from("the words of the file");
    const waiting = await send(system, person, { file: { name: "a.txt", bytes } });
    await system.release("file");
    await answerTo(system, held);
    await answerTo(system, waiting);
    expect(lastRequest(system).asked).toContain("the words of the file");
  });

  it("an order such as /new waits too, and takes effect after the turn", async () => {
    const person = system.person("Fay");
    const held = await hold(person, "order");
    const order = await send(system, person, { text: "/new" });
    await system.release("order");
    await answerTo(system, held);
    expect(await answerTo(system, order)).toContain("A new conversation");
    await system.ask(person, "fresh");
    expect(lastRequest(system).messages).toHaveLength(1);
  });
});

describe("interrupt", () => {
  withBot("interrupt-lines");

  it("the person's next message stops the answer, and the next answer knows both", async () => {
    const person = system.person("Gus");
    model.promptSteps("long", {
      text: Array.from({ length: 500 }, (_, index) => `word ${index}, `),
      delayMs: 30,
    });
    const first = await send(system, person, { text: "long" });
    await untilShown(system, first, "word 5,");
    const { aborted } = system.model;
    const second = await send(system, person, { text: "no, this" });
    expect(await answerTo(system, first)).toMatch(/word 5,[^]*A newer message arrived/);
    expect(await answerTo(system, second)).toBe("[no, this]");
    await vi.waitFor(() => expect(system.model.aborted).toBeGreaterThan(aborted), {
      timeout: 60_000,
    });
    const { messages } = lastRequest(system);
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(messages[0]?.text).toBe("long");
    expect(messages[2]?.text).toBe("no, this");
  });

  it("stops running tools too", async () => {
    const person = system.person("Hal");
    const first = await hold(person, "broken");
    const second = await send(system, person, { text: "no, this" });
    expect(await answerTo(system, second)).toBe("[no, this]");
    expect(lines(await answerTo(system, first))[0]).toContain("A newer message arrived");
    await vi.waitFor(async () => expect(await system.recorded()).toContain("stopped broken"), {
      timeout: 60_000,
    });
  });

  it("another person's messages never stop it: each gets its position, and their last one is answered in turn", async () => {
    const [ann, bob] = twoPeople();
    const held = await hold(ann, "safe", true);
    const second = await send(system, bob, { text: "hello", mention: true });
    const third = await send(system, bob, { text: "第三条", mention: true });
    const noticeOf = async ({ messageId }: Written) =>
      (
        await system.feishu.waitUntil(messageId, ({ senderType }) => senderType === "app", {
          timeoutMs: 60_000,
        })
      ).text;
    expect(await noticeOf(second)).toMatch(/Messages before this one: 1/);
    expect(await noticeOf(third)).toMatch(/前面还有 2 条消息/);
    await system.release("safe");
    expect(await answerTo(system, held)).toContain("ok:released");
    const shows = async (written: Written, text: string) =>
      await vi.waitFor(
        () =>
          expect(visibleAnswers(system.feishu, written).map((answer) => answer.text)).toContain(
            text,
          ),
        { timeout: 60_000, interval: 10 },
      );
    await shows(second, "A newer message arrived, so I stopped here and go on with that one.");
    await shows(third, "[Bob: 第三条]");
    expect(lastRequest(system).messages.map(({ text }) => text)).toContain("Bob: hello");
  });

  it("three messages in a row: only the last one is answered in full", async () => {
    const person = system.person("Ida");
    const first = await hold(person, "one");
    const second = await send(system, person, { text: 'two\ncall hold_pure {"key":"two"}' });
    const third = await send(system, person, { text: "three" });
    expect(await answerTo(system, third)).toBe("[three]");
    for (const written of [first, second]) {
      const { text } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
      expect(text).toMatch(/newer message/);
    }
  });
});

describe("reject", () => {
  withBot("reject");

  it("is for the person who is being answered: with a conversation each, others are answered at once", async () => {
    const [ann, bob] = twoPeople();
    const held = await hold(ann, "apart", true);
    expect(await answerTo(system, await send(system, bob, { text: "and me", mention: true }))).toBe(
      "[Bob: and me]",
    );
    expect(lastRequest(system).messages).toHaveLength(1);
    await system.release("apart");
    expect(await answerTo(system, held)).toContain("ok:released");
  });

  it("refuses politely while it works, takes orders, and takes messages again afterwards", async () => {
    const person = system.person("Jo");
    const held = await hold(person, "busy");
    const refused = await send(system, person, { text: "refuse this" });
    expect(await answerTo(system, refused)).toContain("I am still working on an earlier message");
    expect(await answerTo(system, await send(system, person, { text: "还有这个" }))).toContain(
      "我正在处理上一条消息",
    );
    const order = await send(system, person, { text: "/new" });
    await system.release("busy");
    expect(await answerTo(system, held)).toContain("ok:released");
    expect(await answerTo(system, order)).toContain("新的对话"); // the language of their last message with words
    expect(await system.ask(person, "now")).toBe("[now]");
    expect(system.model.requests.map(({ messages }) => messages.at(-1)?.text)).not.toContain(
      "refuse this",
    );
  });
});

async function askLeave(
  person: Writer,
  key: string,
): Promise<{ written: Written; card: AskedCard }> {
  const text = `act ${key}\ncall ask_once ${JSON.stringify({ key })}`;
  const written = await send(system, person, { text });
  return { written, card: await theQuestion(system, person.chatId) };
}

function roles(): string[] {
  return lastRequest(system).messages.map(({ role }) => role);
}

/** Calls in all requests so far that are not followed by their result at once. */
function separatedCalls(): string[] {
  return system.model.requests.flatMap(({ messages }) =>
    messages.flatMap(({ calls }, index) => {
      const answered = messages[index + 1]?.results.map(({ id }) => id) ?? [];
      return calls.flatMap(({ id, name }) => (answered.includes(id) ? [] : [name]));
    }),
  );
}

describe("while people are asked, under the policy queue", () => {
  withBot("queue");

  it("AL-44: a message waits for its own turn, and never stands between a call and its result", async () => {
    const person = system.person("Ann");
    const { written, card } = await askLeave(person, "first");
    const meanwhile = await send(system, person, { text: "and this" });
    expect(visibleAnswers(system.feishu, meanwhile)).toEqual([]);
    await decide(system, card, { openId: person.openId, wanted: approve });
    expect(await answerTo(system, written)).toBe('[act first] ok:{"key":"first"}');
    expect(await answerTo(system, meanwhile)).toBe("[and this]");
    expect(roles()).toEqual(["user", "assistant", "tool", "assistant", "user"]);
    expect(separatedCalls()).toEqual([]);
  });
});

describe("while people are asked, under the policy steer", () => {
  withBot("steer");

  it("AL-44: a message joins the turn behind the result, and the question stays open until it is answered", async () => {
    const person = system.person("Bob");
    const { written, card } = await askLeave(person, "joined");
    const asked = model.asked('act joined\ncall ask_once {"key":"joined"}');
    const joining = await send(system, person, { text: "also this" });
    const marked = (): boolean =>
      system.feishu
        .messages(person.chatId)
        .some(
          ({ messageId, reactions }) => messageId === joining.messageId && reactions.length > 0,
        );
    await vi.waitUntil(marked, { timeout: 60_000, interval: 10 });
    expect(model.asked('act joined\ncall ask_once {"key":"joined"}')).toBe(asked);
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast?.content).toBe("Approved");
    await answerTo(system, written);
    const { messages } = lastRequest(system);
    expect(messages.flatMap(({ results }) => results.map(({ content }) => content))).toEqual([
      '{"key":"joined"}',
    ]);
    expect(messages.at(-1)?.text).toContain("also this");
    expect(separatedCalls()).toEqual([]);
    expect(visibleAnswers(system.feishu, joining)).toEqual([]);
    expect((await system.recorded()).filter((line) => line === "once joined")).toHaveLength(1);
  });
});

describe("while people are asked, under the policy interrupt", () => {
  withBot("interrupt");

  it("the person's next message ends the turn: the buttons go, a late click does nothing, and the call never runs", async () => {
    const person = system.person("Cai");
    const { written, card } = await askLeave(person, "dropped");
    const next = await send(system, person, { text: "no, this" });
    expect(await answerTo(system, written)).toContain("A newer message arrived");
    expect(await answerTo(system, next)).toBe("[no, this]");
    expect(await untilRetired(system, person.chatId)).toEqual([]);
    const { toast } = await decide(system, card, { openId: person.openId, wanted: approve });
    expect(toast).toMatchObject({ type: "info", content: "no pending approval" });
    expect(await system.ask(person, "still there")).toBe("[still there]");
    expect(await system.recorded()).not.toContain("once dropped");
  });

  it("a click at the moment of that message runs the call once or never, as its toast says", async () => {
    for (let round = 0; round < 4; round += 1) {
      const person = system.person(`Dan ${round}`);
      const { card } = await askLeave(person, `race${round}`);
      const [next, { toast }] = await Promise.all([
        send(system, person, { text: "no, this" }),
        decide(system, card, { openId: person.openId, wanted: approve }),
      ]);
      expect(["Approved", "no pending approval"]).toContain(toast?.content);
      expect(await answerTo(system, next)).toBe("[no, this]");
      await untilRetired(system, person.chatId);
      const runs = (await system.recorded()).filter((line) => line === `once race${round}`).length;
      expect(runs).toBeLessThanOrEqual(toast?.content === "Approved" ? 1 : 0);
    }
    expect(separatedCalls()).toEqual([]);
  });
});
