import type { OutboxRecord } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { textOf } from "./live-typing.fixture.ts";
import { answered, replyWorld } from "./reply-world.fixture.ts";

const sends = /\/im\/v1\/messages(\/[^/]+\/reply)?$/;

/** A plain reply that meets one refusal, and what people see in the end. */
async function delivered(text: string, code: number, of: { recalled?: boolean; toChat?: boolean }) {
  const world = await replyWorld();
  const turn = await world.turn();
  const lease = await turn.commit(answered(text));
  const { view: _view, ...record } = lease.record;
  const target = of.toChat === true ? { ...record.target, messageId: "" } : record.target;
  if (of.recalled === true) await world.simulator.recall(turn.messageId);
  const body = { code, msg: "refused" };
  const path = of.recalled === true ? /\/im\/v1\/messages$/ : sends;
  const match = { path, method: "POST" };
  world.simulator.faults.add({ match, times: 1, action: { kind: "respond", status: 400, body } });
  const plain: OutboxRecord = { ...record, target };
  await world.sender().deliver({ ...lease, record: plain });
  expect(await world.unsent(turn)).toBe(0);
  expect(world.shown()).toHaveLength(1);
  return textOf(world);
}

describe("a plain reply that is refused", () => {
  it.each([
    ["to a message", {}],
    ["to a chat", { toChat: true }],
    ["to the chat of a recalled message", { recalled: true }],
  ])("tells that its content was blocked, or comes without its form: %s", async (_where, of) => {
    for (const code of [230022, 230028]) {
      expect(await delivered("secret", code, of)).toContain("content policy");
    }
    for (const code of [230001, 230025, 230099]) {
      expect(await delivered("# Title", code, of)).toBe("# Title");
    }
  });
});
