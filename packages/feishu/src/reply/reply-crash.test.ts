import { systemRandom } from "@larkline/protocol/clock";
import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { twoCards } from "./live-typing.fixture.ts";
import { mortal, type Fate } from "./mortal-parts.fixture.ts";
import { ReplyCards } from "./reply-cards.ts";
import { ReplyRecord, newReply } from "./reply-record.ts";
import type { Turn } from "./reply-turn.fixture.ts";
import {
  answered,
  lettersOf,
  longAnswer,
  replyWorld,
  sequencesOf,
  viewOf,
  type Parts,
  type ReplyWorld,
  type Shown,
} from "./reply-world.fixture.ts";

const leaseMs = 31_000;
const anew = longAnswer(20_000, "Written by another run of the model");

const waiting: ShownTool = { id: "c1", name: "deploy", state: "waiting", startedAtMs: 0 };

/** A reply that starts, thinks, waits for a person, goes over to a second card, starts anew and grows beyond it again. */
const views: ReplyView[] = [
  viewOf(""),
  viewOf("", { thinking: "hm" }),
  viewOf(twoCards.slice(0, 3_000), { thinking: "hm" }),
  viewOf(twoCards.slice(0, 3_000), { thinking: "hm", tools: [waiting] }),
  viewOf(twoCards, { thinking: "hm" }),
  viewOf("Anew", { thinking: "hm" }),
  viewOf(anew, { thinking: "hm" }),
];

async function cardsOf(world: ReplyWorld, turn: Turn, parts: Parts): Promise<ReplyCards> {
  const { session, replyId, target, uuid } = turn;
  const { api, ledger } = parts;
  const stored = await ledger.load(session, replyId);
  const reply = stored ?? (await newReply(api, { session, replyId, target }, world.now()));
  const record = new ReplyRecord({
    ledger,
    fence: { epoch: turn.epoch() },
    reply,
    clock: world.clock,
  });
  const { signal } = new AbortController();
  return new ReplyCards({
    api,
    record,
    target,
    uuid,
    clock: world.clock,
    random: systemRandom,
    signal,
  });
}

/** Types all of the views, or as many as it lives to; resolves when it has ended, one way or the other. */
async function type(world: ReplyWorld, turn: Turn, parts: Parts): Promise<void> {
  const cards = await cardsOf(world, turn, parts);
  for (const view of views) await cards.show(view);
}

function answersTo(world: ReplyWorld, { messageId }: Turn): Shown[] {
  return world.shown().filter(({ message }) => message.parentId === messageId);
}

async function expectOneAnswer(world: ReplyWorld, turn: Turn, answer: string): Promise<void> {
  const shown = answersTo(world, turn).filter((one) => !one.answer.includes("written anew"));
  expect(lettersOf(shown.map((one) => one.answer).join("\n"))).toBe(lettersOf(answer));
  for (const { card } of answersTo(world, turn)) {
    expect(card?.streaming ?? false).toBe(false);
    const sequences = card === undefined ? [] : sequencesOf(card);
    expect(sequences).toEqual([...new Set(sequences)].toSorted((a, b) => a - b));
  }
  expect(await world.unsent(turn)).toBe(0);
  expect(await world.ledger.load(turn.session, turn.replyId)).toBeUndefined();
}

/** Runs a story for every step of it, until there are no more steps; tells how many there were. */
async function atEveryStep(story: (fate: Fate) => Promise<boolean>): Promise<number> {
  for (let at = 1; ; at += 1) {
    if (!(await story({ at, moment: "before" }))) return at - 1;
    await story({ at, moment: "after" });
  }
}

describe("a writer that dies while it types", () => {
  it("is followed by the delivery of the answer, at whatever step it died", async () => {
    const world = await replyWorld();
    const steps = await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const { parts, met } = mortal(world.parts, fate);
      await type(world, turn, parts).catch(() => undefined);
      await world.sender().deliver(await turn.commit(answered(anew)));
      await expectOneAnswer(world, turn, anew);
      return met();
    });
    expect(steps).toBeGreaterThan(20);
  });

  it("is followed by another one that types on, at whatever step it died", async () => {
    const world = await replyWorld();
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const { parts, met } = mortal(world.parts, fate);
      await type(world, turn, parts).catch(() => undefined);
      await turn.reclaim();
      await type(world, turn, world.parts);
      await world.sender().deliver(await turn.commit(answered(anew)));
      await expectOneAnswer(world, turn, anew);
      return met();
    });
  });
});

describe("a writer that hangs while it types", () => {
  it("changes nothing when it wakes up after the answer was delivered, at whatever step it hung", async () => {
    const world = await replyWorld();
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const gate = Promise.withResolvers<void>();
      const { parts, met, reached } = mortal(world.parts, { ...fate, hangs: gate.promise });
      const typing = type(world, turn, parts).catch(() => undefined);
      await Promise.race([reached, typing]);
      await world.sender().deliver(await turn.commit(answered(anew)));
      gate.resolve();
      await typing;
      await expectOneAnswer(world, turn, anew);
      return met();
    });
  });

  it("cannot disturb the one that types in its place, at whatever step it hung", async () => {
    const world = await replyWorld();
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const gate = Promise.withResolvers<void>();
      const { parts, met, reached } = mortal(world.parts, { ...fate, hangs: gate.promise });
      const typing = type(world, turn, parts).catch(() => undefined);
      await Promise.race([reached, typing]);
      await turn.reclaim();
      const successor = type(world, turn, world.parts);
      gate.resolve();
      await Promise.all([typing, successor]);
      await world.sender().deliver(await turn.commit(answered(anew)));
      await expectOneAnswer(world, turn, anew);
      return met();
    });
  });
});

describe("a delivery", () => {
  it("that dies is repeated by another sender, at whatever step it died", async () => {
    const world = await replyWorld();
    const steps = await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const { parts, met } = mortal(world.parts, fate);
      await world.sender(parts).deliver(await turn.commit(answered(anew)));
      world.forward(leaseMs);
      const lease = await world.store.outbox.lease(turn.session);
      if (lease !== undefined) await world.sender().deliver(lease);
      await expectOneAnswer(world, turn, anew);
      return met();
    });
    expect(steps).toBeGreaterThan(6);
  });

  it("that hangs is taken over by another sender, and then both go on", async () => {
    const world = await replyWorld();
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const gate = Promise.withResolvers<void>();
      const { parts, met, reached } = mortal(world.parts, { ...fate, hangs: gate.promise });
      const first = world.sender(parts).deliver(await turn.commit(answered(anew)));
      await Promise.race([reached, first]);
      world.forward(leaseMs);
      const lease = await world.store.outbox.lease(turn.session);
      const second = lease === undefined ? Promise.resolve() : world.sender().deliver(lease);
      gate.resolve();
      await Promise.all([first, second]);
      await expectOneAnswer(world, turn, anew);
      return met();
    });
  });

  it("as text that dies is repeated, and shows one answer", async () => {
    const world = await replyWorld();
    const body = { code: 99991672, msg: "no scope" };
    world.simulator.faults.add({
      match: { path: /cardkit/ },
      action: { kind: "respond", status: 400, body },
    });
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const { parts, met } = mortal(world.parts, fate);
      await world.sender(parts).deliver(await turn.commit(answered("short")));
      world.forward(leaseMs);
      const lease = await world.store.outbox.lease(turn.session);
      if (lease !== undefined) await world.sender().deliver(lease);
      await expectOneAnswer(world, turn, "short");
      return met();
    });
  });

  it("that dies again and again hours apart shows one answer", async () => {
    const world = await replyWorld();
    await atEveryStep(async (fate) => {
      const turn = await world.turn();
      const { parts, met } = mortal(world.parts, fate);
      await world.sender(parts).deliver(await turn.commit(answered(anew)));
      world.forward(3 * 3_600_000);
      const lease = await world.store.outbox.lease(turn.session);
      if (lease !== undefined) await world.sender().deliver(lease);
      await expectOneAnswer(world, turn, anew);
      return met();
    });
  });
});
