import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decide, openQuestions } from "../system/approvals.ts";
import { untilAnswered } from "../system/answers.ts";
import { answerTo, groupOf, send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

const tools = fileURLToPath(new URL("../fixtures/approval-tools.ts", import.meta.url));
const plain = fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url));

describe("a group in which somebody's turn waits for people", () => {
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ workers: 2, env: { RUNNER_TOOLS: `${plain},${tools}` } });
  });
  afterAll(() => system?.close());

  it(
    "answers the others meanwhile, and everybody in the order of their own messages",
    { timeout: 60_000 },
    async () => {
      const { people } = groupOf(system, ["Ann", "Bob"]);
      const [ann, bob] = people as [Writer, Writer]; // as many as names
      const say = async (person: Writer, text: string) => await send(system, person, { text, mention: true });
      const asked = await say(ann, 'deploy\ncall ask_once {"key":"group"}');
      await expect.poll(() => openQuestions(system, ann.chatId).length, { timeout: 20_000 }).toBe(1);
      const later = await say(ann, "and then this");
      const others = [await say(bob, "hello"), await say(bob, "once more")];
      await untilAnswered(system, others, 20_000);
      expect(await Promise.all(others.map(async (message) => await answerTo(system, message)))).toEqual([
        expect.stringContaining("Bob: hello"),
        expect.stringContaining("Bob: once more"),
      ]);
      expect(await system.recorded()).toEqual([]);
      const [card] = openQuestions(system, ann.chatId);
      if (card === undefined) throw new Error("nobody is asked");
      await decide(system, card, { openId: ann.openId, wanted: { decision: "approve" } });
      expect(await answerTo(system, asked)).toContain("ok:");
      expect(await answerTo(system, later)).toContain("Ann: and then this");
      expect(await system.recorded()).toEqual(["once group"]);
      // What the models were sent is what vendors take: every call with its results behind it.
      for (const { messages } of system.model.requests) {
        for (const [at, message] of messages.entries()) {
          if (message.calls.length > 0) expect(messages[at + 1]?.role).toBe("tool");
        }
      }
    },
  );
});
