import type { ControlEntry } from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import { exhaustedText, noticeText } from "../texts/index.ts";
import type { TurnEnvironment } from "./ability.ts";
import type { OfferedTool } from "./facts.ts";
import { modelMessagesOf } from "./messages.ts";
import {
  announcement,
  call,
  cancel,
  environment,
  eventsOf,
  failed,
  outcome,
  queued,
  startRun,
  step,
  testModel,
  type Run,
} from "./turn.fixture.ts";
import { startTurn, abandonTurn, afterControl, resumeTurn, afterStep } from "./turn.ts";

const env = environment();

function stepped(run: Run, ...args: Parameters<typeof step>): Run {
  return run.apply((turn) => afterStep(turn, step(...args), env));
}

function heard(run: Run, ...entries: Parameters<typeof afterControl>[1]): Run {
  return run.apply((turn) => afterControl(turn, entries, env));
}

function roles(run: Run): string[] {
  return run.history.map(({ role }) => role);
}

function types(run: Run): string[] {
  return run.events.map(({ type }) => type);
}

function results(run: Run): { id: string; content: unknown; isError: boolean }[] {
  return run.history.flatMap((message) =>
    message.role === "tool"
      ? message.content.map(({ toolCallId, content, isError }) => ({
          id: toolCallId,
          content,
          isError,
        }))
      : [],
  );
}

function idsOf(run: Run): string[] {
  return eventsOf(run, "tool_use").map(({ id }) => id);
}

function resultOf(entry: Parameters<typeof afterControl>[1][number], bounds = {}): Run {
  const bounded = environment({ bounds });
  return startRun()
    .apply((turn) => afterStep(turn, step("", { calls: [call("c1")] }), bounded))
    .apply((turn) => afterControl(turn, [entry], bounded));
}

describe("a plain answer", () => {
  it("AL-20: stores exactly user and assistant and gives one reply", () => {
    const run = stepped(startRun(), "hi there");
    expect(run.history).toEqual<Message[]>([
      { role: "user", content: [{ type: "text", text: "hello" }] },
      { role: "assistant", content: [{ type: "text", text: "hi there" }] },
    ]);
    expect(run.next).toEqual({ do: "finish", reply: "hi there", reason: "" });
  });

  it("AT-5: a new conversation begins with what its first message brings, of which the checkpoint keeps nothing", () => {
    const given: Message[] = [
      { role: "user", content: [{ type: "text", text: "before" }] },
      { role: "assistant", content: [{ type: "text", text: "answer" }] },
    ];
    const { seq, message } = queued();
    const head = { seq, message: { ...message, needs: ["given-history"], history: given } };
    const started = startTurn({ head, nowMs: 1, model: testModel });
    expect(started.history.slice(0, 2)).toEqual(given);
    expect(started.history).toHaveLength(3);
    expect(JSON.stringify(started.turn)).not.toContain("before");
    const late = startTurn({ head, nowMs: 1, model: testModel, history: given });
    expect(late.history).toHaveLength(1);
  });

  it("EE-2, EE-4: the run is turn_start, text, turn_end, done with an empty reason", () => {
    const run = stepped(startRun(), "hi");
    expect(types(run)).toEqual(["turn_start", "text", "turn_end", "done"]);
    expect(eventsOf(run, "done")).toEqual([
      {
        type: "done",
        totalInputTokens: 100,
        totalOutputTokens: 10,
        totalCacheReadTokens: 0,
        totalCacheCreationTokens: 0,
        totalCostUsd: 30,
        turnCount: 1,
        reason: "",
        final: "hi",
      },
    ]);
  });

  it("EE-8: turn_start carries the context window of the model in use", () => {
    expect(startRun().events).toEqual([
      { type: "turn_start", turnNumber: 1, model: "scripted-1", contextWindowTokens: 200_000 },
    ]);
  });

  it("the user message is stored once, with the start", () => {
    const run = startRun();
    expect(run.history).toHaveLength(1);
    run.apply((turn) => resumeTurn(turn, env));
    expect(roles(stepped(run, "hi"))).toEqual(["user", "assistant"]);
  });

  it("a message without readable text is stored as a placeholder", () => {
    expect(textOf(startRun(queued("  ")).history[0] ?? { role: "user", content: [] })).toBe(
      "[empty message]",
    );
  });

  it("EE-45: a slash command is reported with its arguments and not executed: the model gets the message", () => {
    const run = startRun(queued(" /compact keep the\nnames "));
    expect(types(run)).toEqual(["turn_start", "slash_command"]);
    expect(eventsOf(run, "slash_command")).toEqual([
      { type: "slash_command", name: "compact", args: "keep the\nnames" },
    ]);
    expect(run.history).toEqual([
      { role: "user", content: [{ type: "text", text: " /compact keep the\nnames " }] },
    ]);
    expect(run.next).toEqual({ do: "model" });
    expect(eventsOf(startRun(queued("/help")), "slash_command")).toMatchObject([
      { name: "help", args: "" },
    ]);
    for (const text of ["/etc/hosts", "/ help", "see /help", "//help", "/1"]) {
      expect(types(startRun(queued(text)))).toEqual(["turn_start"]);
    }
  });

  it("AL-24: tool_use without calls ends the run", () => {
    const run = stepped(startRun(), "hi", { stopReason: "tool_use" });
    expect(run.next).toEqual({ do: "finish", reply: "hi", reason: "" });
  });

  it("AL-59: blank final text is neither stored nor sent; the person gets a line that says so", () => {
    for (const text of ["", " \n"]) {
      const run = stepped(startRun(), text);
      const notice = noticeText("empty", "en");
      expect(run.history.at(-1)).toEqual({
        role: "assistant",
        content: [{ type: "text", text: notice }],
      });
      expect(run.next).toEqual({ do: "finish", reply: notice, reason: "" });
    }
  });

  it("thinking is an event and stays in history with its metadata, in arrival order", () => {
    const parts = [
      { type: "thinking" as const, text: "hm", providerMetadata: { signature: "s" } },
      { type: "text" as const, text: "hi" },
    ];
    const run = stepped(startRun(), "hi", { parts });
    expect(run.history.at(-1)).toEqual({ role: "assistant", content: parts });
    expect(types(run)).toEqual(["turn_start", "thinking", "text", "turn_end", "done"]);
  });

  it("warnings of the model stream are events", () => {
    const run = stepped(startRun(), "hi", {
      warnings: [{ type: "warning", code: "c", message: "m" }],
    });
    expect(eventsOf(run, "warning")).toEqual([
      { type: "warning", code: "c", message: "m", detail: "" },
    ]);
  });

  it("notices follow the language of the message unless the environment says otherwise", () => {
    const chinese = startRun(queued("你好")).apply((turn) => {
      const { texts: _texts, ...silent } = env;
      return afterStep(turn, step(""), silent);
    });
    expect(chinese.next).toMatchObject({ reply: noticeText("empty", "zh") });
  });
});

describe("a tool round", () => {
  it("AL-21, SA-17: stores user, assistant with text first, results, assistant", () => {
    const run = stepped(startRun(), "let me look", {
      calls: [call("c1", "weather", '{"city":"上海"}'), call("c2")],
    });
    expect(roles(run)).toEqual(["user"]);
    expect(run.turn.round?.held.message).toEqual({
      role: "assistant",
      content: [
        { type: "text", text: "let me look" },
        { type: "tool_use", id: "c1", name: "weather", arguments: { city: "上海" } },
        { type: "tool_use", id: "c2", name: "weather", arguments: {} },
      ],
    });
    heard(run, outcome("c1", "晴"), outcome("c2"));
    stepped(run, "sunny");
    expect(roles(run)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(run.next).toEqual({ do: "finish", reply: "sunny", reason: "" });
  });

  it("SA-5: final is the text of the last step only", () => {
    const run = stepped(startRun(), "let me look", { calls: [call("c1")] });
    stepped(heard(run, outcome("c1")), "sunny");
    expect(eventsOf(run, "done")).toMatchObject([{ final: "sunny", turnCount: 2 }]);
  });

  it("AL-22: an assistant message without text has no text part", () => {
    const run = stepped(startRun(), "", { calls: [call("c1")] });
    expect(run.turn.round?.held.message.content.map(({ type }) => type)).toEqual(["tool_use"]);
  });

  it("calls of a batch are dispatched together with a deadline of their tool plus waiting time", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2", "clock")] });
    expect(run.next).toMatchObject({
      do: "tools",
      wait: true,
      calls: [
        { id: "c1", state: "running", deadlineMs: env.nowMs + 10_000 + 30_000 },
        { id: "c2", state: "running", deadlineMs: env.nowMs + 600_000 + 30_000 },
      ],
    });
  });

  it("SA-15: results are in call order, each with its own outcome, whatever the order of arrival", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2"), call("c3")] });
    heard(run, failed("c3", "third"));
    expect(run.next).toEqual({ do: "wait" });
    heard(run, outcome("c2", "second"), outcome("c2", "again"), outcome("nobody"));
    expect(roles(run)).toEqual(["user"]);
    heard(run, outcome("c1", "first"), failed("c1"));
    expect(results(run)).toEqual([
      { id: "c1", content: "first", isError: false },
      { id: "c2", content: "second", isError: false },
      { id: "c3", content: "tool_execution_error: third", isError: true },
    ]);
    expect(run.next).toEqual({ do: "model" });
  });

  it("EE-6: every tool_use gets exactly one tool_result", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2", "nope")] });
    heard(run, outcome("c1"), outcome("c1"), outcome("c2"));
    expect(eventsOf(run, "tool_use").map(({ id }) => id)).toEqual(["c1", "c2"]);
    expect(
      eventsOf(run, "tool_result")
        .map(({ id }) => id)
        .sort(),
    ).toEqual(["c1", "c2"]);
  });

  it("EE-9: turn_end follows tools and text, and turn numbers increase by one", () => {
    const run = stepped(startRun(), "look", { calls: [call("c1")] });
    stepped(heard(run, outcome("c1")), "sunny");
    expect(types(run)).toEqual([
      "turn_start",
      "text",
      "tool_use",
      "tool_result",
      "tool_summary",
      "turn_end",
      "turn_start",
      "text",
      "turn_end",
      "done",
    ]);
    expect(eventsOf(run, "turn_start").map(({ turnNumber }) => turnNumber)).toEqual([1, 2]);
    expect(eventsOf(run, "turn_end").map(({ turnNumber }) => turnNumber)).toEqual([1, 2]);
  });

  it("EE-11: the sums over turn_end equal the totals of done", () => {
    const usage = { inputTokens: 7, outputTokens: 3, cacheReadTokens: 5, cacheCreationTokens: 1 };
    const run = stepped(startRun(), "", { calls: [call("c1")], usage, responseId: "msg_1" });
    stepped(heard(run, outcome("c1")), "sunny");
    const [first, second] = eventsOf(run, "turn_end");
    expect(first).toMatchObject({
      type: "turn_end",
      turnNumber: 1,
      inputTokens: 7,
      outputTokens: 3,
      costUsd: 3.25,
      maxTokens: 8_192,
      cacheReadTokens: 5,
      cacheCreationTokens: 1,
      responseId: "msg_1",
    });
    expect(second).toMatchObject({ responseId: null });
    expect(eventsOf(run, "done")).toMatchObject([
      {
        totalInputTokens: 107,
        totalOutputTokens: 13,
        totalCacheReadTokens: 5,
        totalCacheCreationTokens: 1,
        totalCostUsd: (first?.costUsd ?? 0) + (second?.costUsd ?? 0),
      },
    ]);
  });

  it("EE-11: a step without usage counts as zero", () => {
    const run = stepped(startRun(), "hi", { usage: null });
    expect(eventsOf(run, "done")).toMatchObject([
      { totalInputTokens: 0, totalOutputTokens: 0, totalCostUsd: 0 },
    ]);
  });

  it("EE-11: the cost is that of the model that answered", () => {
    const model = {
      ...testModel,
      costUsd: (_usage: unknown, answering?: string) => (answering === "fallback" ? 9 : 1),
    };
    const run = startRun().apply((turn) =>
      afterStep(turn, step("hi", { model: "fallback" }), { ...env, model }),
    );
    expect(eventsOf(run, "turn_end")).toMatchObject([{ costUsd: 9 }]);
  });

  it("the metadata of a call is stored with it", () => {
    const signed = { ...call("c1"), providerMetadata: { signature: "s" } };
    const run = stepped(startRun(), "", { calls: [signed] });
    expect(run.turn.round?.held.message.content[0]).toMatchObject({
      id: "c1",
      providerMetadata: { signature: "s" },
    });
  });
});

describe("calls that must not run", () => {
  it("AL-40: unknown tool, unparsable arguments and a failing tool are error results and the loop continues", () => {
    const run = stepped(startRun(), "", {
      calls: [call("c1", "nope"), call("c2", "weather", '{"city":'), call("c3"), call("c4")],
    });
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c3" }, { id: "c4" }] });
    heard(run, failed("c3", "boom"), outcome("c4", 4));
    expect(results(run)).toMatchObject([
      { id: "c1", isError: true, content: expect.stringContaining("tool_not_found") },
      { id: "c2", isError: true, content: expect.stringContaining("not valid JSON") },
      { id: "c3", isError: true, content: "tool_execution_error: boom" },
      { id: "c4", isError: false, content: "4" },
    ]);
    expect(run.next).toEqual({ do: "model" });
  });

  it("SA-11, SA-13: arguments that are no JSON object give empty input, an error result and no run", () => {
    for (const text of ["not json", "[1]", "null", '"a"', "1"]) {
      const run = stepped(startRun(), "", { calls: [call("c1", "weather", text)] });
      expect(eventsOf(run, "tool_use")).toMatchObject([{ id: "c1", input: {} }]);
      expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c1", isError: true }]);
      expect(run.next).toEqual({ do: "model" });
    }
  });

  it("SA-12: empty arguments are an empty object and run", () => {
    for (const text of ["", " \n"]) {
      const run = stepped(startRun(), "", { calls: [call("c1", "weather", text)] });
      expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1", arguments: {} }] });
    }
  });

  it("AL-23: a complete call runs whatever the stop reason says, and beside it one that was cut off does not", () => {
    for (const stopReason of ["end_turn", "other", "refusal", "max_tokens"] as const) {
      for (const cut of ['{"ci', ...(stopReason === "max_tokens" ? [""] : [])]) {
        const run = stepped(startRun(), "text", {
          calls: [call("c1"), call("c2", "weather", cut)],
          stopReason,
        });
        expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }] });
        expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c2", isError: true }]);
      }
    }
  });

  it("AL-23: where every call was cut off none runs, and that is said", () => {
    for (const stopReason of ["end_turn", "other", "refusal", "max_tokens"] as const) {
      const run = stepped(startRun(), "text", {
        calls: [call("c1", "weather", '{"ci')],
        stopReason,
      });
      expect(eventsOf(run, "tool_use")).toEqual([]);
      expect(eventsOf(run, "warning")).toMatchObject([{ code: "tool_calls_dropped" }]);
      expect(roles(run)).toEqual(["user", "assistant"]);
      expect(run.next).toMatchObject({ do: "finish", reply: expect.stringMatching(/^text\n\n./) });
    }
  });

  it("a call cut off by the length limit is reported to model and person", () => {
    const run = stepped(startRun(), "", {
      calls: [call("c1", "weather", '{"ci')],
      stopReason: "max_tokens",
    });
    const notice = noticeText("callCutOff", "en");
    expect(run.history.at(-1)).toEqual({
      role: "assistant",
      content: [{ type: "text", text: notice }],
    });
    expect(run.next).toEqual({ do: "finish", reply: notice, reason: "max_tokens" });
  });

  it("EE-39: a call that the policy refuses is an error result that says why, never dispatched, and the run continues", () => {
    const run = stepped(startRun(), "", { calls: [call("c1", "erase"), call("c2")] });
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c2" }] });
    expect(eventsOf(run, "tool_result")).toMatchObject([
      {
        id: "c1",
        isError: true,
        output: "permission_denied: nothing is erased here. The call was not run.",
      },
    ]);
    heard(run, outcome("c2"));
    expect(run.next).toEqual({ do: "model" });
  });

  it.each([
    [3, "This one was not run."],
    [3_000, "This one and 2997 more of this step, which are left out here, were not run."],
  ])("a step of %i calls is cut at its limit, and one result says so", (count, told) => {
    const bounded = environment({ bounds: { maxCallsPerStep: 2 } });
    const calls = Array.from({ length: count }, (_, at) => call(`c${at}`));
    const run = startRun().apply((turn) => afterStep(turn, step("", { calls }), bounded));
    expect(run.next).toMatchObject({ calls: [{ id: "c0" }, { id: "c1" }] });
    const output = `Too many calls at once: at most 2 are run. ${told}`;
    expect(eventsOf(run, "tool_result")).toMatchObject([
      { id: "c2", output: expect.stringContaining(output) },
    ]);
    expect(eventsOf(run, "tool_use").map(({ id }) => id)).toEqual(["c0", "c1", "c2"]);
    expect([run.turn.calls.length, run.turn.called.ids.length]).toEqual([3, 3]);
    heard(run, outcome("c0"));
    heard(run, outcome("c1"));
    expect(run.history.at(-1)?.content).toHaveLength(3);
  });

  it("names that vendors refuse are stored in a form they accept", () => {
    const run = stepped(startRun(), "", { calls: [call("c1", "发送 mail!"), call("c2", "")] });
    const asked = run.history.find(({ role }) => role === "assistant");
    expect(asked?.content.map((part) => (part.type === "tool_use" ? part.name : ""))).toEqual([
      "___mail_",
      "unnamed_tool",
    ]);
  });
});

describe("a call whose token the platform has refused", () => {
  const refused = (callId: string): ControlEntry => ({
    type: "outcome",
    callId,
    outcome: { ok: false, error: "the token is not good any more", grant: { kind: "token" } },
  });
  const identity = { as: "person", scopes: ["task:task:read"] } as const;
  const tool = announcement("charge", {
    effect: "once",
    identity: { ...identity, scopes: [...identity.scopes] },
  });
  const facts = {
    ...env,
    tools: new Map(env.tools).set("charge", { runner: "main", announcement: tool }),
  };
  const { seq, message } = queued();
  const reply = {
    channel: "feishu",
    app: "cli_app",
    chatId: "oc_1",
    messageId: "om_1",
    inThread: false,
  } as const;
  const begun = startRun({ seq, message: { ...message, reply } }).apply((turn) =>
    afterStep(turn, step("", { calls: [call("c1", "charge")] }), facts),
  );

  it("runs again, once, under the same id and as another attempt", () => {
    const run = begun.apply((turn) => afterControl(turn, [refused("c1")], facts));
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1", attempt: 2, identity }] });
    expect(eventsOf(run, "tool_result")).toEqual([]);
    const again = run.apply((turn) => afterControl(turn, [refused("c1.2")], facts));
    expect(again.next).toEqual({ do: "model" });
    expect(eventsOf(again, "tool_result")).toMatchObject([{ id: "c1", isError: true }]);
  });

  it("does not run again when the turn is cancelled with it", () => {
    const run = begun.apply((turn) => afterControl(turn, [refused("c1"), cancel], facts));
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
  });
});

describe("a call that was not started by its deadline", () => {
  const digest = "0123456789abcdefghijkl";
  const late = (callId = "c1") =>
    ({ ...failed(callId, "late. It was not run."), unstarted: true }) as const;

  /** The facts `ms` after the call was handed out, with its tool as it is offered then. */
  function then(
    ms: number,
    offered?: Partial<OfferedTool>,
    callPolicy = env.callPolicy,
  ): TurnEnvironment {
    const tools = new Map(env.tools);
    if (offered === undefined) tools.delete("charge");
    else tools.set("charge", { runner: "main", announcement: tool, ...offered });
    return { ...env, nowMs: env.nowMs + ms, tools, callPolicy };
  }

  const tool = announcement("charge", { effect: "once", digest });
  const deadlineMs = 10_000 + env.limits.toolWaitMs;

  function handedOut(): Run {
    const facts = then(0, { livingSinceMs: 1 });
    return startRun().apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1", "charge")] }), facts),
    );
  }

  function told(facts: TurnEnvironment, entry: ControlEntry = late(), run = handedOut()): Run {
    return run.apply((turn) => afterControl(turn, [entry], facts));
  }

  it("is handed out again for a runner that is away, for as long as that is believed in, and says that it waits", () => {
    const run = told(then(deadlineMs, { awayForMs: 500_000 }));
    const next = { id: "c1", attempt: 2, state: "running", runner: "main", runnerIsAway: true };
    const nowMs = env.nowMs + deadlineMs;
    expect(run.turn.calls).toMatchObject([{ ...next, deadlineMs: nowMs + 10_000 + 500_000 }]);
    expect(run.next).toMatchObject({ do: "tools", calls: [next] });
    expect(eventsOf(run, "tool_result")).toEqual([]);
    // The same entry again, as after a crash, is about an attempt that is over.
    expect(told(then(deadlineMs, { awayForMs: 500_000 }), late(), run).next).toEqual({
      do: "wait",
    });
    expect(heard(run, outcome("c1", "of the first")).next).toEqual({ do: "wait" });
    expect(heard(run, outcome("c1.2", "of the second")).next).toEqual({ do: "model" });
    expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c1", result: "of the second" }]);
  });

  it("is handed out again for a runner that has come back since, with the deadline of any call", () => {
    const run = told(then(deadlineMs, { livingSinceMs: env.nowMs + 1 }));
    const [next] = run.turn.calls;
    expect(next).toMatchObject({ attempt: 2, deadlineMs: env.nowMs + 2 * deadlineMs });
    expect(next).not.toHaveProperty("runnerIsAway");
    // There since the second attempt: too busy for it.
    const busy = told(then(2 * deadlineMs, { livingSinceMs: env.nowMs + 1 }), late("c1.2"), run);
    expect(eventsOf(busy, "tool_result")).toMatchObject([{ id: "c1", isError: true }]);
  });

  it.each<[string, TurnEnvironment, ControlEntry?]>([
    ["whose runner was there all the time", then(deadlineMs, { livingSinceMs: 1 })],
    ["whose tool is not offered any more", then(deadlineMs)],
    [
      "that has waited for as long as runners are believed in",
      then(600_001, { awayForMs: 500_000 }),
    ],
    ["that was refused before its deadline", then(deadlineMs - 5_000, { awayForMs: 500_000 })],
    ["that may have been started", then(deadlineMs, { awayForMs: 500_000 }), failed("c1", "late")],
  ])("is answered with the time-out where it is one %s", (_which, facts, entry = late()) => {
    const run = told(facts, entry);
    expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c1", isError: true }]);
    expect(run.next).toEqual({ do: "model" });
  });

  it("is not handed out again when the turn is cancelled with it", () => {
    const facts = then(deadlineMs, { awayForMs: 500_000 });
    const run = handedOut().apply((turn) => afterControl(turn, [late(), cancel], facts));
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
    expect(eventsOf(run, "tool_result")).toHaveLength(1);
  });

  it("goes to the living runner that has taken over its tool", () => {
    const taken = {
      runner: "standby",
      announcement: { ...tool, timeoutMs: 20_000, limits: { concurrency: 1 } },
    };
    const run = told(then(deadlineMs, { ...taken, livingSinceMs: 1 }));
    const next = {
      runner: "standby",
      attempt: 2,
      timeoutMs: 20_000,
      limited: true,
      toolDigest: digest,
    };
    expect(run.next).toMatchObject({ do: "tools", calls: [next] });
  });

  it.each<[string, Partial<OfferedTool>, TurnEnvironment["callPolicy"]?]>([
    ["is another tool", { announcement: { ...tool, digest: "lkjihgfedcba9876543210" } }],
    ["cannot be compared", { announcement: announcement("charge", { effect: "once" }) }],
    [
      "people would be asked about",
      {},
      {
        ...env.callPolicy,
        verdict: () => env.callPolicy.verdict({ name: "deploy", arguments: {} }),
      },
    ],
    [
      "is forbidden by now",
      {},
      {
        ...env.callPolicy,
        verdict: () => env.callPolicy.verdict({ name: "erase", arguments: {} }),
      },
    ],
  ])("does not go to another runner whose tool %s", (_which, offered, callPolicy) => {
    const run = told(then(deadlineMs, { runner: "standby", ...offered }, callPolicy));
    const output = "tool_execution_error: late. It was not run.";
    expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c1", isError: true, output }]);
  });
});

describe("ids of calls", () => {
  it("empty, repeated and unusable ids are rewritten before anything is stored", () => {
    const run = stepped(startRun(), "", {
      calls: [call(""), call("c1"), call("c1"), call("a:b"), call("x".repeat(41))],
    });
    expect(idsOf(run)).toEqual(["call_7_1_0", "c1", "call_7_1_2", "call_7_1_3", "call_7_1_4"]);
    expect(run.next).toMatchObject({ calls: idsOf(run).map((id) => ({ id })) });
  });

  it("an id of an earlier step of the turn is not used again", () => {
    const run = stepped(startRun(), "", { calls: [call("c1")] });
    stepped(heard(run, outcome("c1")), "", { calls: [call("c1")] });
    expect(idsOf(run)).toEqual(["c1", "call_7_2_0"]);
    heard(run, outcome("c1", "late answer of the first call"));
    expect(run.next).toEqual({ do: "wait" });
  });

  it("an id of an earlier turn is not used again when the history is at hand", () => {
    const start = startRun(queued("hello", 1));
    const first = stepped(
      heard(stepped(start, "", { calls: [call("c1")] }), outcome("c1")),
      "done",
    );
    const run = startRun(queued("again", 2), first.history);
    const calls = [call("c1"), call("c2")];
    run.apply((turn) => afterStep(turn, step("", { calls }), { ...env, history: run.history }));
    expect(idsOf(run)).toEqual(["call_2_1_0", "c2"]);
  });

  it("no id of the model is used when earlier turns are out of sight: a late outcome could catch it", () => {
    const run = startRun(queued("again", 2));
    run.apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1")] }), { ...env, history: run.history }),
    );
    expect(idsOf(run)).toEqual(["call_2_1_0"]);
  });

  it("a rewritten id never collides with one the model made up", () => {
    const run = stepped(startRun(), "", { calls: [call("call_7_1_1"), call("")] });
    expect(new Set(idsOf(run)).size).toBe(2);
  });
});

describe("results", () => {
  it("AL-26: strings are passed unchanged, objects as JSON with readable non-ASCII, no value as null", () => {
    expect(results(resultOf(outcome("c1", '晴 "x"')))[0]?.content).toBe('晴 "x"');
    expect(results(resultOf(outcome("c1", { city: "上海" })))[0]?.content).toBe('{"city":"上海"}');
    expect(
      results(
        resultOf({ type: "outcome", callId: "c1", outcome: { ok: true, result: undefined } }),
      )[0]?.content,
    ).toBe("null");
  });

  it("the event of a success carries the tool's own value", () => {
    expect(eventsOf(resultOf(outcome("c1", { a: [1] })), "tool_result")).toEqual([
      {
        type: "tool_result",
        id: "c1",
        toolName: "weather",
        output: '{"a":[1]}',
        isError: false,
        truncated: false,
        storedPath: "",
        code: "",
        result: { a: [1] },
      },
    ]);
  });

  it.each([
    [42, "en", "42"],
    ["yes", "zh", "yes"],
    [Array.from({ length: 12 }, () => "entry"), "en", "JSON, 12 entries"],
    [
      Object.fromEntries(Array.from({ length: 1_200 }, (_, at) => [at, ""])),
      "zh",
      "JSON，1,200 项",
    ],
    ["字".repeat(3_120), "zh", "文本 3,120 字"],
    ["two\nlines", "en", "text, 9 chars"],
    ["", "en", "text, 0 chars"],
    ["x".repeat(99_000), "en", "text, 99,000 chars"],
  ] as const)(
    "a summary for display follows the result, made of its kind and size: %#",
    (result, texts, summary) => {
      const facts = environment({ texts, bounds: { maxResultChars: 200_000 } });
      const run = startRun()
        .apply((turn) => afterStep(turn, step("", { calls: [call("c1")] }), facts))
        .apply((turn) => afterControl(turn, [outcome("c1", result)], facts));
      expect(types(run).slice(2, 4)).toEqual(["tool_result", "tool_summary"]);
      expect(eventsOf(run, "tool_summary")).toEqual([
        { type: "tool_summary", id: "c1", toolName: "weather", summary },
      ]);
      expect(summary.length).toBeLessThanOrEqual(20);
    },
  );

  it.each([
    ["tool_not_found: there is none", "tool_not_found", "tool_not_found: there is none"],
    [
      "mcp_connection_error: x was late",
      "mcp_connection_error",
      "mcp_connection_error: x was late",
    ],
    ["boom", "tool_execution_error", "tool_execution_error: boom"],
    ["timeout: no answer", "tool_execution_error", "tool_execution_error: timeout: no answer"],
    // Only people and policies refuse calls, and say so beside the text.
    [
      "permission_denied: no",
      "tool_execution_error",
      "tool_execution_error: permission_denied: no",
    ],
    [
      "User rejected this action.",
      "tool_execution_error",
      "tool_execution_error: User rejected this action.",
    ],
  ])(
    "EE-12: the code of a tool's error is that which its text begins with: %s",
    (error, code, output) => {
      const run = resultOf(failed("c1", error));
      expect(eventsOf(run, "tool_result")).toMatchObject([{ isError: true, code, output }]);
      expect(results(run)).toEqual([{ id: "c1", content: output, isError: true }]);
      expect(run.turn.shown?.tools).toMatchObject([{ state: "failed", output: error }]);
      expect(eventsOf(resultOf(failed("c1", error)), "tool_summary")).toMatchObject([
        { summary: `error, ${error.length} chars` },
      ]);
    },
  );

  it("the first call of a step tells how many there are and what the step has used", () => {
    const usage = { inputTokens: 7, outputTokens: 3, cacheReadTokens: 5, cacheCreationTokens: 1 };
    const vendorItems = [{ type: "web_search_call", id: "ws_1" }];
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2")], usage, vendorItems });
    const [first, second] = eventsOf(run, "tool_use");
    expect(first).toMatchObject({ step: { calls: 2, ...usage }, vendorItems });
    expect(second).not.toHaveProperty("step");
  });

  it("a call of an MCP server names it, and the first one all of its tools, once in a run", () => {
    const tools = ["srv_one", "srv_two"].map((name) => announcement(name, { mcp: "srv" }));
    const offered = tools.map((tool): [string, OfferedTool] => [
      tool.spec.name,
      { runner: "main", announcement: tool },
    ]);
    const facts = environment({ tools: new Map(offered) });
    const run = startRun();
    for (const id of ["c1", "c2"]) {
      run.apply((turn) => afterStep(turn, step("", { calls: [call(id, "srv_one")] }), facts));
      run.apply((turn) => afterControl(turn, [outcome(id)], facts));
    }
    const listed = tools.map(({ spec }) => spec);
    expect(eventsOf(run, "tool_use").map(({ mcp }) => mcp)).toEqual([
      { server: "srv", tools: listed },
      { server: "srv" },
    ]);
  });

  it("EE-19, EE-56: a window that is four fifths full is warned of once in a turn", () => {
    const usage = {
      inputTokens: 60_000,
      outputTokens: 3,
      cacheReadTokens: 99_999,
      cacheCreationTokens: 1,
    };
    const run = stepped(startRun(), "", {
      calls: [call("c1")],
      usage: { ...usage, cacheReadTokens: 99_998 },
    });
    expect(eventsOf(run, "warning")).toEqual([]);
    stepped(heard(run, outcome("c1")), "", { calls: [call("c2")], usage });
    stepped(heard(run, outcome("c2")), "done", { usage });
    expect(eventsOf(run, "warning")).toMatchObject([
      { code: "token_usage_high", detail: "160000/200000" },
    ]);
  });

  it("SA-14: a failing tool is an error result in events and history, and the run continues", () => {
    const run = resultOf(failed("c1", "no such city"));
    expect(eventsOf(run, "tool_result")).toMatchObject([
      { isError: true, output: "tool_execution_error: no such city" },
    ]);
    expect(eventsOf(run, "tool_result")[0]).not.toHaveProperty("result");
    expect(run.next).toEqual({ do: "model" });
  });

  it("a result over the limit is cut with a marker, between characters", () => {
    const run = resultOf(outcome("c1", `ab${"🎉".repeat(50)}`), { maxResultChars: 5 });
    const text = "ab🎉\n[Result cut off: only the first 5 of 102 characters are shown.]";
    expect(results(run)).toEqual([{ id: "c1", content: text, isError: false }]);
    expect(eventsOf(run, "tool_result")).toMatchObject([
      { output: text, truncated: true, storedPath: "" },
    ]);
    expect(
      results(resultOf(failed("c1", "x".repeat(9)), { maxResultChars: 5 }))[0]?.content,
    ).toContain("cut off");
  });

  it("the calls of a step share one limit equally", () => {
    const bounded = environment({ bounds: { maxResultChars: 100, maxStepResultChars: 100 } });
    const run = startRun()
      .apply((turn) => afterStep(turn, step("", { calls: [call("c1"), call("c2")] }), bounded))
      .apply((turn) =>
        afterControl(turn, [outcome("c1", "x".repeat(50)), outcome("c2", "x".repeat(51))], bounded),
      );
    expect(eventsOf(run, "tool_result").map(({ truncated }) => truncated)).toEqual([false, true]);
  });

  it("a call whose outcome is unknown is done, and the model reads that it must not repeat it", () => {
    const run = resultOf(failed("c1", "the runner died", true));
    expect(results(run)).toMatchObject([
      {
        isError: true,
        content: expect.stringMatching(
          /^tool_execution_error: the runner died\n.*Do not repeat it/,
        ),
      },
    ]);
    expect(run.next).toEqual({ do: "model" });
  });
});

describe("the step limit", () => {
  it("SA-18, SA-19: with limit 1 there is one call, one result, then the end; nothing more is asked", () => {
    const bounded = environment({ maxIterations: 1 });
    const run = startRun()
      .apply((turn) => afterStep(turn, step("", { calls: [call("c1")] }), bounded))
      .apply((turn) => afterControl(turn, [outcome("c1")], bounded));
    expect(types(run)).toEqual([
      "turn_start",
      "tool_use",
      "tool_result",
      "tool_summary",
      "turn_end",
      "done",
    ]);
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "max_turns_reached", turnCount: 1 }]);
  });

  it("AL-25: exhaustion with empty last text sends exactly the fallback text, and history stays whole", () => {
    const bounded = environment({ maxIterations: 1 });
    const run = startRun().apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1", "nope")] }), bounded),
    );
    expect(run.next).toEqual({
      do: "finish",
      reply: "[Reached the maximum number of steps without completing the request.]",
      reason: "max_turns_reached",
    });
    expect(roles(run)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(modelMessagesOf(run.history)).toBe(run.history);
  });

  it("the last words before exhaustion are never sent as if they were the answer", () => {
    const bounded = environment({ maxIterations: 1 });
    const run = startRun().apply((turn) =>
      afterStep(turn, step("let me check", { calls: [call("c1", "nope")] }), bounded),
    );
    expect(run.next).toMatchObject({ reply: `let me check\n\n${exhaustedText}` });
  });

  it("AL-43: the limit counts over the whole turn, including resumes", () => {
    const bounded = environment({ maxIterations: 3 });
    const run = startRun();
    let asked = 0;
    while (run.next.do !== "finish") {
      if (run.next.do === "model") {
        asked += 1;
        run.apply((turn) => resumeTurn(turn, bounded));
        run.apply((turn) => afterStep(turn, step("", { calls: [call("c")] }), bounded));
        continue;
      }
      run.apply((turn) => resumeTurn(turn, bounded));
      run.apply((turn) =>
        afterControl(
          turn,
          turn.calls.map(({ id }) => outcome(id)),
          bounded,
        ),
      );
    }
    expect(asked).toBe(3);
  });
});

describe("endings that are not an answer", () => {
  const failure: ModelFailure = {
    type: "error",
    code: "api_overloaded",
    message: "The model is busy.",
    suggestion: "Retry later.",
    retryable: true,
    partial: true,
  };

  it("EE-3, SA-20: a model failure is one error event with code, suggestion and retryable, and an honest reply", () => {
    const run = stepped(startRun(), "half", { failure });
    expect(types(run)).toEqual(["turn_start", "error"]);
    expect(run.events.at(-1)).toMatchObject({
      type: "error",
      code: "api_overloaded",
      message: "The model is busy.",
      suggestion: "Retry later.",
      retryable: true,
    });
    expect(run.next).toEqual({
      do: "finish",
      reply: noticeText("failedForNow", "en"),
      reason: "api_overloaded",
    });
    expect(roles(run)).toEqual(["user", "assistant"]);
  });

  it("a failure that will not pass says so, a full context says what to do", () => {
    const lasting = stepped(startRun(), "", {
      failure: { ...failure, code: "api_auth_error", retryable: false },
    });
    expect(lasting.next).toMatchObject({ reply: noticeText("failedForAccess", "en") });
    const wrong = stepped(startRun(), "", {
      failure: { ...failure, code: "api_bad_request", retryable: false },
    });
    expect(wrong.next).toMatchObject({ reply: noticeText("failedForRequest", "en") });
    const full = stepped(startRun(), "", {
      failure: { ...failure, code: "context_overflow", retryable: false },
    });
    expect(full.next).toMatchObject({ reply: noticeText("tooLong", "en") });
  });

  it("EE-4: a refusal keeps the text, tells the person and has a reason", () => {
    const run = stepped(startRun(), "I will not", { stopReason: "refusal" });
    expect(run.next).toEqual({
      do: "finish",
      reply: `I will not\n\n${noticeText("refusal", "en")}`,
      reason: "refusal",
    });
    expect(run.history.at(-1)).toEqual({
      role: "assistant",
      content: [{ type: "text", text: "I will not" }],
    });
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "refusal", final: "I will not" }]);
  });

  it("EE-4: an answer cut off at the length limit keeps the text, tells the person and has a reason", () => {
    const run = stepped(startRun(), "once upon a", { stopReason: "max_tokens" });
    expect(run.next).toEqual({
      do: "finish",
      reply: `once upon a\n\n${noticeText("truncated", "en")}`,
      reason: "max_tokens",
    });
  });

  it("EE-2: a cancel while the model generates ends the run with reason cancelled", () => {
    const run = heard(startRun(), cancel);
    expect(types(run)).toEqual(["turn_start", "done"]);
    expect(run.next).toEqual({
      do: "finish",
      reply: noticeText("stopped", "en"),
      reason: "cancelled",
    });
    expect(roles(run)).toEqual(["user", "assistant"]);
  });

  it("a cancel in a round keeps outcomes that came before it and answers the open calls with an error", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2")] });
    heard(run, outcome("c1", "first"), cancel, outcome("c2", "too late"));
    expect(results(run)).toMatchObject([
      { id: "c1", content: "first", isError: false },
      {
        id: "c2",
        content: expect.stringMatching(/^tool_execution_error: cancelled/),
        isError: true,
      },
    ]);
    expect(types(run)).toEqual([
      "turn_start",
      "tool_use",
      "tool_use",
      "tool_result",
      "tool_summary",
      "tool_result",
      "tool_summary",
      "turn_end",
      "done",
    ]);
    expect(roles(run)).toEqual(["user", "assistant", "tool", "assistant"]);
  });

  it("a cancel that names another turn changes nothing", () => {
    const run = stepped(startRun(), "", { calls: [call("c1")] });
    heard(run, { type: "cancel", turnId: "cli_app.oc_1-6", reason: "stop" });
    expect(run.next).toEqual({ do: "wait" });
    heard(run, { type: "cancel", turnId: "cli_app.oc_1-7", reason: "stop" });
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
  });

  it("an abandoned turn answers its calls, ends in one error event and leaves a valid history", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2")] });
    heard(run, outcome("c2"));
    run.apply((turn) => abandonTurn(turn, env, "crashed 5 times"));
    expect(eventsOf(run, "error")).toMatchObject([
      { code: "internal_error", message: "crashed 5 times" },
    ]);
    expect(run.next).toMatchObject({ do: "finish", reply: noticeText("abandoned", "en") });
    expect(modelMessagesOf(run.history)).toBe(run.history);
    expect(results(run).map(({ isError }) => isError)).toEqual([true, false]);
  });

  it("a message whose turn never started is stored when it is abandoned", () => {
    const transition = abandonTurn(queued("hi"), env, "crashed 5 times");
    expect(transition.history.map(({ role }) => role)).toEqual(["user", "assistant"]);
    expect(transition.events.map(({ type }) => type)).toEqual(["error"]);
    expect(transition.turn.turnId).toBe("cli_app.oc_1-7");
  });
});

describe("resuming after a crash", () => {
  it("AL-47: a lost model step is asked for again without storing anything twice", () => {
    const run = startRun();
    const transition = resumeTurn(run.turn, env);
    expect(transition.next).toEqual({ do: "model" });
    expect(transition.history).toEqual([]);
    expect(transition.events).toEqual([
      { type: "step_restarted", turnNumber: 1, model: expect.any(String), reason: "crash" },
    ]);
  });

  it("AL-47: exactly the unanswered calls are dispatched again, under the same ids", () => {
    const run = stepped(startRun(), "", { calls: [call("c1"), call("c2"), call("c3", "nope")] });
    heard(run, outcome("c1"));
    const transition = resumeTurn(run.turn, env);
    expect(transition.next).toMatchObject({ do: "tools", calls: [{ id: "c2" }] });
    expect(transition).toMatchObject({ history: [], events: [], turn: run.turn });
  });
});
