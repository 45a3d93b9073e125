import type { TurnModel } from "@larkline/agent";
import type { PermissionPolicy } from "@larkline/agent/permissions";
import { FeishuApi } from "@larkline/feishu";
import {
  createModelChain,
  type ChainModel,
  findModelInfo,
  type LlmBackend,
  type ModelInfo,
  messageStop,
  toolCallDelta,
  type ModelRequest,
} from "@larkline/model";
import { resolveConfig, type AgentConfig, type LarklineConfig } from "@larkline/process/config";
import { SchemaChecks } from "@larkline/process/schemas";
import { createLogger, Metrics, silentTelemetry } from "@larkline/process/telemetry";
import type { InboundMessage } from "@larkline/protocol";
import type { Approval, DecisionWord } from "@larkline/protocol/approval";
import { systemRandom, systemClock } from "@larkline/protocol/clock";
import { textOf, type Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { attemptIdOf, type ToolJob } from "@larkline/protocol/runner";
import type { ToolAnnouncement, ToolOutcome } from "@larkline/protocol/tool";
import type {
  ApprovalStore,
  DeliverResult,
  OutboxLease,
  OutboxRecord,
  PermissionRules,
  SessionStore,
} from "@larkline/store";
import { Presence } from "@larkline/store/operations";
import type { JobResult, ToolQueues, TurnQueue, TurnJob } from "@larkline/store/queues";
import type { OwnPresence } from "@larkline/store/redis";
import type { AvailableTool, RunnerDirectory } from "@larkline/store/runners";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { expect, vi } from "vitest";
import { chosenModel, type ChosenModel } from "@larkline/agent/drive";
import { createTextExtractor } from "./attachments/text-extractor.ts";
import { Bot } from "./bot.ts";
import { loadConfig } from "./config.ts";
import { createServices } from "./create-services.ts";
import { openStores, type Queues } from "./stores.ts";
import { RunningTurns, TurnHolds, type HoldEnd } from "./running-turns.ts";
import { createCounters, type Services, type WorkerCounters } from "./services.ts";
import { SessionRunner } from "./session-runner.ts";
import { wakeAfter } from "./tools.ts";

// For tests: sessions with a queue, a runner and a model that do what the test says.

export const session = "cli_app.oc_1";

export function inbound(
  id: string,
  text: string,
  fields: Partial<InboundMessage> = {},
): InboundMessage {
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
    const asked = textOf(
      messages.findLast(({ role }) => role === "user") ?? { role: "user", content: [] },
    );
    if (last?.role === "user" && asked.startsWith("tools")) {
      yield toolCallDelta(0, { id: `a-${asked}`, name: "echo", arguments: '{"n":1}' });
      yield toolCallDelta(1, { id: `b-${asked}`, name: "echo", arguments: '{"n":2}' });
      yield messageStop("tool_use");
      return;
    }
    yield { type: "text_delta", text: `answer to ${asked}` };
    yield messageStop("end_turn", {
      inputTokens: 3,
      outputTokens: 2,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
    });
  },
};

export const signingKey = "a signing key that only workers of tests have";

function announced(name: string, fields: Partial<ToolAnnouncement> = {}): [string, AvailableTool] {
  const spec = { name, description: `Tool ${name}.`, inputSchema: { type: "object" } };
  const announcement: ToolAnnouncement = {
    spec,
    effect: "once",
    requiresApproval: false,
    timeoutMs: 1_000,
    ...fields,
  };
  return [name, { runner: "test", announcement }];
}

/** What this directory finds from now on. */
export function offer(runners: RunnerDirectory, tools: Map<string, AvailableTool>): void {
  runners.view = async () => await Promise.resolve({ tools, living: [], away: [], clashes: [] });
}

/** The tools of the runner of this world: `pay` needs an approval, `tasks` and `book` act as a person. */
export const tools: ReadonlyMap<string, AvailableTool> = new Map([
  announced("echo"),
  announced("pay", { requiresApproval: true }),
  announced("look", { effect: "pure" }),
  announced("tasks", { effect: "pure", identity: { as: "person", scopes: ["task:task:read"] } }),
  announced("book", { identity: { as: "person", scopes: ["calendar:calendar.event:create"] } }),
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
export function crashing(
  { store, approvals, rules, queues }: Parts,
  at: number,
  when: "before" | "after",
): Parts {
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
  return {
    store: mortal(store),
    approvals: mortal(approvals),
    rules: mortal(rules),
    queues: mortal(queues),
  };
}

export interface World extends Parts, Omit<TestStores, keyof Parts> {
  /** Wake-ups added, as the queue would hold them. */
  wakes: number[];
  /** The same of child sessions. */
  childWakes: { session: string; gen: number }[];
  /** Tool runs by attempt id: the runner of this world. */
  ran: Map<string, number>;
  sent: OutboxRecord[];
  /** Calls that were handed out and not taken yet. */
  dispatched: ToolJob[];
  /** The calls that runners were asked to stop. */
  stopped: { runner: string; session: string; turnId: string }[];
  running: RunningTurns;
  /** Nothing is held unless a test puts other ones here. */
  holds: TurnHolds;
  /** How holds have ended. */
  held: HoldEnd[];
  /** Reactions that were taken back, with the ids of their messages. */
  takenBack: [messageId: string, purpose: string][];
  /** What workers have logged. */
  logged: Record<string, unknown>[];
  /** Ids of approvals whose cards were to be worked on. */
  carded: string[];
  /** Works on them; absent: the cards are not worked on. */
  workCards?: (session: string, approvalId: string) => Promise<void>;
  /** Answers of tools; without one a call is answered with its attempt's id. */
  outcomeOf: (job: ToolJob) => ToolOutcome;
  /** What a person says when they are asked; undefined: nothing yet. */
  word: (approval: Approval) => DecisionWord | undefined;
  resultStores: Pick<TestStores, "blobs" | "lookups">;
  /** The bot's; its platform is away. */
  api: FeishuApi;
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
    childWakes: [],
    ran: new Map(),
    sent: [],
    dispatched,
    stopped: [],
    queues: { dispatch: async (_runner, jobs) => void dispatched.push(...jobs) },
    running: new RunningTurns(systemClock),
    held: [],
    holds: new TurnHolds({ clock: systemClock, holdMs: 0, slots: 1, onEnd: () => {} }),
    takenBack: [],
    logged: [],
    carded: [],
    outcomeOf: (job) => ({ ok: true, result: attemptIdOf(job) }),
    word: ({ kind }) => (kind === "outcome" ? "abort" : "approve"),
    resultStores: stores,
    api: new FeishuApi({
      appId: "cli_app",
      appSecret: "secret",
      domain: "http://127.0.0.1:9",
      tokenCache: stores.tokens,
    }),
  };
}

const extractor = createTextExtractor({ maxBytes: 1_000 });
/** One thread for all worlds: starting one for each costs more than their tests. */
const schemas = new SchemaChecks({
  clock: systemClock,
  log: createLogger({ service: "test", level: "silent" }),
});

/** Every other worker has died. This one does not beat, and has no locks to renew. */
function presenceOf({ redis, namespace }: World): OwnPresence {
  const presence = new Presence({ redis, namespace });
  presence.fatesOf = async (ids) => new Map(ids.map((id) => [id, "died"]));
  return Object.assign(presence, {
    onEnded: () => undefined,
    onReturned: () => undefined,
  }) as Presence as OwnPresence; // nothing else of it is used
}

/** What an agent and its process differ in from the plain ones of these tests. */
export interface Differences {
  backend?: LlmBackend;
  /** The model that answers when the first one fails. */
  fallback?: LlmBackend;
  /** Facts of the model. */
  info?: Partial<ModelInfo>;
  /** Facts and prices; those of `info` and no price if absent. */
  model?: TurnModel;
  agent?: Partial<AgentConfig>;
  /** As in a configuration: `agents` with the links between them, and `roles`. Each agent's instructions are its name. */
  configured?: { agents: Record<string, object>; roles?: object; teams?: object; console?: object };
  policy?: PermissionPolicy;
  /** Seals what people grant; without it no tool acts as a person. */
  grantKey?: string;
  groupsOf?: (app: string, openId: string) => Promise<readonly string[]>;
  /** Fetches what messages refer to. */
  prepare?: (message: InboundMessage, signal: AbortSignal) => Promise<InboundMessage>;
  /** Failures in the same way after which a message is given up; 50 if absent. */
  maxFailures?: number;
  /** What the directory says of every tool besides. */
  presence?: Pick<AvailableTool, "awayForMs" | "livingSinceMs">;
  /** Everything else. */
  services?: Partial<Services>;
}

/** The policy of a configuration with these entries. */
export function policyOf(input: object = {}): PermissionPolicy {
  return settingsOf(input).permissions;
}

function settingsOf(input: object): LarklineConfig {
  const resolved = resolveConfig(input);
  return resolved.ok ? resolved.value : expect.fail(resolved.error);
}

function modelsOf(
  { backend = echoing, fallback, info, model: given }: Differences,
  names: readonly string[],
  agents: readonly string[],
) {
  const primary = { ...findModelInfo("anthropic", "claude-sonnet-4-6"), ...info };
  const other = { ...primary, id: "other", displayName: "Other" };
  const chain = createModelChain({
    models: [
      { info: primary, backend },
      ...(fallback === undefined ? [] : [{ info: other, backend: fallback }]),
    ],
  });
  const model = given ?? {
    info: findModelInfo("anthropic", "claude-sonnet-4-6"),
    costUsd: () => 0,
  };
  const choice = (name: string): ChosenModel => ({ name, chain, model });
  const choices = {
    usual: choice("test/model"),
    offered: new Map(names.map((name) => [name, choice(name)])),
  };
  return {
    defaultName: "test/model",
    ofAgents: new Map(agents.map((agent) => [agent, choices])),
    added: (_agent: unknown, name: string, one: ChainModel): ChosenModel =>
      chosenModel(name, createModelChain({ models: [one, { info: primary, backend }] })),
    configured: (name = "test/model") => ({
      ok: true as const,
      value: { name, model: { info: primary, backend } },
    }),
  };
}

/** `parts`: what the process that runs reaches the world by, when it is going to die. */
export function servicesOf(
  world: World,
  differences: Differences = {},
  parts: Parts = world,
): Services {
  const { configured = { agents: {} }, grantKey } = differences;
  const resolved = settingsOf({ feishu: { typing: true, queueNotice: "reaction" }, ...configured });
  const {
    policy = { ...policyOf(), roles: resolved.permissions.roles },
    groupsOf = async () => [],
    presence,
  } = differences;
  const plain = { instructions: "test", reply: "text" as const };
  const others = Object.entries(resolved.agents).map(([name, agent]) => [
    name,
    { ...agent, ...plain, instructions: name },
  ]);
  const agents = {
    ...(Object.fromEntries(others) as typeof resolved.agents), // of the same agents
    default: { ...resolved.agents.default, ...plain, ...differences.agent },
  };
  const limits = { ...resolved.limits, maxResultChars: 50_000 };
  const settings: LarklineConfig = { ...resolved, agents, limits, permissions: policy };
  const loaded = loadConfig({
    CALL_SIGNING_KEY: signingKey,
    GRANT_KEY: grantKey,
    REDIS_NAMESPACE: world.namespace,
  });
  const config = loaded.ok ? loaded.value : expect.fail(loaded.error);
  const destination = {
    write: (line: string) => world.logged.push(JSON.parse(line) as Record<string, unknown>),
  };
  const log = createLogger({ service: "test", level: "info", destination });
  const { store, approvals, rules, queues } = parts;
  const [clock, random] = [systemClock, systemRandom];
  const { events: eventLog, letters: deadLetters, cards, budgets } = world;
  const kept = {
    eventLog,
    deadLetters,
    cards,
    budgets,
    blobs: world.resultStores.blobs,
    lookups: world.resultStores.lookups,
  };
  const stores = {
    ...openStores({ config, settings, clock, random }, world.redis),
    store,
    approvals,
    rules,
    ...kept,
  };
  const there = new Map([...tools].map(([name, tool]) => [name, { ...tool, ...presence }]));
  offer(stores.runners, there);
  const bot = new Bot(settings, world.api, { lookups: stores.lookups, clock: systemClock }, log);
  bot.groupsOf = async (openId) => await groupsOf(bot.app, openId);
  bot.reactions.remove = async (messageId, purpose) =>
    void world.takenBack.push([messageId, purpose]);
  const services = createServices({
    config,
    settings,
    owner: "worker-1",
    models: modelsOf(differences, agents.default.models, Object.keys(agents)),
    log,
    counters: world.counters,
    telemetry: silentTelemetry,
    stores,
    queues: queuesOf(world, queues),
    redis: world.redis,
    bots: [bot],
    clock,
    random,
    presence: presenceOf(world),
    extractor,
  });
  services.runningTurns = world.running;
  services.turnHolds = world.holds;
  services.schemas = schemas;
  services.handoffs.expect = async () => {};
  Object.assign(services.helperReadiness, { isReady: true, readsWaits: true });
  services.preparer.prepare = differences.prepare ?? (async (message) => message);
  services.liveReplies.open = () => undefined;
  services.outboxSender.deliver = async ({ record }) => void world.sent.push(record);
  services.approvalCards.work = async (_session, approvalId) => {
    world.carded.push(approvalId);
    await world.workCards?.(session, approvalId);
  };
  return { ...services, ...differences.services };
}

/** How much of a kind the sweepers of this world have healed. */
export function healedIn({ logged }: World, kind: string): number {
  const healed = logged.filter(({ msg, what }) => msg === "healed" && what === kind);
  return healed.reduce((sum, { count }) => sum + Number(count), 0);
}

/** Queues that keep what is added in the world. */
function queuesOf(world: World, { dispatch }: Parts["queues"]): Queues {
  const wake = async (of: string, gen: number): Promise<void> =>
    void (of === session ? world.wakes.push(gen) : world.childWakes.push({ session: of, gen }));
  const turns = { wake, ensure: async () => true, alive: async () => true, close: async () => {} };
  const calls = { dispatch, limit: async () => {}, close: async () => {} };
  return {
    // All methods that there are; only their insides are missing.
    turns: turns as unknown as TurnQueue,
    tools: calls as unknown as ToolQueues,
    cancels: { publish: async () => {}, subscribe: async () => {} },
    runnerCancels: {
      publish: async (runner, { session: key, turnId = "" }) =>
        void world.stopped.push({ runner, session: key, turnId }),
    },
  };
}

/** A worker of this world; see {@link servicesOf}. */
export function runnerOf(world: World, differences: Differences = {}, parts: Parts = world) {
  const services = servicesOf(world, differences, parts);
  const { maxFailures = 50 } = differences;
  const runner = new SessionRunner(services, { maxFailures, cancelPollMs: 20 });
  return async (job: TurnJob, signal: AbortSignal, alone = false): Promise<JobResult> => {
    await services.toolCatalog.refresh();
    return await runner.run(job, signal, alone);
  };
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
    const { session: of } = approval;
    const decided = await world.approvals.decide(of, approval.id, { decision, by });
    const gen = "wakeGen" in decided ? decided.wakeGen : undefined;
    if (gen !== undefined && of === session) world.wakes.push(gen);
    else if (gen !== undefined) world.childWakes.push({ session: of, gen });
  }
}

/** Runs what was dispatched, each call once, as the effect ledger allows. */
export async function runTools(world: World): Promise<void> {
  for (const job of world.dispatched.splice(0)) {
    const attemptId = attemptIdOf(job);
    if ((await world.store.begin(job.session, attemptId, job.effect)) !== "run") continue;
    world.ran.set(attemptId, (world.ran.get(attemptId) ?? 0) + 1);
    await tell(
      world,
      await world.store.deliver(job.session, attemptId, world.outcomeOf(job)),
      job.session,
    );
  }
}

/** A worker has carried an outcome over. */
export async function tell(world: World, delivered: DeliverResult, to = session): Promise<void> {
  await wakeAfter(servicesOf(world), to, delivered);
}

/** Lets turns keep their slots: for calls that are answered as soon as they are handed out, or for those that are late. */
export function holding(world: World, answers: "at once" | "late"): World {
  const onEnd = (end: HoldEnd): void => void world.held.push(end);
  world.holds = new TurnHolds({
    clock: systemClock,
    holdMs: answers === "late" ? 1 : 60_000,
    slots: 2,
    onEnd,
  });
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
    await runChildren(world, differences);
    await runTools(world);
    await askPeople(world);
    const summary = await world.store.summary(session);
    const children = await childrenAtWork(world);
    const isWoken = world.wakes.length + world.childWakes.length > 0;
    if (summary.state === "idle" && children.length === 0 && !isWoken) return;
    if (isWoken) continue;
    // Under the generation that has claimed it, which may be that of a job of before.
    const stale = await world.store.stale(Number.MAX_SAFE_INTEGER, 100);
    const claimed = new Map(stale.map((each) => [each.session, each.gen]));
    const healed = async (of: string, latest: number): Promise<number> => {
      const running = claimed.get(of) ?? latest;
      return (await world.store.heal(of, running)) ?? running;
    };
    for (const child of children) {
      world.childWakes.push({
        session: child.session,
        gen: await healed(child.session, child.gen),
      });
    }
    // A stalled job comes back under its own generation; a dead one is healed under a new one.
    if (summary.state !== "idle") world.wakes.push(await healed(session, summary.gen));
  }
  throw new Error("does not settle");
}

/** Child sessions that have not ended. */
async function childrenAtWork({ store }: World): Promise<{ session: string; gen: number }[]> {
  const children = await store.children(session);
  const all = await Promise.all(
    children.map(async (child) => ({ ...(await store.summary(child.session)), ...child })),
  );
  return all.filter(({ state }) => state !== "idle");
}

/** Runs the wake-ups of child sessions that there are. */
export async function runChildren(world: World, differences: Differences = {}): Promise<void> {
  if (world.childWakes.length === 0) return;
  const run = runnerOf(world, differences);
  for (let wake = world.childWakes.shift(); wake !== undefined; wake = world.childWakes.shift()) {
    await run({ v: 1, ...wake }, new AbortController().signal);
  }
}

/** Every reply in the outbox, in the order in which it would be sent. */
export async function outboxOf({ store, advance }: World): Promise<OutboxRecord[]> {
  const records: OutboxRecord[] = [];
  await advance(60_000);
  while ((await store.summary(session)).unsent > 0) {
    // A sender that died may hold the lease for a moment.
    const lease = await vi.waitUntil(async () => await store.outbox.lease(session), {
      timeout: 60_000,
      interval: 5,
    });
    for (let next: OutboxLease | undefined = lease; next !== undefined;) {
      records.push(next.record);
      next = await store.outbox.ack(session, next.token);
    }
  }
  return records;
}

/** Every call is answered by the message after it, in order. */
export function checkPairs(history: readonly Message[]): void {
  for (const [index, message] of history.entries()) {
    const asked =
      message.role === "assistant" ? message.content.filter(({ type }) => type === "tool_use") : [];
    if (asked.length === 0) continue;
    const next = history[index + 1];
    expect(next?.role).toBe("tool");
    expect(
      next?.content.map((part) => (part.type === "tool_result" ? part.toolCallId : "")),
    ).toEqual(asked.map((part) => (part.type === "tool_use" ? part.id : "")));
  }
}

export function checkHistory(history: readonly Message[], texts: readonly string[]): void {
  const users = history.filter(({ role }) => role === "user").map(textOf);
  expect(users).toEqual(texts);
  checkPairs(history);
}

/** The instructions of the agent that a model is asked for, without the notes below them. */
export function instructionsOf({ system = "", systemBlocks = [] }: ModelRequest): string {
  return systemBlocks[0]?.text ?? system;
}
