import { setTimeout as delay } from "node:timers/promises";
import { messageStop, type LlmBackend } from "@larkline/model";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it } from "vitest";
import { inbound, newWorld, outboxOf, runnerOf, session } from "./turn-world.fixture.ts";

/** Says one word after the other until it is broken off, a thousand at most. */
function talkative(spoken: () => void, ended: () => void): LlmBackend {
  return {
    async *stream(_request, signal): AsyncIterable<ModelChunk> {
      for (let words = 0; words < 1_000; words += 1) {
        yield { type: "text_delta", text: "endless " };
        spoken();
        await delay(10, undefined, { signal });
      }
      ended();
      yield messageStop("end_turn");
    },
  };
}

it("a streaming turn is stopped although no worker received the broadcast", async () => {
  const world = newWorld();
  const { wakeGen = 0 } = await world.store.append(inbound("om_1", "tell me"));
  const speaking = Promise.withResolvers<void>();
  let isSaidToTheEnd = false;
  const backend = talkative(speaking.resolve, () => (isSaidToTheEnd = true));
  const run = runnerOf(world, { backend });
  const running = run({ v: 1, session, gen: wakeGen }, new AbortController().signal);
  await speaking.promise;
  await world.store.cancel(session, { turnId: `${session}-1`, reason: "recalled" });
  await running;
  expect(isSaidToTheEnd).toBe(false);
  expect(await world.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
  const [reply] = world.sent.length > 0 ? world.sent : await outboxOf(world);
  expect(reply?.text).toContain("recalled");
});
