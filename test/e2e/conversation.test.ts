import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { answersIn } from "../system/answers.ts";
import { startSystem, type System } from "../system/system.ts";

describe.each(["websocket", "webhook"] as const)("a conversation over %s", (transport) => {
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ transport });
  });
  afterAll(async () => await system.close());

  it("a message is answered", async () => {
    expect(await system.ask(system.person("Ann"), "hello")).toBe("[hello]");
  });

  it("a tool is called by its runner and its result reaches the answer", async () => {
    const answer = await system.ask(system.person("Bob"), 'add\ncall note_pure {"key":"k1"}');
    expect(answer).toBe('[add] ok:{"key":"k1"}');
    expect(await system.recorded()).toContain("pure k1");
  });

  it("calls of one step run in parallel and are answered in call order", async () => {
    const answer = await system.ask(
      system.person("Cai"),
      'both\ncall meet {"key":"m","of":2}\ncall note_pure {"key":"k2"}\ncall meet {"key":"m","of":2}',
    );
    expect(answer).toBe('[both] ok:met ok:{"key":"k2"} ok:met');
  });

  it("a failing tool, an unknown tool and bad arguments are answered, and the turn goes on", async () => {
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
