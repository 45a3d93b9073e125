import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { endOrphan } from "./orphan.ts";
import { expectFinished, textOf, typing } from "./live-typing.fixture.ts";
import {
  answered,
  hourMs,
  opened,
  replyWorld,
  until,
  viewOf,
  type ReplyWorld,
} from "./reply-world.fixture.ts";
import { replacing } from "../simulated-api.fixture.ts";

const minuteMs = 60_000;
const dayMs = 24 * hourMs;

const waiting: ShownTool = { id: "c1", name: "deploy", state: "waiting", startedAtMs: 0 };
const done: ShownTool = { ...waiting, state: "done", elapsedMs: 2_000 };

function summaryIn(world: ReplyWorld): unknown {
  const card = world.cards()[0]?.json as { config?: { summary?: { content: string } } } | undefined; // a card of ours
  return card?.config?.summary?.content;
}

/** A turn whose card shows that it waits for a person, and is suspended for that. */
async function waitingTurn(world: ReplyWorld) {
  const turn = await world.turn();
  const replies = world.liveReplies();
  let view = viewOf("I need to deploy.", { tools: [waiting] });
  const reply = opened(replies.open(world.startOf(turn, () => view)));
  reply.changed();
  reply.pause();
  const isNoted = async () =>
    (await world.ledger.load(turn.session, turn.replyId))?.cards[0]?.state === "sent";
  await until(isNoted);
  const resume = async (
    by = replies,
  ): Promise<(answer: string, more?: Partial<ReplyView>) => void> => {
    await turn.reclaim();
    const next = opened(by.open(world.startOf(turn, () => view)));
    return (answer, more = {}) => {
      view = viewOf(answer, { tools: [done], ...more });
      next.changed();
    };
  };
  return { turn, replies, resume };
}

describe("the card of a turn that waits for a person", () => {
  it("says so", async () => {
    const world = await replyWorld();
    await waitingTurn(world);
    expect(JSON.stringify(world.cards()[0]?.json)).toContain("✋ deploy · waiting for a person");
  });

  it("does not stream meanwhile, and the list of chats says what for", async () => {
    const world = await replyWorld();
    const { resume } = await waitingTurn(world);
    await until(() => world.cards()[0]?.streaming === false);
    expect(summaryIn(world)).toBe("✋ waiting for a person");
    const show = await resume();
    show("I need to deploy. It is");
    await until(() => textOf(world) === "I need to deploy. It is");
    expect(world.cards()[0]?.streaming).toBe(true);
    expect(summaryIn(world)).toBe("Answering…");
    expect(world.cards()[0]?.operations.filter(({ code }) => code !== 0)).toEqual([]);
  });

  it("stops to stream when it has typed before, and is drawn once for each state", async () => {
    const { world, show, reads } = await typing();
    show("I need to deploy.");
    await reads("I need to deploy.");
    expect(world.cards()[0]?.streaming).toBe(true);
    show("I need to deploy.", { tools: [waiting] });
    await until(() => world.cards()[0]?.streaming === false);
    const drawn = world.cards()[0]?.operations.length;
    show("I need to deploy.", { tools: [waiting] });
    show("I need to deploy.", { tools: [{ ...waiting, state: "running" }] });
    await until(() => world.cards()[0]?.streaming === true);
    expect(summaryIn(world)).toBe("Answering…");
    // Streaming is enabled, and the call drawn.
    await until(() => (world.cards()[0]?.operations.length ?? 0) >= (drawn ?? 0) + 2);
    expect(world.cards()[0]?.operations).toHaveLength((drawn ?? 0) + 2);
  });

  it("streams while another call runs", async () => {
    const { world, show, reads } = await typing();
    show("both", { tools: [waiting, { ...waiting, id: "c2", state: "running" }] });
    await reads("both");
    expect(world.cards()[0]?.streaming).toBe(true);
  });

  it.each([
    ["11 minutes", 11 * minuteMs],
    ["3 days", 3 * dayMs],
  ])(
    "types on after %s, when the platform has ended its streaming, in the same process",
    async (_long, waitMs) => {
      const world = await replyWorld();
      const { turn, resume } = await waitingTurn(world);
      world.forward(waitMs);
      expect(world.cards()[0]?.streaming).toBe(false);
      const show = await resume();
      show("I need to deploy. It is");
      await until(() => textOf(world) === "I need to deploy. It is");
      const [card] = world.cards();
      expect(card?.streaming).toBe(true);
      expect(card?.frames.at(-1)).toMatchObject({ mode: "typewriter" });
      expect(card?.operations.filter(({ code }) => code !== 0)).toEqual([]);
      show("I need to deploy. It is done.");
      await until(() => textOf(world) === "I need to deploy. It is done.");
      const answer = answered("I need to deploy. It is done.", { tools: [done] });
      await world.sender().deliver(await turn.commit(answer));
      await expectFinished(world, turn, "I need to deploy. It is done.");
      expect(world.cards()).toHaveLength(1);
    },
  );

  it("types on in another process, which knows of it from the ledger", async () => {
    const world = await replyWorld();
    const { turn, resume } = await waitingTurn(world);
    world.forward(hourMs);
    const show = await resume(world.liveReplies());
    show("I need to deploy. It is");
    await until(() => textOf(world) === "I need to deploy. It is");
    expect(world.cards()[0]?.streaming).toBe(true);
    show("I need to deploy. It is done.");
    await until(() => textOf(world) === "I need to deploy. It is done.");
    await world.sender().deliver(await turn.commit(answered("I need to deploy. It is done.")));
    await expectFinished(world, turn, "I need to deploy. It is done.");
    expect(world.cards()).toHaveLength(1);
  });

  it("is found again when its worker was replaced between the send and the note of it", async () => {
    const world = await replyWorld();
    const turn = await world.turn();
    const noted = Promise.withResolvers<void>();
    const late = world.liveReplies({
      ledger: replacing(world.ledger, {
        save: async (reply, fence) => {
          if (reply.cards[0]?.state === "sent") await noted.promise;
          return await world.ledger.save(reply, fence);
        },
      }),
    });
    let view = viewOf("one");
    const first = opened(late.open(world.startOf(turn, () => view)));
    first.changed();
    await until(() => textOf(world) === "one");
    first.pause();
    await turn.reclaim();
    world.forward(2 * hourMs);
    const second = opened(late.open(world.startOf(turn, () => view)));
    view = viewOf("one two");
    second.changed();
    noted.resolve();
    await until(() => textOf(world) === "one two");
    expect(world.cards()).toHaveLength(1);
  });

  it("gives way to a new one when it is too old to be changed", async () => {
    const world = await replyWorld();
    const { turn, resume } = await waitingTurn(world);
    world.forward(15 * dayMs);
    const show = await resume();
    show("I need to deploy. It is done.");
    await until(() => world.cards().length === 2);
    await world.sender().deliver(await turn.commit(answered("I need to deploy. It is done.")));
    expect(world.shown().map(({ answer }) => answer)).toEqual([
      "I need to deploy.",
      "I need to deploy. It is done.",
    ]);
    expect(await world.unsent(turn)).toBe(0);
  });

  it("is ended like any other when its turn is lost", async () => {
    const world = await replyWorld();
    const { turn } = await waitingTurn(world);
    world.forward(hourMs);
    const reply = await world.ledger.load(turn.session, turn.replyId);
    if (reply === undefined) throw new Error("the ledger does not know the reply");
    await endOrphan(world.api, reply, new AbortController().signal);
    expect(world.shown()[0]?.message.text).toContain("interrupted");
  });
});
