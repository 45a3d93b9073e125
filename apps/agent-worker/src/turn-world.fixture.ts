import { turnLimits, type TurnEnvironment } from "@larkline/agent";
import { createModelChain, findModelInfo, type LlmBackend, type ModelInfo } from "@larkline/model";
import {
  messageStop,
  textOf,
  toolCallDelta,
  type InboundMessage,
  type Message,
  type ModelChunk,
  type ToolOutcome,
} from "@larkline/protocol";
import { createMemorySessionStore, type EventLog, type OutboxRecord, type SessionStore } from "@larkline/session";
import { expect } from "vitest";
import type { AgentSide } from "./agent-side.ts";
import { RunningTurns } from "./running-turns.ts";
import { createSessionRunner } from "./session-runner.ts";
import { dispatchCalls } from "./tool-dispatch.ts";

// For tests: sessions in memory, with a queue, a runner and a model that do what the test says.

export const session = "cli_app.oc_1";

export function inbound(id: string, text: string, fields: Partial<InboundMessage> = {}): InboundMessage {
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
    ...fields,
  };
}

/** Calls `echo` twice for a text that starts with "tools", answers everything else. */
export const echoing: LlmBackend = {
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

export class Crash extends Error {}

/** Ends the process, so to speak: from the given call on nothing works, before or after it took effect. */
export function crashing(store: SessionStore, at: number, when: "before" | "after"): SessionStore {
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

export interface World {
  store: SessionStore;
  events: EventLog;
  /** Moves the store's clock, so that leases of the dead expire. */
  advance(ms: number): void;
  /** Wake-ups added, as the queue would hold them. */
  wakes: number[];
  /** Tool runs by call id: the runner of this world. */
  ran: Map<string, number>;
  sent: OutboxRecord[];
  dispatched: string[];
  running: RunningTurns;
  /** Message ids, and what was told of their work. */
  told: [id: string, what: "begins" | "ends"][];
}

export function newWorld(): World {
  let nowMs = Date.now();
  const { store, events } = createMemorySessionStore({ now: () => nowMs });
  const advance = (ms: number): void => {
    nowMs += ms;
  };
  return {
    store,
    events,
    advance,
    wakes: [],
    ran: new Map(),
    sent: [],
    dispatched: [],
    running: new RunningTurns(),
    told: [],
  };
}

function environment(): TurnEnvironment {
  return {
    nowMs: Date.now(),
    limits: turnLimits(),
    tools: new Map([["echo", { runner: "test", announcement }]]),
    model: { info: findModelInfo("anthropic", "claude-sonnet-4-6"), costUsd: () => 0 },
  };
}

/** What an agent differs in from the plain one of these tests. */
export type Differences = Partial<Omit<AgentSide, "chain">> & {
  backend?: LlmBackend;
  fallback?: LlmBackend;
  /** Facts of the model. */
  info?: Partial<ModelInfo>;
};

export function runnerOf(
  world: World,
  store: SessionStore,
  { backend = echoing, fallback, info, ...rest }: Differences = {},
) {
  const turns = { wake: async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen) };
  const queues = {
    dispatch: async (_runner: string, jobs: readonly { callId: string }[]): Promise<void> => {
      world.dispatched.push(...jobs.map(({ callId }) => callId));
    },
  };
  const model = { ...findModelInfo("anthropic", "claude-sonnet-4-6"), ...info };
  return createSessionRunner({
    store,
    turns,
    agent: () => ({
      chain: createModelChain({
        models: [
          { info: model, backend },
          ...(fallback === undefined
            ? []
            : [{ info: { ...model, id: "other", displayName: "Other" }, backend: fallback }]),
        ],
      }),
      instructions: "test",
      followUps: "wait",
      environment,
      commandFacts: () => ({ nowMs: Date.now(), model: "test/model", defaultModel: "test/model", models: [] }),
      prepare: async (message) => message,
      read: async (history) => history,
      readBriefly: async (history) => history,
      viewOf: () => undefined,
      openReply: () => undefined,
      ...rest,
    }),
    dispatch: async (turn, calls, again) =>
      await dispatchCalls({ queues, store, wake: async () => {} }, turn, { calls, again, tools: environment().tools }),
    running: world.running,
    deliver: ({ record }) => void world.sent.push(record),
    onMessage: ({ id }, what) => void world.told.push([id, what]),
    owner: "worker-1",
    maxTries: 50,
    cancelPollMs: 20,
    maxInRow: 8,
    onTurn: () => {},
  });
}

/** Runs what was dispatched, each call once, as the effect ledger allows. */
export async function runTools(world: World): Promise<void> {
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
export async function settle(world: World, differences: Differences = {}): Promise<void> {
  const run = runnerOf(world, world.store, differences);
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
export async function outboxOf({ store, advance }: World): Promise<OutboxRecord[]> {
  const records: OutboxRecord[] = [];
  advance(60_000);
  let lease = await store.leaseOutbox(session);
  while (lease !== undefined) {
    records.push(lease.record);
    lease = await store.ackOutbox(session, lease.token);
  }
  return records;
}

/** Every call is answered by the message after it, in order. */
export function checkPairs(history: readonly Message[]): void {
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

export function checkHistory(history: readonly Message[], texts: readonly string[]): void {
  const users = history.filter(({ role }) => role === "user").map(textOf);
  expect(users).toEqual(texts);
  checkPairs(history);
}
