import { afterAll, beforeAll, expect, it } from "vitest";
import { createPromptedModel } from "../system/model-script.ts";
import { streamAtOnce } from "../system/streaming-load.ts";
import { startSystem, type System } from "../system/system.ts";

const chats = 30;
const model = createPromptedModel();
let system: System;
beforeAll(async () => {
  system = await startSystem({ workers: 2, script: model.script, simulator: { limits: "enforced" } });
});
afterAll(async () => await system.close());

it("many cards type at once: the limits of the platform are kept, and everybody gets the whole answer on one card", async () => {
  const answerTo = (chat: number): string[] =>
    Array.from({ length: 60 }, (_, index) => `chat ${chat} word ${index}${index === 59 ? "." : ", "}`);
  for (let chat = 0; chat < chats; chat += 1) {
    model.prompt(`question ${chat}`, { text: answerTo(chat), firstDelayMs: 1, delayMs: 50 });
  }
  const { seen, refusals } = await streamAtOnce(system, {
    chats,
    text: (chat) => `question ${chat}`,
    patienceMs: 25_000,
  });
  // A worker that the machine stops between a grant and its call may be one call late; without grants it is hundreds.
  expect(refusals.length).toBeLessThanOrEqual(2);
  for (const [chat, { answers }] of seen.entries()) {
    expect(answers.map(({ text }) => text)).toEqual([answerTo(chat).join("")]);
    expect(answers[0]?.messages).toHaveLength(1);
  }
  expect(seen.reduce((sum, { frames }) => sum + frames, 0)).toBeGreaterThan(chats);
});
