import { shortenedResult } from "@larkline/store";
import type { ControlEntry, ToolOutcome } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { afterControl, afterStep, largeResults } from "./index.ts";
import { call, environment, eventsOf, failed, outcome, startRun, step, type Run } from "./turn.fixture.ts";

const stored = { handle: `res_${"a".repeat(24)}`, characters: 1_000 };
const bounded = environment({ bounds: { maxResultChars: 100, maxStepResultChars: 100 } });
const whole = Array.from({ length: 1_000 }, (_, index) => String.fromCodePoint(97 + (index % 26))).join("");

function opened(...ids: string[]): Run {
  return startRun().apply((turn) => afterStep(turn, step("", { calls: ids.map((id) => call(id)) }), bounded));
}

function kept(result: string, callId = "c1"): ControlEntry {
  const value: ToolOutcome = { ok: true, result, stored };
  return { type: "outcome", callId, outcome: value };
}

function textOf(entry: ControlEntry): unknown {
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
      },
    ]);
    expect(textOf(kept(whole))).toBe(text);
  });

  it("EE-40: a small one has an empty path", () => {
    const run = opened("c1").apply((turn) => afterControl(turn, [outcome("c1", "small")], bounded));
    expect(eventsOf(run, "tool_result")).toMatchObject([{ truncated: false, storedPath: "", result: "small" }]);
  });

  it("that was shortened before stays as it is when it fits, and else is shortened to the same as the whole would be", () => {
    const fitting = shortenedResult(whole, stored, 100);
    expect(textOf(kept(fitting))).toBe(fitting);
    const larger = shortenedResult(whole, stored, 800);
    expect(textOf(kept(larger))).toBe(fitting);
  });
});
