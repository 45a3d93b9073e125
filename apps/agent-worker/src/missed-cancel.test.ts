import { once } from "node:events";
import type { LlmBackend } from "@larkline/model";
import type { ModelChunk } from "@larkline/protocol";
import { expect, it } from "vitest";
import { inbound, newWorld, outboxOf, runnerOf, session } from "./turn-world.fixture.ts";

/** Says one word, then nothing more until it is broken off. */
function endless(spoken: () => void): LlmBackend {
  return {
    async *stream(_request, signal): AsyncIterable<ModelChunk> {
      yield { type: "text_delta", text: "endless" };
      spoken();
      if (signal !== undefined && !signal.aborted) await once(signal, "abort");
    },
  };
}

it("a streaming turn is stopped although no worker received the broadcast", async () => {
  const world = newWorld();
  const { wakeGen = 0 } = await world.store.append(inbound("om_1", "tell me"));
  const speaking = Promise.withResolvers<void>();
  const run = runnerOf(world, { backend: endless(speaking.resolve) });
  const running = run({ v: 1, session, gen: wakeGen }, new AbortController().signal);
  await speaking.promise;
  await world.store.cancel(session, { turnId: `${session}-1`, reason: "recalled" });
  await running;
  expect(await world.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
  const [reply] = world.sent.length > 0 ? world.sent : await outboxOf(world);
  expect(reply?.text).toContain("recalled");
});
