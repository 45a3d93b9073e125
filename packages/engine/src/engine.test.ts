import { messageStop, toolCallDelta, type ModelInfo } from "@larkline/model";
import type { Message } from "@larkline/protocol/content";
import { isTerminal } from "@larkline/protocol/event";
import type { Usage } from "@larkline/protocol/model-stream";
import { parseRunRecord, type RunRecord } from "@larkline/protocol/views/engine-events";
import { defineTool } from "@larkline/tool-kit";
import { replyOfStream, startModelServer } from "@larkline/testkit";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  anthropic,
  createEngine,
  EngineError,
  openai,
  scripted,
  type ConversationStore,
  type Engine,
  type EngineOptions,
  type ModelProvider,
  type ScriptedStep,
} from "./index.ts";

const text = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
} as const;

const echo = defineTool({
  name: "echo",
  description: "Says it again.",
  input: text,
  effect: "pure",
  run: ({ text: said }, { progress, log }) => {
    progress(0.5, "half");
    log("said", { said });
    return { said };
  },
});

const publish = defineTool({
  name: "publish",
  description: "Tells everybody.",
  input: text,
  effect: "once",
  requiresApproval: true,
  run: ({ text: said }) => `published ${said}`,
});

/** Never answers by itself. */
const wait = defineTool({
  name: "wait",
  description: "Waits.",
  input: { type: "object", properties: {} },
  effect: "pure",
  run: async (_input, { signal }) => {
    await new Promise<void>((resolve) =>
      signal.addEventListener("abort", () => resolve(), { once: true }),
    );
    throw new Error("gave up");
  },
});

function engineWith(model: ModelProvider, options: Partial<EngineOptions> = {}): Engine {
  const engine = createEngine({
    agents: { default: { model: "script/any" } },
    models: { script: model },
    tools: [echo, publish, wait],
    ...options,
  });
  onTestFinished(async () => await engine.close());
  return engine;
}

const engineSaying = (
  steps: readonly ScriptedStep[],
  options: Partial<EngineOptions> = {},
): Engine => engineWith(scripted(steps), options);

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of source) list.push(one);
  return list;
}

/** How a run has ended. */
const endOf = (records: readonly RunRecord[]) =>
  records.find(({ event }) => isTerminal(event))?.event;

const typesOf = (records: readonly RunRecord[]): string[] => records.map(({ event }) => event.type);

const calling = (name: string, input: Record<string, unknown> = {}): ScriptedStep => ({
  text: "Let me see.",
  calls: [{ name, input }],
  usage: { inputTokens: 10, outputTokens: 5 },
});

describe("a run", () => {
  it("tells what the deployment tells, each record valid, in views that agree", async () => {
    const engine = engineSaying([
      calling("echo", { text: "a" }),
      { thinking: "hm", text: "Done it." },
    ]);
    const run = engine.run("s1", "please");
    const [records, items, messages, result] = await Promise.all([
      all(run),
      all(run.items()),
      all(run.messages()),
      run.result(),
    ]);
    for (const record of records) expect(parseRunRecord(record)).toMatchObject({ ok: true });
    const once = typesOf(records).filter((type, at, types) => type !== types[at - 1]);
    const first =
      "turn_start text_delta text tool_use tool_progress inbox_message tool_result turn_end";
    const second = "turn_start thinking_delta thinking text_delta text turn_end done session_info";
    expect(once.filter((type) => type !== "tool_summary")).toEqual(`${first} ${second}`.split(" "));
    expect(items.map(({ type }) => type)).toEqual([
      "message_output_item",
      "tool_call_item",
      "tool_call_output_item",
      "reasoning_item",
      "message_output_item",
    ]);
    expect(messages[0]).toMatchObject({ type: "TextMessage", content: "please", source: "user" });
    expect(result).toMatchObject({ state: "done", finalOutput: "Done it.", newItems: items });
    expect(engine.stats("s1")).toMatchObject({
      state: "idle",
      turnCount: 2,
      inputTokens: 10,
      outputTokens: 5,
    });
  });

  it("EE-2 to EE-9: ends once, and its deltas, calls and numbers fit together", async () => {
    const engine = engineSaying([
      calling("echo", { text: "a" }),
      calling("echo", { text: "b" }),
      "End.",
    ]);
    const records = await all(engine.run("s1", "go"));
    const events = records.map(({ event }) => event);
    expect(events.filter(isTerminal)).toHaveLength(1);
    expect(events.slice(-2).map(({ type }) => type)).toEqual(["done", "session_info"]);
    const starts = events.flatMap((event) => (event.type === "turn_start" ? [event] : []));
    expect(starts.map(({ turnNumber }) => turnNumber)).toEqual([1, 2, 3]);
    expect(starts.every(({ contextWindowTokens }) => contextWindowTokens > 0)).toBe(true);
    const used = events.flatMap((event) => (event.type === "tool_use" ? [event.id] : []));
    const answered = events.flatMap((event) => (event.type === "tool_result" ? [event.id] : []));
    expect(answered).toEqual(used);
    let open = "";
    for (const event of events) {
      if (event.type === "text_delta") open += event.text;
      if (event.type === "text") {
        expect(event.text).toBe(open);
        open = "";
      }
      if (event.type === "tool_progress") expect(event.progress).toBeLessThanOrEqual(1);
    }
    const ends = events.flatMap((event) => (event.type === "turn_end" ? [event] : []));
    const total = ends.reduce((sum, { inputTokens }) => sum + inputTokens, 0);
    expect(endOf(records)).toMatchObject({
      type: "done",
      reason: "",
      final: "End.",
      totalInputTokens: total,
    });
  });

  it("EE-55: its end is followed by the totals of the session, which are those of its stats", async () => {
    const engine = engineSaying([calling("echo", { text: "a" }), "one", "two"]);
    for (const [words, turnCount] of [
      ["first   question", 2],
      ["second", 3],
    ] as const) {
      const last = (await all(engine.run("s1", words))).at(-1)?.event;
      const { state: _state, denials: _denials, ...stats } = engine.stats("s1");
      const { cacheReadTokens: _read, cacheCreationTokens: _created, ...totals } = stats;
      expect(last).toEqual({ type: "session_info", ...totals });
      expect(last).toMatchObject({
        sessionId: "s1",
        title: "first question",
        turnCount,
        inputTokens: 10,
      });
    }
  });

  it("EE-3: a model that fails is an error event, and the result rejects with it", async () => {
    const engine = engineSaying([{ text: "I", failure: "api_auth_error" }]);
    const run = engine.run("s1", "go");
    const last = endOf(await all(run));
    expect(last).toMatchObject({ type: "error", code: "api_auth_error", retryable: false });
    const failure: unknown = await run.result().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(EngineError);
    expect(failure).toMatchObject({ code: "api_auth_error" });
  });

  it("continues the conversation of its session, and another session knows nothing of it", async () => {
    const model = scripted(["one", "two", "three"]);
    const engine = engineWith(model);
    await engine.run("s1", "first").result();
    await engine.run("s1", "second").result();
    await engine.run("s2", "third").result();
    expect(model.requests.map(({ messages }) => messages.length)).toEqual([1, 3, 1]);
  });

  it("takes the input list of another run as the history of a new session", async () => {
    const model = scripted([calling("echo", { text: "a" }), "one", "two"]);
    const engine = engineWith(model);
    const { toInputList } = await engine.run("s1", "first").result();
    await engine.run("s2", [...toInputList(), { role: "user", content: "second" }]).result();
    const [before, after] = [model.requests[1]?.messages, model.requests[2]?.messages];
    expect(after?.slice(0, before?.length)).toEqual(before);
    expect(JSON.stringify(after)).toContain("second");
    expect(() => engine.run("s3", [])).toThrow(/input must end with a message/);
  });

  it("EE-11: counts what a backend leaves out as nothing, and takes the usual window", async () => {
    const model: ModelProvider = {
      name: "own",
      models: () => [{ id: "any", provider: "script" } as ModelInfo],
      stream: async function* () {
        yield { type: "text_delta", text: "hi" };
        yield await Promise.resolve({
          type: "message_stop",
          stopReason: "end_turn",
          usage: { inputTokens: 5, outputTokens: 2 } as Usage,
        } as const);
      },
    };
    const events = (await all(engineWith(model).run("s1", "first"))).map(({ event }) => event);
    expect(events.filter(({ type }) => type === "warning")).toEqual([]);
    expect(events.find(({ type }) => type === "turn_start")).toMatchObject({
      contextWindowTokens: expect.any(Number),
    });
    expect(events.at(-2)).toMatchObject({
      type: "done",
      totalInputTokens: 5,
      totalOutputTokens: 2,
      totalCostUsd: 0,
    });
  });

  it("EE-4: an answer that only pauses is asked for as often as the agent may iterate, and ends with a reason", async () => {
    const search = { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} };
    const events = [
      {
        type: "message_start",
        message: { id: "msg_1", usage: { input_tokens: 1, output_tokens: 1 } },
      },
      {
        type: "content_block_start",
        index: 0,
        content_block: { type: "text", text: "Searching." },
      },
      { type: "content_block_stop", index: 0 },
      { type: "content_block_start", index: 1, content_block: search },
      { type: "content_block_stop", index: 1 },
      { type: "message_delta", delta: { stop_reason: "pause_turn" }, usage: { output_tokens: 2 } },
      { type: "message_stop" },
    ];
    const server = await startModelServer({
      script: ({ dialect }) => replyOfStream(dialect, { events }),
    });
    onTestFinished(async () => await server.close());
    const engine = engineWith(anthropic({ apiKey: "k", baseUrl: server.url }), {
      agents: { default: { model: "script/claude-sonnet-4-6", maxIterations: 6 } },
    });
    const end = endOf(await all(engine.run("s1", "first")));
    expect(server.requests).toHaveLength(6);
    expect(end).toMatchObject({ type: "done", reason: "max_turns_reached", turnCount: 1 });
  });

  it("runs of one session come one after the other, of several together", async () => {
    const order: string[] = [];
    const engine = engineWith(
      scripted(async ({ messages }) => {
        const said = JSON.stringify(messages.at(-1));
        order.push(said.includes("slow") ? "slow" : "quick");
        return "ok";
      }),
    );
    const runs = ["slow", "quick"].map(async (word) => await engine.run("s1", word).result());
    await Promise.all([...runs, engine.run("s2", "quick").result()]);
    expect(order.toSorted()).toEqual(["quick", "quick", "slow"]);
    expect(order.indexOf("slow")).toBeLessThan(order.lastIndexOf("quick"));
  });

  it("waits for a reader that is slow", async () => {
    const words = Array.from({ length: 2_000 }, (_, at) => `word${at}`).join(" ");
    let told = 0;
    const engine = engineWith({
      stream: async function* (request, signal) {
        for await (const chunk of scripted([words]).stream(request, signal)) {
          told += 1;
          yield chunk;
        }
      },
    });
    const reader = engine.run("s1", "go")[Symbol.asyncIterator]();
    await reader.next();
    await vi.waitFor(() => expect(told).toBeGreaterThan(100), { timeout: 60_000 });
    const before = told;
    for (let turns = 0; turns < 50; turns += 1) await new Promise(setImmediate);
    expect(told).toBe(before);
    expect(told).toBeLessThan(600);
    await reader.return?.(undefined);
  });
});

describe("ending a run", () => {
  const thinking: ModelProvider = {
    stream: async function* (_request, signal) {
      yield { type: "text_delta", text: "I am thinking" };
      await new Promise<void>((resolve) =>
        signal?.addEventListener("abort", () => resolve(), { once: true }),
      );
    },
  };

  it.each(["model", "tool"])(
    "cancel ends it while the %s is at work, with what it has said",
    async (what) => {
      const engine = what === "model" ? engineWith(thinking) : engineSaying([calling("wait")]);
      const run = engine.run("s1", "go");
      const records: RunRecord[] = [];
      for await (const record of run) {
        records.push(record);
        if (record.event.type === (what === "model" ? "text_delta" : "tool_use")) run.cancel();
      }
      expect(endOf(records)).toMatchObject({ type: "done", reason: "cancelled" });
      expect((await run.result()).state).toBe("cancelled");
    },
  );

  it("EE-43: leaving early, or an aborted signal, stops the call of the model", async () => {
    let stopped = 0;
    const engine = engineWith({
      stream: async function* (_request, signal) {
        signal?.addEventListener("abort", () => (stopped += 1));
        yield* thinking.stream({ model: "m", messages: [] }, signal);
      },
    });
    for await (const { event } of engine.run("s1", "go")) if (event.type === "text_delta") break;
    await vi.waitFor(() => expect(stopped).toBe(1), { timeout: 60_000 });
    const controller = new AbortController();
    const run = engine.run("s2", "go", { signal: controller.signal });
    for await (const { event } of run) if (event.type === "text_delta") controller.abort();
    expect(stopped).toBe(2);
  });

  it("a run that waits for the one before it is cancelled at once", async () => {
    const engine = engineWith(thinking);
    const first = engine.run("s1", "go");
    const firstRecords = all(first);
    const second = engine.run("s1", "and");
    const secondRecords = all(second);
    second.cancel();
    expect((await secondRecords).map(({ event }) => event)).toMatchObject([
      { type: "done", reason: "cancelled" },
      { type: "session_info" },
    ]);
    first.cancel();
    expect(endOf(await firstRecords)).toMatchObject({ reason: "cancelled" });
  });

  it("EE-42: close twice is harmless, cancels what runs, and a run after it ends with session_closed", async () => {
    const engine = engineWith(thinking);
    const records = all(engine.run("s1", "go"));
    await vi.waitFor(() => expect(engine.stats("s1").state).toBe("running"), { timeout: 60_000 });
    await engine.close();
    await engine.close();
    expect(endOf(await records)).toMatchObject({ type: "done", reason: "cancelled" });
    expect((await all(engine.run("s1", "more"))).map(({ event }) => event)).toMatchObject([
      { type: "error", code: "session_closed" },
      { type: "session_info" },
    ]);
  });
});

describe("approvals", () => {
  it.each([
    ["approve", "published a", false],
    [
      { decision: "reject", note: "not now" } as const,
      "User rejected this action.\nReason: not now",
      true,
    ],
  ] as const)("a call waits for %j", async (decision, output, isError) => {
    const engine = engineSaying([calling("publish", { text: "a" }), "ok"]);
    const run = engine.run("s1", "go");
    const results: unknown[] = [];
    for await (const { event } of run) {
      if (event.type === "permission_request") {
        expect(engine.stats("s1").state).toBe("waiting");
        expect(run.approvals).toMatchObject([
          { id: event.id, tool: "publish", arguments: { text: "a" } },
        ]);
        run.approve(event.id, decision);
        expect(run.approvals).toEqual([]);
        expect(() => run.approve(event.id, decision)).toThrow(RangeError);
      }
      if (event.type === "tool_result") results.push(event);
    }
    expect(results).toMatchObject([{ output, isError }]);
    expect(engine.stats("s1").denials).toBe(isError ? 1 : 0);
    expect(() => run.approve("0".repeat(32), "approve")).toThrow(RangeError);
  });

  it("expires, and the policy of the caller may refuse", async () => {
    const expiring = engineSaying([calling("publish", { text: "a" }), "ok"], {
      permissions: { expiresMs: 1 },
    });
    const records = await all(expiring.run("s1", "go"));
    expect(records.find(({ event }) => event.type === "tool_result")?.event).toMatchObject({
      code: "permission_denied",
      output: expect.stringContaining("in time"),
    });
    expect(expiring.stats("s1").denials).toBe(1);
  });
});

it("no tool of a turn can say that people have refused its call", async () => {
  const refusing = defineTool({
    name: "refusing",
    description: "Refuses.",
    input: { type: "object", properties: {} },
    effect: "pure",
    run: () => {
      throw new Error("permission_denied: not today.");
    },
  });
  const engine = engineSaying([calling("refusing", {}), "ok"], { tools: [refusing] });
  const records = await all(engine.run("s1", "go"));
  expect(records.find(({ event }) => event.type === "tool_result")?.event).toMatchObject({
    code: "tool_execution_error",
    output: "tool_execution_error: permission_denied: not today.",
  });
  expect(engine.stats("s1").denials).toBe(0);
});

describe("what a turn may use", () => {
  it("a budget that is spent ends it, and refuses the next", async () => {
    const budgets = {
      timeZone: "UTC",
      budgets: [{ per: "person", period: "day", tokens: 12 } as const],
    };
    const engine = engineSaying([calling("echo", { text: "a" }), "ok"], { budgets });
    expect(endOf(await all(engine.run("s1", "go")))).toMatchObject({
      type: "error",
      code: "budget_exceeded",
    });
    const other = await all(engine.run("s2", "go", { user: { id: "other" } }));
    expect(endOf(other)).toMatchObject({ type: "done" });
  });

  it("the limits of the agent hold", async () => {
    const agents = { default: { model: "script/any", maxIterations: 2 } };
    const engine = engineWith(
      scripted((_request, index) => calling("echo", { text: String(index) })),
      { agents },
    );
    const { reason } = await engine.run("s1", "go").result();
    expect(reason).toBe("max_turns_reached");
  });

  it("a conversation that outgrows the window is summarised, and so on demand", async () => {
    const long = "word ".repeat(4_000);
    const model = scripted(({ system = "" }) =>
      system.includes("compact")
        ? { text: "the summary" }
        : { text: "ok", usage: { inputTokens: 100 } },
    );
    const engine = engineWith(model);
    const events: string[] = [];
    for (let turn = 0; turn < 9; turn += 1) {
      events.push(...typesOf(await all(engine.run("s1", `${turn} ${long}`))));
    }
    expect(events).toContain("compact");
    expect(JSON.stringify(model.requests.at(-1)?.messages)).toContain("the summary");
    await engine.run("s2", "one").result();
    await engine.run("s2", "two").result();
    expect(typesOf(await all(engine.compact("s2")))).toContain("compact");
  });

  it("a message joins the running turn where the agent is steered", async () => {
    const model = scripted([calling("publish", { text: "a" }), "ok"]);
    const engine = engineWith(model, {
      agents: { default: { model: "script/any", busy: "steer" } },
    });
    const first = engine.run("s1", "go");
    let second: Promise<RunRecord[]> | undefined;
    for await (const { event } of first) {
      if (event.type !== "permission_request") continue;
      const joined = engine.run("s1", "and hurry");
      second = all(joined);
      first.approve(event.id, "approve");
    }
    expect(endOf((await second) ?? [])).toMatchObject({
      type: "done",
      reason: "joined",
      takenBy: first.id,
    });
    expect(JSON.stringify(model.requests[1]?.messages)).toContain("and hurry");
  });

  it("requests carry what its agent adds for their provider, and offer the tools of that vendor", async () => {
    const model = scripted(["ok"]);
    const extra = { script: { body: { seed: 1 } }, other: { body: { seed: 2 } } };
    const hostedTools = { script: [{ type: "web_search" }] };
    const agent = { model: "script/any", extra, hostedTools };
    await engineWith(model, { agents: { default: agent } })
      .run("s1", "go")
      .result();
    expect(model.requests).toMatchObject([
      { extra: extra.script, hostedTools: hostedTools.script },
    ]);
    const wrong = {
      default: { model: "script/any", extra: { script: { body: { stream: false } } } },
    };
    expect(() => engineWith(model, { agents: wrong })).toThrow(
      "agents.default.extra.script.body.stream belongs",
    );
  });

  it("continue an answer that the vendor keeps: the id in each step, and what the run has said itself", async () => {
    const server = await startModelServer();
    onTestFinished(async () => await server.close());
    const agent = { model: "gpt/gpt-5.4", storeResponses: true };
    const engine = createEngine({
      agents: { default: agent, forgetful: { model: "gpt/gpt-5.4" } },
      models: { gpt: openai({ apiKey: "k", baseUrl: `${server.url}/v1` }) },
      tools: [echo],
    });
    onTestFinished(async () => await engine.close());
    server.setScript(({ messages }) =>
      messages.at(-1)?.text === "second"
        ? { calls: [{ id: "c1", name: "echo", arguments: { text: "a" } }] }
        : { text: "ok", responseId: "resp_kept" },
    );
    const { responseIds, toInputList } = await engine.run("s1", "first").result();
    const [previousResponseId] = responseIds;
    expect(previousResponseId).toBe("resp_kept");
    await engine.run("other", "second", { previousResponseId: "resp_kept" }).result();
    const bodies = server.requests.map(({ body, messages }) => ({
      store: body["store"],
      continues: body["previous_response_id"],
      messages: messages.map(({ role, text: said }) => [role, said]),
    }));
    expect(bodies).toEqual([
      { store: true, continues: undefined, messages: [["user", "first"]] },
      { store: true, continues: "resp_kept", messages: [["user", "second"]] },
      {
        store: true,
        continues: "resp_kept",
        messages: [
          ["user", "second"],
          ["assistant", ""],
          ["tool", ""],
        ],
      },
    ]);
    const refused = { agent: "forgetful", previousResponseId: "resp_kept" };
    expect(() => engine.run("s1", "x", refused)).toThrow(
      "agent forgetful does not store its responses",
    );
    const given = [...toInputList(), { role: "user" as const, content: "x" }];
    expect(() => engine.run("new", given, { previousResponseId: "resp_kept" })).toThrow(
      "input is one user message",
    );
  });

  it("a call after a tool of the vendor has read something in the same step is decided as after foreign text", async () => {
    const visit = defineTool({
      name: "visit",
      description: "Gets a page.",
      input: text,
      effect: "pure",
      addresses: ["text"],
      run: ({ text: page }) => page,
    });
    const search = {
      type: "thinking_delta",
      index: 0,
      text: "",
      providerMetadata: { vendor: "own", opaque: "{}" },
    } as const;
    const runOf = async (searches: boolean) => {
      let step = 0;
      const model: ModelProvider = {
        stream: async function* () {
          step += 1;
          if (step === 1 && searches) yield search;
          const call = { id: "c1", name: "visit", arguments: '{"text":"https://a.example/x"}' };
          if (step === 1) yield toolCallDelta(0, call);
          yield messageStop(step === 1 ? "tool_use" : "end_turn");
        },
      };
      const run = engineWith(model, { tools: [visit] }).run("s1", "go");
      const asked: string[] = [];
      for await (const { event } of run) {
        if (event.type !== "permission_request") continue;
        asked.push(event.toolName);
        run.approve(event.id, "reject");
      }
      return asked;
    };
    expect(await runOf(false)).toEqual([]);
    expect(await runOf(true)).toEqual(["visit"]);
  });

  it("an answer has the form that its agent is given", async () => {
    const schema = { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] };
    const agents = { default: { model: "script/any", output: { name: "sum", schema } } };
    const engine = engineSaying(['{"sum": 4}'], { agents });
    expect((await engine.run("s1", "2+2").result()).finalOutput).toEqual({ sum: 4 });
  });
});

describe("what is given to it", () => {
  it("keeps conversations in a store of one's own", async () => {
    const kept = new Map<string, Message[]>();
    const store: ConversationStore = {
      get: (id) => kept.get(id) ?? [],
      append: async (id, ...messages) => void kept.set(id, [...(kept.get(id) ?? []), ...messages]),
      set: (id, messages) => void kept.set(id, [...messages]),
    };
    await engineSaying(["one"], { store }).run("s1", "first").result();
    const model = scripted(["two"]);
    await engineWith(model, { store }).run("s1", "second").result();
    expect(model.requests[0]?.messages).toHaveLength(3);
    expect(kept.get("s1")).toHaveLength(4);
  });

  it("a store that fails ends the run with an error", async () => {
    const store: ConversationStore = {
      get: () => {
        throw new Error("the disk is full");
      },
      append: () => undefined,
      set: () => undefined,
    };
    const errors: unknown[] = [];
    const observers = [{ event: () => undefined, error: (error: unknown) => errors.push(error) }];
    const records = await all(engineSaying(["one"], { store, observers }).run("s1", "first"));
    expect(endOf(records)).toMatchObject({ type: "error", code: "internal_error" });
    expect(errors).toMatchObject([{ message: "the disk is full" }]);
  });

  it("EE-17, EE-18: observers are called, and one that throws disturbs nothing", async () => {
    const told: string[] = [];
    const observers = [
      {
        event: () => {
          throw new Error("no");
        },
        error: () => undefined,
      },
      {
        event: (name: string) => told.push(name),
        error: () => undefined,
        metric: (name: string) => told.push(name),
      },
    ];
    await engineSaying(["one"], { observers }).run("s1", "go").result();
    expect(told).toEqual(["model.step_seconds", "turn.ended"]);
  });

  it.each([
    [{ agents: {} }, /names no agent/],
    [{ agents: { default: { model: "other/any" } } }, /agents\.default\.model.*script/],
    [{ agents: { default: { model: "any" } } }, /agents\.default\.model/],
    [
      { agents: { default: { model: "script/any", tools: ["nothing"] } } },
      /agents\.default\.tools.*nothing/,
    ],
    [{ tools: [echo, echo] }, /echo is given twice/],
  ])("%j cannot work, and is refused by name", (options, problem) => {
    expect(() => engineSaying([], options)).toThrow(problem);
  });

  it("an unknown agent or session id is refused", () => {
    const engine = engineSaying([]);
    expect(() => engine.run("s1", "go", { agent: "nobody" })).toThrow(/no agent "nobody"/);
    expect(() => engine.run("no spaces", "go")).toThrow(/session id/);
  });

  it("offers an agent its own tools", async () => {
    const model = scripted(["one"]);
    const agents = { default: { model: "script/any", tools: ["echo"] } };
    await engineWith(model, { agents }).run("s1", "go").result();
    expect(model.requests[0]?.tools?.map(({ name }) => name)).toEqual(["echo"]);
  });
});

describe("over the vendors' SDKs", () => {
  it.each(["anthropic", "responses", "chat"] as const)(
    "%s answers with a tool call between",
    async (api) => {
      const server = await startModelServer({
        script: ({ messages }) =>
          messages.some(({ role }) => role === "tool") ||
          JSON.stringify(messages).includes("tool_result")
            ? { text: "said it" }
            : { calls: [{ name: "echo", arguments: { text: "a" } }] },
      });
      onTestFinished(async () => await server.close());
      const baseUrl = api === "anthropic" ? server.url : `${server.url}/v1`;
      const provider =
        api === "anthropic"
          ? anthropic({ apiKey: "k", baseUrl })
          : openai({ apiKey: "k", baseUrl, api });
      const engine = engineWith(provider);
      const { newItems, finalOutput } = await engine.run("s1", "say a").result();
      expect(newItems.map(({ type }) => type)).toContain("tool_call_output_item");
      expect(finalOutput).toBe("said it");
      expect(server.requests).toHaveLength(2);
    },
  );

  it("EE-48: an answer that is cut off is asked for again, and both attempts count", async () => {
    let asked = 0;
    const server = await startModelServer({
      script: () => ({
        text: "one two three",
        ...((asked += 1) === 1 ? { fault: { kind: "cut", afterFrames: 4 } } : {}),
      }),
    });
    onTestFinished(async () => await server.close());
    const engine = engineWith(anthropic({ apiKey: "k", baseUrl: server.url }), {
      retry: { baseMs: 1 },
    });
    const events = (await all(engine.run("s1", "go"))).map(({ event }) => event);
    expect(events.filter(({ type }) => type === "step_restarted").length).toBeLessThanOrEqual(1);
    expect(events.find(({ type }) => type === "turn_end")).toMatchObject({ attempts: 2 });
    expect(events.find(isTerminal)).toMatchObject({ type: "done", final: "one two three" });
  });
});
