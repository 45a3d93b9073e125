import { textOf, type InboundMessage, type Message, type TurnState } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { isWhole } from "./call-id.ts";
import { modelMessagesOf } from "./model-messages.ts";
import { afterControl, afterStep, startTurn } from "./turn.ts";
import { call, cancel, decision, environment, queued, startRun, step, testModel, type Run } from "./turn.fixture.ts";

function inGroup(text: string, seq: number, name: string): { seq: number; message: InboundMessage } {
  const { message } = queued(text, seq);
  return { seq, message: { ...message, chatType: "group", sender: { id: `ou_${name}`, name } } };
}

/** Ann asks for something that people have to allow, and waits. */
function waitingTurn(): Run {
  const run = startRun(inGroup("deploy it", 1, "Ann"));
  run.apply((turn) =>
    afterStep(turn, step("I ask.", { calls: [call("c1", "deploy")] }), environment({ history: run.history })),
  );
  expect(run.next).toEqual({ do: "wait" });
  return run;
}

/** Bob is answered meanwhile. */
function meanwhile(history: readonly Message[]): Message[] {
  const head = inGroup("what is 2 + 2?", 2, "Bob");
  const started = startTurn({ head, nowMs: 1, model: testModel, othersWait: true, history });
  const seen = [...history, ...started.history];
  const ended = afterStep(started.turn, step("4"), environment({ history: seen, othersWait: true }));
  return [...seen, ...ended.history];
}

function shape(history: readonly Message[]): string[] {
  return history.map((message) => `${message.role}: ${textOf(message).split("\n")[0] ?? ""}`);
}

function goOn(turn: TurnState, history: readonly Message[]): Message[] {
  const heard = afterControl(turn, [decision(turn, "c1", { state: "rejected" })], environment({ history }));
  expect(heard.next).toEqual({ do: "model" });
  expect(heard.turn).not.toHaveProperty("held");
  return [...history, ...heard.history];
}

describe("a step whose calls wait", () => {
  it("AL-44: enters the history with its results, next to its question where nothing came in between", () => {
    const { turn, history } = waitingTurn();
    expect(shape(history)).toEqual(["user: Ann: deploy it"]);
    expect(shape(goOn(turn, history))).toEqual(["user: Ann: deploy it", "assistant: I ask.", "tool: "]);
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
    expect(whole.slice(4).map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(modelMessagesOf(whole)).toBe(whole);
  });

  it("written by an earlier version is in the history already", () => {
    const { turn, history } = waitingTurn();
    const { held, ...before } = turn;
    const stored = held === undefined ? history : [...history, held.message];
    expect(goOn(before, stored).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
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
