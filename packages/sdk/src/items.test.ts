import { describe, expect, it } from "vitest";
import { isRetryable, newEngineError, toInputItems, wrapError } from "./index.ts";

describe("what programs outside build with", () => {
  it("RI-11, RI-40: output of a model becomes input, in order and as copies", () => {
    const call = { type: "function_call", call_id: "c1", name: "look", arguments: "{}" } as const;
    const reasoning = { type: "reasoning", id: "rs_1", summary: [] } as const;
    const output = [{ ...reasoning, summary: [] }, call];
    const input = toInputItems({ output });
    expect(input).toEqual(output);
    expect(input[0]).not.toBe(output[0]);
  });

  it("EE-13, EE-14: errors have the defaults of their code, and keep their cause", () => {
    const cause = new Error("no route");
    const wrapped = wrapError(cause, "api_overloaded", "the model is away");
    expect(wrapped.cause).toBe(cause);
    expect([isRetryable(wrapped), isRetryable(newEngineError("api_bad_request", "no"))]).toEqual([
      true,
      false,
    ]);
    expect(newEngineError("api_bad_request", "no", { suggestion: "ask less" }).suggestion).toBe(
      "ask less",
    );
  });
});
