import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { elementOf, waitForAnswer } from "../system/answer.ts";
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
    config: { agents: { default: { defaultLanguage: "en", groups: "all" } } },
  });
}, 90_000);
afterAll(async () => {
  await system.close();
  await users.remove();
});

/** The line below the answer to a message, once it is there. */
async function footerOf(writer: Writer, writing: Parameters<typeof send>[2]): Promise<string> {
  const { messageId } = await send(system, writer, writing);
  const { messages } = await waitForAnswer(system.feishu, messageId, { timeoutMs: 30_000 });
  const last = messages.at(-1);
  if (last === undefined) throw new Error("there is no answer");
  return JSON.stringify(elementOf(last, "footer"));
}

const zh = /输入 [\d,]+ · 输出/;
const en = /[\d,]+ in · [\d,]+ out tokens/;

describe("the texts around an answer are in the person's language", () => {
  it("that of their last message with words, wherever they write and whichever process takes it", async () => {
    const person = system.person("Li Lei");
    expect(await footerOf(person, { text: "hello" })).toMatch(en);
    expect(await footerOf(person, { text: "你好，今天星期几？" })).toMatch(zh);
    for (const text of ["123", "👍", "???"]) expect(await footerOf(person, { text })).toMatch(zh);
    const { chatId } = system.feishu.addChat({ type: "group", name: "Team", members: [person.openId] });
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
    const [one, other] = [system.feishu.addUser({ name: "王芳" }), system.feishu.addUser({ name: "Bob" })];
    const { chatId } = system.feishu.addChat({ type: "group", name: "All", members: [one.openId, other.openId] });
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
