import type { InboundMessage, ControlEntry } from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import { builtInRunner, type ToolOutcome, shortenedResult } from "@larkline/protocol/tool";
import type { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import type { TurnEnvironment } from "./ability.ts";
import { modelMessagesOf } from "./messages.ts";
import { isWhole } from "./context.ts";
import { largeResults } from "./tool-round.ts";
import {
  call,
  cancel,
  decision,
  environment,
  queued,
  startRun,
  step,
  testModel,
  type Run,
  announcement,
  outcome,
  eventsOf,
  failed,
} from "./turn.fixture.ts";
import { startTurn, afterControl, afterStep } from "./turn.ts";

function inGroup(
  text: string,
  seq: number,
  name: string,
): { seq: number; message: InboundMessage } {
  const { message } = queued(text, seq);
  return { seq, message: { ...message, chatType: "group", sender: { id: `ou_${name}`, name } } };
}

/** Ann asks for something that people have to allow, and waits. */
function waitingTurn(): Run {
  const run = startRun(inGroup("deploy it", 1, "Ann"));
  run.apply((turn) =>
    afterStep(
      turn,
      step("I ask.", { calls: [call("c1", "deploy")] }),
      environment({ history: run.history }),
    ),
  );
  expect(run.next).toEqual({ do: "wait" });
  return run;
}

/** Bob is answered meanwhile. */
function meanwhile(history: readonly Message[]): Message[] {
  const head = inGroup("what is 2 + 2?", 2, "Bob");
  const started = startTurn({ head, nowMs: 1, model: testModel, othersWait: true, history });
  const seen = [...history, ...started.history];
  const ended = afterStep(
    started.turn,
    step("4"),
    environment({ history: seen, othersWait: true }),
  );
  return [...seen, ...ended.history];
}

function shape(history: readonly Message[]): string[] {
  return history.map((message) => `${message.role}: ${textOf(message).split("\n")[0] ?? ""}`);
}

function goOn(turn: TurnState, history: readonly Message[]): Message[] {
  const heard = afterControl(
    turn,
    [decision(turn, "c1", { state: "rejected" })],
    environment({ history }),
  );
  expect(heard.next).toEqual({ do: "model" });
  expect(heard.turn).not.toHaveProperty("held");
  return [...history, ...heard.history];
}

describe("a step whose calls wait", () => {
  it("AL-44: enters the history with its results, next to its question where nothing came in between", () => {
    const { turn, history } = waitingTurn();
    expect(shape(history)).toEqual(["user: Ann: deploy it"]);
    expect(shape(goOn(turn, history))).toEqual([
      "user: Ann: deploy it",
      "assistant: I ask.",
      "tool: ",
    ]);
  });

  it("AL-44: enters it behind the turns of other people, with a note that says what it answers", () => {
    const { turn, history } = waitingTurn();
    const between = meanwhile(history);
    expect(shape(between).map((line) => line.slice(0, 24))).toEqual([
      "user: Ann: deploy it",
      "assistant: (I have asked",
      "user: Bob: what is 2 + 2",
      "assistant: 4",
    ]);
    const whole = goOn(turn, between);
    expect(shape(whole.slice(4)).map((line) => line.slice(0, 22))).toEqual([
      "user: [People have ans",
      "assistant: I ask.",
      "tool: ",
    ]);
    expect(textOf(whole[4] ?? { role: "user", content: [] })).toContain("Ann: deploy it");
    expect(whole[4]).toMatchObject({ sender: "ou_Ann" }); // it goes with her words
    expect(modelMessagesOf(whole)).toBe(whole);
  });

  it("is found to be interrupted after a crash and after a new conversation, too", () => {
    const { turn } = waitingTurn();
    const stored = JSON.parse(JSON.stringify(turn)) as TurnState; // as Redis gives it back
    expect(shape(goOn(stored, []))[0]).toContain("[People have answered");
  });

  it("enters it when the turn is cancelled instead", () => {
    const { turn, history } = waitingTurn();
    const between = meanwhile(history);
    const ended = afterControl(turn, [cancel], environment({ history: between }));
    expect(ended.next).toMatchObject({ do: "finish", reason: "cancelled" });
    const whole = [...between, ...ended.history];
    expect(whole.slice(4).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
    ]);
    expect(modelMessagesOf(whole)).toBe(whole);
  });

  it("is left to workers that can send files while it sends one", () => {
    const env = environment();
    const sending = {
      runner: builtInRunner,
      announcement: announcement("send_file", { effect: "once" }),
    };
    const tools = new Map([...env.tools, ["send_file", sending] as const]);
    const run = startRun();
    run.apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1", "send_file")] }), { ...env, tools }),
    );
    expect(run.turn.needs).toEqual(["send-file", "held-step"]);
    run.apply((turn) => afterControl(turn, [outcome("c1")], env));
    expect(run.next).toEqual({ do: "model" });
    expect(run.turn).not.toHaveProperty("needs");
    const ofRunner = startRun().apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1", "send_file")] }), {
        ...env,
        tools: new Map([["send_file", { ...sending, runner: "main" }]]),
      }),
    );
    expect(ofRunner.turn.needs).toEqual(["held-step"]);
  });

  it("keeps its ids for itself: turns of others get ids of their own meanwhile", () => {
    const { history } = waitingTurn();
    const head = inGroup("deploy mine", 2, "Bob");
    const started = startTurn({ head, nowMs: 1, model: testModel, othersWait: true, history });
    const env = environment({ history: [...history, ...started.history], othersWait: true });
    const asked = afterStep(started.turn, step("", { calls: [call("c1", "deploy")] }), env);
    expect(asked.turn.calls.map(({ id }) => id)).toEqual(["call_2_1_0"]);
  });

  it("the notes are no messages of people, and stand for none that was lost", () => {
    const { turn, history } = waitingTurn();
    const whole = goOn(turn, meanwhile(history));
    expect(isWhole(whole, { ...turn, turnId: "cli_app.oc_1-2" })).toBe(true);
    expect(isWhole(whole, { ...turn, turnId: "cli_app.oc_1-3" })).toBe(false);
  });
});

/** Lets a model make these calls, one step each, every call answered; tells which were run and the last refusal. */
function steps(
  wanted: readonly { name?: string; args: string }[],
  env: TurnEnvironment = environment(),
) {
  let { turn } = startTurn({ head: queued(), nowMs: 0, model: testModel });
  const ran: boolean[] = [];
  let refusal = "";
  for (const { name = "weather", args } of wanted) {
    const decided = afterStep(turn, step("", { calls: [call(`c${ran.length}`, name, args)] }), env);
    ran.push(decided.next.do === "tools");
    const result = decided.history.flatMap((said) => (said.role === "tool" ? said.content : []))[0];
    if (result !== undefined) refusal = JSON.stringify(result.content);
    const open = decided.turn.calls[0];
    turn =
      open === undefined ? decided.turn : afterControl(decided.turn, [outcome(open.id)], env).turn;
  }
  return { ran, refusal };
}

const oslo = { args: '{"city":"Oslo"}' };
const rome = { args: '{"city":"Rome"}' };

describe("the same call in one step after the other", () => {
  it("is not run the third time, and the model reads why", () => {
    const { ran, refusal } = steps([oslo, oslo, oslo, oslo]);
    expect(ran).toEqual([true, true, false, false]);
    expect(refusal).toContain("weather with the same arguments");
    expect(refusal).toContain("try something else");
  });

  it("counts anew after a step without it, or with other arguments", () => {
    expect(steps([oslo, oslo, rome, oslo, oslo]).ran).toEqual([true, true, true, true, true]);
    expect(steps([oslo, oslo, { name: "clock", args: oslo.args }, oslo]).ran).toEqual([
      true,
      true,
      true,
      true,
    ]);
  });

  it("is distinguished by its arguments, however they are written", () => {
    const spaced = { args: '{ "city" : "Oslo" }' };
    expect(steps([oslo, spaced, oslo]).ran).toEqual([true, true, false]);
  });

  it("is run as often as the model asks for a tool that says `poll`", () => {
    const tools = new Map([
      ["weather", { runner: "main", announcement: announcement("weather", { poll: true }) }],
    ]);
    const all = [oslo, oslo, oslo, oslo, oslo];
    expect(steps(all, { ...environment(), tools }).ran).toEqual([true, true, true, true, true]);
  });
});

const stored = { handle: `res_${"a".repeat(24)}`, characters: 1_000 };
const bounded = environment({ bounds: { maxResultChars: 100, maxStepResultChars: 100 } });
const whole = Array.from({ length: 1_000 }, (_, index) =>
  String.fromCodePoint(97 + (index % 26)),
).join("");

function opened(...ids: string[]): Run {
  return startRun().apply((turn) =>
    afterStep(turn, step("", { calls: ids.map((id) => call(id)) }), bounded),
  );
}

function kept(result: string, callId = "c1"): ControlEntry {
  const value: ToolOutcome = { ok: true, result, stored };
  return { type: "outcome", callId, outcome: value };
}

function resultOf(entry: ControlEntry): unknown {
  const run = opened("c1").apply((turn) => afterControl(turn, [entry], bounded));
  const message = run.history.at(-1);
  return message?.role === "tool" ? message.content[0]?.content : undefined;
}

describe("largeResults", () => {
  it("names results over their share of the step, and nothing that counts for nothing", () => {
    const { turn } = opened("c1", "c2");
    const entries = [
      outcome("c1", "x".repeat(51)),
      outcome("c1", "y".repeat(51)),
      outcome("c2", { a: "z".repeat(50) }),
      outcome("stranger", "x".repeat(51)),
    ];
    expect(largeResults(turn, entries, bounded.limits)).toEqual([
      { callId: "c1", text: "x".repeat(51) },
      { callId: "c2", text: `{"a":"${"z".repeat(50)}"}` },
    ]);
    const small = [outcome("c1", "x".repeat(50)), failed("c2", "x".repeat(51))];
    expect(largeResults(turn, small, bounded.limits)).toEqual([]);
    expect(largeResults(turn, [kept("x".repeat(51))], bounded.limits)).toEqual([]);
  });
});

describe("a result that is kept elsewhere", () => {
  it("EE-40: is truncated, names its handle in text and event, and is head and tail of the whole", () => {
    const run = opened("c1").apply((turn) => afterControl(turn, [kept(whole)], bounded));
    const text = shortenedResult(whole, stored, 100);
    expect(text).toContain(stored.handle);
    expect(text).toContain("900 of 1000 characters");
    expect(eventsOf(run, "tool_result")).toEqual([
      {
        type: "tool_result",
        id: "c1",
        toolName: "weather",
        output: text,
        isError: false,
        truncated: true,
        storedPath: stored.handle,
        code: "",
      },
    ]);
    expect(eventsOf(run, "tool_summary")).toMatchObject([
      { id: "c1", summary: "text, 1,000 chars" },
    ]);
    expect(resultOf(kept(whole))).toBe(text);
  });

  it("EE-40: a small one has an empty path", () => {
    const run = opened("c1").apply((turn) => afterControl(turn, [outcome("c1", "small")], bounded));
    expect(eventsOf(run, "tool_result")).toMatchObject([
      { truncated: false, storedPath: "", result: "small" },
    ]);
  });

  it("that was shortened before stays as it is when it fits, and else is shortened to the same as the whole would be", () => {
    const fitting = shortenedResult(whole, stored, 100);
    expect(resultOf(kept(fitting))).toBe(fitting);
    const larger = shortenedResult(whole, stored, 800);
    expect(resultOf(kept(larger))).toBe(fitting);
  });
});
