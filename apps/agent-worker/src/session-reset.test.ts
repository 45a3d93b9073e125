import { once } from "node:events";
import type { LlmBackend } from "@larkline/model";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it } from "vitest";
import { inbound, newWorld, outboxOf, runnerOf, session } from "./turn-world.fixture.ts";

/** Says one word, then nothing more until it is broken off; later requests are answered at once. */
function endlessAtFirst(spoken: () => void): LlmBackend & { requests: number } {
  const backend = {
    requests: 0,
    async *stream(_request: unknown, signal?: AbortSignal): AsyncIterable<ModelChunk> {
      backend.requests += 1;
      yield { type: "text_delta", text: "word" };
      spoken();
      if (backend.requests === 1 && signal !== undefined && !signal.aborted) {
        await once(signal, "abort");
      }
      yield {
        type: "message_stop",
        stopReason: "end_turn",
        usage: { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 },
      };
    },
  };
  return backend;
}

it("a reset breaks off the turn of a worker that is at it, which then says and stores nothing", async () => {
  const world = newWorld();
  const { wakeGen: gen = 0 } = await world.store.append(inbound("om_1", "tell me"));
  const speaking = Promise.withResolvers<void>();
  const backend = endlessAtFirst(speaking.resolve);
  const running = runnerOf(world, { backend })(
    { v: 1, session, gen },
    new AbortController().signal,
  );
  await speaking.promise;
  await world.store.append(inbound("om_2", "and then"));
  const { turnId, wakeGen } = await world.store.reset(session, {
    by: "console",
    replyOf: async () => undefined,
  });
  expect(turnId).toBe(`${session}-1`);
  world.running.cancel(session, turnId);
  await running;
  expect(world.sent).toEqual([]);
  expect((await world.store.summary(session)).state).toBe("queued");
  await runnerOf(world, { backend })(
    { v: 1, session, gen: wakeGen ?? 0 },
    new AbortController().signal,
  );
  const replies = world.sent.length > 0 ? world.sent : await outboxOf(world);
  expect(replies.map(({ id }) => id)).toEqual([`${session}-2`]);
  expect(await world.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
});
