import { systemClock } from "@larkline/protocol/clock";
import { noteBeat } from "@larkline/store/testing";
import type { GateState, ServerState } from "@larkline/store/operations";
import { Metrics, silentLogger } from "@larkline/process/telemetry";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  callOf,
  openWorld,
  session,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";
import { showRedis, showState, type StateMetricsDeps } from "./metrics.ts";

const emptyGate: GateState = {
  sessions: { queued: 0, running: 0, suspended: 0 },
  oldestMessageAtMs: {},
  outboxes: 0,
  openCalls: 0,
  openApprovals: 0,
};

function start(changes: Partial<StateMetricsDeps> = {}) {
  const metrics = new Metrics({ service: "console" });
  showState({
    metrics,
    queues: { names: async () => ["turns"] },
    catalog: {
      depth: async () => ({ waiting: 2, active: 1, delayed: 0, failed: 0, isPaused: false }),
    },
    index: { gateState: async () => emptyGate },
    presence: { members: async () => [] },
    directory: { runners: async () => [] },
    governor: { callsOf: async () => 7 },
    letters: { count: async () => 3 },
    apps: ["cli_a"],
    quotaOf: () => 10_000,
    logger: silentLogger,
    clock: systemClock,
    ...changes,
  });
  return async () =>
    (await metrics.text()).split("\n").filter((line) => line.startsWith("larkline_"));
}

describe("showState", () => {
  it("reads once for scrapes that follow each other, and again when what it has is old", async () => {
    let readings = 0;
    const gateState = async () => {
      readings += 1;
      return emptyGate;
    };
    const eager = start({ index: { gateState }, freshMs: 60_000 });
    await Promise.all([eager(), eager()]);
    await eager();
    expect(readings).toBe(1);
    const exact = start({ index: { gateState }, freshMs: 0 });
    await exact();
    await exact();
    expect(readings).toBe(3);
  });

  it("shows nothing but that it is down when Redis fails or hangs, and all of it when it is back", async () => {
    let trouble: (() => Promise<GateState>) | undefined;
    const lines = start({
      index: { gateState: async () => await (trouble?.() ?? emptyGate) },
      freshMs: 0,
      deadlineMs: 50,
    });
    const up = 'larkline_state_up{service="console"} 1';
    expect(await lines()).toEqual(
      expect.arrayContaining([up, 'larkline_calls_open{service="console"} 0']),
    );
    for (const fault of [
      async () => await Promise.reject(new Error("away")),
      async () => await new Promise<never>(() => {}),
    ]) {
      trouble = fault;
      expect(await lines()).toEqual(['larkline_state_up{service="console"} 0']);
    }
    trouble = undefined;
    expect(await lines()).toContain(up);
  });
});

const server: ServerState = {
  node: "redis:6379",
  memoryBytes: 3,
  memoryLimitBytes: 4,
  persists: true,
};

it("shows how each server of Redis is, and nothing of one that does not answer any more", async () => {
  let states: () => Promise<ServerState[]> = async () => [server];
  const metrics = new Metrics({ service: "console" });
  showRedis(metrics, systemClock, async () => await states());
  const lines = async () =>
    (await metrics.text()).split("\n").filter((line) => line.startsWith("larkline_"));
  const labels = '{node="redis:6379",service="console"}';
  expect(await lines()).toEqual([
    `larkline_redis_memory_bytes${labels} 3`,
    `larkline_redis_memory_limit_bytes${labels} 4`,
    `larkline_redis_persists${labels} 1`,
  ]);
  states = async () => await Promise.reject(new Error("it is away"));
  expect(await lines()).toEqual([]);
});

describe("GET /metrics of the console", () => {
  let world: World;
  let console: TestConsole;
  beforeAll(async () => {
    world = openWorld();
    await noteBeat(world, "worker-1", 600_000);
    await world.tools.dispatch("default", [callOf("c1")]);
    await world.store.append({
      v: 1,
      session,
      id: "om_1",
      app: "cli_app",
      sender: { id: "ou_a" },
      chatType: "p2p",
      parts: [{ type: "text", text: "hello" }],
      createdAtMs: Date.now() - 600_000,
      reply: { channel: "none" },
    });
    console = await startTestConsole(world);
  });
  afterAll(async () => {
    await console.close();
    await world.close();
  });

  it("tells without a sign-in how full queues are, how sessions are and how long the oldest message waits", async () => {
    let text = "";
    // On a busy machine a reading of the state may come too late for a scrape.
    await expect
      .poll(async () => (text = await (await fetch(`${console.url}/metrics`)).text()))
      .toMatch(/^larkline_state_up\{.*\} 1$/m);
    expect(text).toMatch(/^larkline_queue_jobs\{queue="tools-default",state="waiting",.*\} 1$/m);
    expect(text).toMatch(/^larkline_queue_oldest_seconds\{queue="turns",.*\} 0$/m);
    expect(text).toMatch(/^larkline_sessions\{state="queued",.*\} 1$/m);
    expect(text).toMatch(/^larkline_workers\{.*\} 1$/m);
    expect(text).toMatch(/^larkline_dead_letters\{.*\} 0$/m);
    expect(text).toMatch(/^larkline_feishu_month_calls\{app="cli_0123456789abcdef",.*\} 0$/m);
    const [, seconds] =
      /^larkline_message_oldest_seconds\{state="queued",.*\} ([\d.]+)$/m.exec(text) ?? [];
    expect(Number(seconds)).toBeGreaterThanOrEqual(600);
    expect(Number(seconds)).toBeLessThan(900);
    expect(text).not.toContain(session);
  });
});
