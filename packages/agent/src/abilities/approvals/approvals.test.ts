import type { ControlEntry } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { EngineEvent } from "@larkline/protocol/event";
import { argumentsHashOf } from "@larkline/protocol/runner";
import { traceparentOfMessage } from "@larkline/protocol/trace";
import type { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import { approvalIdOf } from "../../permissions/rules.ts";
import { noticeText } from "../../texts/index.ts";
import type { TurnEnvironment } from "../../turn/ability.ts";
import type { Transition } from "../../turn/facts.ts";
import { modelMessagesOf } from "../../turn/messages.ts";
import {
  announcement,
  call,
  cancel,
  decision,
  environment,
  eventsOf,
  failed,
  outcome,
  queued,
  startRun,
  step,
  testCallPolicy,
  testQuestion,
  type Run,
  show,
} from "../../turn/turn.fixture.ts";
import { absorb, abandonTurn, afterControl, resumeTurn, afterStep } from "../../turn/turn.ts";
import { finalView, runningView } from "../../turn/view.ts";
import { approvalText } from "./approvals.ts";

const env = environment();

/** A run that remembers the questions of its transitions. */
interface AskingRun extends Run {
  approvals: Approval[];
}

function asking(calls: Parameters<typeof call>[], facts: TurnEnvironment = env): AskingRun {
  const run = Object.assign(startRun(), { approvals: [] });
  return moved(run, (turn) =>
    afterStep(turn, step("", { calls: calls.map((one) => call(...one)) }), facts),
  );
}

function moved(run: AskingRun, decide: (turn: TurnState) => Transition): AskingRun {
  run.apply((turn) => {
    const transition = decide(turn);
    run.approvals.push(...(transition.asked ?? []));
    return transition;
  });
  return run;
}

function idOf(kind: Approval["kind"], attemptId: string, argumentsText: string): string {
  return approvalIdOf({
    kind,
    turnId: "cli_app.oc_1-7",
    attemptId,
    argumentsHash: argumentsHashOf(argumentsText),
  });
}

type Entries = (turn: TurnState) => ControlEntry[];

function receiving(run: AskingRun, entries: Entries, facts: TurnEnvironment = env): AskingRun {
  return moved(run, (turn) => afterControl(turn, entries(turn), facts));
}

function decided(
  run: AskingRun,
  ...settled: Parameters<typeof decision> extends [unknown, ...infer R] ? R : never
) {
  return receiving(run, (turn) => [decision(turn, ...settled)]);
}

function at(nowMs: number): TurnEnvironment {
  return { ...env, nowMs };
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

function types(events: readonly EngineEvent[]): string[] {
  return events.map(({ type }) => type);
}

function only<T>(items: readonly T[]): T {
  const [first] = items;
  if (first === undefined || items.length !== 1) throw new Error(`${items.length} in place of one`);
  return first;
}

describe("a call that people are asked about", () => {
  it("AL-27: is not run, and the turn waits without a reply", () => {
    const run = asking([["c1", "deploy"]]);
    expect(run.next).toEqual({ do: "wait" });
    expect(run.turn.calls).toMatchObject([{ id: "c1", state: "waiting_approval" }]);
    expect(run.turn.calls[0]).not.toHaveProperty("deadlineMs");
    expect(results(run)).toEqual([]);
  });

  it("is asked for only with arguments that its tool takes, or where that cannot be known", () => {
    const inputSchema = {
      type: "object",
      properties: { env: { type: "string" } },
      required: ["env"],
    };
    const spec = { name: "deploy", description: "", inputSchema };
    const deploy = {
      runner: "main",
      announcement: announcement("deploy", { requiresApproval: true, spec }),
    };
    const facts: TurnEnvironment = { ...env, tools: new Map([["deploy", deploy]]) };
    const wrong = asking([["c1", "deploy", '{"env":1}']], facts);
    expect(wrong.approvals).toEqual([]);
    const error = expect.stringContaining("no approval was asked for") as string;
    expect(results(wrong)).toMatchObject([{ id: "c1", isError: true, content: error }]);
    expect(asking([["c1", "deploy", '{"env":"prod"}']], facts).approvals).toHaveLength(1);
    const check = () => ({ ok: false, error: "it took too long", isUnchecked: true }) as const;
    expect(
      asking([["c1", "deploy", '{"env":1}']], { ...facts, schemas: { check } }).approvals,
    ).toHaveLength(1);
  });

  it("is shown to people in the words of its tool, with short values and masked secrets in place of arguments", () => {
    const words = {
      title: "Deploy",
      summary: { zh: "部署到 {env}", en: "Deploy to {env} with {pin}: {why} {none} {list}" },
    };
    const told = announcement("deploy", { effect: "once", secrets: ["pin"], ...words });
    const tools = new Map([["deploy", { runner: "main", announcement: told }]]);
    const given = { env: "a\nb {pin}", pin: "1234", why: "w".repeat(90), list: [1, 2] };
    const run = asking([["c1", "deploy", JSON.stringify(given)]], { ...env, tools });
    const shown = {
      title: "Deploy",
      summary: {
        zh: "部署到 a b {pin}",
        en: expect.stringMatching(/^Deploy to a b \{pin\} with (?!1234)\S+: w{79}… … \[1,2\]$/),
      },
    };
    expect(only(run.approvals).words).toEqual(shown);
    expect(run.turn.calls[0]?.words).toEqual(shown);
    const options = {
      language: "en",
      nowMs: 1_000_000,
      model: "m",
      abilities: [],
      stoppable: true,
    } as const;
    expect(runningView(run.turn, undefined, { ...options, show }).tools).toMatchObject([
      { words: shown },
    ]);
  });

  it("says in the words of its tool that more of a value follows, also behind many blanks", () => {
    const told = announcement("deploy", { effect: "once", summary: "Write {a}{b}{c}{d}" });
    const tools = new Map([["deploy", { runner: "main", announcement: told }]]);
    const asked = (given: object): unknown =>
      only(asking([["c1", "deploy", JSON.stringify(given)]], { ...env, tools }).approvals).words
        ?.summary;
    expect(asked({ a: `tea${"\n".repeat(400)}and more`, b: "", c: "", d: "" })).toBe("Write tea …");
    expect(asked({ a: "tea", b: "", c: "", d: "" })).toBe("Write tea");
    const long = asked({
      a: "a".repeat(80),
      b: "b".repeat(80),
      c: "c".repeat(80),
      d: "d".repeat(80),
    });
    expect(long).toMatch(/^Write a{80}b{80}c{80}d{53}…$/);
  });

  it("AL-28: comes with a durable question in the same write, bound to the call and its arguments", () => {
    const run = asking([["c1", "deploy", '{"env":"prod","pin":"1234"}']]);
    expect(only(run.approvals)).toEqual({
      v: 1,
      id: idOf("call", "c1", '{"env":"prod","pin":"1234"}'),
      kind: "call",
      session: "cli_app.oc_1",
      turnId: "cli_app.oc_1-7",
      callId: "c1",
      app: "cli_app",
      chatId: "cli_app.oc_1",
      requester: { id: "ou_1" },
      tool: "deploy",
      arguments: { env: "prod", pin: "1234" },
      argumentsHash: argumentsHashOf('{"env":"prod","pin":"1234"}'),
      secrets: ["pin"],
      deciders: testQuestion.deciders,
      reason: "It changes production.",
      risk: "medium",
      language: "en",
      target: { channel: "none" },
      traceparent: traceparentOfMessage(run.turn.message),
      createdAtMs: env.nowMs,
      expiresAtMs: testQuestion.expiresAtMs,
    });
    expect(run.turn.calls[0]?.approvalId).toBe(only(run.approvals).id);
  });

  it("is refused where no ability asks people", () => {
    const run = asking([["c1", "deploy"]], { ...env, abilities: [] });
    expect(run.approvals).toEqual([]);
    expect(results(run)).toMatchObject([
      { isError: true, content: expect.stringMatching(/^permission_denied: .*was not run\.$/) },
    ]);
  });

  it("is one of ten in a step: further ones are refused, so that no model floods people with cards", () => {
    const run = asking(
      Array.from({ length: 12 }, (_, index) => [`c${index}`, "deploy", `{"n":${index}}`]),
    );
    expect(run.approvals).toHaveLength(10);
    expect(run.turn.calls.map(({ state }) => state)).toEqual([
      ...Array(10).fill("waiting_approval"),
      "done",
      "done",
    ]);
    expect(run.turn.calls[11]).not.toHaveProperty("approvalId");
    expect(run.turn.calls[11]?.outcome).toMatchObject({
      ok: false,
      error: expect.stringContaining("at most"),
    });
  });

  it("AL-38: the question and the later reply belong to the chat and thread of the message", () => {
    const head = queued("deploy");
    const reply = {
      channel: "feishu",
      app: "cli_app",
      chatId: "oc_9",
      messageId: "om_7",
      inThread: true,
    } as const;
    head.message = { ...head.message, reply, tenant: "t1" };
    const run: AskingRun = Object.assign(startRun(head), { approvals: [] });
    moved(run, (turn) => afterStep(turn, step("", { calls: [call("c1", "deploy")] }), env));
    expect(run.approvals).toMatchObject([{ target: reply, chatId: "oc_9", tenant: "t1" }]);
    decided(run, "c1");
    receiving(run, () => [outcome("c1")]);
    run.apply((turn) => afterStep(turn, step("done"), env));
    expect(run.turn.message.reply).toEqual(reply);
    expect(run.next).toEqual({ do: "finish", reply: "done", reason: "" });
  });

  it("EE-37: is announced by a checkpoint where the tool declares it, and by a permission request with hidden secrets", () => {
    const run = asking([["c1", "deploy", '{"env":"prod","pin":"1234"}']]);
    const common = {
      toolName: "deploy",
      input: { env: "prod", pin: "***" },
      message: "It changes production.",
    };
    expect(run.events.slice(-2)).toEqual([
      { type: "checkpoint", toolCallId: "c1", ...common },
      { type: "permission_request", id: only(run.approvals).id, ...common, toolCallId: "c1" },
    ]);
    const asks = {
      ...testCallPolicy,
      verdict: () => ({ do: "ask", question: testQuestion, findings: [] }) as const,
    };
    const plain = asking([["c1", "weather"]], { ...env, callPolicy: asks });
    expect(types(plain.events)).toEqual(["turn_start", "tool_use", "permission_request"]);
  });

  it("a value that the tool calls secret is in no event, and whole in history and call", () => {
    const run = asking([["c1", "deploy", '{"pin":"1234"}']]);
    expect(eventsOf(run, "tool_use")).toMatchObject([{ input: { pin: "***" } }]);
    expect(JSON.stringify(run.events)).not.toContain("1234");
    expect(run.turn.calls).toMatchObject([{ arguments: { pin: "1234" } }]);
    expect(run.turn.round?.held.message.content).toMatchObject([
      { type: "tool_use", arguments: { pin: "1234" } },
    ]);
  });

  it("a question without a reason of the policy says which risk was found, in the person's language, or nothing", () => {
    const question = { ...testQuestion, reason: "" };
    const findings = [{ pattern: "rm -rf", reason: "It deletes." }];
    const asked = (found: typeof findings): AskingRun =>
      asking([["c1", "weather"]], {
        ...env,
        texts: "zh",
        callPolicy: {
          ...testCallPolicy,
          verdict: () => ({ do: "ask", question, findings: found }),
        },
      });
    expect(asked(findings).approvals).toMatchObject([
      { reason: approvalText("riskFound", "zh", { patterns: "rm -rf" }), language: "zh" },
    ]);
    const silent = asked([]);
    expect(silent.approvals).toMatchObject([{ reason: "" }]);
    expect(eventsOf(silent, "permission_request")).toMatchObject([
      { message: approvalText("approvalNeeded", "zh", { tool: "weather" }) },
    ]);
  });

  it("EE-38: a finding is suggested once and delays nothing", () => {
    const findings = [
      { pattern: "rm -rf", reason: "It deletes." },
      { pattern: "drop table", reason: "It drops." },
    ];
    const verdict = () => ({ do: "run", authority: { by: "policy" }, findings }) as const;
    const run = asking([["c1", "weather", '{"a":1}']], {
      ...env,
      callPolicy: { ...testCallPolicy, verdict },
    });
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }] });
    expect(eventsOf(run, "checkpoint_suggested")).toEqual(
      findings.map(({ pattern, reason }) => ({
        type: "checkpoint_suggested",
        toolCallId: "c1",
        toolName: "weather",
        input: { a: 1 },
        riskReason: reason,
        riskPattern: pattern,
      })),
    );
  });

  it("a remembered rule is the authority of a call that it lets run", () => {
    const authority = { by: "rule", id: "r1" } as const;
    const run = asking([["c1"]], {
      ...env,
      callPolicy: { ...testCallPolicy, verdict: () => ({ do: "run", authority, findings: [] }) },
    });
    expect(run.next).toMatchObject({ do: "tools", calls: [{ authority }] });
    expect(asking([["c1"]]).turn.calls[0]).not.toHaveProperty("authority");
  });

  it("calls without a known tool or readable arguments are never asked about", () => {
    const run = asking([
      ["c1", "nope"],
      ["c2", "deploy", "[1]"],
    ]);
    expect(run.approvals).toEqual([]);
    expect(run.next).toEqual({ do: "model" });
  });

  it("arguments that are nested too deeply to be written again are an error result", () => {
    const deep = `{"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
    const run = asking([["c1", "deploy", deep]]);
    expect(results(run)).toMatchObject([
      { isError: true, content: expect.stringContaining("nested too deeply") },
    ]);
    expect(eventsOf(run, "tool_use")).toMatchObject([{ input: {} }]);
  });
});

describe("a batch of plain calls and calls that people are asked about", () => {
  function batch(): AskingRun {
    return asking([["c1"], ["c2", "deploy"], ["c3"], ["c4", "deploy"]]);
  }

  it("AL-39: runs and waits side by side, and ends with four results in order before the next model step", () => {
    const run = batch();
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }, { id: "c3" }] });
    expect(run.approvals.map(({ callId }) => callId)).toEqual(["c2", "c4"]);
    expect(new Set(run.approvals.map(({ id }) => id)).size).toBe(2);
    decided(run, "c4");
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c4", state: "running" }] });
    receiving(run, () => [outcome("c3", 3), outcome("c1", 1)]);
    expect(run.next).toEqual({ do: "wait" });
    decided(run, "c2", { state: "rejected" });
    expect(run.next).toEqual({ do: "wait" });
    receiving(run, () => [outcome("c4", 4)]);
    expect(run.next).toEqual({ do: "model" });
    expect(results(run).map(({ id, content }) => [id, content])).toEqual([
      ["c1", "1"],
      ["c2", "User rejected this action."],
      ["c3", "3"],
      ["c4", "4"],
    ]);
    expect(eventsOf(run, "tool_result")).toHaveLength(4);
  });

  it("a crash hands running calls out again and asks no person again", () => {
    const run = batch();
    const resumed = resumeTurn(run.turn, at(5_000_000));
    expect(resumed).toMatchObject({ turn: run.turn, history: [], events: [] });
    expect(resumed.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }, { id: "c3" }] });
    expect(resumed).not.toHaveProperty("approvals");
    receiving(run, () => [outcome("c1"), outcome("c3")]);
    expect(resumeTurn(run.turn, env)).toEqual({
      turn: run.turn,
      history: [],
      events: [],
      next: { do: "wait" },
    });
  });

  it("AL-34: a decision that arrives twice counts once, and one about another approval does nothing", () => {
    const run = batch();
    const once = decision(run.turn, "c2");
    receiving(run, () => [once, once, decision(run.turn, "nobody")]);
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c2" }] });
    receiving(run, () => [once]);
    expect(run.next).toEqual({ do: "wait" });
    receiving(run, () => [outcome("c2", "first"), once, outcome("c2", "second")]);
    expect(eventsOf(run, "tool_result")).toMatchObject([{ id: "c2", output: "first" }]);
  });

  it("an outcome of a call that was never allowed to run is ignored", () => {
    const run = batch();
    receiving(run, () => [outcome("c2", "forged")]);
    expect(run.turn.calls).toMatchObject([{}, { id: "c2", state: "waiting_approval" }, {}, {}]);
    expect(eventsOf(run, "tool_result")).toEqual([]);
  });

  it("AL-43: the limit of model steps counts over the whole turn, however often people decide in between", () => {
    const bounded = environment({ maxIterations: 2 });
    const run = asking([["c1", "deploy"]], bounded);
    receiving(run, (turn) => [decision(turn, "c1")], bounded);
    receiving(run, () => [outcome("c1")], bounded);
    moved(run, (turn) => afterStep(turn, step("", { calls: [call("c2", "deploy")] }), bounded));
    receiving(run, (turn) => [decision(turn, "c2", { state: "rejected" })], bounded);
    expect(run.next).toMatchObject({ do: "finish", reason: "max_turns_reached" });
  });
});

describe("a decision", () => {
  it("an approved call runs with a fresh deadline, by the authority of who approved", () => {
    const run = asking([["c1", "deploy", '{"env":"prod"}']]);
    const by = (id: string) => ({ decision: "approve", by: { id }, atMs: 1 }) as const;
    const entry = decision(run.turn, "c1", { decisions: [by("ou_a"), by("ou_b"), by("ou_a")] });
    receiving(run, () => [entry], at(80_000_000));
    expect(run.next).toMatchObject({
      do: "tools",
      wait: true,
      calls: [
        {
          id: "c1",
          state: "running",
          arguments: { env: "prod" },
          runner: "main",
          effect: "once",
          startedAtMs: 80_000_000,
          deadlineMs: 80_000_000 + 10_000 + 30_000,
          authority: { by: "approval", id: only(run.approvals).id, people: ["ou_a", "ou_b"] },
        },
      ],
    });
    expect(run.turn.calls[0]).not.toHaveProperty("approvalId");
  });

  it("keeps its call's runner and time although the tool is gone by then", () => {
    const run = asking([["c1", "deploy"]]);
    receiving(run, (turn) => [decision(turn, "c1")], { ...env, tools: new Map() });
    expect(run.next).toMatchObject({
      calls: [{ runner: "main", deadlineMs: env.nowMs + 10_000 + 30_000 }],
    });
  });

  it("AL-35: a rejection never runs the tool and yields the fixed text, with the person's reason", () => {
    const run = decided(asking([["c1", "deploy"]]), "c1", { state: "rejected" });
    expect(results(run)).toEqual([
      { id: "c1", content: "User rejected this action.", isError: true },
    ]);
    expect(run.next).toEqual({ do: "model" });
    const explained = decided(asking([["c1", "deploy"]]), "c1", {
      state: "rejected",
      note: " not on Friday ",
    });
    expect(results(explained)[0]?.content).toBe(
      "User rejected this action.\nReason: not on Friday",
    );
  });

  it.each([
    ["AL-41: expired", "expired", "in time"],
    ["AL-28: undeliverable", "undeliverable", "nobody could be asked"],
    ["cancelled", "cancelled", "withdrawn"],
    ["a word of another kind", "done", "not approved"],
  ] as const)("%s: an error result that says so, and the run continues", (_, state, words) => {
    const run = decided(asking([["c1", "deploy"]]), "c1", { state });
    const result = only(results(run));
    expect(result).toMatchObject({
      isError: true,
      content: expect.stringMatching(/^permission_denied: .*not run\.$/),
    });
    expect(result.content).toContain(words);
    expect(run.next).toEqual({ do: "model" });
  });

  it("an approval of other arguments runs nothing", () => {
    const run = decided(asking([["c1", "deploy", '{"env":"prod"}']]), "c1", {
      argumentsHash: argumentsHashOf('{"env":"test"}'),
    });
    expect(results(run)).toMatchObject([
      { isError: true, content: expect.stringContaining("other arguments") },
    ]);
  });

  it("three rejections in a turn end the asking: further calls are refused at once, and the model reads that it should stop", () => {
    const run = asking([["c0", "deploy"]]);
    const deployed = (count: number) => call(`c${count}`, "deploy", `{"to":"stage ${count}"}`);
    for (const id of ["c0", "c1", "c2"]) {
      decided(run, id, { state: "rejected" });
      moved(run, (turn) =>
        afterStep(turn, step("", { calls: [deployed(Number(id[1]) + 1)] }), env),
      );
    }
    expect(run.turn.abilities).toEqual({ approvals: { rejected: 3 } });
    expect(run.approvals).toHaveLength(3);
    expect(results(run).at(-1)).toMatchObject({
      id: "c3",
      isError: true,
      content: expect.stringMatching(/^permission_denied: .*rejected 3 calls.*Do not try/),
    });
    moved(run, (turn) =>
      afterStep(turn, step("", { calls: [call("c4", "deploy"), call("c5")] }), env),
    );
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c5" }] });
  });
});

describe("an unknown outcome of a once call", () => {
  function lost(): AskingRun {
    const run = asking([["c1", "charge", '{"yuan":5}']]);
    return receiving(run, () => [failed("c1", "the runner died", true)]);
  }

  it("becomes a question to people, and the call gets no outcome yet", () => {
    const run = lost();
    expect(run.next).toEqual({ do: "wait" });
    expect(only(run.approvals)).toMatchObject({
      id: idOf("outcome", "c1", '{"yuan":5}'),
      kind: "outcome",
      callId: "c1",
      arguments: { yuan: 5 },
      reason: approvalText("outcomeUnknown", "en", { tool: "charge" }),
    });
    expect(types(run.events)).toEqual(["turn_start", "tool_use", "permission_request"]);
    expect(run.turn.calls).toMatchObject([
      { state: "waiting_outcome", approvalId: only(run.approvals).id },
    ]);
    expect(resumeTurn(run.turn, env).next).toEqual({ do: "wait" });
  });

  it("retry: runs as a second attempt, whose outcome counts, and that of the first does not", () => {
    const run = decided(lost(), "c1", { state: "retried" });
    expect(run.next).toMatchObject({
      do: "tools",
      calls: [{ id: "c1", attempt: 2, authority: { people: ["ou_boss"] } }],
    });
    expect(run.turn.calls[0]).not.toHaveProperty("outcome");
    receiving(run, () => [outcome("c1", "late")]);
    expect(run.next).toEqual({ do: "wait" });
    receiving(run, () => [outcome("c1.2", "charged")]);
    expect(results(run)).toEqual([{ id: "c1", content: "charged", isError: false }]);
  });

  it.each(["retried", "done"] as const)(
    "%s about other arguments: the unknown outcome stands",
    (state) => {
      const run = decided(lost(), "c1", { state, argumentsHash: argumentsHashOf('{"yuan":50}') });
      expect(results(run)).toMatchObject([
        {
          isError: true,
          content: expect.stringMatching(/^tool_execution_error: the runner died\n/),
        },
      ]);
    },
  );

  it("a second attempt that is lost too is asked about again, as another approval", () => {
    const run = decided(lost(), "c1", { state: "retried" });
    receiving(run, () => [failed("c1.2", "died again", true)]);
    expect(run.approvals.map(({ id }) => id)).toEqual([
      idOf("outcome", "c1", '{"yuan":5}'),
      idOf("outcome", "c1.2", '{"yuan":5}'),
    ]);
    decided(run, "c1", { state: "retried" });
    expect(run.next).toMatchObject({ calls: [{ attempt: 3 }] });
  });

  it("done: a result with the person's note", () => {
    const run = decided(lost(), "c1", { state: "done", note: "receipt 7" });
    expect(results(run)).toEqual([
      {
        id: "c1",
        isError: false,
        content: expect.stringMatching(/took effect.*\nNote: receipt 7$/s),
      },
    ]);
  });

  it("abort: an error result that says who ended it and that the effect is unknown", () => {
    const run = decided(lost(), "c1", { state: "aborted", note: "never mind" });
    expect(results(run)).toMatchObject([
      {
        isError: true,
        content: expect.stringMatching(
          /a person decided.*\nReason: never mind\n.*Do not repeat it/s,
        ),
      },
    ]);
  });

  it.each(["expired", "undeliverable", "cancelled", "approved"] as const)(
    "%s: the model gets the unknown outcome as it was",
    (state) => {
      const run = decided(lost(), "c1", { state });
      expect(results(run)).toMatchObject([
        {
          isError: true,
          content: expect.stringMatching(
            /^tool_execution_error: the runner died\n.*Do not repeat it/,
          ),
        },
      ]);
    },
  );

  it("is reported to the model at once where the policy asks no person, and people are never asked about calls that may be repeated", () => {
    const silent = { ...env, callPolicy: { ...testCallPolicy, unknownOutcome: () => undefined } };
    const told = asking([["c1", "charge"]], silent);
    receiving(told, () => [failed("c1", "lost", true)], silent);
    expect(told.next).toEqual({ do: "model" });
    const eager = { ...env, callPolicy: { ...testCallPolicy, unknownOutcome: () => testQuestion } };
    const pure = asking([["c1", "weather"]], eager);
    receiving(pure, () => [failed("c1", "lost", true)], eager);
    expect(pure.approvals).toEqual([]);
    expect(pure.next).toEqual({ do: "model" });
  });
});

describe("a turn that ends while people are waited for", () => {
  it("a cancel answers the waiting calls: what was not allowed was not run", () => {
    const run = asking([["c1", "deploy"], ["c2"], ["c3", "charge"]]);
    receiving(run, () => [failed("c3", "lost", true)]);
    receiving(run, () => [cancel]);
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
    expect(results(run)).toMatchObject([
      {
        id: "c1",
        content: expect.stringMatching(/^tool_execution_error: cancelled: .*was not run\.$/),
      },
      {
        id: "c2",
        content: expect.stringMatching(
          /^tool_execution_error: cancelled: .*may have taken effect\.$/,
        ),
      },
      { id: "c3", content: expect.stringMatching(/^tool_execution_error: lost\n/) },
    ]);
    expect(run.turn.shown?.tools.map(({ state }) => state)).toEqual([
      "failed",
      "stopped",
      "stopped",
    ]);
    expect(modelMessagesOf(run.history)).toBe(run.history);
  });

  it("an approval that arrives together with a cancel starts nothing, and about a lost outcome no person is asked", () => {
    const run = asking([
      ["c1", "deploy"],
      ["c2", "charge"],
    ]);
    receiving(run, (turn) => [decision(turn, "c1"), failed("c2", "lost", true), cancel]);
    expect(run.approvals).toHaveLength(1);
    expect(results(run)).toMatchObject([
      { id: "c1", content: expect.stringContaining("was not run") },
      { id: "c2", content: expect.stringMatching(/^tool_execution_error: lost\n/) },
    ]);
  });

  it("AL-36: a turn that fails again and again after a decision is given up, and the person gets a notice in the chat", () => {
    const run = decided(
      asking([
        ["c1", "deploy"],
        ["c2", "deploy"],
      ]),
      "c1",
    );
    run.apply((turn) => abandonTurn(turn, env, "crashed 5 times"));
    expect(run.next).toEqual({
      do: "finish",
      reply: noticeText("abandoned", "en"),
      reason: "internal_error",
    });
    expect(results(run)).toMatchObject([
      { id: "c1", content: expect.stringContaining("not known whether") },
      { id: "c2", content: expect.stringContaining("was not run") },
    ]);
  });

  it("AL-44: a message that arrives meanwhile joins after the results, never between a call and its result", () => {
    const run = asking([["c1", "deploy"]]);
    const later = [queued("and this", 8)];
    const early = absorb(run.turn, later, env);
    expect(early).toEqual({ turn: run.turn, history: [], events: [], next: { do: "wait" } });
    decided(run, "c1", { state: "rejected" });
    run.apply((turn) => absorb(turn, later, env));
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user"]);
  });
});

describe("waiting for people", () => {
  const options = {
    show,
    language: "en",
    nowMs: 1_100_000,
    model: "m",
    abilities: [],
    stoppable: true,
  } as const;

  it("counts against nothing: only what went on besides is the turn's duration", () => {
    const run = asking([["c1"], ["c2", "deploy"]]);
    expect(run.turn.waiting).not.toHaveProperty("sinceMs");
    receiving(run, () => [outcome("c1")], at(1_010_000));
    expect(run.turn.waiting.sinceMs).toBe(1_010_000);
    expect(resumeTurn(run.turn, at(1_050_000)).turn.waiting.sinceMs).toBe(1_010_000);
    receiving(run, (turn) => [decision(turn, "c2")], at(1_070_000));
    expect(run.turn).toMatchObject({ waiting: { ms: 60_000 } });
    expect(run.turn.waiting).not.toHaveProperty("sinceMs");
    receiving(run, () => [outcome("c2")], at(1_080_000));
    run.apply((turn) => afterStep(turn, step("done"), at(1_100_000)));
    expect(finalView(run.turn, { reply: "done", reason: "" }, options).footer.seconds).toBe(40);
  });

  it("adds up over rounds, and ends with a cancel", () => {
    const run = asking([["c1", "deploy"]]);
    receiving(run, (turn) => [decision(turn, "c1", { state: "rejected" })], at(1_010_000));
    moved(run, (turn) =>
      afterStep(turn, step("", { calls: [call("c2", "deploy")] }), at(1_020_000)),
    );
    receiving(run, () => [cancel], at(1_050_000));
    expect(run.turn).toMatchObject({ waiting: { ms: 40_000 } });
    expect(run.turn.waiting).not.toHaveProperty("sinceMs");
  });

  it("is shown, and so is the time a call waited for its runner", () => {
    const run = asking([["c1"], ["c2", "deploy"], ["c3", "charge"]]);
    receiving(run, () => [failed("c3", "lost", true)]);
    expect(runningView(run.turn, undefined, options).tools.map(({ state }) => state)).toEqual([
      "running",
      "waiting",
      "waiting",
    ]);
    const timing = { queuedMs: 3_000, ranMs: 2_000 };
    const answer = {
      type: "outcome",
      callId: "c1",
      outcome: { ok: true, result: 1 },
      timing,
    } as const;
    receiving(run, () => [answer], at(1_005_500));
    receiving(run, (turn) => [decision(turn, "c2", { state: "rejected" })], at(1_099_000));
    const [first, second] = runningView(run.turn, undefined, options).tools;
    expect(first).toMatchObject({ state: "done", elapsedMs: 5_500, queuedMs: 3_000 });
    expect(second).toMatchObject({ state: "failed" });
    expect(second).not.toHaveProperty("elapsedMs");
  });
});
