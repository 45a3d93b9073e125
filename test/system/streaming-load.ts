import type { LimitRefusal, SimMessage } from "@larkline/simulator";
import { isClosed, shownAnswer, visibleAnswers, type Answer } from "./answer.ts";
import { cardsOf } from "./card-watch.ts";
import type { System } from "./system.ts";

export interface StreamingOptions {
  chats: number;
  /** What each person writes; the model's script has to know it. */
  text: (chat: number) => string;
  /** How long the last answer may take. */
  patienceMs: number;
}

/** How one person saw the answer; times since the message was sent. */
export interface Seen {
  /** A card, with nothing on it yet. */
  cardMs: number;
  firstTextMs: number;
  closedMs: number;
  answers: Answer[];
  /** Texts that were put on the card while it typed, the one that it was closed with not counted. */
  frames: number;
}

export interface StreamingRun {
  seen: Seen[];
  refusals: readonly LimitRefusal[];
}

type Moments = Pick<Seen, "cardMs" | "firstTextMs" | "closedMs">;

/** Notes what of a card has become visible, and when. */
function look(message: SimMessage, sinceMs: number, moments: Partial<Moments>): void {
  const shown = shownAnswer(message);
  if (shown === undefined) return;
  moments.cardMs ??= sinceMs;
  if (shown !== "…") moments.firstTextMs ??= sinceMs;
  if (isClosed(message)) moments.closedMs ??= sinceMs;
}

/** Many people write at the same moment; resolves when every card is closed, or rejects when one stays open. */
export async function streamAtOnce(
  system: System,
  options: StreamingOptions,
): Promise<StreamingRun> {
  const { feishu, appId } = system;
  const people = Array.from({ length: options.chats }, (_, chat) =>
    system.person(`person ${chat}`),
  );
  const moments = new Map<string, Partial<Moments>>();
  const startedMs = new Map<string, number>();
  const done = Promise.withResolvers<void>();
  let open = options.chats;
  const stop = feishu.on("message", (message) => {
    const { chatId, senderType } = message;
    const started = startedMs.get(chatId);
    const seen = moments.get(chatId);
    if (
      senderType !== "app" ||
      started === undefined ||
      seen === undefined ||
      seen.closedMs !== undefined
    ) {
      return;
    }
    look(message, performance.now() - started, seen);
    if (seen.closedMs !== undefined) open -= 1;
    if (open === 0) done.resolve();
  });
  const timer = setTimeout(
    () => done.reject(new Error(`${open} of the cards did not end in time`)),
    options.patienceMs,
  );
  try {
    const questions = await Promise.all(
      people.map(async ({ openId, chatId }, chat) => {
        startedMs.set(chatId, performance.now());
        moments.set(chatId, {});
        const text = options.text(chat);
        const { messageId } = await feishu.sendMessage({ appId, chatId, from: openId, text });
        return { chatId, messageId, text };
      }),
    );
    await done.promise;
    const seen = questions.map((question) => ({
      cardMs: Number.NaN,
      firstTextMs: Number.NaN,
      closedMs: Number.NaN,
      ...moments.get(question.chatId),
      answers: visibleAnswers(feishu, question),
      frames: cardsOf(system, question).reduce((sum, { frames }) => sum + frames.length, 0),
    }));
    return { seen, refusals: [...feishu.refusals] };
  } finally {
    clearTimeout(timer);
    stop();
  }
}
