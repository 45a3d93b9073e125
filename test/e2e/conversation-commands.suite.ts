import { textOf, type Message } from "@larkline/protocol/content";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { write } from "../system/answers.ts";
import { untilShown } from "../system/card-watch.ts";
import { chat } from "../system/chat-stream.ts";
import { createPromptedModel, obedientModel } from "../system/model-script.ts";
import { answerTo, groupOf, lastRequest, send, type Writer } from "../system/sending.ts";
import { system } from "./conversation-deployment.ts";

const model = createPromptedModel();

/** What a command is answered, in words. */
async function told(person: Writer, text: string): Promise<string> {
  return await answerTo(system, await write(system, person, text));
}

/** The whole conversation, as it is kept. */
async function historyOf({ chatId }: Writer): Promise<string[]> {
  const redis = new Redis(system.redis.url);
  const [key = ""] = await redis.keys(`*:h:${system.appId}.${chatId}`);
  const messages = await redis.lrange(key, 0, -1);
  redis.disconnect();
  return messages.map((json) => textOf(JSON.parse(json) as Message)); // our own store wrote it
}

/** Waits until the session holds the outcome of `count` calls that its running turn made. */
async function untilDoneCalls({ chatId }: Writer, count: number): Promise<void> {
  const redis = new Redis(system.redis.url);
  const [key = ""] = await redis.keys(`*:calls:${system.appId}.${chatId}`);
  const done = async () => (await redis.hvals(key)).filter((state) => state === "done").length;
  await vi.waitFor(async () => expect(await done()).toBe(count), { timeout: 60_000, interval: 20 });
  redis.disconnect();
}

describe("orders to the bot", () => {
  beforeAll(() => system.model.setScript(model.script));
  afterAll(() => system.model.setScript(obedientModel));

  describe.each([
    ["zh", { new: "/新对话", said: "你好", reply: "已开始新的对话" }],
    ["en", { new: "/new", said: "hello", reply: "A new conversation has begun" }],
  ])("in %s", (_, words) => {
    it("a new conversation forgets the old one, which stays readable", async () => {
      const person = system.person("Ann");
      await system.ask(person, words.said);
      expect(await told(person, words.new)).toContain(words.reply);
      await system.ask(person, "next");
      expect(lastRequest(system).messages.map(({ text }) => text)).toEqual(["next"]);
      expect(await historyOf(person)).toEqual([words.said, `[${words.said}]`, "next", "[next]"]);
    });
  });

  describe("the model", () => {
    it("is listed, chosen for this conversation alone, refused when unknown, and given back", async () => {
      const [person, other] = [system.person("Bob"), system.person("Cai")];
      expect(await told(person, "/model")).toMatch(
        /Current model: .*claude-sonnet-4-6[^]*openai\/gpt-5/,
      );
      expect(await told(person, "/模型 openai/gpt-5")).toContain("openai/gpt-5");
      await system.ask(person, "who are you");
      expect(lastRequest(system)).toMatchObject({ dialect: "openai-chat", model: "gpt-5" });
      expect(await told(person, "/model")).toContain("Current model: `openai/gpt-5`");
      await system.ask(other, "and you");
      expect(lastRequest(system).model).toBe("claude-sonnet-4-6");
      expect(await told(person, "/model gpt-9")).toContain("There is no model “gpt-9”");
      await system.ask(person, "still");
      expect(lastRequest(system).model).toBe("gpt-5");
      expect(await told(person, "/model default")).toContain("claude-sonnet-4-6");
      await system.ask(person, "and now");
      expect(lastRequest(system).model).toBe("claude-sonnet-4-6");
      expect(
        lastRequest(system)
          .messages.map(({ text }) => text)
          .join(),
      ).not.toContain("/model");
    });
  });

  describe("what the bot tells of itself", () => {
    it("help names all commands and those of the configuration", async () => {
      const person = system.person("Dan");
      expect(await told(person, "/help")).toMatch(
        /\/new[^]*\/stop[^]*\/status[^]*\/model[^]*\/compact[^]*\/whoami[^]*\/周报/,
      );
      expect(await told(person, "/帮助")).toMatch(/\/新对话[^]*\/停止[^]*\/周报`：写周报/);
    });

    it("status tells whether it works, on what, and how many messages wait; asking does not wait", async () => {
      const person = system.person("Eve");
      expect(await told(person, "/status")).toMatch(
        /State: idle[^]*Messages in this conversation: 0/,
      );
      const held = await write(system, person, 'hold\ncall hold_pure {"key":"status"}');
      await vi.waitFor(async () => expect(await system.recorded()).toContain("pure status"), {
        timeout: 60_000,
      });
      const waiting = await write(system, person, "waiting");
      expect(await told(person, "/状态")).toMatch(/正在回答[^]*hold_pure[^]*等待中的消息：1/);
      await system.release("status");
      expect(await answerTo(system, held)).toBe("[hold] ok:released");
      expect(await answerTo(system, waiting)).toBe("[waiting]");
    });

    it("whoami tells who is asking", async () => {
      const person = system.person("Fay");
      expect(await told(person, "/whoami")).toContain(person.openId);
      expect(await told(person, "/我是谁")).toContain("用户 ID");
    });

    it("no model is asked for any of it, and no model sees it", async () => {
      const person = system.person("Gus");
      const before = system.model.requests.length;
      const orders = ["/help", "/status", "/whoami", "/model", "/new", "/compact", "/stop"];
      for (const text of orders) await told(person, text);
      expect(system.model.requests.length).toBe(before);
      await system.ask(person, "hello");
      expect(lastRequest(system).messages).toHaveLength(1);
    });
  });

  it("a command of the configuration becomes its prompt, with what was written behind it", async () => {
    await told(system.person("Hal"), "/周报 第三季度");
    expect(lastRequest(system).asked).toBe("Write the weekly report about:\n\n第三季度");
  });

  it("an unknown word after a slash is for the model", async () => {
    expect(await told(system.person("Ida"), "/etc/hosts what is it")).toBe(
      "[/etc/hosts what is it]",
    );
  });

  describe("compacting by order", () => {
    it("makes a summary stand for what is older, which stays readable", async () => {
      const person = system.person("Jo");
      expect(await told(person, "/compact")).toContain("nothing older");
      await answerTo(
        system,
        await send(system, person, {
          file: { name: "plan.txt", bytes: Buffer.from("due in May") },
        }),
      );
      const long = "a long story ".repeat(40);
      for (const number of [1, 2]) await system.ask(person, `part ${number} ${long}`);
      expect(await told(person, "/压缩")).toMatch(/已压缩对话/);
      const request = lastRequest(system);
      expect(request.system).toMatch(/compact conversation records|压缩对话记录/);
      expect(request.tools).toEqual([]);
      expect(request.asked).toMatch(/<conversation>[^]*due in May[^]*part 1[^]*<\/conversation>/);
      await system.ask(person, "go on");
      const { messages } = lastRequest(system);
      expect(messages[0]?.text).toContain("[Summary of the earlier conversation");
      expect(messages.map(({ text }) => text).join()).not.toContain(
        "part 1 a long story a long story a long",
      );
      expect((await historyOf(person)).filter((text) => text.startsWith("part"))).toHaveLength(2);
    });
  });

  const longStream = Array.from({ length: 1_000 }, (_, index) => `word ${index}, `);

  describe("stopping", () => {
    it.each(["/stop", "/停止"])(
      "%s breaks the model off at once, wherever it runs, and keeps what was said",
      async (order) => {
        const person = system.person("Kim");
        const question = `tell me ${order.slice(1)}`;
        model.promptSteps(question, { text: longStream, firstDelayMs: 1, delayMs: 30 });
        const written = await write(system, person, question);
        await untilShown(system, written, "word 5,");
        const { aborted } = system.model;
        await write(system, person, order);
        await vi.waitUntil(() => system.model.aborted > aborted, { timeout: 60_000, interval: 5 });
        const text = await answerTo(system, written);
        expect(text).toMatch(/^word 0, .*word 5,[^]*(Stopped\.|已停止。)$/);
        expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
        await system.ask(person, "and then");
        expect(lastRequest(system).messages[1]?.text).toContain("word 5,");
      },
    );

    it("reaches running tools, and says what had finished and what was broken off", async () => {
      const person = system.person("Lea");
      const lines = [
        'call note_once {"key":"paid"}',
        'call hold_once {"key":"sent"}',
        'call hold_pure {"key":"read"}',
      ];
      const written = await write(system, person, ["work", ...lines].join("\n"));
      await untilRecorded("once sent", "pure read", "once paid");
      await untilDoneCalls(person, 1);
      await write(system, person, "/stop");
      const text = await answerTo(system, written);
      expect(text).toMatch(/Stopped\.[^]*Already finished: `note_once`/);
      expect(text).toMatch(/may have taken effect, please check: `hold_once`/);
      expect(text).toMatch(/without effect: `hold_pure`/);
      await untilRecorded("stopped sent", "stopped read");
    });

    it("tells when there is nothing to stop", async () => {
      expect(await told(system.person("Max"), "/stop")).toBe("Nothing is running right now.");
      expect(await told(system.person("Max"), "/停止")).toBe("现在没有正在进行的任务。");
    });

    it("is for the person who asked; others in the group get a notice", async () => {
      const { people } = groupOf(system, ["Nia", "Olu"]);
      const [nia, olu] = people;
      if (nia === undefined || olu === undefined) throw new Error("nobody");
      const written = await send(system, nia, {
        text: 'mine\ncall hold_pure {"key":"mine"}',
        mention: true,
      });
      await untilRecorded("pure mine");
      const order = await send(system, olu, { text: "/stop", mention: true });
      expect(await answerTo(system, order)).toMatch(/^Only .* can stop this one\.$/);
      await system.release("mine");
      expect(await answerTo(system, written)).toContain("ok:released");
    });
  });

  describe("over HTTP", () => {
    const say = async (session: string, message: string) =>
      (await (await chat(system.ingresses[1]?.url ?? "", session, message)).end()).at(-1);

    it("orders to the conversation are obeyed there too, and their answers end the stream", async () => {
      const session = "orders";
      await say(session, "remember this");
      expect(await say(session, "/model openai/gpt-5")).toMatchObject({
        type: "done",
        final: expect.stringContaining("openai/gpt-5"),
      });
      await say(session, "still there");
      expect(lastRequest(system).model).toBe("gpt-5");
      expect(lastRequest(system).messages).toHaveLength(3);
      expect(await say(session, "/new")).toMatchObject({
        type: "done",
        final: expect.stringContaining("new conversation"),
      });
      expect(await say(session, "fresh")).toMatchObject({ type: "done", final: "[fresh]" });
      expect(lastRequest(system).messages).toHaveLength(1);
    });
  });
});

async function untilRecorded(...lines: string[]): Promise<void> {
  await vi.waitFor(
    async () => expect(await system.recorded()).toEqual(expect.arrayContaining(lines)),
    {
      timeout: 60_000,
      interval: 20,
    },
  );
}
