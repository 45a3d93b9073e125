import type { DeadLetter } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { expectFinished, textOf } from "./live-typing.fixture.ts";
import type { Turn } from "./reply-turn.fixture.ts";
import { answered, hourMs, replyWorld, until, viewOf } from "./reply-world.fixture.ts";

const sends = /\/im\/v1\/messages(\/[^/]+\/reply)?$/;
const anything = /\/(im|cardkit)\/v1\//;

async function scene() {
  const world = await replyWorld();
  const { letters, store, simulator } = world;
  const sender = world.sender({ letters });
  const turn = await world.turn();
  return {
    world,
    turn,
    sender,
    letters,
    refuse: (path: RegExp, code: number) =>
      simulator.faults.add({
        match: { path, method: "POST" },
        action: { kind: "respond", status: 400, body: { code, msg: "private" } },
      }),
    letterOf: async (of: Turn): Promise<DeadLetter | undefined> =>
      await letters.find(of.session, `reply:${of.replyId}`),
    resend: async (): Promise<boolean> => {
      const again = await letters.resend(turn.session, `reply:${turn.replyId}`);
      const lease = await store.outbox.lease(turn.session);
      if (lease !== undefined) await sender.deliver(lease);
      return again;
    },
  };
}

describe("a reply that is given up", () => {
  it("is kept with the reason, and reaches its person once when an operator has it sent again", async () => {
    const { world, turn, sender, refuse, letterOf, resend } = await scene();
    const heal = refuse(sends, 230002);
    await sender.deliver(await turn.commit(answered("one")));
    expect(world.shown()).toEqual([]);
    expect(await letterOf(turn)).toMatchObject({
      kind: "reply",
      turnId: turn.replyId,
      messageId: turn.messageId,
      reason: "im.message.reply forbidden 230002",
    });
    heal();
    world.forward(100 * hourMs);
    expect(await resend()).toBe(true);
    await expectFinished(world, turn, "one");
    expect(await letterOf(turn)).toBeUndefined();
    expect(await resend()).toBe(false);
    expect(world.shown()).toHaveLength(1);
  });

  it("that people see the beginning of is finished on the card that they see", async () => {
    const { world, turn, sender, resend } = await scene();
    const reply = world.live(turn, () => viewOf("one"));
    reply.changed();
    await until(() => textOf(world) === "one");
    await reply.release();
    const heal = world.simulator.faults.add({
      match: { path: anything },
      action: { kind: "respond", status: 503 },
    });
    const lease = await turn.commit(answered("one two"));
    world.forward(73 * hourMs);
    await sender.deliver(lease);
    expect(await world.unsent(turn)).toBe(0);
    heal();
    expect(await resend()).toBe(true);
    await expectFinished(world, turn, "one two");
    expect(world.shown()).toHaveLength(1);
  });

  it("that got through although its sender did not learn of it is not sent a second time", async () => {
    const { world, turn, sender, resend, letterOf } = await scene();
    const { record, token } = await turn.commit(viewOf("one"));
    const { view: _view, ...plain } = record;
    await world.store.outbox.retry({ token, record: plain }, 0);
    const lease = await world.store.outbox.lease(turn.session);
    if (lease === undefined) throw new Error("nothing to send");
    world.simulator.faults.add({
      match: { path: sends, method: "POST" },
      action: { kind: "lose_response" },
    });
    world.forward(10 * 60_000);
    await sender.deliver(lease);
    world.forward(73 * hourMs);
    const late = await world.store.outbox.lease(turn.session);
    const outage = world.simulator.faults.add({
      match: { path: anything },
      action: { kind: "respond", status: 503 },
    });
    if (late !== undefined) await sender.deliver(late);
    expect(await letterOf(turn)).toBeDefined();
    outage();
    expect(await resend()).toBe(true);
    expect(world.shown().map(({ answer }) => answer)).toEqual(["one"]);
    expect(await world.unsent(turn)).toBe(0);
  });
});
