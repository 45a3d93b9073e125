import { turnLimits, type TurnEnvironment } from "@larkline/agent";
import { createModelChain, findModelInfo, type LlmBackend } from "@larkline/model";
import {
  messageStop,
  textOf,
  toolCallDelta,
  type InboundMessage,
  type Message,
  type ModelChunk,
  type ToolOutcome,
} from "@larkline/protocol";
import { createMemorySessionStore, type OutboxRecord, type SessionStore } from "@larkline/session";
import { describe, expect, it } from "vitest";
import { RunningTurns } from "./running-turns.ts";
import { createSessionRunner } from "./session-runner.ts";
import { dispatchCalls } from "./tool-dispatch.ts";

const session = "cli_app.oc_1";

function inbound(id: string, text: string): InboundMessage {
  return {
    v: 1,
    session,
    id,
    app: "cli_app",
    sender: { id: "ou_1" },
    chatType: "p2p",
    parts: [{ type: "text", text }],
    createdAtMs: 1,
    reply: { channel: "feishu", app: "cli_app", chatId: "oc_1", messageId: id, inThread: false },
  };
}

/** Calls `echo` twice for a text that starts with "tools", answers everything else. */
const backend: LlmBackend = {
  async *stream({ messages }): AsyncIterable<ModelChunk> {
    const last = messages.at(-1);
    const asked = textOf(messages.findLast(({ role }) => role === "user") ?? { role: "user", content: [] });
    if (last?.role === "user" && asked.startsWith("tools")) {
      yield toolCallDelta(0, { id: `a-${asked}`, name: "echo", arguments: '{"n":1}' });
      yield toolCallDelta(1, { id: `b-${asked}`, name: "echo", arguments: '{"n":2}' });
      yield messageStop("tool_use");
      return;
    }
    yield { type: "text_delta", text: `answer to ${asked}` };
    yield messageStop("end_turn", { inputTokens: 3, outputTokens: 2, cacheReadTokens: 0, cacheCreationTokens: 0 });
  },
};

const announcement = {
  spec: { name: "echo", description: "Echoes.", inputSchema: { type: "object" } },
  effect: "once",
  requiresApproval: false,
  timeoutMs: 1_000,
} as const;

class Crash extends Error {}

/** Ends the process, so to speak: from the given call on nothing works, before or after it took effect. */
function crashing(store: SessionStore, at: number, when: "before" | "after"): SessionStore {
  let calls = 0;
  return new Proxy(store, {
    get:
      (target, name) =>
      async (...values: unknown[]) => {
        calls += 1;
        if (calls > at || (calls === at && when === "before")) throw new Crash();
        const method = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>;
        const result = await method.apply(target, values);
        if (calls === at) throw new Crash();
        return result;
      },
  });
}

interface World {
  store: SessionStore;
  /** Moves the store's clock, so that leases of the dead expire. */
  advance(ms: number): void;
  /** Wake-ups added, as the queue would hold them. */
  wakes: number[];
  /** Tool runs by call id: the runner of this world. */
  ran: Map<string, number>;
  sent: OutboxRecord[];
  dispatched: string[];
}

function newWorld(): World {
  let nowMs = Date.now();
  const { store } = createMemorySessionStore({ now: () => nowMs });
  const advance = (ms: number): void => {
    nowMs += ms;
  };
  return { store, advance, wakes: [], ran: new Map(), sent: [], dispatched: [] };
}

function environment(): TurnEnvironment {
  return {
    nowMs: Date.now(),
    limits: turnLimits(),
    tools: new Map([["echo", { runner: "test", announcement }]]),
    model: { info: findModelInfo("anthropic", "claude-sonnet-4-6"), costUsd: () => 0 },
  };
}

function runnerOf(world: World, store: SessionStore) {
  const turns = { wake: async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen) };
  const queues = {
    dispatch: async (_runner: string, jobs: readonly { callId: string }[]): Promise<void> => {
      world.dispatched.push(...jobs.map(({ callId }) => callId));
    },
  };
  const info = findModelInfo("anthropic", "claude-sonnet-4-6");
  return createSessionRunner({
    store,
    turns,
    agent: () => ({
      chain: createModelChain({ models: [{ info, backend }] }),
      instructions: "test",
      steered: false,
      environment,
      commandFacts: () => ({ nowMs: Date.now(), model: "test/model", defaultModel: "test/model", models: [] }),
      prepare: async (message) => message,
      read: async (history) => history,
      viewOf: () => undefined,
      openReply: () => undefined,
    }),
    dispatch: async (turn, calls, again) =>
      await dispatchCalls({ queues, store, wake: async () => {} }, turn, { calls, again, tools: environment().tools }),
    running: new RunningTurns(),
    deliver: ({ record }) => void world.sent.push(record),
    onMessage: () => {},
    owner: "worker-1",
    maxTries: 50,
    maxInRow: 8,
    onTurn: () => {},
  });
}

/** Runs what was dispatched, each call once, as the effect ledger allows. */
async function runTools(world: World): Promise<void> {
  for (const callId of world.dispatched.splice(0)) {
    if ((await world.store.begin(session, callId, "once")) === "run") {
      world.ran.set(callId, (world.ran.get(callId) ?? 0) + 1);
      const outcome: ToolOutcome = { ok: true, result: callId };
      const { wakeGen } = await world.store.deliver(session, callId, outcome);
      if (wakeGen !== undefined) world.wakes.push(wakeGen);
    }
  }
}

/** What the queue and the sweeper would do until nothing is left. */
async function settle(world: World): Promise<void> {
  const run = runnerOf(world, world.store);
  for (let round = 0; round < 100; round += 1) {
    const gen = world.wakes.shift();
    if (gen !== undefined) await run({ v: 1, session, gen }, new AbortController().signal);
    await runTools(world);
    const summary = await world.store.summary(session);
    if (summary.state === "idle" && world.wakes.length === 0) return;
    if (world.wakes.length === 0) {
      // A stalled job comes back under its own generation; a dead one is healed under a new one.
      const healed = await world.store.heal(session, summary.gen);
      world.wakes.push(healed ?? summary.gen);
    }
  }
  throw new Error("does not settle");
}

/** Every reply in the outbox, in the order in which it would be sent. */
async function outboxOf({ store, advance }: World): Promise<OutboxRecord[]> {
  const records: OutboxRecord[] = [];
  advance(60_000);
  let lease = await store.leaseOutbox(session);
  while (lease !== undefined) {
    records.push(lease.record);
    lease = await store.ackOutbox(session, lease.token);
  }
  return records;
}

function checkHistory(history: readonly Message[], texts: readonly string[]): void {
  const users = history.filter(({ role }) => role === "user").map(textOf);
  expect(users).toEqual(texts);
  for (const [index, message] of history.entries()) {
    const asked = message.role === "assistant" ? message.content.filter(({ type }) => type === "tool_use") : [];
    if (asked.length === 0) continue;
    const next = history[index + 1];
    expect(next?.role).toBe("tool");
    expect(next?.content.map((part) => (part.type === "tool_result" ? part.toolCallId : ""))).toEqual(
      asked.map((part) => (part.type === "tool_use" ? part.id : "")),
    );
  }
}

describe("running a session", () => {
  it("AL-20: a plain answer stores user and assistant and sends one reply to the message", async () => {
    const world = newWorld();
    const { wakeGen } = await world.store.append(inbound("om_1", "hello"));
    world.wakes.push(wakeGen ?? 0);
    await settle(world);
    expect(await world.store.history(session)).toEqual([
      { role: "user", content: [{ type: "text", text: "hello" }] },
      { role: "assistant", content: [{ type: "text", text: "answer to hello" }] },
    ]);
    expect(world.sent).toHaveLength(1);
    expect(world.sent[0]).toMatchObject({ text: "answer to hello", target: { messageId: "om_1" } });
    expect(world.sent[0]?.uuid.length).toBeLessThanOrEqual(50);
  });

  it("AL-45: messages that wait are answered one after the other, in order", async () => {
    const world = newWorld();
    const texts = Array.from({ length: 20 }, (_, index) => (index % 3 === 0 ? `tools ${index}` : `plain ${index}`));
    for (const [index, text] of texts.entries()) {
      const { wakeGen } = await world.store.append(inbound(`om_${index}`, text));
      if (wakeGen !== undefined) world.wakes.push(wakeGen);
    }
    await settle(world);
    checkHistory(await world.store.history(session), texts);
    const replies = await outboxOf(world);
    expect(replies.map(({ target }) => target.messageId)).toEqual(texts.map((_, index) => `om_${index}`));
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
        const doomed = runnerOf(world, crashing(world.store, at, when));
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

  it("a message that crashes every time is given up with an honest reply, and the next one is answered", async () => {
    const world = newWorld();
    const { wakeGen } = await world.store.append(inbound("om_1", "poison"));
    await world.store.append(inbound("om_2", "next"));
    let gen = wakeGen;
    for (let crash = 0; crash < 50 && gen !== undefined; crash += 1) {
      await world.store.claim(session, gen, "worker-1"); // and dies
      gen = await world.store.heal(session, gen);
    }
    world.wakes.push(gen ?? 0);
    await settle(world);
    const texts = (await world.store.history(session)).map(textOf);
    expect(texts[0]).toBe("poison");
    expect(texts[1]).not.toBe("answer to poison");
    expect(texts.slice(2)).toEqual(["next", "answer to next"]);
  });
});
