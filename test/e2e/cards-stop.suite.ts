import type { CardClickResult, SimMessage } from "@larkline/simulator";
import { expect, it, vi } from "vitest";
import { elementOf, visibleAnswers, waitForAnswer } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { cardsOf, refusedOperations, untilShown } from "../system/card-watch.ts";
import { model, system } from "./cards-deployment.ts";

async function clickStop({ messageId }: SimMessage, openId: string): Promise<CardClickResult> {
  return await system.feishu.click({ messageId, openId, elementId: "stop" });
}

/** What the stopped card says in the end; it has no button any more and stays the only answer. */
async function stoppedText(written: Written): Promise<string> {
  const { text, messages } = await waitForAnswer(system.feishu, written.messageId, {
    timeoutMs: 60_000,
  });
  for (const message of messages) expect(elementOf(message, "stop")).toBeUndefined();
  expect(visibleAnswers(system.feishu, written)).toHaveLength(1);
  return text;
}

const longStream = Array.from({ length: 1_000 }, (_, index) => `word ${index}, `);

it("the button of a card that types breaks the model's stream off, and what was said stays", async () => {
  const person = system.person("Ann");
  model.promptSteps("tell me", { text: longStream, firstDelayMs: 1, delayMs: 30 });
  const written = await write(system, person, "tell me");
  const card = await untilShown(system, written, "word 5,");
  const { aborted } = system.model;
  const { toast } = await clickStop(card, person.openId);
  expect(toast?.type).toBe("success");
  expect(await stoppedText(written)).toMatch(/^word 0, .*word 5,[^]*\nStopped\.$/);
  await vi.waitUntil(() => system.model.aborted > aborted, { timeout: 60_000, interval: 10 });
  expect(await system.ask(person, "and then")).toBe("[and then]");
});

it("the button works before the first word", async () => {
  const person = system.person("Bob");
  const written = await write(system, person, "slow pause 20000");
  const card = await untilShown(system, written, "…");
  await clickStop(card, person.openId);
  expect(await stoppedText(written)).toBe("Stopped.");
});

it("the button reaches running tools, and the card says what had finished and what was broken off", async () => {
  const person = system.person("Cai");
  const lines = [
    'call note_once {"key":"quick"}',
    'call hold_once {"key":"held"}',
    'call hold_pure {"key":"looked"}',
  ];
  const written = await write(system, person, ["work", ...lines].join("\n"));
  await vi.waitFor(
    async () =>
      expect(await system.recorded()).toEqual(expect.arrayContaining(["once held", "pure looked"])),
    { timeout: 60_000, interval: 20 },
  );
  const card = await untilToolEnded(written, "note_once");
  await clickStop(card, person.openId);
  const text = await stoppedText(written);
  expect(text).toContain("Stopped.");
  expect(text).toMatch(/Already finished: `note_once`/);
  expect(text).toMatch(/may have taken effect, please check: `hold_once`/);
  expect(text).toMatch(/without effect: `hold_pure`/);
  await vi.waitFor(
    async () =>
      expect(await system.recorded()).toEqual(
        expect.arrayContaining(["stopped held", "stopped looked"]),
      ),
    { timeout: 60_000, interval: 20 },
  );
});

it("a second click, and a click on a card that has ended, stop nothing else", async () => {
  const person = system.person("Dan");
  model.promptSteps("first", { text: longStream, firstDelayMs: 1, delayMs: 30 });
  const first = await write(system, person, "first");
  const card = await untilShown(system, first, "word 1,");
  const value = elementOf(card, "stop")?.["behaviors"];
  await Promise.all([
    clickStop(card, person.openId),
    clickStop(card, person.openId).catch(() => undefined),
  ]);
  await stoppedText(first);
  model.promptSteps("second", { text: longStream.slice(0, 40), firstDelayMs: 1, delayMs: 30 });
  const second = await write(system, person, "second");
  await untilShown(system, second, "word 1,");
  const late = await system.feishu.click({
    messageId: card.messageId,
    openId: person.openId,
    value: clickValue(value),
  });
  expect(late.toast?.type).toBe("info");
  expect(await stoppedText(second)).toBe(longStream.slice(0, 40).join(""));
});

async function untilToolEnded(written: Written, name: string): Promise<SimMessage> {
  return await system.feishu.waitUntil(
    written.messageId,
    (message) => JSON.stringify(elementOf(message, "tools") ?? "").includes(`✅ ${name}`),
    { timeoutMs: 60_000 },
  );
}

/** What the button carries, as the simulator sends it. */
function clickValue(behaviors: unknown): Record<string, unknown> {
  const [behavior] = behaviors as { value: Record<string, unknown> }[]; // as packages/feishu/src/cards writes it
  return behavior?.value ?? {};
}

it("clicks on cards that type have nothing refused but what left before the click was answered", async () => {
  const people = Array.from({ length: 24 }, (_, index) => system.person(`clicker ${index}`));
  const cards = await Promise.all(
    people.map(async (person, index) => {
      const text = `clicked ${index}`;
      model.promptSteps(text, { text: longStream, firstDelayMs: 1, delayMs: 30 });
      const written = await write(system, person, text);
      const card = await untilShown(system, written, `word ${2 + (index % 5)},`);
      await Promise.all([
        clickStop(card, person.openId),
        clickStop(card, person.openId).catch(() => undefined),
      ]);
      await stoppedText(written);
      return cardsOf(system, written);
    }),
  );
  expect(cards.flat()).toHaveLength(people.length);
  // The platform locks a card from the click to its answer, and no worker can know of that: what it sends then is sent
  // again, and the card ends as it should.
  const isLocked = (operation: string): boolean => operation.endsWith(" 200810");
  expect(refusedOperations(cards.flat()).filter((operation) => !isLocked(operation))).toEqual([]);
});
