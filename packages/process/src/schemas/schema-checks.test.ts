import { systemClock } from "@larkline/protocol/clock";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { SchemaChecks } from "./schema-checks.ts";

const stopped: string[] = [];
/** Started by {@link SchemaChecks} in this file. */
let threads = 0;
process.on("worker", () => (threads += 1));
const log = { warn: ({ reason }: { reason?: unknown }) => void stopped.push(String(reason)) };
const watched = { clock: systemClock, log };
const checks = new SchemaChecks(watched);

afterEach(() => void stopped.splice(0));
afterAll(async () => await checks.close());

const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };

/** 2^28 ways to fail: each level tries both branches. */
const branching = {
  $defs: { node: { anyOf: [inner("a"), inner("b")] } },
  $ref: "#/$defs/node",
};

function inner(name: string): object {
  return {
    properties: { next: { $ref: "#/$defs/node" }, [name]: { const: 1 } },
    required: ["next"],
  };
}

function nested(depth: number): object {
  return depth === 0 ? {} : { next: nested(depth - 1) };
}

describe("a value and a schema that others wrote", () => {
  it("fit, or get the reason why not", async () => {
    expect(await checks.check(schema, { n: 1 })).toEqual({ ok: true });
    expect(await checks.check(schema, { n: "1" })).toEqual({
      ok: false,
      error: "n must be integer",
    });
    expect(stopped).toEqual([]);
  });

  it("are refused, not checked, when the schema is none, or its pattern needs more than linear time", async () => {
    const withPattern = (pattern: string) => ({ properties: { a: { type: "string", pattern } } });
    const refused: [object, RegExp][] = [
      [{ type: "text" }, /^schema is invalid: type must be/],
      [{ $ref: "#/$defs/none" }, /^schema can't resolve reference/],
      [withPattern("(?!a)b"), /^the pattern "\(\?!a\)b" cannot be used \(RE2 syntax\)/],
      [withPattern(String.raw`(a)\1`), /cannot be used/],
      [withPattern("("), /cannot be used/],
    ];
    for (const [given, problem] of refused) {
      expect(await checks.problemOf(given)).toMatch(problem);
      const checked = await checks.check(given, { a: "b" });
      expect(checked).toMatchObject({
        ok: false,
        isUnchecked: true,
        error: expect.stringMatching(problem),
      });
    }
    expect(await checks.problemOf(withPattern("^(a+)+$"))).toBeUndefined();
  });

  it("may have patterns as JavaScript writes them", async () => {
    const fits = async (pattern: string, text: string) =>
      (await checks.check({ pattern }, text)).ok;
    expect(await fits(String.raw`^[\u4e00-\u9fa5]+$`, "中文")).toBe(true);
    expect(await fits(String.raw`^\p{Script=Han}+$`, "中文")).toBe(true);
    expect(await fits(String.raw`^\d{4}-\d\d$`, "2026-1")).toBe(false);
    expect(await fits("^(?<year>[0-9]+)$", "2026")).toBe(true);
    expect(
      (await checks.check({ patternProperties: { "^x": { type: "number" } } }, { x1: "a" })).ok,
    ).toBe(false);
  });

  it("cost linear time where a pattern would try all ways to match", async () => {
    const pattern = { properties: { a: { type: "string", pattern: "^(a+)+$" } } };
    const checked = await checks.check(pattern, { a: `${"a".repeat(40)}!` });
    expect(checked).toEqual({ ok: false, error: expect.stringContaining("must match pattern") });
    expect(stopped).toEqual([]);
  });

  it("are given up when the check takes too long; the loop runs meanwhile, and the next check gets its answer", async () => {
    const hasty = new SchemaChecks({ ...watched, maxCpuMs: 200 });
    const order: string[] = [];
    const hanging = hasty.check(branching, nested(28)).finally(() => order.push("given up"));
    const other = hasty.check(schema, { n: 1 }).finally(() => order.push("next"));
    await new Promise((resolve) => setImmediate(resolve));
    order.push("loop");
    expect(await hanging).toEqual({
      ok: false,
      isUnchecked: true,
      error: "its check took longer than 200 ms",
    });
    expect(await other).toEqual({ ok: true });
    expect(order).toEqual(["loop", "given up", "next"]);
    await hasty.close();
    expect(stopped).toEqual(["its check took longer than 200 ms"]);
  });

  it("are given up when they take too much memory", async () => {
    const small = new SchemaChecks({ clock: systemClock, maxHeapMb: 24 });
    const checked = await small.check({ items: { type: "string" } }, Array(200_000).fill(1));
    expect(checked).toMatchObject({
      ok: false,
      isUnchecked: true,
      error: expect.stringContaining("memory"),
    });
    expect(await small.check(schema, { n: 1 })).toEqual({ ok: true });
    await small.close();
  });

  it("are given up when the stack overflows", async () => {
    const endless = { allOf: [{ $ref: "#" }] };
    expect(await checks.check(endless, 1)).toMatchObject({
      ok: false,
      isUnchecked: true,
      error: expect.stringContaining("stack"),
    });
  });

  it("are not taken when they are longer than any answer", async () => {
    expect(await checks.check({}, "x".repeat(4_200_000))).toMatchObject({
      ok: false,
      isUnchecked: true,
    });
  });

  it("are answered as unchecked when the process stops", async () => {
    const closing = new SchemaChecks({ clock: systemClock });
    const checked = [closing.check(branching, nested(28)), closing.check(schema, { n: 1 })];
    await closing.close();
    const ended = { ok: false, error: "this process stops", isUnchecked: true };
    expect(await Promise.all([...checked, closing.check(schema, {})])).toEqual([
      ended,
      ended,
      ended,
    ]);
  });

  it("are checked by one thread, which ends when it has nothing to do, and is started again", async () => {
    const pauses: (() => void)[] = [];
    const clock = {
      ...systemClock,
      after: (_ms: number, work: () => void) => (pauses.push(work), () => undefined),
    };
    const idle = new SchemaChecks({ clock });
    const before = threads;
    const twice = [idle.check(schema, { n: 1 }), idle.check(schema, { n: 2 })];
    expect(await Promise.all(twice)).toEqual([{ ok: true }, { ok: true }]);
    expect(threads - before).toBe(1);
    pauses.at(-1)?.();
    expect(await idle.check(schema, { n: 3 })).toEqual({ ok: true });
    expect(threads - before).toBe(2);
    await idle.close();
  });
});
