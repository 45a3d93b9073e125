import { fileURLToPath } from "node:url";
import type { SimCardFrame } from "@larkline/simulator";
import { demoScript, type ModelScript, type ScriptedReply } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { pictureOf } from "../fixtures/picture-tools.ts";
import { waitForAnswer, type Answer } from "../system/answer.ts";
import { chat } from "../system/chat-stream.ts";
import { obedientModel } from "../system/model-script.ts";
import { groupOf } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

const tools = fileURLToPath(new URL("../fixtures/picture-tools.ts", import.meta.url));
const env = { RUNNER_TOOLS: `${tools},@larkline/example-tools` };

/** A model that draws what it is asked for, and then shows it in its answer. */
function drawing(
  system: System,
  answer: (mark: string) => ScriptedReply | Promise<ScriptedReply>,
): void {
  system.model.setScript(async (request) => {
    const [result] = request.messages.at(-1)?.results ?? [];
    if (result === undefined) return await obedientModel(request);
    return await answer(
      /!\[.*?\]\(.*?\)/.exec(result.content)?.[0] ?? `no image in ${result.content}`,
    );
  });
}

async function ask(system: System, text: string): Promise<Answer> {
  const { appId, feishu } = system;
  const { openId, chatId } = system.person("Ann");
  const { messageId } = await feishu.sendMessage({ appId, chatId, from: openId, text });
  return await waitForAnswer(feishu, messageId, { timeoutMs: 60_000 });
}

function uploads({ feishu }: System): number {
  return feishu.apiCalls.filter(({ path }) => path.endsWith("/im/v1/images")).length;
}

/** What the app has uploaded under the key. */
function bytesOf({ feishu, appId }: System, key: string): Buffer | undefined {
  const { ownerAppId, bytes } = feishu.media(key) ?? {};
  return ownerAppId === appId && bytes instanceof Uint8Array ? Buffer.from(bytes) : undefined;
}

/** Everything that was typed as the answer of one reply. */
function framesOf({ feishu }: System, { messages }: Answer): SimCardFrame[] {
  return messages.flatMap(({ card }) => {
    const frames = card?.cardId === undefined ? [] : (feishu.card(card.cardId)?.frames ?? []);
    return frames.filter(({ elementId }) => elementId === "answer");
  });
}

async function expireBlobs({ redis }: System): Promise<number> {
  const client = new Redis(redis.url);
  const keys = await client.keys("*:blob:*");
  await client.del(...keys);
  await client.quit();
  return keys.length;
}

let system: System;
beforeAll(async () => {
  system = await startSystem({
    env,
    lines: true,
    config: {
      agents: { default: { files: true, todos: true }, text: { reply: "text", files: true } },
    },
    bots: { text: { agent: "text" } },
  });
});
afterAll(async () => await system.close());

describe("an image that a tool has produced", () => {
  afterEach(() => system.feishu.faults.clear());

  it("is shown on the card where the model names it, and is uploaded once for two answers", async () => {
    drawing(system, (mark) => ({ text: `Before.\n\n${mark}\n\nAfter.` }));
    const first = await ask(system, 'call draw {"key":"a"}');
    const second = await ask(system, 'call draw {"key":"a"}');
    const [, key = ""] =
      /^Before\.\s+!\[picture a\]\((img_[\w-]+)\)\s+After\.$/.exec(first.text) ?? [];
    expect(second.text).toBe(first.text);
    expect(bytesOf(system, key)).toEqual(pictureOf("a", 2));
    expect(uploads(system)).toBe(1);
  });

  it.each(["chart 3 5 2", "画一个图表：3，5，2"])(
    "is drawn by the example tools when the demo is asked: %s",
    async (text) => {
      system.model.setScript(demoScript);
      const answer = await ask(system, text);
      const [, key = ""] = /!\[Bar chart of 3, 5, 2\]\((img_[\w-]+)\)$/m.exec(answer.text) ?? [];
      expect(system.feishu.media(key)).toMatchObject({ mediaType: "image/png" });
      const panel = JSON.stringify(answer.messages[0]?.card?.json);
      expect(panel).toContain("Bar chart of 3, 5, 2");
      expect(panel).not.toContain("blob");
    },
  );

  it("appears while the answer types, which continues behind it, and no person ever reads its id", async () => {
    const words = Array.from({ length: 40 }, (_, index) => `word${index} `);
    const shows = ({ text }: SimCardFrame) => /!\[picture b\]\(img_[\w-]+\) word0/.test(text);
    const shown = Promise.withResolvers<void>();
    // The last words come when the picture was seen.
    const waits = { afterFrames: words.length, until: shown.promise };
    const stop = system.feishu.on("message", (message) => {
      const cardId = message.card?.cardId ?? "";
      if (system.feishu.card(cardId)?.frames.some(shows) === true) shown.resolve();
    });
    drawing(system, (mark) => ({
      text: ["Before. ", mark.slice(0, 9), mark.slice(9), " ", ...words],
      delayMs: 60,
      waits,
    }));
    const answer = await ask(system, 'call draw {"key":"b"}');
    const frames = framesOf(system, answer);
    stop();
    const growing = frames.filter(shows);
    expect(growing.some(({ text }) => !text.includes("word39"))).toBe(true);
    expect(frames.filter(({ text }) => text.includes("blob"))).toEqual([]);
    const begunAnew = frames.filter(({ text }, index) => {
      const before = frames[index - 1]?.text ?? "";
      return before !== "…" && !text.startsWith(before);
    });
    expect(begunAnew).toEqual([]);
  });

  it("is its name when the content has expired meanwhile, and the answer is complete", async () => {
    let expired = 0;
    drawing(system, async (mark) => {
      expired += await expireBlobs(system);
      return { text: `Before ${mark} after` };
    });
    expect((await ask(system, 'call draw {"key":"d"}')).text).toBe("Before picture d after");
    expect(expired).toBeGreaterThan(0);
  });

  it("is its name when the platform refuses it, and the answer is complete", async () => {
    drawing(system, (mark) => ({ text: `Before ${mark} after` }));
    expect((await ask(system, 'call draw {"key":"e","height":20000}')).text).toBe(
      "Before picture e after",
    );
    system.feishu.faults.add({
      match: { path: /images$/ },
      action: {
        kind: "respond",
        status: 400,
        body: { code: 234011, msg: "Can't recognize the image format." },
      },
    });
    expect((await ask(system, 'call draw {"key":"f"}')).text).toBe("Before picture f after");
  });

  it("of the web, or that is not stored, is none: no name in an answer makes a process fetch anything", async () => {
    const before = uploads(system);
    const url = `${system.model.url}/secret.png`;
    system.model.setScript(() => ({
      text: `![a](${url}) ![b](blob:blob_${"x".repeat(43)}) ![c](file:///etc/passwd)`,
    }));
    const { text } = await ask(system, "show");
    expect(text).toBe(`[a](${url}) b c`);
    expect(uploads(system)).toBe(before);
  });
});

describe("a plan that the model works off", () => {
  it.each([
    {
      text: "make a plan",
      of: (done: number) => `To-do: ${done} of 3 done`,
      step: "Write the plan down",
    },
    { text: "做个计划", of: (done: number) => `已完成 ${done}/3`, step: "写下计划" },
  ])(
    "is ticked off on the card, and written into a file of this conversation: $text",
    async ({ text, of, step }) => {
      const { appId, feishu } = system;
      const { openId, chatId } = system.person("Ann");
      const isShown = () => JSON.stringify(feishu.messages(chatId)).includes(of(1));
      const shown = Promise.withResolvers<void>();
      system.model.setScript(async (request) => {
        const lists = request.messages
          .flatMap(({ calls }) => calls)
          .filter(({ name }) => name === "todo_write");
        // The first tick is seen before the second one comes: a card may leave out what is there for a moment only.
        if (lists.length === 2) await shown.promise;
        return demoScript(request);
      });
      const { messageId } = await feishu.sendMessage({ appId, chatId, from: openId, text });
      await vi.waitUntil(isShown, { timeout: 60_000, interval: 5 });
      shown.resolve();
      const answer = await waitForAnswer(feishu, messageId, { timeoutMs: 60_000 });
      expect(JSON.stringify(answer.messages[0]?.card?.json)).toContain(of(3));
      expect(answer.text).toContain("plan.md");
      system.model.setScript(obedientModel);
      const written = await feishu.sendMessage({
        appId,
        chatId,
        from: openId,
        text: 'call read_file {"path":"plan.md"}',
      });
      expect(
        (await waitForAnswer(feishu, written.messageId, { timeoutMs: 60_000 })).text,
      ).toContain(step);
      expect((await ask(system, 'call read_file {"path":"plan.md"}')).text).toContain(
        "failed:There is no file plan.md",
      );
    },
  );
});

describe("a file of the working folder", () => {
  afterEach(() => system.feishu.faults.clear());

  /** Writes a file and has it sent. */
  const sending = (given: object): string =>
    [
      "please",
      `call write_file {"path":"notes/a.md","content":"# Plan"}`,
      `call send_file ${JSON.stringify(given)}`,
    ].join("\n");
  const inOrder: ModelScript = ({ messages }) => {
    const asked = messages.findLastIndex(({ role, text }) => role === "user" && text !== "");
    const lines = (messages[asked]?.text ?? "")
      .split("\n")
      .flatMap((line) => /call \w+ .*$/.exec(line) ?? []);
    const done = messages.slice(asked).filter(({ calls }) => calls.length > 0).length;
    const [, name, given] = /^call (\S+) (.*)$/.exec(lines[done] ?? "") ?? [];
    if (name !== undefined && given !== undefined) return { calls: [{ name, arguments: given }] };
    return {
      text: `So it is: ${messages
        .at(-1)
        ?.results.map(({ content }) => content)
        .join("; ")}`,
    };
  };

  /** What a chat has got: the files by name and text, and what was said last. */
  function shownIn({ feishu }: System, chatId: string) {
    const bots = feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
    const files = bots.flatMap(({ messageType, content, parentId }) => {
      if (messageType !== "file") return [];
      const { file_key: key } = JSON.parse(content) as { file_key: string }; // as the platform keeps it
      const { name, bytes } = feishu.media(key) ?? {};
      return [{ name, text: Buffer.from(bytes as Uint8Array).toString(), parentId }]; // the bot has uploaded bytes
    });
    return {
      files,
      said: JSON.stringify(bots.filter(({ messageType }) => messageType !== "file")),
    };
  }

  async function sent(bot: System, person: { openId: string; chatId: string }, given: object) {
    system.model.setScript(inOrder);
    const { messageId } = await bot.feishu.sendMessage({
      appId: bot.appId,
      chatId: person.chatId,
      from: person.openId,
      text: sending(given),
      mention: bot.feishu.chats.get(person.chatId)?.type === "group",
    });
    return {
      messageId,
      untilSaid: async (words: string) =>
        await vi.waitUntil(() => shownIn(bot, person.chatId).said.includes(words), {
          timeout: 60_000,
          interval: 20,
        }),
    };
  }

  it("is sent as an attachment to the message, under the name that it shall have, also in a group", async () => {
    const [ann] = groupOf(system, ["Ann", "Bob"]).people;
    for (const person of [system.person("Cai"), ann]) {
      if (person === undefined) throw new Error("unreachable: the group has two people");
      const { messageId, untilSaid } = await sent(system, person, {
        path: "notes/a.md",
        name: "../计划.md",
      });
      await untilSaid("So it is: 计划.md was sent to the chat.");
      const { files } = shownIn(system, person.chatId);
      expect(files).toEqual([{ name: "计划.md", text: "# Plan", parentId: messageId }]);
    }
  });

  it("is sent also where a tool has kept it, under its name", async () => {
    const person = system.person("Fay");
    system.model.setScript(async (request) => {
      const [result] = request.messages.at(-1)?.results ?? [];
      const kept = /blob:blob_[\w-]{43}/.exec(result?.content ?? "")?.[0];
      if (kept === undefined) return await obedientModel(request);
      return { calls: [{ name: "send_file", arguments: JSON.stringify({ path: kept }) }] };
    });
    await system.ask(person, "call export_notes {}");
    await vi.waitUntil(
      () => shownIn(system, person.chatId).said.includes("notes.pdf was sent to the chat."),
      { timeout: 60_000, interval: 20 },
    );
    expect(shownIn(system, person.chatId).files).toMatchObject([
      { name: "notes.pdf", text: "%PDF-1.7" },
    ]);
    const gone = JSON.stringify({ path: `blob:blob_${"x".repeat(43)}` });
    expect(await system.ask(person, `call send_file ${gone}`)).toContain("is not kept any more");
  });

  it("is sent once, although its answer is lost and the worker dies", async () => {
    const text = system.botNamed("text");
    const person = text.person("Dan");
    system.feishu.faults.add({
      match: { path: /\/reply$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    const { untilSaid } = await sent(text, person, { path: "notes/a.md" });
    await vi.waitUntil(() => shownIn(text, person.chatId).files.length > 0, {
      timeout: 60_000,
      interval: 1,
    });
    await system.workers[0]?.kill();
    system.workers[0] = await system.start("agent-worker");
    await untilSaid("So it is: a.md was sent to the chat.");
    expect(shownIn(text, person.chatId).files).toHaveLength(1);
  });

  it("is not sent once the person has stopped the turn", async () => {
    const person = system.person("Eve");
    const stopped = Promise.withResolvers<void>();
    system.feishu.faults.add({
      match: { path: /files$/ },
      action: { kind: "hold", until: stopped.promise },
    });
    const before = system.feishu.apiCalls.length;
    const { untilSaid } = await sent(system, person, { path: "notes/a.md" });
    await untilSaid("Send a file");
    await system.feishu.sendMessage({
      appId: system.appId,
      ...person,
      from: person.openId,
      text: "/stop",
    });
    await untilSaid("Stopped");
    stopped.resolve();
    const isUploaded = () =>
      system.feishu.apiCalls.slice(before).some(({ path }) => path.endsWith("/files"));
    await vi.waitUntil(isUploaded, { timeout: 60_000, interval: 20 });
    expect(await system.ask(person, 'next\ncall read_file {"path":"notes/a.md"}')).toContain(
      "# Plan",
    );
    expect(shownIn(system, person.chatId).files).toEqual([]);
  });

  it("is not sent where the platform refuses it, where it is not there, or where there is no chat; the model reads why", async () => {
    const [cai, dan] = [system.person("Cai"), system.person("Dan")];
    const missing = await sent(system, cai, { path: "b.md" });
    await missing.untilSaid("There is no file b.md.");
    system.feishu.faults.add({
      match: { path: /files$/ },
      action: {
        kind: "respond",
        status: 400,
        body: { code: 234006, msg: "The file size exceed the max value." },
      },
    });
    const refused = await sent(system, dan, { path: "notes/a.md" });
    await refused.untilSaid("a.md was not sent");
    expect([cai, dan].flatMap(({ chatId }) => shownIn(system, chatId).files)).toEqual([]);
    const frames = await (
      await chat(system.ingresses[0]?.url ?? "", "s2", sending({ path: "notes/a.md" }))
    ).end();
    expect(JSON.stringify(frames.at(-1))).toContain("send_file");
    const [offered] = system.model.requests.slice(-1);
    expect(offered?.tools.map(({ name }) => name)).not.toContain("send_file");
    expect(offered?.tools.map(({ name }) => name)).toContain("write_file");
  });
});

describe("where no image can be shown, its name is shown instead", () => {
  it("in messages without a card", async () => {
    const before = uploads(system);
    drawing(system, (mark) => ({ text: `Before ${mark} after` }));
    expect((await ask(system.botNamed("text"), 'call draw {"key":"g"}')).text).toBe(
      "Before picture g after",
    );
    expect(uploads(system)).toBe(before);
  });

  it("in the HTTP API's text, piece by piece and whole; the result of the tool names the image", async () => {
    drawing(system, (mark) => ({ text: [..."Before ", ...mark, ..." after"], delayMs: 2 }));
    const frames = await (
      await chat(system.ingresses[0]?.url ?? "", "s1", 'call draw {"key":"h"}')
    ).end();
    const said = frames.flatMap((frame) => (frame.type === "assistant" ? [frame.content] : []));
    expect(said.join("")).toBe("Before picture h after");
    expect(frames.at(-1)).toMatchObject({ type: "done", final: "Before picture h after" });
    const [result] = frames.flatMap((frame) =>
      frame.type === "tool_result" ? [frame.result] : [],
    );
    expect(result).toEqual({
      image: expect.stringMatching(/^!\[picture h\]\(blob:blob_[\w-]{43}\)$/),
    });
  });
});
