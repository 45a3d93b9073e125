import type { SimCard, SimMessage } from "@larkline/simulator";
import { shownAnswer, visibleAnswers } from "./answer.ts";
import type { Written } from "./answers.ts";
import type { System } from "./system.ts";

/** Waits until a card that answers the message shows these words. */
export async function untilShown(
  { feishu }: System,
  { messageId }: Written,
  words: string,
): Promise<SimMessage> {
  return await feishu.waitUntil(
    messageId,
    (message) => shownAnswer(message)?.includes(words) === true,
    {
      timeoutMs: 80_000,
    },
  );
}

/** The entities behind all cards that answer the message, oldest first. */
export function cardsOf({ feishu }: System, written: Written): SimCard[] {
  const messages = visibleAnswers(feishu, written).flatMap((answer) => answer.messages);
  return messages.flatMap(({ card }) => feishu.card(card?.cardId ?? "") ?? []);
}

/** Operations that the platform has refused on these cards, as `name code`. */
export function refusedOperations(cards: readonly SimCard[]): string[] {
  return cards.flatMap(({ operations }) =>
    operations.flatMap(({ op, code }) => (code === 0 ? [] : [`${op} ${code}`])),
  );
}

/**
 * How often a text took the place of another one on the card instead of going on with it; the
 * placeholder that the first text replaces does not count.
 */
export function textsReplaced({ frames }: SimCard): number {
  return frames.filter(({ mode }, index) => mode === "replace" && index > 0).length;
}

/** Frames of the answer that show less than the one before although no later run of the model said so, and foreign ones. */
export function strayFrames({ frames }: SimCard, runs: readonly string[]): string[] {
  const stray: string[] = [];
  let run = 0;
  let length = 0;
  for (const { elementId, text } of frames) {
    if (elementId !== "answer") continue;
    const grows = (index: number): boolean =>
      index > run || (index === run && text.length >= length);
    const found = runs.findIndex((whole, index) => grows(index) && whole.startsWith(text));
    if (found === -1) stray.push(`${text.length}: ${text.slice(-60)}`);
    else [run, length] = [found, text.length];
  }
  return stray;
}
