import { turnIdOf } from "@larkline/protocol";
import { expect, it } from "vitest";
import { textOf } from "./live-typing.fixture.ts";
import { replyWorld, until, viewOf } from "./reply-world.fixture.ts";

it("a reset ends the card that people see, and leaves them with that one", async () => {
  const world = await replyWorld();
  const turn = await world.turn();
  const reply = world.live(turn, () => viewOf("one"));
  reply.changed();
  await until(() => textOf(world) === "one");
  const { session, target, uuid, replyId } = turn;
  const ended = await world.store.reset(session, {
    by: "console",
    replyOf: async (id) => ({
      v: 1,
      id,
      uuid,
      session,
      target,
      text: "Stopped.",
      view: viewOf("Stopped.", { state: "stopped" }),
      createdAtMs: world.now(),
      attempts: 0,
      uncertainSinceMs: 0,
    }),
  });
  expect(ended).toEqual({ turnId: turnIdOf(session, 1) });
  expect(replyId).toBe(ended.turnId);
  const lease = await world.store.outbox.lease(session);
  if (lease === undefined) throw new Error("nobody is told");
  await world.sender().deliver(lease);
  // The worker that held the turn still types, in vain.
  reply.changed();
  await reply.release();
  expect(world.shown().map(({ answer }) => answer)).toEqual(["Stopped."]);
  expect(world.cards()[0]?.streaming).toBe(false);
  expect(await world.unsent(turn)).toBe(0);
});
