import type { ProcessSystem } from "../system/system.ts";
import { elementOf, waitForAnswer } from "../system/answer.ts";
import type { Written } from "../system/answers.ts";
import { untilShown } from "../system/card-watch.ts";
import { createPromptedModel, type PromptedModel } from "../system/model-script.ts";
import { streamAtOnce, type Seen } from "../system/streaming-load.ts";
import { startProcesses } from "../system/system.ts";
import { spread, type Spread } from "./measure.ts";

export interface StreamingNumbers {
  chats: number;
  /** How long the model speaks. */
  streamMs: number;
  card: Spread;
  firstText: Spread;
  closed: Spread;
  framesPerCard: { mean: number; least: number };
  /** Calls that the platform refused because of a limit. */
  refusals: number;
  /** From the click on stop to the closed card. */
  stopMs: Spread;
  /** One chat at a time: from the model's first word to the first text on the card. */
  firstTextMs: Spread;
}

/** What most APIs take of one app: "Rate limits", tier 4; the simulator enforces it as sliding windows. */
const perSecond = 50;
const perMinute = 1_000;

/** When the platform takes the n-th of many calls of one API at the earliest, ms after the first one. */
function earliestMs(call: number): number {
  return Math.max(
    Math.floor((call - 1) / perSecond) * 1_000,
    Math.floor((call - 1) / perMinute) * 60_000,
  );
}

export type StreamingBound = Omit<StreamingNumbers, "refusals" | "stopMs" | "firstTextMs">;

/** What the limits alone allow: every process, network and model takes no time. */
export function streamingBound({
  chats,
  streamMs,
}: Pick<StreamingNumbers, "chats" | "streamMs">): StreamingBound {
  const all = Array.from({ length: chats }, (_, index) => index + 1);
  // Each card is created and sent, the first text may be on it then; each needs one last update.
  const visible = spread(all.map(earliestMs));
  const closed = spread(all.map((call) => streamMs + earliestMs(call)));
  const texts = Math.min((perSecond * streamMs) / 1_000, perMinute * Math.ceil(streamMs / 60_000));
  const framesPerCard = { mean: texts / chats, least: Math.floor(texts / chats) };
  return { chats, streamMs, card: visible, firstText: visible, closed, framesPerCard };
}

const pieceMs = 200;

function words(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `this is sentence number ${index}. `);
}

/** Stops one long answer after the other; ms from each click to the closed card. */
async function measureStops(
  system: ProcessSystem,
  model: PromptedModel,
  clicks: number,
): Promise<number[]> {
  const times: number[] = [];
  for (let click = 0; click < clicks; click += 1) {
    const text = `stop ${click}`;
    model.prompt(text, { text: words(1_000), firstDelayMs: 1, delayMs: 30 });
    const { openId, chatId } = system.person(text);
    const { messageId } = await system.feishu.sendMessage({
      appId: system.appId,
      chatId,
      from: openId,
      text,
    });
    const written: Written = { chatId, messageId, text };
    const card = await untilShown(system, written, "number 5");
    if (elementOf(card, "stop") === undefined) throw new Error("no stop button");
    const startedMs = performance.now();
    await system.feishu.click({ messageId: card.messageId, openId, elementId: "stop" });
    await waitForAnswer(system.feishu, messageId, { timeoutMs: 10_000 });
    times.push(performance.now() - startedMs);
  }
  return times;
}

/** The model thinks long enough for the card to be there. */
const thinksMs = 300;
/** Two events of the stream come before its first text: that a message begins, and that a block does. */
const eventsBefore = 2;

async function measureFirstTexts(
  system: ProcessSystem,
  model: PromptedModel,
  count: number,
): Promise<number[]> {
  const times: number[] = [];
  const delayMs = 60;
  for (let chat = 0; chat < count; chat += 1) {
    const text = `first ${chat}`;
    model.prompt(text, { text: words(5), firstDelayMs: thinksMs, delayMs });
    const { seen } = await streamAtOnce(system, {
      chats: 1,
      text: () => text,
      patienceMs: 30_000,
    });
    times.push((seen[0]?.firstTextMs ?? Number.NaN) - thinksMs - eventsBefore * delayMs);
  }
  return times;
}

function framesOf(seen: readonly Seen[]): StreamingNumbers["framesPerCard"] {
  const counts = seen.map(({ frames }) => frames);
  return {
    mean: counts.reduce((sum, count) => sum + count, 0) / counts.length,
    least: Math.min(...counts),
  };
}

/** Lets many chats ask at the same moment, with the platform's limits enforced. */
export async function measureStreaming(chats: number, streamMs: number): Promise<StreamingNumbers> {
  const model = createPromptedModel();
  const system = await startProcesses({
    workers: 2,
    workerConcurrency: chats,
    script: model.script,
    simulator: { limits: "enforced", logCapacity: 100_000 },
    env: { LOG_LEVEL: "error" },
  });
  try {
    const answer = words(Math.ceil(streamMs / pieceMs));
    for (let chat = 0; chat < chats; chat += 1) {
      model.prompt(`question ${chat}`, { text: answer, firstDelayMs: 1, delayMs: pieceMs });
    }
    const text = (chat: number): string => `question ${chat}`;
    const firstTexts = await measureFirstTexts(system, model, 50);
    const startedAt = Date.now();
    const { seen, refusals } = await streamAtOnce(system, {
      chats,
      text,
      patienceMs: streamMs + 120_000,
    });
    for (const { api, key, at } of refusals) {
      console.log(`refused: ${api} ${key} after ${at - startedAt} ms`);
    }
    const wrong = seen.filter(
      ({ answers }) => answers.length !== 1 || answers[0]?.text !== answer.join(""),
    );
    if (wrong.length > 0) {
      throw new Error(`${wrong.length} of ${chats} answers are wrong or missing`);
    }
    const part = (of: (one: Seen) => number): Spread => spread(seen.map(of));
    return {
      chats,
      streamMs,
      card: part(({ cardMs }) => cardMs),
      firstText: part(({ firstTextMs }) => firstTextMs),
      closed: part(({ closedMs }) => closedMs),
      framesPerCard: framesOf(seen),
      refusals: refusals.length,
      stopMs: spread(await measureStops(system, model, 20)),
      firstTextMs: spread(firstTexts.slice(20)), // warm
    };
  } finally {
    await system.close();
  }
}
