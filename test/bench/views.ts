import { createClient } from "@larkline/sdk";
import { turnIdOf } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import type { EngineEvent } from "@larkline/protocol/event";
import { SessionStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { spread, type Spread } from "./measure.ts";

/** How long an event takes from Redis into the loops of those who follow its run. */
export interface FollowNumbers {
  followers: number;
  events: number;
  /** From the beginning of the write to the event in a loop, over all events and followers. */
  ms: Spread;
}

/** What reading a whole run costs. */
export interface ViewNumbers {
  view: string;
  bytes: number;
  /** From the request to the last byte, over several readings. */
  ms: Spread;
}

/** A run of the HTTP API that this process works off itself, so that it knows when each event is written. */
class OwnRun {
  readonly id: string;
  readonly #emit: (event: EngineEvent) => Promise<void>;

  private constructor(id: string, emit: (event: EngineEvent) => Promise<void>) {
    this.id = id;
    this.#emit = emit;
  }

  static async begin(store: SessionStore, url: string, name: string): Promise<OwnRun> {
    const body = JSON.stringify({ input: "please answer", session_id: name });
    const response = await fetch(`${url}/v1/runs`, { method: "POST", body });
    if (response.status !== 202) {
      throw new Error(`a run could not be started: ${await response.text()}`);
    }
    const session = `api.${name}`;
    const { gen } = await store.summary(session);
    const claim = await store.claim(session, gen, "bench");
    if (claim?.head === undefined) throw new Error("the run was not found");
    const { epoch, head } = claim;
    const runId = turnIdOf(session, head.seq);
    return new OwnRun(runId, async (event) => {
      const agent = "default";
      const told = { runId, agent, atMs: systemClock.now(), event };
      if (!(await store.emit({ session, epoch, events: [told] }))) {
        throw new Error("the run was taken away");
      }
    });
  }

  async emit(event: EngineEvent): Promise<void> {
    await this.#emit(event);
  }
}

const usage = { inputTokens: 900, outputTokens: 90, cacheReadTokens: 0, cacheCreationTokens: 0 };
const done: EngineEvent = {
  type: "done",
  totalInputTokens: 9_000,
  totalOutputTokens: 900,
  totalCostUsd: 0.01,
  turnCount: 10,
  reason: "",
  final: "the end",
};

/** `count` events as a worker writes them: steps that speak and call a tool. */
function eventsOf(count: number): EngineEvent[] {
  const perStep = 100;
  const events = Array.from({ length: count - 1 }, (_, index): EngineEvent => {
    const [turnNumber, at] = [Math.floor(index / perStep) + 1, index % perStep];
    const id = `call_${turnNumber}`;
    const said = `this is sentence number ${index}. `;
    if (at === 0) {
      return { type: "turn_start", turnNumber, model: "bench/model", contextWindowTokens: 200_000 };
    }
    if (at < 96) return { type: "text_delta", text: said };
    if (at === 96) {
      return { type: "text", text: "this is what was said in all of these sentences. ".repeat(60) };
    }
    if (at === 97) return { type: "tool_use", id, toolName: "look_up", input: { city: "Oslo" } };
    const kept = { isError: false, truncated: false, storedPath: "" };
    if (at === 98) {
      return { type: "tool_result", id, toolName: "look_up", output: '{"sunny":true}', ...kept };
    }
    return { type: "turn_end", turnNumber, ...usage, costUsd: 0.001, maxTokens: 4_096 };
  });
  return [...events, done];
}

async function follow(
  system: ProcessSystem,
  store: SessionStore,
  { followers, events = 300 }: { followers: number; events?: number },
): Promise<FollowNumbers> {
  const { url = "" } = system.ingresses[0] ?? {};
  const run = await OwnRun.begin(store, url, `follow-${followers}-${events}`);
  const writtenMs = new Map<number, number>();
  const times: number[] = [];
  let begun = 0;
  const everyoneIsThere = Promise.withResolvers<void>();
  const reading = Array.from({ length: followers }, async () => {
    for await (const event of createClient({ url }).attach(run.id).stream()) {
      if (event.type === "turn_start") {
        begun += 1;
        if (begun === followers) everyoneIsThere.resolve();
      }
      const at = event.type === "text_delta" ? writtenMs.get(Number(event.text)) : undefined;
      if (at !== undefined) times.push(performance.now() - at);
    }
  });
  await run.emit({
    type: "turn_start",
    turnNumber: 1,
    model: "bench/model",
    contextWindowTokens: 200_000,
  });
  await everyoneIsThere.promise;
  for (let index = 0; index < events; index += 1) {
    writtenMs.set(index, performance.now());
    await run.emit({ type: "text_delta", text: `${index}` });
    await new Promise((resolve) => setTimeout(resolve, 20)); // about as a model speaks
  }
  await run.emit(done);
  await Promise.all(reading);
  const expected = events * followers;
  if (times.length !== expected) {
    throw new Error(`${times.length} events came in place of ${expected}`);
  }
  return { followers, events, ms: spread(times) };
}

async function read(url: string, runId: string, view: string): Promise<ViewNumbers> {
  const times: number[] = [];
  let bytes = 0;
  for (let reading = 0; reading < 12; reading += 1) {
    const startedMs = performance.now();
    const response = await fetch(`${url}/v1/runs/${runId}/events?view=${view}`);
    bytes = (await response.arrayBuffer()).byteLength;
    // The first two compile what the others run.
    if (reading >= 2) times.push(performance.now() - startedMs);
  }
  return { view, bytes, ms: spread(times) };
}

async function withIngress<Result>(
  work: (system: ProcessSystem, store: SessionStore) => Promise<Result>,
): Promise<Result> {
  const system = await startProcesses({ workers: 0, runners: 0, env: { LOG_LEVEL: "error" } });
  const redis = connectRedis(system.redis.url);
  const store = new SessionStore({ redis, namespace: "larkline", stateKey: "0".repeat(64) });
  try {
    await follow(system, store, { followers: 2 }); // warms up
    return await work(system, store);
  } finally {
    await closeRedis(redis);
    await system.close();
  }
}

/** Followers of a run through one ingress and the SDK: one, and a hundred. */
export async function measureFollows(events: number): Promise<FollowNumbers[]> {
  return await withIngress(async (system, store) => [
    await follow(system, store, { followers: 1, events }),
    await follow(system, store, { followers: 100, events }),
  ]);
}

/** The same, and each view of a run of `events` events. */
export async function measureViews(
  events: number,
): Promise<{ follows: FollowNumbers[]; views: ViewNumbers[] }> {
  return await withIngress(async (system, store) => {
    const follows = [
      await follow(system, store, { followers: 1 }),
      await follow(system, store, { followers: 100 }),
    ];
    const { url = "" } = system.ingresses[0] ?? {};
    const run = await OwnRun.begin(store, url, "long");
    for (const event of eventsOf(events)) await run.emit(event);
    const views: ViewNumbers[] = [];
    for (const view of ["engine", "items", "messages"]) views.push(await read(url, run.id, view));
    return { follows, views };
  });
}
