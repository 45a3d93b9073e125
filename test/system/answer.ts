import { noticeText } from "@larkline/agent";
import type { FeishuSimulator, SimMessage } from "@larkline/simulator";

/** What the bot answers to one message: a text, or all cards of one reply. */
export interface Answer {
  /** As a person reads it; of cards their answers in order, without what is inserted to part tags. */
  text: string;
  /** Nothing more comes: a text, or cards that are all closed and of which the last one has a footer. */
  finished: boolean;
  /** Oldest first. */
  messages: readonly SimMessage[];
}

/** A message that a person wrote. */
export interface Question {
  chatId: string;
  messageId: string;
}

type Simulator = Pick<FeishuSimulator, "messages" | "waitUntil">;
type Json = Record<string, unknown>;

/** The zero-width space of packages/feishu/src/cards: it parts tags, and marks a line continued from the card before. */
const invisible = "\u200B";
/** The summary of a card that waits for more. */
const runningSummaries = ["Answering…", "回答中…", "✋ waiting for a person", "✋ 等待处理"];

function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Json)
    : {}; // checked here
}

function elementsOf({ card }: SimMessage): Json[] {
  const { elements } = objectOf(objectOf(card?.json)["body"]);
  return Array.isArray(elements) ? elements.map(objectOf) : [];
}

/** An element at the top of the card. */
export function elementOf(message: SimMessage, elementId: string): Json | undefined {
  return elementsOf(message).find((element) => element["element_id"] === elementId);
}

/** The markdown of a card's answer, as the platform has it; undefined for a card that is none of an answer. */
export function shownAnswer(message: SimMessage): string | undefined {
  const content = elementOf(message, "answer")?.["content"];
  return typeof content === "string" ? content : undefined;
}

/** Whether the bot has said that nothing more comes on this card. */
export function isClosed({ card }: SimMessage): boolean {
  if (card === undefined) return true;
  const summary = objectOf(objectOf(objectOf(card.json)["config"])["summary"])["content"];
  return !card.streaming && typeof summary === "string" && !runningSummaries.includes(summary);
}

/** What the cards of a reply show one after the other: a line that was cut is whole again. */
export function joinedCards(shown: readonly string[]): string {
  const [first = "", ...others] = shown;
  const joined = others.reduce(
    (text, next) => `${text}${next.startsWith(invisible) ? "" : "\n"}${next}`,
    first,
  );
  return joined.replaceAll(invisible, "");
}

function answerOf(messages: readonly SimMessage[], finished: boolean): Answer {
  const [first] = messages;
  const text =
    first?.card === undefined
      ? (first?.text ?? "")
      : joinedCards(messages.map((message) => shownAnswer(message) ?? ""));
  return { text, finished, messages };
}

/**
 * The answers among a bot's messages to one question. Only the last card of a reply has a footer, so a
 * card behind it belongs to another one; cards without an answer (notices) count as none.
 */
function answersAmong(messages: readonly SimMessage[]): Answer[] {
  const answers: Answer[] = [];
  const finished = messages.every(isClosed);
  let cards: SimMessage[] = [];
  const endReply = (withFooter: boolean): void => {
    if (cards.length > 0) answers.push(answerOf(cards, finished && withFooter));
    cards = [];
  };
  for (const message of messages) {
    if (message.card === undefined) {
      endReply(false);
      answers.push(answerOf([message], true));
    } else if (shownAnswer(message) !== undefined) {
      cards.push(message);
      if (elementOf(message, "footer") !== undefined) endReply(true);
    }
  }
  endReply(false);
  return answers;
}

/** Everything that people see as an answer to the question, finished or not, oldest first. */
export function visibleAnswers(feishu: Simulator, { chatId, messageId }: Question): Answer[] {
  const replies = feishu
    .messages(chatId)
    .filter(
      ({ senderType, parentId, recalled }) =>
        senderType === "app" && parentId === messageId && !recalled,
    );
  return answersAmong(replies).filter(({ text }) => !isOnlyNotice(text));
}

const noticeHeads = (["en", "zh"] as const).map(
  (language) => noticeText("waitsForYou", language).split("{what}", 1)[0] ?? "",
);

/** A line that says what the message waits for is no answer to it. */
function isOnlyNotice(text: string): boolean {
  return noticeHeads.some((head) => text.startsWith(head));
}

/** The first finished answer to the question; rejects when none comes in time. */
export async function waitForAnswer(
  feishu: Simulator,
  messageId: string,
  wait: { timeoutMs: number },
): Promise<Answer> {
  let answer: Answer | undefined;
  await feishu.waitUntil(
    messageId,
    ({ chatId }) => {
      answer = visibleAnswers(feishu, { chatId, messageId }).find(({ finished }) => finished);
      return answer !== undefined;
    },
    wait,
  );
  if (answer === undefined) throw new Error("unreachable: the wait ends with an answer");
  return answer;
}
