import { expect, it } from "vitest";
import { longAnswer, piecesOf, wordedLines } from "../fixtures/long-answer.ts";
import { shownAnswer, visibleAnswers, waitForAnswer } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { cardsOf, refusedOperations, textsReplaced } from "../system/card-watch.ts";
import { model, system } from "./cards-deployment.ts";

const sizes = [1_000, 6_000, 20_000, 60_000, 60_000, 200_000];

/** The last text that each card typed, and what it shows in the end. */
function lastFrames(written: Written): { typed: string; shown: string }[] {
  const messages = visibleAnswers(system.feishu, written).flatMap((answer) => answer.messages);
  return messages.map((message) => ({
    typed: system.feishu.card(message.card?.cardId ?? "")?.frames.at(-1)?.text ?? "",
    shown: shownAnswer(message) ?? "",
  }));
}

it("random answers of up to 200,000 characters are shown whole over as many cards as it takes, and only ever grow", async () => {
  const answers = sizes.map((size, seed) => longAnswer(seed, size));
  const written = await Promise.all(
    answers.map(async (answer, seed) => {
      const name = `answer ${seed}`;
      const pieces = piecesOf(answer, seed, Math.ceil(answer.length / 200));
      model.promptSteps(name, { text: pieces, firstDelayMs: 1, delayMs: 10 });
      return await write(system, system.person(name), name);
    }),
  );
  for (const [seed, answer] of answers.entries()) {
    const question = written[seed];
    if (question === undefined) throw new RangeError(`no question ${seed}`);
    const { text, messages } = await waitForAnswer(system.feishu, question.messageId, {
      timeoutMs: 80_000,
    });
    expect(wordedLines(text), `answer ${seed}`).toEqual(wordedLines(answer));
    expect(visibleAnswers(system.feishu, question)).toHaveLength(1);
    expect(messages.length).toBeGreaterThanOrEqual(Math.ceil(answer.length / 20_000));
    const cards = cardsOf(system, question);
    // Only a worker's successor, which asks the model again, begins cards anew.
    expect(Math.max(...cards.map(textsReplaced))).toBeLessThanOrEqual(
      model.asked(`answer ${seed}`) - 1,
    );
    expect(refusedOperations(cards)).toEqual([]);
    for (const { typed, shown } of lastFrames(question)) expect(shown.startsWith(typed)).toBe(true);
  }
  expect(system.feishu.refusals).toEqual([]);
});
