import { describe, expect, it } from "vitest";
import { afterControl, afterStep, startTurn, type TurnEnvironment } from "./index.ts";
import { announcement, call, environment, outcome, queued, step, testModel } from "./turn.fixture.ts";

/** Lets a model make these calls, one step each, every call answered; tells which were run and the last refusal. */
function steps(wanted: readonly { name?: string; args: string }[], env: TurnEnvironment = environment()) {
  let { turn } = startTurn({ head: queued(), nowMs: 0, model: testModel });
  const ran: boolean[] = [];
  let refusal = "";
  for (const { name = "weather", args } of wanted) {
    const decided = afterStep(turn, step("", { calls: [call(`c${ran.length}`, name, args)] }), env);
    ran.push(decided.next.do === "tools");
    const result = decided.history.flatMap((said) => (said.role === "tool" ? said.content : []))[0];
    if (result !== undefined) refusal = JSON.stringify(result.content);
    const open = decided.turn.calls[0];
    turn = open === undefined ? decided.turn : afterControl(decided.turn, [outcome(open.id)], env).turn;
  }
  return { ran, refusal };
}

const oslo = { args: '{"city":"Oslo"}' };
const rome = { args: '{"city":"Rome"}' };

describe("the same call in one step after the other", () => {
  it("is not run the third time, and the model is told why", () => {
    const { ran, refusal } = steps([oslo, oslo, oslo, oslo]);
    expect(ran).toEqual([true, true, false, false]);
    expect(refusal).toContain("weather with the same arguments");
    expect(refusal).toContain("try something else");
  });

  it("counts anew after a step without it, or with other arguments", () => {
    expect(steps([oslo, oslo, rome, oslo, oslo]).ran).toEqual([true, true, true, true, true]);
    expect(steps([oslo, oslo, { name: "clock", args: oslo.args }, oslo]).ran).toEqual([true, true, true, true]);
  });

  it("is told apart by its arguments, however they are written", () => {
    const spaced = { args: '{ "city" : "Oslo" }' };
    expect(steps([oslo, spaced, oslo]).ran).toEqual([true, true, false]);
  });

  it("is run as often as the model asks for a tool that says `poll`", () => {
    const tools = new Map([["weather", { runner: "main", announcement: announcement("weather", { poll: true }) }]]);
    const all = [oslo, oslo, oslo, oslo, oslo];
    expect(steps(all, { ...environment(), tools }).ran).toEqual([true, true, true, true, true]);
  });
});
