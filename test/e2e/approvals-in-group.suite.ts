import { describe, expect, it } from "vitest";
import { decide, openQuestions, untilAsked, untilRetired } from "../system/approvals.ts";
import { isClosed, visibleAnswers } from "../system/answer.ts";
import { untilAnswered } from "../system/answers.ts";
import { answerTo, groupOf, send, type Writer } from "../system/sending.ts";
import { system } from "./approvals-deployment.ts";

describe("a group in which a person's turn waits for people", () => {
  it(
    "answers the others meanwhile, and everybody in the order of their own messages",
    { timeout: 240_000 },
    async () => {
      const { people } = groupOf(system, ["Ann", "Bob"]);
      const [ann, bob] = people as [Writer, Writer]; // as many as names
      const say = async (person: Writer, text: string) =>
        await send(system, person, { text, mention: true });
      const asked = await say(ann, 'deploy\ncall ask_once {"key":"group"}');
      await expect
        .poll(() => openQuestions(system, ann.chatId).length, { timeout: 60_000 })
        .toBe(1);
      const later = await say(ann, "and then this");
      const others = [await say(bob, "hello"), await say(bob, "once more")];
      await untilAnswered(system, others, 60_000);
      expect(
        await Promise.all(others.map(async (message) => await answerTo(system, message))),
      ).toEqual([expect.stringContaining("Bob: hello"), expect.stringContaining("Bob: once more")]);
      expect(await system.recorded()).not.toContain("once group");
      const [card] = openQuestions(system, ann.chatId);
      if (card === undefined) throw new Error("nobody is asked");
      await decide(system, card, { openId: ann.openId, wanted: { decision: "approve" } });
      expect(await answerTo(system, asked)).toContain("ok:");
      // The card that waited is the one that shows the answer, and nothing on it is open any more.
      const [shown, ...more] = visibleAnswers(system.feishu, asked);
      expect(more).toEqual([]);
      expect(shown?.messages.map(isClosed)).toEqual([true]);
      expect(await answerTo(system, later)).toContain("Ann: and then this");
      expect((await system.recorded()).filter((line) => line === "once group")).toHaveLength(1);
      // What the models were sent is what vendors take: every call with its results behind it.
      for (const { messages } of system.model.requests) {
        for (const [at, message] of messages.entries()) {
          if (message.calls.length > 0) expect(messages[at + 1]?.role).toBe("tool");
        }
      }
    },
  );

  it(
    "a person stops a turn of their own that waits, while that of another one runs",
    { timeout: 240_000 },
    async () => {
      const { people } = groupOf(system, ["Cai", "Dan"]);
      const [cai, dan] = people as [Writer, Writer]; // as many as names
      const say = async (person: Writer, text: string) =>
        await send(system, person, { text, mention: true });
      const recorded = await system.recorded();
      const asked = await say(cai, 'deploy\ncall ask_once {"key":"stopped"}');
      await untilAsked(system, cai.chatId);
      const running = await say(dan, 'wait\ncall hold_pure {"key":"stop-aside"}');
      // Its call runs: the turn that waits for people has made room for it.
      await expect.poll(() => system.recorded(), { timeout: 80_000 }).toContain("pure stop-aside");
      await say(cai, "/stop");
      await system.release("stop-aside");
      expect(await answerTo(system, running)).toContain("Dan: wait");
      expect(await answerTo(system, asked)).toContain("Stopped.");
      expect(
        visibleAnswers(system.feishu, asked).flatMap(({ messages }) => messages.map(isClosed)),
      ).toEqual([true]);
      await untilRetired(system, cai.chatId);
      expect((await system.recorded()).filter((line) => line.includes("once"))).toEqual(
        recorded.filter((line) => line.includes("once")),
      );
    },
  );
});
