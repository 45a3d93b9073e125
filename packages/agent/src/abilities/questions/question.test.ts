import type { ControlEntry } from "@larkline/protocol";
import type { Approval, SettledState } from "@larkline/protocol/approval";
import type { EventOf } from "@larkline/protocol/event";
import type { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import type { Transition } from "../../turn/facts.ts";
import {
  askingEnvironment,
  call,
  cancel,
  decision,
  environment,
  startRun,
  step,
  type Run,
} from "../../turn/turn.fixture.ts";
import { afterControl, resumeTurn, afterStep } from "../../turn/turn.ts";

const plain = environment();
const env = askingEnvironment(plain, ["leads"]);

interface AskingRun extends Run {
  asked: Approval[];
}

function moved(run: AskingRun, decide: (turn: TurnState) => Transition): AskingRun {
  run.apply((turn) => {
    const transition = decide(turn);
    run.asked.push(...(transition.asked ?? []));
    return transition;
  });
  return run;
}

function asking(given: object, facts = env): AskingRun {
  const calls = [call("c1", "ask_person", JSON.stringify(given))];
  return moved(Object.assign(startRun(), { asked: [] }), (turn) =>
    afterStep(turn, step("", { calls }), facts),
  );
}

function settled(run: AskingRun, state: SettledState, decisions: object[] = []): AskingRun {
  const entry = (turn: TurnState) =>
    ({ ...decision(turn, "c1", { state }), decisions }) as ControlEntry;
  return moved(run, (turn) => afterControl(turn, [entry(turn)], env));
}

function resultOf({ history }: Run): { text: unknown; isError: boolean } {
  const [part] = history.flatMap((message) => (message.role === "tool" ? message.content : []));
  if (part === undefined) throw new Error("no result");
  return { text: part.content, isError: part.isError };
}

const answer = (note: string, by: object) => ({ decision: "answer", by, atMs: 1, note });

describe("a question to a person", () => {
  it("is stored and emitted in the write that suspends the turn, which starts nothing", () => {
    const run = asking({ question: "Which room?", choices: ["A", "B"] });
    expect(run.next).toEqual({ do: "wait" });
    const [asked] = run.asked;
    expect(asked).toMatchObject({
      kind: "question",
      tool: "ask_person",
      question: { text: "Which room?", choices: ["A", "B"] },
      deciders: { requester: true, people: [], roles: [], count: 1 },
      expiresAtMs: env.nowMs + 60_000,
    });
    const told = run.events.filter(
      ({ type }) => type === "input_requested",
    ) as EventOf<"input_requested">[];
    expect(told).toEqual([
      {
        type: "input_requested",
        requestId: asked?.id,
        callId: "c1",
        question: "Which room?",
        choices: ["A", "B"],
        expiresAtMs: env.nowMs + 60_000,
      },
    ]);
    expect(run.events.map(({ type }) => type)).not.toContain("permission_request");
    expect(run.turn.needs).toContain("question");
    expect(resumeTurn(run.turn, env).next).toEqual({ do: "wait" });
  });

  it("has the answer, and who gave it, as its result; then needs nothing any more", () => {
    const run = settled(asking({ question: "Which room?" }), "answered", [
      answer("B", { id: "ou_1", name: "Ann" }),
    ]);
    expect(resultOf(run)).toEqual({ text: '{"answer":"B","by":"Ann"}', isError: false });
    expect(run.next).toEqual({ do: "model" });
    expect(run.turn.needs ?? []).not.toContain("question");
  });

  it("for a date has a format, and a declined one says so in its result", () => {
    const run = asking({ question: "Which day?", format: "date" });
    expect(run.asked[0]?.question).toEqual({ text: "Which day?", choices: [], format: "date" });
    const declined = settled(run, "answered", [
      answer('{"action":"decline"}', { id: "ou_1", name: "Ann" }),
    ]);
    expect(resultOf(declined)).toEqual({ text: '{"declined":true,"by":"Ann"}', isError: false });
  });

  it("names a person without a name by their id", () => {
    const run = settled(asking({ question: "Which room?" }), "answered", [
      answer("B", { id: "ou_boss" }),
    ]);
    expect(resultOf(run).text).toBe('{"answer":"B","by":"ou_boss"}');
  });

  it.each([
    ["expired", "nobody answered", false],
    [
      "undeliverable",
      "tool_execution_error: Nobody could be asked: the question reached no person.",
      true,
    ],
    [
      "cancelled",
      "tool_execution_error: The question was withdrawn before anybody answered.",
      true,
    ],
    // What no answer is, such as the word of an approval.
    ["approved", "tool_execution_error: The question was withdrawn before anybody answered.", true],
  ] as const)("that is %s has the result %j", (state, text, isError) => {
    expect(resultOf(settled(asking({ question: "Which room?" }), state))).toEqual({
      text,
      isError,
    });
  });

  it("takes one answer: a later one changes nothing", () => {
    const run = settled(asking({ question: "Which room?" }), "answered", [
      answer("B", { id: "ou_1", name: "Ann" }),
    ]);
    const before = run.history.length;
    settled(run, "answered", [answer("C", { id: "ou_1", name: "Ann" })]);
    expect(run.history).toHaveLength(before);
  });

  it("ends with its turn", () => {
    const run = asking({ question: "Which room?" });
    moved(run, (turn) => afterControl(turn, [cancel], env));
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
    expect(resultOf(run).isError).toBe(true);
  });

  it("goes to a role that the configuration has", () => {
    const [asked] = asking({ question: "May we?", to: "leads" }).asked;
    expect(asked?.deciders).toMatchObject({ requester: false, roles: ["leads"] });
  });

  it.each([
    ["an empty question", { question: "" }],
    ["blanks alone", { question: "   " }],
    ["a question that is too long", { question: "x".repeat(1_001) }],
    ["one choice", { question: "?", choices: ["A"] }],
    ["seven choices", { question: "?", choices: [..."ABCDEFG"] }],
    ["a choice that is too long", { question: "?", choices: ["A", "x".repeat(61)] }],
    ["choices and a format", { question: "?", choices: ["A", "B"], format: "date" }],
    ["a format that is none", { question: "?", format: "time" }],
    ["an unknown role", { question: "?", to: "strangers" }],
    ["no question", {}],
  ])("with %s is refused, and asks no person", (_, given) => {
    const run = asking(given);
    expect(run.asked).toEqual([]);
    expect(resultOf(run)).toMatchObject({
      text: expect.stringContaining("Nobody was asked."),
      isError: true,
    });
    expect(run.next).toEqual({ do: "model" });
  });

  it("of an agent that may not ask is an unknown tool", () => {
    const run = asking({ question: "Which room?" }, plain);
    expect(run.asked).toEqual([]);
    expect(resultOf(run).text).toContain("tool_not_found");
  });
});
