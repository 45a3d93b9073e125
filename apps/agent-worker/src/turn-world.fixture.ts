import { turnLimits, type TurnModel } from "@larkline/agent";
import { resolveConfig } from "@larkline/process/config";
import { createModelChain, findModelInfo, type LlmBackend, type ModelInfo } from "@larkline/model";
import type { PermissionPolicy } from "@larkline/agent/permissions";
import {
  attemptIdOf,
  messageStop,
  textOf,
  toolCallDelta,
  type Approval,
  type DecisionWord,
  type InboundMessage,
  type Message,
  type ModelChunk,
  type ToolAnnouncement,
  type ToolJob,
  type ToolOutcome,
} from "@larkline/protocol";
import type { ToolQueues } from "@larkline/queue";
import type {
  ApprovalStore,
  AvailableTool,
  Claim,
  DeliverResult,
  OutboxLease,
  OutboxRecord,
  PermissionRules,
  ResultDesk,
  SessionStore,
} from "@larkline/store";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { createLogger, Metrics, silentTelemetry } from "@larkline/process/telemetry";
import { expect, vi } from "vitest";
import type { AgentSide } from "./agents.ts";
import { Authorities, createTurnJudge, type JudgeDeps, createTurnApprovals, type WorkCards } from "./approvals.ts";
import {
  createBuiltInTools,
  createCallSigner,
  createLargeResults,
  createOfferedTools,
  dispatchCalls,
} from "./tools.ts";
import { createGivenUp, RunningTurns, createSessionRunner, type SessionRunnerOptions } from "./session-runner.ts";
import { TurnHolds, type HoldEnd, wakeAfter } from "./turn-holds.ts";
import { createCounters, type WorkerCounters } from "./services.ts";

// For tests: sessions with a queue, a runner and a model that do what the test says.

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

const signingKey = "signing key of these tests ".repeat(2);

function announced(name: string, fields: Partial<ToolAnnouncement> = {}): [string, AvailableTool] {
  const spec = { name, description: `Tool ${name}.`, inputSchema: { type: "object" } };
  const announcement: ToolAnnouncement = { spec, effect: "once", requiresApproval: false, timeoutMs: 1_000, ...fields };
  return [name, { runner: "test", announcement }];
}

/** The tools of the runner of this world: `pay` needs an approval. */
const tools: ReadonlyMap<string, AvailableTool> = new Map([
  announced("echo"),
  announced("pay", { requiresApproval: true }),
  announced("look", { effect: "pure" }),
]);

export class Crash extends Error {}

/** Everything of a process that a crash cuts off. */
export interface Parts {
  store: SessionStore;
  approvals: ApprovalStore;
  rules: PermissionRules;
  queues: Pick<ToolQueues, "dispatch">;
}

/** Ends the process, so to speak: from the given call on nothing works, before or after it took effect. */
export function crashing({ store, approvals, rules, queues }: Parts, at: number, when: "before" | "after"): Parts {
  let calls = 0;
  const mortal = <T extends object>(part: T): T =>
    new Proxy(part, {
      get:
        (target, name) =>
        async (...values: unknown[]) => {
          calls += 1;
          if (calls > at || (calls === at && when === "before")) throw new Crash();
          const method = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>; // parts have nothing else
          const result = await method.apply(target, values);
          if (calls === at) throw new Crash();
          return result;
        },
    });
  return { store: mortal(store), approvals: mortal(approvals), rules: mortal(rules), queues: mortal(queues) };
}

export interface World extends Parts, Pick<TestStores, "events" | "letters" | "advance"> {
  /** Wake-ups added, as the queue would hold them. */
  wakes: number[];
  /** Tool runs by attempt id: the runner of this world. */
  ran: Map<string, number>;
  sent: OutboxRecord[];
  /** Calls that were handed out and not taken yet. */
  dispatched: ToolJob[];
  /** What runners were told to stop. */
  stopped: { runner: string; session: string; turnId: string }[];
  running: RunningTurns;
  /** Nothing is held unless a test puts other ones here. */
  holds: TurnHolds;
  /** How holds have ended. */
  held: HoldEnd[];
  /** Message ids, and what was told of their work. */
  told: [id: string, what: "begins" | "ends"][];
  /** What could not be read of sessions, as workers were told. */
  lost: [session: string, lost: NonNullable<Claim["lost"]>[number]][];
  /** Ids of approvals whose cards were to be worked on. */
  carded: string[];
  /** Works on them; nobody does if absent. */
  workCards?: WorkCards;
  /** Answers of tools; without one a call is answered with its attempt's id. */
  outcomeOf: (job: ToolJob) => ToolOutcome;
  /** What a person says when they are asked; undefined: nothing yet. */
  word: (approval: Approval) => DecisionWord | undefined;
  desk: ResultDesk;
  counters: WorkerCounters;
  /** All metrics, as they are scraped. */
  scrape(): Promise<string>;
}

export function newWorld(stores: TestStores = openTestStores()): World {
  const dispatched: ToolJob[] = [];
  const registry = new Metrics({ service: "test" });
  return {
    counters: createCounters(registry),
    scrape: async () => await registry.text(),
    ...stores,
    wakes: [],
    ran: new Map(),
    sent: [],
    dispatched,
    stopped: [],
    queues: { dispatch: async (_runner, jobs) => void dispatched.push(...jobs) },
    running: new RunningTurns(),
    held: [],
    holds: new TurnHolds({ holdMs: 0, slots: 1, onEnd: () => {} }),
    told: [],
    lost: [],
    carded: [],
    outcomeOf: (job) => ({ ok: true, result: attemptIdOf(job) }),
    word: ({ kind }) => (kind === "outcome" ? "abort" : "approve"),
    desk: stores,
  };
}

const logger = createLogger({ service: "test", level: "silent" });
const limits = turnLimits();

/** What an agent differs in from the plain one of these tests. */
export type Differences = Partial<Omit<AgentSide, "chain">> & {
  backend?: LlmBackend;
  fallback?: LlmBackend;
  /** Facts of the model. */
  info?: Partial<ModelInfo>;
  policy?: PermissionPolicy;
  groupsOf?: JudgeDeps["groupsOf"];
  /** Facts and prices; of one that costs nothing if absent. */
  model?: TurnModel;
  /** Errors after which a message is given up; 50 if absent. */
  maxTries?: number;
  /** What the directory says of every tool besides. */
  presence?: Pick<AvailableTool, "awayForMs" | "livingSinceMs">;
  /** Who runs it, and how it knows of others. */
  worker?: Pick<SessionRunnerOptions, "owner" | "presence" | "hasDied">;
};

/** The policy of a configuration with these entries. */
export function policyOf(input: object = {}): PermissionPolicy {
  const resolved = resolveConfig(input);
  if (!resolved.ok) throw new Error(resolved.error);
  return resolved.value.permissions;
}

function sideOf(world: World, authorities: Authorities, differences: Differences): Omit<AgentSide, "chain"> {
  const { policy = policyOf(), groupsOf = async () => [], info: _info, ...rest } = differences;
  const { fallback: _fallback, backend: _backend, maxTries: _maxTries, worker: _worker, ...others } = rest;
  const { model: given, presence, ...side } = others;
  const there = new Map([...tools].map(([name, tool]) => [name, { ...tool, ...presence }]));
  const model = given ?? { info: findModelInfo("anthropic", "claude-sonnet-4-6"), costUsd: () => 0 };
  const builtIns = createBuiltInTools({ desk: world.desk, limits, logger });
  const offered = createOfferedTools({ catalog: { tools: () => there }, builtIns, logger }, null);
  return {
    instructions: "test",
    request: {},
    followUps: "wait",
    now: Date.now,
    facts: () => ({ limits, tools: offered(), model }),
    judge: (message) => createTurnJudge({ policy, authorities, tools: offered, groupsOf, logger }, message),
    keepLarge: createLargeResults({ desk: world.desk, limits, counters: world.counters, logger }),
    commandFacts: () => ({ nowMs: Date.now(), model: "test/model", defaultModel: "test/model", models: [] }),
    openBudget: () => ({ before: async () => undefined, charge: async () => undefined }),
    prepare: async (message) => message,
    read: async (history) => history,
    readBriefly: async (history) => history,
    viewOf: () => undefined,
    openReply: () => undefined,
    ...side,
  };
}

/** `parts`: what the process that runs reaches the world by, when it is going to die. */
export function runnerOf(world: World, differences: Differences = {}, parts: Parts = world) {
  const { backend = echoing, fallback, info, policy = policyOf(), maxTries = 50, worker } = differences;
  const { store, approvals, rules, queues } = parts;
  const turns = { wake: async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen) };
  const model = { ...findModelInfo("anthropic", "claude-sonnet-4-6"), ...info };
  const other = { ...model, id: "other", displayName: "Other" };
  const models = [{ info: model, backend }, ...(fallback === undefined ? [] : [{ info: other, backend: fallback }])];
  const workCards: WorkCards = async (_session, approvalId) => {
    world.carded.push(approvalId);
    await world.workCards?.(session, approvalId);
  };
  const builtIns = createBuiltInTools({ desk: world.desk, limits, logger });
  const { holds } = world;
  const wake = wakeAfter.bind(undefined, { turns, holds });
  const sign = createCallSigner(signingKey);
  const authorities = new Authorities({
    approvals,
    rules,
    policy,
    groupsOf: differences.groupsOf ?? (async () => []),
    logger,
  });
  return createSessionRunner({
    store,
    log: world.events,
    turns,
    agent: () => ({ chain: createModelChain({ models }), ...sideOf(world, authorities, differences) }),
    dispatch: async (turn, calls) =>
      await dispatchCalls(
        { queues, worker: "w", expect: async () => {}, store, wake, sign, authorities, builtIns },
        turn,
        calls,
      ),
    stopCalls: async (runner, cancel) => void world.stopped.push({ runner, ...cancel }),
    approvals: createTurnApprovals({
      approvals,
      rules,
      authorities,
      policy,
      workCards,
      counters: world.counters,
      telemetry: silentTelemetry,
      logger,
    }),
    running: world.running,
    holds,
    deliver: ({ record }) => void world.sent.push(record),
    onGivenUp: createGivenUp({ letters: world.letters, logger }),
    onMessage: ({ id }, what) => void world.told.push([id, what]),
    onLost: (key, lost) => void world.lost.push(...lost.map((each): World["lost"][number] => [key, each])),
    owner: "worker-1",
    ...worker,
    maxTries,
    cancelPollMs: 20,
    maxInRow: 8,
    telemetry: silentTelemetry,
    onTurn: () => {},
  });
}

/** Adds messages, and the wake-ups they need. */
export async function append(world: World, ...messages: InboundMessage[]): Promise<void> {
  for (const message of messages) {
    const { wakeGen } = await world.store.append(message);
    if (wakeGen !== undefined) world.wakes.push(wakeGen);
  }
}

/** Runs the wake-ups there are, and those they lead to. */
export async function runWakes(world: World, differences: Differences = {}): Promise<void> {
  const run = runnerOf(world, differences);
  for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
    await run({ v: 1, session, gen }, new AbortController().signal);
  }
}

/** Asks the person of this world about everything that is pending. */
export async function askPeople(world: World): Promise<void> {
  for (const { approval } of await world.approvals.pending(session)) {
    const decision = world.word(approval);
    if (decision === undefined) continue;
    const by = { id: "ou_1", name: "Ann" };
    const decided = await world.approvals.decide(session, approval.id, { decision, by });
    if ("wakeGen" in decided && decided.wakeGen !== undefined) world.wakes.push(decided.wakeGen);
  }
}

/** Runs what was dispatched, each call once, as the effect ledger allows. */
export async function runTools(world: World): Promise<void> {
  for (const job of world.dispatched.splice(0)) {
    const attemptId = attemptIdOf(job);
    if ((await world.store.begin(session, attemptId, job.effect)) !== "run") continue;
    world.ran.set(attemptId, (world.ran.get(attemptId) ?? 0) + 1);
    await tell(world, await world.store.deliver(session, attemptId, world.outcomeOf(job)));
  }
}

/** A worker has carried an outcome over. */
export async function tell(world: World, delivered: DeliverResult): Promise<void> {
  const turns = { wake: async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen) };
  await wakeAfter({ turns, holds: world.holds }, session, delivered);
}

/** Lets turns keep their slots: for calls that are answered as soon as they are handed out, or for those that are late. */
export function holding(world: World, answers: "at once" | "late"): World {
  const onEnd = (end: HoldEnd): void => void world.held.push(end);
  world.holds = new TurnHolds({ holdMs: answers === "late" ? 1 : 60_000, slots: 2, onEnd });
  if (answers === "at once") onHandOut(world, async () => await runTools(world));
  return world;
}

/** What happens as soon as calls are handed out, which waits for none of it. */
export function onHandOut(world: World, act: (jobs: readonly ToolJob[]) => Promise<void>): void {
  world.queues = {
    dispatch: async (_runner, jobs) => {
      world.dispatched.push(...jobs);
      void act(jobs);
    },
  };
}

/** What the queue and the sweeper would do until nothing is left. */
export async function settle(world: World, differences: Differences = {}): Promise<void> {
  const run = runnerOf(world, differences);
  for (let round = 0; round < 100; round += 1) {
    const gen = world.wakes.shift();
    if (gen !== undefined) await run({ v: 1, session, gen }, new AbortController().signal);
    await runTools(world);
    await askPeople(world);
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
  await advance(60_000);
  while ((await store.summary(session)).unsent > 0) {
    // Whoever died may hold it for a moment.
    const lease = await vi.waitUntil(async () => await store.leaseOutbox(session), { timeout: 10_000, interval: 5 });
    for (let next: OutboxLease | undefined = lease; next !== undefined;) {
      records.push(next.record);
      next = await store.ackOutbox(session, next.token);
    }
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
