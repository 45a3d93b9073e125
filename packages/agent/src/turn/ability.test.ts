import type { Approval } from "@larkline/protocol/approval";
import type { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import type { Ability, Objection } from "./ability.ts";
import type { TurnEnvironment } from "./ability.ts";
import type { Transition } from "./facts.ts";
import {
  call,
  decision,
  environment,
  eventsOf,
  outcome,
  queued,
  startRun,
  step,
  testQuestion,
  type Run,
  show,
} from "./turn.fixture.ts";
import { afterControl, afterStep, offeredSpecs, startTurn } from "./turn.ts";
import { finalView, runningView } from "./view.ts";
import { approvals } from "../abilities/approvals/approvals.ts";
import { askedQuestion } from "../abilities/questions/question.ts";

const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 1 };
const question = { text: "May I read your calendar?", choices: ["Yes", "No"] };
const consent: Ability["beforeCall"] = (wanted, facts) => ({
  ask: askedQuestion(wanted, { question, deciders }, facts),
});

/** An ability that objects to calls of one tool of a runner, and lets them start when people have answered "Yes". */
function guard(
  name: string,
  objection: Objection | Ability["beforeCall"],
  tool = "weather",
): Ability {
  return {
    name,
    toolNames: [],
    beforeCall: (wanted, facts) => {
      if (wanted.name !== tool) return undefined;
      return typeof objection === "function" ? objection(wanted, facts) : objection;
    },
    onDecision: (wanted, { decisions }) =>
      decisions.some(({ note }) => note === "Yes")
        ? { start: wanted }
        : { ok: false, error: "not consented" },
    needs: () => name,
  };
}

interface AskingRun extends Run {
  approvals: Approval[];
}

function moved(run: AskingRun, decide: (turn: TurnState) => Transition): AskingRun {
  run.apply((turn) => {
    const transition = decide(turn);
    run.approvals.push(...(transition.asked ?? []));
    return transition;
  });
  return run;
}

function called(name: string, env: TurnEnvironment): AskingRun {
  const run = Object.assign(startRun(), { approvals: [] });
  return moved(run, (turn) => afterStep(turn, step("", { calls: [call("c1", name)] }), env));
}

function answered(run: AskingRun, note: string, env: TurnEnvironment): AskingRun {
  const by = { id: "ou_1" };
  const decisions = [{ decision: "answer" as const, by, atMs: 1, note }];
  const entry = decision(run.turn, "c1", { state: "answered", decisions });
  return moved(run, (turn) => afterControl(turn, [entry], env));
}

function results(run: Run): unknown[] {
  return eventsOf(run, "tool_result").map(({ output }) => output);
}

describe("an ability that is asked before a call of a runner's tool", () => {
  it("makes it wait for people, and lets it start when they have answered", () => {
    const env = environment({ abilities: [guard("identity", consent)] });
    const run = called("weather", env);
    expect(run.next).toEqual({ do: "wait" });
    expect(run.turn.calls).toMatchObject([
      { state: "waiting_approval", askedBy: "identity", runner: "main" },
    ]);
    expect(run.turn.needs).toContain("identity");
    expect(run.approvals).toMatchObject([{ kind: "question", tool: "weather", question }]);
    answered(run, "Yes", { ...env, nowMs: 5_000_000 });
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1", startedAtMs: 5_000_000 }] });
    expect(run.turn.calls[0]).not.toHaveProperty("askedBy");
    expect(run.approvals).toHaveLength(1);
  });

  it("ends it without running it", () => {
    const refusing = environment({
      abilities: [guard("identity", { outcome: { ok: false, error: "no grant" } })],
    });
    expect(results(called("weather", refusing))).toEqual(["tool_execution_error: no grant"]);
    const asking = environment({ abilities: [guard("identity", consent)] });
    expect(results(answered(called("weather", asking), "No", asking))).toEqual([
      "tool_execution_error: not consented",
    ]);
  });

  it("is asked after the people whom the policy asks", () => {
    const env = environment({ abilities: [approvals, guard("identity", consent, "deploy")] });
    const run = called("deploy", env);
    expect(run.approvals).toMatchObject([{ kind: "call", deciders: testQuestion.deciders }]);
    moved(run, (turn) => afterControl(turn, [decision(turn, "c1")], env));
    expect(run.next).toEqual({ do: "wait" });
    expect(run.approvals).toMatchObject([{ kind: "call" }, { kind: "question" }]);
    const [approved] = run.approvals;
    answered(run, "Yes", env);
    expect(run.next).toMatchObject({
      do: "tools",
      calls: [{ authority: { by: "approval", id: approved?.id } }],
    });
  });

  it("does not keep the next ability from being asked", () => {
    const { onDecision: _read, ...second } = guard("second", { permission: testQuestion });
    const env = environment({ abilities: [approvals, guard("identity", consent), second] });
    const run = called("weather", env);
    answered(run, "Yes", env);
    expect(run.turn.calls).toMatchObject([{ state: "waiting_approval", askedBy: "second" }]);
    expect(run.approvals).toMatchObject([
      { kind: "question" },
      { kind: "call", reason: testQuestion.reason },
    ]);
    moved(run, (turn) => afterControl(turn, [decision(turn, "c1")], env));
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }] });
    expect(new Set(run.approvals.map(({ id }) => id)).size).toBe(2);
  });

  it("believes no answer that was given for other arguments", () => {
    const env = environment({ abilities: [guard("identity", consent)] });
    const run = called("weather", env);
    const decisions = [{ decision: "answer" as const, by: { id: "ou_1" }, atMs: 1, note: "Yes" }];
    const entry = decision(run.turn, "c1", {
      state: "answered",
      decisions,
      argumentsHash: "0".repeat(64),
    });
    moved(run, (turn) => afterControl(turn, [entry], env));
    expect(run.turn.calls).toEqual([]);
    expect(results(run)[0]).toContain("other arguments");
  });
});

/** An ability that has something to say everywhere, and the places at which it was asked. */
function talkative(name: "structured" | "team"): { ability: Ability; asked: string[] } {
  const asked: string[] = [];
  const note = (place: string) => (): undefined => void asked.push(place);
  const ability: Ability = {
    name,
    toolNames: [],
    onTask: () => note("onTask")() ?? [],
    firstMove: note("firstMove"),
    beforeStep: note("beforeStep"),
    onEnd: note("onEnd"),
    onFinal: note("onFinal"),
    shownText: (text) => note("shownText")() ?? text,
    seen: () => note("seen")() ?? {},
    seenCall: note("seenCall"),
    answeredBy: note("answeredBy"),
    onOutcome: note("onOutcome"),
    ownCalls: {
      mark: "helper",
      specs: () => note("specs")() ?? [],
      takes: () => note("takes")() ?? false,
      prepare: ({ call: made }) => ({ call: made, event: {} }),
    },
  };
  return { ability, asked };
}

describe("an ability of a turn", () => {
  /** A turn with a call of a runner's tool and an answer, as people see it. */
  function wholeTurn(env: TurnEnvironment, state?: unknown): void {
    const { abilities, known = {} } = env;
    const begun = startTurn({ head: queued(), nowMs: 1, model: env.model, abilities, known });
    const turn = state === undefined ? begun.turn : { ...begun.turn, abilities: { team: state } };
    offeredSpecs(turn, env);
    const waiting = afterStep(turn, step("Hm.", { calls: [call("c1")] }), env);
    const settled = afterControl(waiting.turn, [outcome("c1")], env);
    const view = {
      abilities,
      show,
      language: "en",
      nowMs: 2,
      model: "m",
      stoppable: true,
    } as const;
    runningView(settled.turn, undefined, view);
    finalView(settled.turn, { reply: "Done.", reason: "" }, { ...view, ratedModel: "m" });
    afterStep(settled.turn, step("Done."), env);
  }

  it("is not asked where nothing is known for it and it keeps nothing", () => {
    const { ability, asked } = talkative("structured");
    wholeTurn(environment({ abilities: [ability] }));
    expect(asked).toEqual([]);
  });

  it("is asked about what is offered and answered where something is known for it", () => {
    const { ability, asked } = talkative("structured");
    const form = { name: "f", schema: { type: "object" } };
    wholeTurn(environment({ abilities: [ability], known: { structured: form } }));
    expect([...new Set(asked)]).toEqual(["firstMove", "takes", "specs", "shownText", "onFinal"]);
  });

  it("is asked about steps, the end and what people see where it keeps something", () => {
    const { ability, asked } = talkative("team");
    wholeTurn(environment({ abilities: [ability] }), { kept: true });
    expect([...new Set(asked)]).toEqual(["beforeStep", "seen", "answeredBy", "onEnd"]);
  });
});
