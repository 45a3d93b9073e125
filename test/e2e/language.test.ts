import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { elementOf, waitForAnswer } from "../system/answer.ts";
import { decide, untilAsked, untilRetired } from "../system/approvals.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let users: RedisUsers;
let system: System;
beforeAll(async () => {
  users = await writeRedisUsers(["recording"]);
  system = await startSystem({
    ingresses: 2,
    redisUsers: users,
    config: {
      agents: { default: { defaultLanguage: "en", groups: "all" } },
      permissions: [
        { tools: ["note_once"], do: "refuse" },
        { tools: ["note_idempotent"], do: "ask" },
      ],
    },
  });
});
afterAll(async () => {
  await system.close();
  await users.remove();
});

/** The last card of the answer to a message, once it is finished. */
async function cardFor(messageId: string) {
  const { messages } = await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
  const last = messages.at(-1);
  if (last === undefined) throw new Error("there is no answer");
  return last;
}

/** The line below the answer to a message, in its own language. */
async function footerOf(writer: Writer, writing: Parameters<typeof send>[2]): Promise<string> {
  const { messageId } = await send(system, writer, writing);
  const footer = elementOf(await cardFor(messageId), "footer");
  return JSON.stringify(footer, (name, value: unknown) =>
    name === "i18n_content" ? undefined : value,
  );
}

const zh = /输入 [\d,]+ · 输出/;
const en = /[\d,]+ in · [\d,]+ out tokens/;

describe("the texts around an answer are in the person's language", () => {
  it("that of their last message with words, wherever they write and whichever process takes it", async () => {
    const person = system.person("Li Lei");
    expect(await footerOf(person, { text: "hello" })).toMatch(en);
    expect(await footerOf(person, { text: "你好，今天星期几？" })).toMatch(zh);
    for (const text of ["123", "👍", "???"]) expect(await footerOf(person, { text })).toMatch(zh);
    const { chatId } = system.feishu.addChat({
      type: "group",
      name: "Team",
      members: [person.openId],
    });
    expect(await footerOf({ ...person, chatId }, { text: "456" })).toMatch(zh);
    await Promise.all(system.ingresses.map(async (ingress) => await ingress.stop()));
    await system.start("ingress");
    expect(await footerOf(person, { text: "789" })).toMatch(zh);
    expect(await footerOf(person, { text: "what day is it?" })).toMatch(en);
    expect(await footerOf(person, { text: "10" })).toMatch(en);
  });

  it("the agent's default before they have written any words", async () => {
    expect(await footerOf(system.person("Ann"), { text: "123" })).toMatch(en);
  });

  it("each person's own in a group", async () => {
    const [one, other] = [
      system.feishu.addUser({ name: "王芳" }),
      system.feishu.addUser({ name: "Bob" }),
    ];
    const { chatId } = system.feishu.addChat({
      type: "group",
      name: "All",
      members: [one.openId, other.openId],
    });
    const writers = [one, other].map(({ openId }) => ({ openId, chatId })) as [Writer, Writer]; // there are two
    expect(await footerOf(writers[0], { text: "大家好" })).toMatch(zh);
    expect(await footerOf(writers[1], { text: "hi all" })).toMatch(en);
    expect(await footerOf(writers[0], { text: "1" })).toMatch(zh);
    expect(await footerOf(writers[1], { text: "2" })).toMatch(en);
  });

  it("commands and notices too", async () => {
    const person = system.person("赵敏");
    await footerOf(person, { text: "你好" });
    expect(await system.ask(person, "/status")).toContain("状态：空闲");
    expect(await system.ask(person, "/stop")).toContain("现在没有正在进行的任务");
    expect(await system.ask(system.person("Carl"), "/status")).toContain("State: idle");
  });
});

/** Chinese words around an order for the model. */
function ordering(tool: string): string {
  return `请你现在马上帮我执行下面的这个操作，谢谢\ncall ${tool} {"key":"a"}`;
}

describe("a card", () => {
  it("that one person sees is in their language, with what became of a call that was refused", async () => {
    const { messageId } = await send(system, system.person("李雷"), {
      text: ordering("note_once"),
    });
    const card = await cardFor(messageId);
    expect(JSON.stringify(elementOf(card, "tools"))).toContain(
      "不允许：这里的策略不允许。没有执行。",
    );
    expect(JSON.stringify(card.card?.json)).not.toContain("i18n_content");
    const told = system.model.requests
      .at(-1)
      ?.messages.at(-1)
      ?.results?.map(({ content }) => content);
    expect(told).toEqual([
      "permission_denied: the policy here does not allow it. The call was not run.",
    ]);
  });

  it("that a group sees carries both languages, and the model's words once", async () => {
    const { openId } = system.feishu.addUser({ name: "韩梅梅" });
    const { chatId } = system.feishu.addChat({ type: "group", name: "Both", members: [openId] });
    const { messageId } = await send(system, { openId, chatId }, { text: ordering("note_once") });
    const card = await cardFor(messageId);
    expect(JSON.stringify(elementOf(card, "tools"))).toMatch(
      /"content":"note_once ❌"[^]*"en_us":"```\\npermission_denied: /,
    );
    expect(elementOf(card, "answer")).not.toHaveProperty("i18n_content");
    expect(JSON.stringify(elementOf(card, "footer"))).toMatch(
      /"zh_cn":"[^"]*输入[^"]*","en_us":"[^"]* in · /,
    );
  });

  it("that asks a group for approval carries both, as does the greeting", async () => {
    const { openId } = system.feishu.addUser({ name: "小刚" });
    const { chatId } = system.feishu.addChat({ type: "group", name: "Asked", members: [openId] });
    await system.feishu.addBot(chatId, system.appId).reports;
    await expect
      .poll(() => JSON.stringify(system.feishu.messages(chatId)), { timeout: 60_000 })
      .toContain('"i18n_content":{"zh_cn":"你好","en_us":"Hello"}');
    const { messageId } = await send(
      system,
      { openId, chatId },
      { text: ordering("note_idempotent") },
    );
    const [asked] = await untilAsked(system, chatId);
    if (asked === undefined) throw new Error("nobody was asked");
    const titles = { zh_cn: "批准 note_idempotent？", en_us: "Approve note_idempotent?" };
    expect(asked.shown).toContainEqual(
      expect.objectContaining({
        text: expect.objectContaining({ content: titles.zh_cn, i18n_content: titles }),
      }),
    );
    await decide(system, asked, { openId, wanted: { decision: "reject" } });
    await untilRetired(system, chatId);
    expect(JSON.stringify(elementOf(await cardFor(messageId), "tools"))).toContain(
      "这个操作被拒绝了。",
    );
  });
});
