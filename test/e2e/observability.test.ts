import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { traceIdOf, traceparentOf } from "@larkline/protocol/trace";
import { startOtlpReceiver, type OtlpReceiver, type ReceivedSpan } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { metricOf, write } from "../system/answers.ts";
import type { App } from "../system/app-process.ts";
import { observer, writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { startSystem, type System } from "../system/system.ts";

const observers = fileURLToPath(new URL("../fixtures/deployment-observers.ts", import.meta.url));
const patience = { timeout: 60_000, interval: 100 };

let folder: string;
/** What the observers have seen. */
let observed: string;
let receiver: OtlpReceiver;
let users: RedisUsers;
let system: System;
let operators: App;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "larkline-observed-"));
  observed = join(folder, "events");
  vi.stubEnv("OBSERVED_FILE", observed);
  receiver = await startOtlpReceiver();
  users = await writeRedisUsers(["recording"]);
  system = await startSystem({
    redisUsers: users,
    config: { observers: [observers] },
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_TIMEOUT: "10000",
      WORKER_HOLD_MS: "60000",
    },
  });
  operators = await system.start("console");
});

afterAll(async () => {
  await operators?.stop();
  await system?.close();
  await users?.remove();
  await receiver?.close();
  await rm(folder, { recursive: true, force: true });
});

describe("a message that uses a tool", () => {
  it("is one trace over ingress, worker and runner, with one root and no part left hanging", async () => {
    const written = await write(
      system,
      system.person("Ann"),
      'traced\ncall note_pure {"key":"traced"}',
    );
    expect(
      (await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 })).text,
    ).toContain("ok:");
    const traceId = traceIdOf(traceparentOf({ app: system.appId, id: written.messageId }));
    const trace = (): ReceivedSpan[] => receiver.spans.filter((span) => span.traceId === traceId);
    const wanted = [
      "message.receive",
      "turn.run",
      "model.step",
      "model.step",
      "tool.run",
      "reply.deliver",
    ];
    const found = (name: string): ReceivedSpan[] => trace().filter((span) => span.name === name);
    await vi.waitFor(() => {
      for (const name of wanted) {
        expect(found(name)).toHaveLength(wanted.filter((one) => one === name).length);
      }
    }, patience);
    const [root] = found("message.receive");
    expect(trace().filter(({ parentSpanId }) => parentSpanId === undefined)).toEqual([root]);
    const ids = new Set(trace().map(({ spanId }) => spanId));
    expect(
      trace().filter(({ parentSpanId }) => parentSpanId !== undefined && !ids.has(parentSpanId)),
    ).toEqual([]);
    for (const name of ["turn.run", "tool.run", "reply.deliver"]) {
      for (const span of found(name)) expect(span.parentSpanId).toBe(root?.spanId);
    }
    // The turn keeps its slot while the call runs.
    const [turn] = found("turn.run").map(({ spanId }) => spanId);
    expect(found("model.step").map(({ parentSpanId }) => parentSpanId)).toEqual([turn, turn]);
    expect(new Set(trace().map(({ service }) => service))).toEqual(
      new Set(["larkline-ingress", "larkline-agent-worker", "larkline-tool-runner"]),
    );
    expect(JSON.stringify(trace())).not.toContain("note_pure {");
  });

  it("reaches the deployment's own observers, one of which fails at everything", async () => {
    const wanted = ["message.received", "turn.claimed", "call.outcome", "turn.ended", "reply.sent"];
    // A runner tells of a call once it has handed in the outcome: the answer may be there by then.
    await vi.waitFor(async () => {
      const names = new Set((await readFile(observed, "utf8")).trim().split("\n"));
      expect([...names]).toEqual(expect.arrayContaining(wanted));
    }, patience);
  });

  it("is counted by the process that did each part of it", async () => {
    const [ingress, worker, runner] = [system.ingresses[0], system.workers[0], system.runners[0]];
    if (ingress === undefined || worker === undefined || runner === undefined) {
      throw new Error("a process is missing");
    }
    expect(await metricOf(ingress, "larkline_ack_seconds_count", 'outcome="accepted"')).toBe(1);
    expect(await metricOf(worker, "larkline_model_step_seconds_count", 'outcome="ok"')).toBe(2);
    expect(await metricOf(worker, "larkline_model_tokens_total", 'kind="output"')).toBeGreaterThan(
      0,
    );
    expect(await metricOf(worker, "larkline_first_text_seconds_count")).toBe(1);
    expect(await metricOf(worker, "larkline_turn_seconds_count", 'outcome="answered"')).toBe(1);
    expect(await metricOf(worker, "larkline_card_operations_total", 'result="ok"')).toBeGreaterThan(
      0,
    );
    expect(await metricOf(worker, "larkline_reply_delivered_seconds_count")).toBe(1);
    await vi.waitFor(
      async () =>
        expect(await metricOf(runner, "larkline_tool_calls_total", 'outcome="ok"')).toBe(1),
      patience,
    );
  });

  it("is answered as always when no receiver takes its spans", async () => {
    await receiver.close();
    const answer = await system.ask(
      system.person("Bob"),
      'untraced\ncall note_pure {"key":"untraced"}',
      60_000,
    );
    expect(answer).toBe('[untraced] ok:{"key":"untraced"}');
  });
});

describe("a probe of the whole path", () => {
  it("comes through without a model", async () => {
    const response = await fetch(`${system.ingresses[0]?.url}/chat`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"message":"/new","session_id":"probe","on_disconnect":"cancel"}',
    });
    expect(await response.text()).toContain('"type":"done"');
    expect(
      system.model.requests.filter(({ messages }) => JSON.stringify(messages).includes("/new")),
    ).toEqual([]);
  });
});

describe("the console", () => {
  it("reads its metrics with nothing of Redis that its user may not do", async () => {
    expect(await metricOf(operators, "larkline_state_up")).toBe(1);
    const client = new Redis(users.urlAs(system.redis.port, observer));
    const entries = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
    client.disconnect();
    expect(entries.filter((entry) => entry.includes("console"))).toEqual([]);
  });
});
