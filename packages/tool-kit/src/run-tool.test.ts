import { outcomeText, type GrantRefusal, type ToolEffect } from "@larkline/protocol/tool";
import { describe, expect, it } from "vitest";
import {
  defineTool,
  GrantRefusedError,
  runTool,
  type CallContext,
  type HandlerTool,
  type ToolContext,
} from "./index.ts";

function contextWith(changes: Partial<CallContext> = {}): CallContext {
  return {
    callId: "c1",
    turnId: "t1",
    signal: new AbortController().signal,
    actor: { app: "a", userId: "u", chatId: "c" },
    authority: { by: "policy" },
    progress: () => {},
    log: () => {},
    ...changes,
  };
}

function toolOf(
  run: (input: Record<string, unknown>, context: ToolContext) => unknown,
  effect: ToolEffect = "pure",
): HandlerTool {
  const input: Record<string, unknown> = { type: "object", properties: { n: { type: "number" } } };
  return defineTool({ name: "t", description: "d", input, effect, run });
}

describe("runTool", () => {
  it("SA-12: empty arguments run the tool with {}", async () => {
    for (const argumentsText of ["", "  \n"]) {
      const outcome = await runTool(
        toolOf((input) => input),
        { argumentsText, context: contextWith() },
      );
      expect(outcome).toEqual({ ok: true, result: {} });
    }
  });

  it("SA-11, SA-13: arguments that are no JSON object give an error and the tool does not run", async () => {
    let runs = 0;
    const tool = toolOf(() => (runs += 1));
    for (const argumentsText of ["not json", '{"n":', "[1]", "null", '"text"', "3"]) {
      const outcome = await runTool(tool, { argumentsText, context: contextWith() });
      expect(outcome).toMatchObject({ ok: false, error: expect.stringContaining("arguments") });
    }
    expect(runs).toBe(0);
  });

  it("AL-17: arguments that break the schema give an error that says where, and the tool does not run", async () => {
    let runs = 0;
    const outcome = await runTool(
      toolOf(() => (runs += 1)),
      { argumentsText: '{"n":"x"}', context: contextWith() },
    );
    expect(outcome).toEqual({
      ok: false,
      error: 'invalid arguments for tool "t": n must be number',
    });
    expect(runs).toBe(0);
  });

  it("AL-26: strings pass unchanged, objects stay readable JSON, no value is null", async () => {
    const texts: string[] = [];
    for (const value of ['晴 "x"', { city: "上海" }, undefined, null]) {
      texts.push(
        outcomeText(
          await runTool(
            toolOf(() => value),
            { argumentsText: "", context: contextWith() },
          ),
        ),
      );
    }
    expect(texts).toEqual(['晴 "x"', '{"city":"上海"}', "null", "null"]);
  });

  it("AL-40: a handler that throws, rejects or throws no error at all gives an error with its message and no stack", async () => {
    const broken = [
      () => {
        throw new Error("boom");
      },
      async () => await Promise.reject(new Error("boom")),
      () => Promise.reject("boom"),
    ];
    for (const run of broken) {
      expect(await runTool(toolOf(run), { argumentsText: "", context: contextWith() })).toEqual({
        ok: false,
        error: "boom",
      });
    }
    const hostile = toolOf(() => {
      throw Object.defineProperty(new Error("x"), "message", {
        get: () => {
          throw new Error("even this");
        },
      });
    });
    expect(await runTool(hostile, { argumentsText: "", context: contextWith() })).toMatchObject({
      ok: false,
    });
  });

  it("gives the refusal of a grant as a fact of the outcome", async () => {
    const refusal: GrantRefusal = { kind: "scopes", scopes: ["task:task:write"] };
    const refusing = (): never => {
      throw new GrantRefusedError(refusal);
    };
    const outcome = await runTool(toolOf(refusing, "once"), { argumentsText: "{}" });
    expect(outcome).toEqual({
      ok: false,
      error: expect.stringContaining("was not run"),
      grant: refusal,
    });
  });

  it("SA-21: results that are not JSON give an error", async () => {
    const cycle: Record<string, unknown> = {};
    cycle["self"] = cycle;
    let deep: unknown = 1;
    for (let level = 0; level < 100_000; level += 1) deep = [deep];
    const values = [
      1n,
      { a: 1n },
      cycle,
      () => 1,
      Symbol("s"),
      new Map(),
      { a: new Set([1]) },
      { a: Number.NaN },
      deep,
    ];
    for (const value of values) {
      const outcome = await runTool(
        toolOf(() => value),
        { argumentsText: "", context: contextWith() },
      );
      expect(outcome).toMatchObject({
        ok: false,
        error: expect.stringContaining("cannot be turned into JSON"),
      });
    }
  });

  it("turns dates and other objects with toJSON into plain data", async () => {
    const outcome = await runTool(
      toolOf(() => ({ at: new Date(0) })),
      { argumentsText: "", context: contextWith() },
    );
    expect(outcome).toEqual({ ok: true, result: { at: "1970-01-01T00:00:00.000Z" } });
  });

  it("caps the output at a character boundary and says so", async () => {
    for (const value of ["界".repeat(1_000), { text: "界".repeat(1_000) }]) {
      for (let maxOutputBytes = 300; maxOutputBytes < 304; maxOutputBytes += 1) {
        const outcome = await runTool(
          toolOf(() => value),
          { argumentsText: "", context: contextWith(), maxOutputBytes },
        );
        const text = outcomeText(outcome);
        expect(outcome.ok).toBe(true);
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(maxOutputBytes);
        expect(text).toContain("[truncated: the output was");
        expect(text).not.toContain("\uFFFD");
      }
    }
    const big = await runTool(
      toolOf(() => "x".repeat(300_000)),
      { argumentsText: "", context: contextWith() },
    );
    expect(outcomeText(big).length).toBe(262_144);
  });

  it("answers at the deadline although the handler ignores the signal", async () => {
    const outcome = await runTool(
      toolOf(() => new Promise(() => {})),
      {
        argumentsText: "",
        context: contextWith(),
        timeoutMs: 30,
      },
    );
    expect(outcome).toEqual({ ok: false, error: "tool t did not answer within 30 ms" });
  });

  it("aborts the handler's signal at the deadline", async () => {
    const reasons: unknown[] = [];
    const tool = toolOf(
      (_input, { signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            reasons.push(signal.reason);
            reject(new Error("gave up"));
          });
        }),
    );
    const outcome = await runTool(tool, {
      argumentsText: "",
      context: contextWith(),
      timeoutMs: 20,
    });
    expect(outcome).toMatchObject({
      ok: false,
      error: expect.stringContaining("did not answer within 20 ms"),
    });
    expect(reasons).toHaveLength(1);
  });

  it("answers a cancelled call at once with the reason", async () => {
    const controller = new AbortController();
    const running = runTool(
      toolOf(() => new Promise(() => {})),
      {
        argumentsText: "",
        context: contextWith({ signal: controller.signal }),
      },
    );
    controller.abort(new Error("cancelled"));
    expect(await running).toEqual({ ok: false, error: "cancelled" });
  });

  it("calls the interruption of a started `once` call unknown, and of one that was not started plain", async () => {
    const stuck = toolOf(() => new Promise(() => {}), "once");
    const late = await runTool(stuck, { argumentsText: "", context: contextWith(), timeoutMs: 10 });
    expect(late).toMatchObject({ ok: false, unknown: true });
    const aborted = contextWith({ signal: AbortSignal.abort(new Error("cancelled")) });
    expect(await runTool(stuck, { argumentsText: "", context: aborted })).toEqual({
      ok: false,
      error: "cancelled",
    });
  });

  it("EE-7: progress lies within 0 and 1, and ends with the answer", async () => {
    const seen: [number, string | undefined][] = [];
    let report: ToolContext["progress"] | undefined;
    const tool = toolOf((_input, { progress }) => {
      report = progress;
      progress(-1);
      progress(0.5, "half");
      progress(Number.NaN);
      progress(7);
    });
    const progress = (fraction: number, detail?: string): unknown => seen.push([fraction, detail]);
    await runTool(tool, { argumentsText: "", context: contextWith({ progress }) });
    report?.(0.9);
    expect(seen).toEqual([
      [0, undefined],
      [0.5, "half"],
      [1, undefined],
    ]);
  });
});
