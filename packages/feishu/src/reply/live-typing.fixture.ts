import type { ReplyView } from "@larkline/protocol/reply-view";
import { expect } from "vitest";
import type { Turn } from "./reply-turn.fixture.ts";
import {
  answered,
  lettersOf,
  longAnswer,
  replyWorld,
  sequencesOf,
  until,
  viewOf,
  type ReplyWorld,
  type ReplyWorldOptions,
} from "./reply-world.fixture.ts";

// For tests: a reply that is being typed, and what is left of it in the end.

export const twoCards = longAnswer(24_000);
export const threeCards = longAnswer(40_000);

/** A reply that types whatever `show` was given last. */
export async function typing(options: ReplyWorldOptions = {}) {
  const world = await replyWorld(options);
  const turn = await world.turn();
  let view = viewOf("");
  const reply = world.live(turn, () => view);
  const show = (answer: string, more: Partial<ReplyView> = {}): void => {
    view = viewOf(answer, more);
    reply.changed();
  };
  const reads = async (answer: string): Promise<void> =>
    await until(() => textOf(world) === answer);
  const commit = async (answer: string, more: Partial<ReplyView> = {}) => {
    const lease = await turn.commit(answered(answer, more));
    await reply.release();
    return lease;
  };
  const finish = async (answer: string, more: Partial<ReplyView> = {}): Promise<void> => {
    await world.sender().deliver(await commit(answer, more));
  };
  return { ...world, world, turn, reply, show, reads, commit, finish };
}

export function textOf(world: ReplyWorld): string {
  return world
    .shown()
    .map(({ answer }) => answer)
    .join("\n");
}

/** Everything is on the screen once, closed, and nothing is left to be sent. */
export async function expectFinished(world: ReplyWorld, turn: Turn, answer: string): Promise<void> {
  expect(lettersOf(textOf(world))).toBe(lettersOf(answer));
  for (const card of world.cards()) {
    expect(card.streaming).toBe(false);
    const sequences = sequencesOf(card);
    expect(sequences).toEqual(sequences.toSorted((a, b) => a - b));
  }
  expect(await world.unsent(turn)).toBe(0);
  expect(await world.ledger.load(turn.session, turn.replyId)).toBeUndefined();
}
