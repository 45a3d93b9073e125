import type { ScriptedReply } from "@larkline/testkit";
import { expect, it, vi } from "vitest";
import { visibleAnswers, waitForAnswer } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { cardsOf, strayFrames, untilShown } from "../system/card-watch.ts";
import { model, system } from "./cards-deployment.ts";

/** An answer that takes about `seconds` to be said. */
function said(name: string, seconds: number): string[] {
  return Array.from({ length: seconds * 20 }, (_, index) => `${name} ${index}, `);
}

async function ask(
  name: string,
  pieces: readonly string[],
  more: Partial<ScriptedReply> = {},
): Promise<Written> {
  model.promptSteps(name, { text: pieces, firstDelayMs: 1, delayMs: 50, ...more });
  return await write(system, system.person(name), name);
}

async function expectOneAnswer(written: Written, text: string): Promise<void> {
  const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
  expect(answer.text).toBe(text);
  expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
}

it("while Feishu is down cards stand still, then go on or end; a reply that began meanwhile appears; the model is asked once", async () => {
  const [through, within, meanwhile] = [
    said("through", 6),
    said("within", 1),
    said("meanwhile", 0.2),
  ];
  const outage = Promise.withResolvers<void>();
  // It is not said to the end before nothing gets through any more.
  const waits = { afterFrames: 8, until: outage.promise };
  const early = [await ask("through", through), await ask("within", within, { waits })];
  await Promise.all(early.map(async (written) => await untilShown(system, written, " 3,")));
  const endOutage = system.feishu.faults.add({
    match: { path: /cardkit|messages/ },
    action: { kind: "respond", status: 503 },
  });
  outage.resolve();
  const shown = cardsOf(system, early[0] ?? neverWritten).map(({ frames }) => frames.length);
  const late = await ask("meanwhile", meanwhile);
  const failed = (path: RegExp) =>
    system.feishu.apiCalls.filter((call) => call.status === 503 && path.test(call.path));
  const closing = new RegExp(
    `/cards/${cardsOf(system, early[1] ?? neverWritten)[0]?.cardId ?? ""}$`,
  );
  await vi.waitUntil(() => failed(closing).length >= 2 && failed(/cards$/).length >= 2, {
    timeout: 60_000,
    interval: 20,
  });
  expect(cardsOf(system, early[0] ?? neverWritten).map(({ frames }) => frames.length)).toEqual(
    shown,
  );
  expect(visibleAnswers(system.feishu, late)).toEqual([]);
  endOutage();
  const all = [...early, late];
  for (const [index, pieces] of [through, within, meanwhile].entries()) {
    const written = all[index] ?? neverWritten;
    await expectOneAnswer(written, pieces.join(""));
    expect(model.asked(written.text)).toBe(1);
    expect(
      cardsOf(system, written).flatMap((card) => strayFrames(card, [pieces.join("")])),
    ).toEqual([]);
  }
  expect(system.feishu.refusals).toEqual([]);
});

it("a card that types while Redis restarts continues or begins anew, and ends as one answer", async () => {
  const [before, after] = [said("before", 4), said("after", 4)];
  let wasAway = false;
  const runs: string[][] = [];
  model.promptBy("redis", () => {
    const text = wasAway ? after : before;
    runs.push(text);
    return { text, firstDelayMs: 1, delayMs: 50 };
  });
  const written = await write(system, system.person("Rae"), "redis");
  const { messageId } = await untilShown(system, written, "before 10,");
  const frames = () => cardsOf(system, written).reduce((sum, card) => sum + card.frames.length, 0);
  await system.withoutRedis(async () => {
    wasAway = true;
    const url = `${system.workers[0]?.url ?? ""}/ready`;
    await vi.waitUntil(async () => (await fetch(url)).status !== 200, {
      timeout: 60_000,
      interval: 20,
    });
  });
  const framesBefore = frames();
  await vi.waitUntil(() => frames() > framesBefore, { timeout: 60_000, interval: 20 });
  const answer = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
  expect(answer.text).toBe(runs.at(-1)?.join(""));
  expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
  expect(answer.messages.map((message) => message.messageId)).toEqual([messageId]);
  const whole = runs.map((pieces) => pieces.join(""));
  expect(cardsOf(system, written).flatMap((card) => strayFrames(card, whole))).toEqual([]);
});

const neverWritten: Written = { chatId: "", messageId: "", text: "" };
