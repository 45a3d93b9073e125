import { createHash } from "node:crypto";
import { createClient, type RunEvent } from "@larkline/sdk";
import { EventLog } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { parseRunEvent } from "@larkline/protocol/views/engine-events";
import {
  replyOfStream,
  vendorAnswers,
  type ModelDialect,
  type VendorStream,
} from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeConfig } from "../system/config-file.ts";
import { noteSeen } from "../system/seen.ts";
import { startSystem, type System } from "../system/system.ts";

// Awkward answers of vendors, kept as data, over the whole path: vendor, worker, Redis, ingress, client.

const facts = { contextWindow: 64_000, maxOutputTokens: 8_000, supportsThinking: true };
const dialects: readonly ModelDialect[] = ["anthropic", "openai-chat", "openai-responses"];

let system: System;
let file: Awaited<ReturnType<typeof writeConfig>>;
let url: string;
/** What the vendor answers with, request by request. */
let replies: VendorStream[] = [];

beforeAll(async () => {
  system = await startSystem({ workers: 0, ingresses: 0 });
  const base = system.model.url;
  const agents = Object.fromEntries(
    dialects.map((type) => [type, { model: `${type}-p/first,${type}-p/second` }]),
  );
  file = await writeConfig({
    agents: { ...agents, keeping: { model: "openai-responses-p/first", storeResponses: true } },
    providers: Object.fromEntries(
      dialects.map((type) => [
        `${type}-p`,
        { type: typeOf(type), baseUrl: type === "anthropic" ? base : `${base}/v1` },
      ]),
    ),
    models: dialects.flatMap((type) =>
      ["first", "second"].map((id) => ({ provider: `${type}-p`, id, ...facts })),
    ),
  });
  system.model.setScript(({ dialect }) => {
    const next = replies.shift();
    return next === undefined
      ? { text: "There is nothing more to say." }
      : replyOfStream(dialect, next);
  });
  const env = { LARKLINE_CONFIG: file.path };
  const [ingress] = await Promise.all([
    system.start("ingress", env),
    system.start("agent-worker", env),
  ]);
  ({ url } = ingress);
});

afterAll(async () => {
  await system.close();
  await file.remove();
});

/** The provider's type of an interface. */
function typeOf(dialect: ModelDialect): string {
  return dialect === "openai-chat" ? "openai" : dialect;
}

function eventsOf<T extends RunEvent["type"]>(
  events: readonly RunEvent[],
  type: T,
): Extract<RunEvent, { type: T }>[] {
  return events.filter((event): event is Extract<RunEvent, { type: T }> => event.type === type);
}

/** Of all runs below. */
const itemTypes = new Set<string>();

for (const { name, about, streams, run: expected, returned } of vendorAnswers()) {
  describe(`${name}: ${about}`, () => {
    for (const [dialect, streamed] of Object.entries(streams) as [ModelDialect, VendorStream[]][]) {
      it(`EE-5, EE-9, EE-48, EE-49, EE-52: is one true run over ${dialect}`, async () => {
        replies = [...streamed];
        const run = createClient({ url }).run(name, {
          agent: dialect,
          session: `${name}-${dialect}`,
        });
        const events: RunEvent[] = [];
        for await (const event of run.stream()) events.push(event);
        noteSeen(
          "event",
          events.map(({ type }) => type),
        );
        const types = (await run.result()).newItems.map(({ type }) => type);
        for (const type of types) itemTypes.add(type);
        noteSeen("item", types);
        for (const { seq: _seq, runId: _runId, atMs: _atMs, ...event } of events) {
          expect(parseRunEvent(event)).toMatchObject({ ok: true });
        }
        const { reason, final, restarts, calls = [], model = "first" } = expected;
        expect(events.at(-2)).toMatchObject({ type: "done", reason, final, agent: dialect });
        expect(eventsOf(events, "step_restarted")).toHaveLength(restarts);
        expect(eventsOf(events, "tool_use").map(({ toolName }) => toolName)).toEqual(calls);
        const ids = eventsOf(events, "tool_result").map(({ id }) => id);
        expect(new Set(ids).size).toBe(calls.length);
        expect(eventsOf(events, "turn_end").at(-1)).toMatchObject({ model });
        const starts = eventsOf(events, "turn_start").map(({ turnNumber }) => turnNumber);
        expect(starts).toEqual(starts.map((_start, at) => at + 1));
        expectBlocks(events, final);
        const { attempts, outputTokens, cacheReadTokens } = expected;
        const [step] = eventsOf(events, "turn_end");
        if (restarts > 0) expect(step).toMatchObject({ attempts: restarts + 1 });
        if (attempts !== undefined) {
          expect(step).toMatchObject({ attempts, outputTokens, estimated: false });
        }
        const { totalCacheReadTokens } = eventsOf(events, "done")[0] ?? {};
        expect(totalCacheReadTokens).toBe(cacheReadTokens ?? 0);
        const { body } = system.model.requests.at(-1) ?? {};
        for (const block of returned?.[dialect] ?? []) {
          expect(JSON.stringify(body)).toContain(JSON.stringify(block));
        }
      });
    }
  });
}

it("RI-39: what vendors stream becomes messages, reasoning, calls and their outputs", () => {
  const streamed = [
    "message_output_item",
    "reasoning_item",
    "tool_call_item",
    "tool_call_output_item",
  ];
  expect([...itemTypes].toSorted()).toEqual(streamed);
});

it("an answer that the vendor keeps is continued by the caller whose run it was of, and by no other", async () => {
  const digest = createHash("sha256").update("key-of-bob").digest("hex");
  const guarded = await system.start("ingress", {
    LARKLINE_CONFIG: file.path,
    API_KEYS: `bob:${digest}`,
  });
  replies = [];
  const client = createClient({ url });
  const { responseIds } = await client
    .run("first", { agent: "keeping", session: "kept-1" })
    .result();
  const previousResponseId = responseIds.at(-1) ?? expect.fail();
  const bob = createClient({ url: guarded.url, token: "key-of-bob" });
  const others = bob.run("and?", { agent: "keeping", session: "bobs", previousResponseId });
  await expect(others.result()).rejects.toMatchObject({ status: 404 });
  const unknown = client.run("and?", {
    agent: "keeping",
    session: "kept-2",
    previousResponseId: "resp_unknown",
  });
  await expect(unknown.result()).rejects.toMatchObject({ status: 404 });
  await client.run("and?", { agent: "keeping", session: "kept-2", previousResponseId }).result();
  const { body, messages } = system.model.requests.at(-1) ?? expect.fail();
  expect(body).toMatchObject({ store: true, previous_response_id: previousResponseId });
  expect(messages.map(({ text }) => text)).toEqual(["and?"]);
});

it("EE-19, EE-55: each end of a run is followed by the session's totals, which warn a session that was long unused", async () => {
  const redis = connectRedis(system.redis.url);
  const log = new EventLog({ redis, namespace: "larkline" });
  const said = async (text: string) => {
    await createClient({ url }).run(text, { agent: "anthropic", session: "totals" }).result();
    const records = await log.read("api.totals", 0, 1_000);
    return records.map(({ event }) => event);
  };
  try {
    replies = [];
    await said("first  question");
    const events = await said("second");
    const ends = events.flatMap((event, at) => (event.type === "done" ? [at] : []));
    expect(ends).toHaveLength(2);
    const [one, two] = ends.map((at) => events[at + 1]);
    const sums = events.filter((event) => event.type === "turn_end");
    const outputTokens = sums.reduce((all, step) => all + step.outputTokens, 0);
    const inputTokens = sums.reduce((all, step) => all + step.inputTokens, 0);
    const info = { type: "session_info", sessionId: "api.totals", title: "first question" };
    expect(one).toMatchObject({ ...info, turnCount: 1 });
    expect(two).toMatchObject({ ...info, turnCount: 2, outputTokens, inputTokens });
    noteSeen(
      "event",
      events.map(({ type }) => type),
    );
    // Its last run ended long ago, as far as is stored.
    const [key = ""] = await redis.keys("*:state:api.totals");
    const { endedAtMs, ...totals } = JSON.parse((await redis.hget(key, "totals")) ?? "{}") as {
      endedAtMs: number;
    };
    await redis.hset(
      key,
      "totals",
      JSON.stringify({ ...totals, endedAtMs: endedAtMs - 73 * 86_400_000 }),
    );
    const third = (await said("third")).slice(events.length);
    expect(third).toContainEqual(
      expect.objectContaining({ type: "warning", code: "session_expiring", detail: "73/90" }),
    );
    const fourth = (await said("fourth")).slice(events.length + third.length);
    expect(fourth.filter(({ type }) => type === "warning")).toEqual([]);
  } finally {
    await closeRedis(redis);
  }
});

it("EE-19, EE-56: a request that nearly fills the window is warned of once in a run", async () => {
  const call = vendorAnswers().find(({ name }) => name === "server-tools")?.streams.anthropic ?? [];
  const full = (stream: VendorStream): VendorStream => ({
    events: stream.events.map((event) => {
      if (event["type"] !== "message_start") return event;
      const usage = { input_tokens: 1_000, cache_read_input_tokens: 50_200, output_tokens: 1 };
      return { ...event, message: { id: "msg_full", usage } };
    }),
  });
  replies = call.map(full);
  const run = createClient({ url }).run("full", { agent: "anthropic", session: "full" });
  const events: RunEvent[] = [];
  for await (const event of run.stream()) events.push(event);
  expect(eventsOf(events, "turn_end")).toHaveLength(2);
  expect(eventsOf(events, "warning")).toMatchObject([
    { code: "token_usage_high", detail: "51200/64000" },
  ]);
});

/** The deltas of a block since the last restart are its complete event, which comes before the next block. */
function expectBlocks(events: readonly RunEvent[], final: string): void {
  let open = { type: "", text: "" };
  let answer = "";
  for (const event of events) {
    if (event.type === "turn_start" || event.type === "step_restarted") {
      [open, answer] = [{ type: "", text: "" }, ""];
    }
    if (event.type === "text_delta" || event.type === "thinking_delta") {
      const type = event.type === "text_delta" ? "text" : "thinking";
      expect(["", type]).toContain(open.type);
      open = { type, text: open.text + event.text };
      if (type === "text") answer += event.text;
    }
    if (event.type === "text" || event.type === "thinking") {
      expect(event.text).toBe(open.text);
      open = { type: "", text: "" };
    }
    if (event.type === "tool_use" || event.type === "turn_end") expect(open.text).toBe("");
  }
  expect(answer).toBe(final);
}
