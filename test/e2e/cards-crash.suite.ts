import { expect, it, vi } from "vitest";
import { waitForAnswer, visibleAnswers } from "../system/answer.ts";
import { metricOf, write, type Written } from "../system/answers.ts";
import type { App } from "../system/app-process.ts";
import { cardsOf, refusedOperations, strayFrames, untilShown } from "../system/card-watch.ts";
import { hangingAfter } from "../system/model-script.ts";
import { model, system } from "./cards-deployment.ts";

/** The only worker, and one that starts while the first one is at work. */
async function withSuccessor(): Promise<{ first: App; successor: App }> {
  const successor = await system.start("agent-worker");
  const [first] = system.workers.splice(0, system.workers.length, successor);
  if (first === undefined) throw new Error("no worker");
  return { first, successor };
}

function wordsOf(run: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${run} word ${index}, `);
}

function shownMessageIds(written: Written): string[] {
  return visibleAnswers(system.feishu, written).flatMap(({ messages }) =>
    messages.map(({ messageId }) => messageId),
  );
}

interface Moment {
  name: string;
  /** What the killed worker got to see, and what it says when it is asked again. */
  begun: string[];
  pieces: number;
  /** On the card when the kill comes. */
  shows: string;
  again: string;
}

const moments: Moment[] = [
  {
    name: "before the first word",
    begun: ["never seen"],
    pieces: 0,
    shows: "…",
    again: "the whole answer",
  },
  {
    name: "after the first word",
    begun: wordsOf("first", 40),
    pieces: 1,
    shows: "first word 0",
    again: "another one",
  },
  {
    name: "in the middle, and says more then",
    begun: wordsOf("middle", 400),
    pieces: 200,
    shows: "middle word 199",
    again: wordsOf("other", 300).join("").trimEnd(),
  },
  {
    name: "in a code block",
    begun: ["```ts\n", "const one = 1;\n", "const two", " = 2;\n```"],
    pieces: 3,
    shows: "const one",
    again: "```ts\nconst three = 3;\n```\nThat is all.",
  },
  {
    name: "on the second card, and says less then",
    begun: Array.from(
      { length: 300 },
      (_, index) => `Paragraph ${index}: ${"long ".repeat(20)}\n\n`,
    ),
    pieces: 280,
    shows: "Paragraph 270",
    again: "it became short",
  },
];

it("a worker that is killed while cards type, and before one gets its last frame, is followed by another one on the same cards", async () => {
  for (const other of system.workers.splice(1)) await other.stop();
  const refused = system.feishu.refusals.length;
  const committed = await answeredButNotClosed("last frame pause 400");
  const askedForIt = model.asked("last frame pause 400");
  let isKilled = false;
  const written = await Promise.all(
    moments.map(async ({ name, begun, pieces, again }) => {
      const next = { text: again, firstDelayMs: 300, delayMs: 10 };
      model.promptBy(name, () => (isKilled ? next : hangingAfter(begun, pieces)));
      return await write(system, system.person(name), name);
    }),
  );
  await Promise.all(
    moments.map(
      async ({ shows }, index) => await untilShown(system, written[index] ?? neverWritten, shows),
    ),
  );
  const before = written.map(shownMessageIds);
  const { first } = await withSuccessor();
  isKilled = true;
  await first.kill();
  const answers = await Promise.all(
    written.map(
      async ({ messageId }) => await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 }),
    ),
  );
  for (const [index, { name, begun, again }] of moments.entries()) {
    const message = written[index] ?? neverWritten;
    const cards = cardsOf(system, message);
    const text = again.replaceAll(/\n+/g, "\n");
    expect.soft(answers[index]?.text.replaceAll(/\n+/g, "\n"), name).toBe(text);
    expect.soft(visibleAnswers(system.feishu, message), name).toHaveLength(1);
    expect.soft(shownMessageIds(message), name).toEqual(before[index]?.slice(0, 1));
    expect.soft(strayFrames(cards[0] ?? neverMade, [begun.join(""), again]), name).toEqual([]);
    expect.soft(refusedOperations(cards), name).toEqual([]);
    expect.soft(model.asked(name), name).toBe(2);
  }
  expect(system.feishu.refusals.slice(refused)).toEqual([]);
  const last = await waitForAnswer(system.feishu, committed.messageId, { timeoutMs: 60_000 });
  expect(last.text).toBe("[last frame pause 400]");
  expect(last.messages).toHaveLength(1);
  expect(visibleAnswers(system.feishu, committed)).toHaveLength(1);
  expect(model.asked("last frame pause 400")).toBe(askedForIt);
});

/** A message whose answer is committed, while the last frame of its card does not get through. */
async function answeredButNotClosed(text: string): Promise<Written> {
  const close = { method: "PUT", path: /\/cards\/[^/]+$/ };
  system.feishu.faults.add({ match: close, times: 1, action: { kind: "hang" } });
  const written = await write(system, system.person(text), text);
  await vi.waitUntil(() => system.feishu.faults.size === 0, { timeout: 60_000, interval: 10 });
  return written;
}

const neverWritten: Written = { chatId: "", messageId: "", text: "" };
const neverMade = {
  cardId: "",
  appId: "",
  json: {},
  streaming: false,
  sequence: 0,
  frames: [],
  operations: [],
};

it("a worker that stood still while another one took its card writes nothing on it any more", async () => {
  const text = "frozen";
  const slow = { text: wordsOf("frozen", 1_000), firstDelayMs: 1, delayMs: 40 };
  const again = wordsOf("successor", 60);
  let isStill = false;
  model.promptBy(text, () => (isStill ? { text: again, firstDelayMs: 1, delayMs: 40 } : slow));
  const first = await system.startProcess("agent-worker");
  for (const other of system.workers.splice(0)) await other.stop();
  const written = await write(system, system.person("Fay"), text);
  await untilShown(system, written, "frozen word 10");
  const successor = await system.start("agent-worker");
  system.workers.push(successor);
  const fenced = async (): Promise<number> =>
    await metricOf(first, "larkline_turn_runs_total", 'outcome="fenced"');
  const before = await fenced();
  isStill = true;
  first.signal("SIGSTOP");
  // It wakes up while its successor types, with words of its own model still to be read.
  await untilShown(system, written, "successor word 5");
  first.signal("SIGCONT");
  await vi.waitFor(async () => expect(await fenced()).toBe(before + 1), {
    timeout: 60_000,
    interval: 50,
  });
  const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
  expect(answer.text).toBe(again.join(""));
  expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
  const [card] = cardsOf(system, written);
  expect(strayFrames(card ?? neverMade, [slow.text.join(""), again.join("")])).toEqual([]);
  expect(model.asked(text)).toBe(2);
  expect(await first.stop()).toBe(0);
  expect(visibleAnswers(system.feishu, written).map((shown) => shown.text)).toEqual([answer.text]);
  // Its run ends after its card.
  const answered = async () =>
    await metricOf(successor, "larkline_turn_runs_total", 'outcome="answered"');
  await vi.waitFor(async () => expect(await answered()).toBe(1), { timeout: 60_000, interval: 50 });
});
