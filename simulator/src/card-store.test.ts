import { systemClock } from "@larkline/protocol/clock";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { markdown, streamingCard } from "./card-scene.fixture.ts";
import { createCardStore } from "./card-store.ts";
import { createMessageStore, type SimMessage } from "./message-store.ts";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function store() {
  const messages = createMessageStore();
  const announced: SimMessage[] = [];
  const facts = { isPerson: () => true, isImage: () => true };
  const cards = createCardStore({
    rules: { facts, duplicateUuid: "success", invalidOnce: false },
    clock: systemClock,
    messages,
    announce: (message) => announced.push(message),
  });
  const entity = cards.create({
    appId: "cli_1",
    json: { ...streamingCard(markdown("md", "a")) },
    named: true,
  });
  const { messageId } = messages.add({
    chatId: "oc_1",
    senderType: "app",
    senderId: "cli_1",
    messageType: "interactive",
    content: "{}",
    text: "",
    mentions: [],
    card: cards.view(entity),
    createdAt: Date.now(),
  });
  cards.attach(entity, messageId);
  return { cards, entity, announced };
}

test("people see a card stop typing by itself after 10 minutes", () => {
  const { announced } = store();
  vi.advanceTimersByTime(599_999);
  expect(announced).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(announced.map(({ card }) => card?.streaming)).toEqual([false]);
});

test("enabling streaming again starts its 10 minutes anew", () => {
  const { cards, entity, announced } = store();
  vi.advanceTimersByTime(400_000);
  cards.change(entity, entity.json, { enable: true });
  vi.advanceTimersByTime(599_999);
  expect(announced.map(({ card }) => card?.streaming)).toEqual([true]);
  vi.advanceTimersByTime(1);
  expect(announced.map(({ card }) => card?.streaming)).toEqual([true, false]);
});
