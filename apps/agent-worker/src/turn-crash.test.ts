import { setTimeout as delay } from "node:timers/promises";
import { type LlmBackend, type ModelRequest, messageStop, toolCallDelta } from "@larkline/model";
import { turnIdOf } from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it, vi } from "vitest";
import { checkEnds, heldByClients, repliedTo, survives } from "./crash.fixture.ts";
import {
  append,
  checkPairs,
  inbound,
  newWorld,
  runnerOf,
  runTools,
  session,
  settle,
  type World,
} from "./turn-world.fixture.ts";

const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };

function said(request: ModelRequest): string[] {
  return request.messages.filter(({ role }) => role === "user").map(textOf);
}

function isSummary({ system }: ModelRequest): boolean {
  return system?.includes("compact conversation records") === true;
}

async function* answer(text: string): AsyncIterable<ModelChunk> {
  yield { type: "text_delta", text };
  yield messageStop("end_turn", usage);
}

/** Two calls for a message that begins with "tools", then an answer that repeats everything said. */
async function* work(request: ModelRequest): AsyncIterable<ModelChunk> {
  checkPairs(request.messages);
  if (isSummary(request)) return yield* answer("SUMMARY");
  const last = request.messages.at(-1);
  const asked = said(request).at(-1) ?? "";
  if (last?.role !== "user" || !asked.startsWith("tools")) {
    return yield* answer(said(request).join("|"));
  }
  yield toolCallDelta(0, { id: `a-${asked}`, name: "echo", arguments: '{"n":1}' });
  yield toolCallDelta(1, { id: `b-${asked}`, name: "echo", arguments: '{"n":2}' });
  yield messageStop("tool_use", usage);
}

/** What the next turn of the session would begin with. */
async function contextOf({ store }: World): Promise<Message[]> {
  const { wakeGen } = await store.append(inbound("om_probe", "probe"));
  return (await store.claim(session, wakeGen ?? 0, "worker-2"))?.history ?? [];
}

it.each([1, 2])(
  "EE-6, EE-9: what was published before a crash in step %i is published once",
  async (stuckIn) => {
    const world = newWorld();
    const runId = turnIdOf(session, 1);
    const eventsOf = async () =>
      (await world.events.read(session, 0, 10_000)).map(({ event }) => event);
    const dying = new AbortController();
    let isDead = false;
    let steps = 0;
    const backend: LlmBackend = {
      async *stream(request) {
        steps += 1;
        yield { type: "text_delta", text: `step ${steps} ` };
        if (steps === stuckIn && !isDead) {
          await new Promise((_, reject) => dying.signal.addEventListener("abort", reject));
        }
        yield* work(request);
      },
    };
    await append(world, inbound("om_1", "tools please"));
    const doomed = runnerOf(world, { backend });
    const run = async () => {
      for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
        await doomed({ v: 1, session, gen }, dying.signal);
        await runTools(world);
      }
    };
    const died = run();
    await vi.waitFor(
      async () => {
        expect(await eventsOf()).toContainEqual({ type: "text_delta", text: `step ${stuckIn} ` });
      },
      { timeout: 60_000 },
    );
    isDead = true;
    await settle(world, { backend });
    dying.abort();
    await died;
    const events = await eventsOf();
    expect(
      events.flatMap((event) => (event.type === "turn_start" ? [event.turnNumber] : [])),
    ).toEqual([1, 2]);
    expect(
      events.flatMap((event) => (event.type === "turn_end" ? [event.turnNumber] : [])),
    ).toEqual([1, 2]);
    const results = events.flatMap((event) => (event.type === "tool_result" ? [event.id] : []));
    expect(results).toHaveLength(2);
    expect(new Set(results).size).toBe(2);
    expect(events.filter(({ type }) => type === "step_restarted")).toHaveLength(1);
    expect(events.filter(({ type }) => type === "done")).toHaveLength(1);
    const frames = (await world.events.read(session, 0, 10_000)).filter(
      (record) => record.runId === runId,
    );
    expect(frames.slice(-2).map(({ event }) => event.type)).toEqual(["done", "session_info"]);
  },
);

it("a crash anywhere repeats nothing of a turn that another message has joined", async () => {
  await survives({
    differences: (world) => {
      const backend: LlmBackend = {
        async *stream(request) {
          // It arrives while the first step streams.
          await append(world, inbound("om_2", "and this"));
          yield* work(request);
        },
      };
      return { agent: { busy: "steer" }, backend };
    },
    messages: [inbound("om_1", "tools first")],
    check: async (world) => {
      const history = await world.store.history(session);
      expect(history.filter(({ role }) => role === "user").map(textOf)).toEqual([
        "tools first",
        "and this",
      ]);
      await checkEnds(world, [1, 2]);
      expect(textOf(history.at(-1) ?? { role: "user", content: [] })).toBe("tools first|and this");
      expect(await repliedTo(world)).toEqual(["om_1"]);
    },
  });
});

const long = "long words ".repeat(60);

it("a crash anywhere loses and repeats nothing of a conversation that is compacted", async () => {
  await survives({
    differences: () => ({
      info: { contextWindow: 2_400, maxOutputTokens: 600 },
      backend: { stream: work },
    }),
    before: [1, 2, 3, 4].map((number) => inbound(`om_${number}`, `tools ${number} ${long}`)),
    messages: [inbound("om_5", `tools 5 ${long}`)],
    check: async (world) => {
      const history = await world.store.history(session);
      const users = history
        .filter(({ role }) => role === "user")
        .map((message) => textOf(message).slice(0, 7));
      expect(users).toEqual(["tools 1", "tools 2", "tools 3", "tools 4", "tools 5"]);
      await checkEnds(world, [1, 2, 3, 4, 5]);
      expect(await repliedTo(world)).toEqual(["om_1", "om_2", "om_3", "om_4", "om_5"]);
      const context = await contextOf(world);
      checkPairs(context);
      expect(textOf(context[0] ?? { role: "user", content: [] })).toContain("SUMMARY");
      expect(textOf(context.at(-1) ?? { role: "user", content: [] })).toContain("tools 5");
    },
  });
});

it("a crash anywhere obeys each order once, and no model sees one", async () => {
  const order = (name: "new" | "compact" | "model", argument = "") => ({
    command: { name, argument },
  });
  await survives({
    differences: () => ({
      backend: { stream: work },
      agent: { models: ["a/c"] },
    }),
    before: [inbound("om_1", `tools 1 ${long}`), inbound("om_2", `tools 2 ${long}`)],
    messages: [
      inbound("om_3", "/compact", order("compact")),
      inbound("om_4", "between"),
      inbound("om_5", "/model c", order("model", "c")),
      inbound("om_6", "/new", order("new")),
      inbound("om_7", "after"),
    ],
    check: async (world) => {
      const history = (await world.store.history(session)).map(textOf);
      expect(history.filter((text) => text.startsWith("/"))).toEqual([]);
      expect(history.find((text) => text.startsWith("[Summary") || text === "between")).toBe(
        "between",
      );
      expect(history.at(-1)).toBe("after");
      expect((await world.store.summary(session)).settings).toEqual({ model: "a/c" });
      await checkEnds(world, [1, 2, 3, 4, 5, 6, 7]);
      expect(await repliedTo(world)).toEqual([1, 2, 3, 4, 5, 6, 7].map((number) => `om_${number}`));
      expect((await contextOf(world)).map(textOf)).toEqual(["after", "after"]);
    },
  });
});

it("a crash anywhere leaves a turn that was stopped while it spoke stopped", async () => {
  await survives({
    differences: (world) => {
      const backend: LlmBackend = {
        async *stream(request, signal) {
          if (said(request).at(-1) !== "tell") return yield* work(request);
          yield { type: "text_delta", text: "half of it" };
          const turnId = turnIdOf(session, 1);
          // The worker may find the cancel by itself as soon as it is stored.
          const stopped = new Promise((resolve) => signal?.addEventListener("abort", resolve));
          const { wakeGen } = await world.store.cancel(session, { turnId, reason: "stopped" });
          if (wakeGen !== undefined) world.wakes.push(wakeGen);
          world.running.cancel(session, turnId);
          await stopped;
        },
      };
      return { backend };
    },
    messages: [inbound("om_1", "tell"), inbound("om_2", "next")],
    check: async (world) => {
      const history = (await world.store.history(session)).map(textOf);
      expect(history[0]).toBe("tell");
      expect(history[1]).toMatch(/^(half of it\s+)?Stopped\.$/);
      expect(history.slice(2)).toEqual(["next", "tell|next"]);
      await checkEnds(world, [1, 2]);
      expect(await repliedTo(world)).toEqual(["om_1", "om_2"]);
    },
  });
});

it("EE-49: a crash anywhere leaves a client that obeys restarts with exactly the final text", async () => {
  const backend: LlmBackend = {
    async *stream({ messages }) {
      const [first, rest] =
        messages.length === 1 ? (["let me ", "look"] as const) : (["all is ", "well"] as const);
      yield { type: "text_delta", text: first };
      await delay(70); // longer than the writer collects, so that the first piece is published by itself
      yield { type: "text_delta", text: rest };
      if (messages.length === 1) yield toolCallDelta(0, { id: "a", name: "echo", arguments: "{}" });
      yield messageStop(messages.length === 1 ? "tool_use" : "end_turn", usage);
    },
  };
  await survives({
    differences: () => ({ backend }),
    messages: [inbound("om_1", "tools")],
    check: async (world) => {
      expect(await heldByClients(world)).toEqual([{ held: "all is well", final: "all is well" }]);
    },
  });
});
