import { expect, it } from "vitest";
import { streamAtOnce } from "../system/streaming-load.ts";
import { model, system } from "./cards-deployment.ts";

const chats = 30;

it("many cards type at once: the limits of the platform are kept, and everybody gets the whole answer on one card", async () => {
  const answerTo = (chat: number): string[] =>
    Array.from(
      { length: 60 },
      (_, index) => `chat ${chat} word ${index}${index === 59 ? "." : ", "}`,
    );
  for (let chat = 0; chat < chats; chat += 1) {
    model.promptSteps(`question ${chat}`, { text: answerTo(chat), firstDelayMs: 1, delayMs: 50 });
  }
  const { seen, refusals } = await streamAtOnce(system, {
    chats,
    text: (chat) => `question ${chat}`,
    patienceMs: 120_000,
  });
  // What the machine stops between a grant and its call, a worker or the platform here, makes the call that each card
  // has under way late: all of them come at once then. Without grants it is hundreds.
  expect(refusals.length).toBeLessThanOrEqual(chats);
  for (const [chat, { answers }] of seen.entries()) {
    expect(answers.map(({ text }) => text)).toEqual([answerTo(chat).join("")]);
    expect(answers[0]?.messages).toHaveLength(1);
  }
  expect(seen.reduce((sum, { frames }) => sum + frames, 0)).toBeGreaterThan(chats);
});
