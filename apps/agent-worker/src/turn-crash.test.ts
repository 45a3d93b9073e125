import type { LlmBackend, ModelRequest } from "@larkline/model";
import {
  messageStop,
  textOf,
  toolCallDelta,
  turnIdOf,
  type InboundMessage,
  type Message,
  type ModelChunk,
} from "@larkline/protocol";
import { readResultName } from "@larkline/session";
import { expect, it } from "vitest";
import { calling, eventsOf, resultsIn } from "./approval-world.fixture.ts";
import {
  append,
  askPeople,
  checkPairs,
  Crash,
  crashing,
  inbound,
  newWorld,
  outboxOf,
  policyOf,
  runnerOf,
  runTools,
  session,
  settle,
  type Differences,
  type Parts,
  type World,
} from "./turn-world.fixture.ts";

/** What happens in a session, with a process that dies once on the way. */
interface Scenario {
  differences(world: World): Differences;
  /** Messages that are answered before anything goes wrong. */
  before?: InboundMessage[];
  messages: InboundMessage[];
  check(world: World): Promise<void>;
}

async function runUntilCrash(world: World, differences: Differences, parts: Parts): Promise<boolean> {
  const doomed = runnerOf(world, differences, parts);
  for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
    try {
      await doomed({ v: 1, session, gen }, new AbortController().signal);
    } catch (error) {
      if (error instanceof Crash) return true;
      throw error;
    }
    await runTools(world);
    await askPeople(world);
  }
  return false;
}

/** Every run that began has ended, once. */
async function checkEnds({ events }: World, runs: readonly number[]): Promise<void> {
  const records = await events.read(session, 0, 10_000);
  const ends = records.filter(({ event }) => event.type === "done" || event.type === "error");
  expect(ends.map(({ runId }) => runId).toSorted()).toEqual(runs.map((seq) => turnIdOf(session, seq)).toSorted());
}

async function repliedTo(world: World): Promise<string[]> {
  return (await outboxOf(world)).map(({ target }) => target.messageId);
}

/** Plays it with a crash before and after each call of the store, until none is left to crash at. */
async function survives(scenario: Scenario): Promise<void> {
  let crashes = 0;
  for (const when of ["before", "after"] as const) {
    let died = true;
    for (let at = 1; died; at += 1) {
      const world = newWorld();
      const differences = scenario.differences(world);
      for (const message of scenario.before ?? []) {
        await append(world, message);
        await settle(world, differences);
      }
      await append(world, ...scenario.messages);
      died = await runUntilCrash(world, differences, crashing(world, at, when));
      if (died) crashes += 1;
      await settle(world, differences);
      checkPairs(await world.store.history(session));
      expect([...world.ran.values()].every((count) => count === 1)).toBe(true);
      await scenario.check(world);
    }
  }
  expect(crashes).toBeGreaterThan(4);
}

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
  if (last?.role !== "user" || !asked.startsWith("tools")) return yield* answer(said(request).join("|"));
  yield toolCallDelta(0, { id: `a-${asked}`, name: "echo", arguments: '{"n":1}' });
  yield toolCallDelta(1, { id: `b-${asked}`, name: "echo", arguments: '{"n":2}' });
  yield messageStop("tool_use", usage);
}

/** What the next turn of the session would begin with. */
async function contextOf({ store }: World): Promise<Message[]> {
  const { wakeGen } = await store.append(inbound("om_probe", "probe"));
  return (await store.claim(session, wakeGen ?? 0, "worker-2"))?.history ?? [];
}

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
      return { followUps: "join", backend };
    },
    messages: [inbound("om_1", "tools first")],
    check: async (world) => {
      const history = await world.store.history(session);
      expect(history.filter(({ role }) => role === "user").map(textOf)).toEqual(["tools first", "and this"]);
      await checkEnds(world, [1, 2]);
      expect(textOf(history.at(-1) ?? { role: "user", content: [] })).toBe("tools first|and this");
      expect(await repliedTo(world)).toEqual(["om_1"]);
    },
  });
});

const long = "long words ".repeat(60);

it("a crash anywhere loses and repeats nothing of a conversation that is compacted", async () => {
  await survives({
    differences: () => ({ info: { contextWindow: 2_400, maxOutputTokens: 600 }, backend: { stream: work } }),
    before: [1, 2, 3, 4].map((number) => inbound(`om_${number}`, `tools ${number} ${long}`)),
    messages: [inbound("om_5", `tools 5 ${long}`)],
    check: async (world) => {
      const history = await world.store.history(session);
      const users = history.filter(({ role }) => role === "user").map((message) => textOf(message).slice(0, 7));
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
  const order = (name: "new" | "compact" | "model", argument = "") => ({ command: { name, argument } });
  await survives({
    differences: () => ({
      backend: { stream: work },
      commandFacts: () => ({ nowMs: 1, model: "a/b", defaultModel: "a/b", models: ["a/c"] }),
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
      expect(history.find((text) => text.startsWith("[Summary") || text === "between")).toBe("between");
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
          const { wakeGen } = await world.store.cancel(session, { turnId, reason: "stopped" });
          if (wakeGen !== undefined) world.wakes.push(wakeGen);
          const stopped = new Promise((resolve) => signal?.addEventListener("abort", resolve));
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

it("AL-39: a crash anywhere in [plain, approval, plain, approval] leaves one question and one result per call", async () => {
  const policy = policyOf({ approvals: { learnAfter: 1 } });
  await survives({
    differences: (world) => {
      world.word = ({ kind, callId }) => (kind === "rule" ? undefined : callId === "c1-3" ? "reject" : "approve");
      return { backend: calling(["echo", "pay", "echo", "pay"]).backend, policy };
    },
    messages: [inbound("om_1", "please")],
    check: async (world) => {
      expect((await resultsIn(world)).map(([text]) => text)).toEqual([
        "c1-0",
        "c1-1",
        "c1-2",
        "User rejected this action.",
      ]);
      expect(world.ran.size).toBe(3);
      await checkEnds(world, [1]);
      expect(await repliedTo(world)).toEqual(["om_1"]);
      const events = await eventsOf(world);
      expect(events.filter(({ type }) => type === "permission_request")).toHaveLength(2);
      expect(events.filter(({ type }) => type === "permission_learn")).toHaveLength(1);
      // Nothing but the rule that was proposed waits for people, and that once.
      const pending = await world.approvals.pending(session);
      expect(pending.map(({ approval }) => [approval.kind, approval.callId])).toEqual([["rule", "c1-1"]]);
    },
  });
});

it("a crash anywhere starts a call with an unknown outcome once more, when a person says so, and not twice", async () => {
  await survives({
    differences: (world) => {
      world.word = () => "retry";
      world.outcomeOf = ({ attempt }) =>
        attempt === 1 ? { ok: false, error: "unknown", unknown: true } : { ok: true, result: "paid" };
      return { backend: calling(["echo"]).backend };
    },
    messages: [inbound("om_1", "please")],
    check: async (world) => {
      expect(await resultsIn(world)).toEqual([["paid", false]]);
      expect([...world.ran.keys()]).toEqual(["c1-0", "c1-0.2"]);
      await checkEnds(world, [1]);
    },
  });
});

it("a crash anywhere leaves a call of a built-in tool with one answer, beside those of runners", async () => {
  const wanted = { name: readResultName, arguments: { handle: "res_0123456789abcdef" } };
  await survives({
    differences: () => ({ backend: calling(["echo", wanted]).backend }),
    messages: [inbound("om_1", "please")],
    check: async (world) => {
      expect(await resultsIn(world)).toEqual([
        ["c1-0", false],
        [expect.stringContaining("no stored result"), true],
      ]);
      await checkEnds(world, [1]);
      expect(await repliedTo(world)).toEqual(["om_1"]);
    },
  });
});
