import { messageStop, type LlmBackend } from "@larkline/model";
import { textOf } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { attemptIdOf } from "@larkline/protocol/runner";
import type { SessionStore } from "@larkline/store";
import { describe, expect, it } from "vitest";
import {
  append,
  checkHistory,
  Crash,
  crashing,
  echoing,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  runTools,
  runWakes,
  session,
  settle,
} from "./turn-world.fixture.ts";

/** Says a text without asking for anything. */
function saying(text: string): LlmBackend {
  return {
    async *stream(): AsyncIterable<ModelChunk> {
      yield await Promise.resolve({ type: "text_delta" as const, text });
      yield messageStop("end_turn");
    },
  };
}

/** The same store; before each save of a turn something else happens. */
function beforeSaves(store: SessionStore, act: () => Promise<void>): SessionStore {
  const save: SessionStore["save"] = async (request) => {
    await act();
    return await store.save(request);
  };
  return new Proxy(store, {
    get: (target, name) => {
      const own: unknown = Reflect.get(target, name);
      if (name === "save") return save;
      return typeof own === "function" ? (own.bind(target) as unknown) : own;
    },
  });
}

describe("running a session", () => {
  it("AL-20: a plain answer stores user and assistant and sends one reply to the message", async () => {
    const world = newWorld();
    const { wakeGen } = await world.store.append(inbound("om_1", "hello"));
    world.wakes.push(wakeGen ?? 0);
    await settle(world);
    expect(await world.store.history(session)).toEqual([
      { role: "user", content: [{ type: "text", text: "hello" }], seq: 1 },
      { role: "assistant", content: [{ type: "text", text: "answer to hello" }] },
    ]);
    expect(world.sent).toHaveLength(1);
    expect(world.sent[0]).toMatchObject({ text: "answer to hello", target: { messageId: "om_1" } });
    expect(world.sent[0]?.uuid.length).toBeLessThanOrEqual(50);
  });

  it("AL-45: messages that wait are answered one after the other, in order", async () => {
    const world = newWorld();
    const texts = Array.from({ length: 20 }, (_, index) =>
      index % 3 === 0 ? `tools ${index}` : `plain ${index}`,
    );
    for (const [index, text] of texts.entries()) {
      const { wakeGen } = await world.store.append(inbound(`om_${index}`, text));
      if (wakeGen !== undefined) world.wakes.push(wakeGen);
    }
    await settle(world);
    checkHistory(await world.store.history(session), texts);
    const replies = await outboxOf(world);
    expect(replies.map(({ target }) => target.messageId)).toEqual(
      texts.map((_, index) => `om_${index}`),
    );
    expect([...world.ran.values()].every((count) => count === 1)).toBe(true);
  });

  it("AL-47: a crash before or after any store call repeats no message, call or reply", async () => {
    let crashes = 0;
    for (const when of ["before", "after"] as const) {
      for (let at = 1; at <= 12; at += 1) {
        const world = newWorld();
        const texts = ["tools first", "second"];
        for (const [index, text] of texts.entries()) {
          const { wakeGen } = await world.store.append(inbound(`om_${index}`, text));
          if (wakeGen !== undefined) world.wakes.push(wakeGen);
        }
        const doomed = runnerOf(world, {}, crashing(world, at, when));
        for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
          const died = await doomed({ v: 1, session, gen }, new AbortController().signal).then(
            () => false,
            (error: unknown) => error instanceof Crash,
          );
          if (died) crashes += 1;
          if (died) break;
          await runTools(world);
        }
        await settle(world);
        checkHistory(await world.store.history(session), texts);
        expect([...world.ran.values()].every((count) => count === 1)).toBe(true);
        const replies = await outboxOf(world);
        expect(replies.map(({ target }) => target.messageId)).toEqual(["om_0", "om_1"]);
        expect(new Set(replies.map(({ uuid }) => uuid)).size).toBe(2);
      }
    }
    expect(crashes).toBeGreaterThan(8);
  });

  it("a worker that was replaced while it asked the model hands out no call", async () => {
    const world = newWorld();
    await append(world, inbound("om_1", "tools please"));
    const backend: LlmBackend = {
      async *stream(request, signal) {
        world.wakes.push((await world.store.heal(session, 1)) ?? 0);
        await settle(world, { backend: saying("by another worker") });
        yield* echoing.stream(request, signal);
      },
    };
    const run = runnerOf(world, { backend });
    await run({ v: 1, session, gen: world.wakes.shift() ?? 0 }, new AbortController().signal);
    expect(world.dispatched).toEqual([]);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["by another worker"]);
  });

  it("a call that is answered just before the turn is saved is not handed out again", async () => {
    const world = newWorld();
    await append(world, inbound("om_1", "tools please"));
    await runWakes(world);
    const [one = "", other = ""] = world.dispatched.splice(0).map((job) => attemptIdOf(job));
    const first = await world.store.deliver(session, one, { ok: true, result: "one" });
    const store = beforeSaves(world.store, async () => {
      await world.store.deliver(session, other, { ok: true, result: "other" });
    });
    const run = runnerOf(world, {}, { ...world, store });
    await run({ v: 1, session, gen: first.wakeGen ?? 0 }, new AbortController().signal);
    expect(world.dispatched).toEqual([]);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["answer to tools please"]);
  });

  it("a cancelled turn has the runners of its open calls stop them, and tells no other runner", async () => {
    const world = newWorld();
    await append(world, inbound("om_1", "tools please"));
    const turnId = `${session}-1`;
    const run = runnerOf(world);
    await run({ v: 1, session, gen: world.wakes.shift() ?? 0 }, new AbortController().signal);
    expect(world.dispatched.length).toBeGreaterThan(1);
    const { wakeGen = 0 } = await world.store.cancel(session, { turnId, reason: "stopped" });
    expect(world.stopped).toEqual([]);
    await run({ v: 1, session, gen: wakeGen }, new AbortController().signal);
    expect(world.stopped).toEqual([{ runner: "test", session, turnId }]);
    expect((await outboxOf(world)).map(({ id }) => id)).toEqual([turnId]);
  });

  it("a run that is handed over before its first save counts neither as an error nor as a death", async () => {
    const world = newWorld();
    const attachments = [{ kind: "file" as const, messageId: "om_1", key: "k", name: "a.txt" }];
    await append(world, inbound("om_1", "hello", { references: { attachments } }));
    const gen = world.wakes.shift() ?? 0;
    for (let restart = 0; restart < 3; restart += 1) {
      const shutdown = new AbortController();
      const run = runnerOf(world, {
        prepare: async (message, signal) => {
          shutdown.abort(); // while what the message refers to is fetched
          expect(signal.aborted).toBe(true);
          return await Promise.resolve(message);
        },
      });
      expect(await run({ v: 1, session, gen }, shutdown.signal)).toBe("requeue");
      expect(await world.store.summary(session)).toMatchObject({ state: "queued", gen });
    }
    const claim = await world.store.claim(session, gen, "next", { fateOf: async () => "died" });
    expect(claim).toMatchObject({ failures: {}, deaths: { together: 0, alone: 0 } });
    world.wakes.push((await world.store.heal(session, gen)) ?? 0);
    await settle(world);
    expect(world.sent.map(({ text }) => text)).toEqual(["answer to hello"]);
  });

  it("a message that fails every time is given up with an honest reply, and the next one is answered", async () => {
    const world = newWorld();
    const { wakeGen = 0 } = await world.store.append(inbound("om_1", "poison"));
    await world.store.append(inbound("om_2", "next"));
    for (let failures = 0; failures < 50; failures += 1) {
      const claim = await world.store.claim(session, wakeGen, "worker-1");
      await world.store.fail(session, claim?.epoch ?? "", "TypeError");
    }
    world.wakes.push(wakeGen);
    await settle(world);
    const texts = (await world.store.history(session)).map(textOf);
    expect(texts[0]).toBe("poison");
    expect(texts[1]).not.toBe("answer to poison");
    expect(texts.slice(2)).toEqual(["next", "answer to next"]);
  });
});
