import type { EngineEvent, ToolJob } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createCallReport } from "./call-report.ts";

const job: ToolJob = {
  v: 1,
  session: "app.oc_1",
  turnId: "app.oc_1-1",
  callId: "c1",
  name: "slow",
  arguments: "{}",
  effect: "pure",
  attempt: 2,
  actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
  envelope: "",
  queuedAtMs: 0,
  deadlineMs: 0,
};

let published: EngineEvent[];
let attempts: Set<string>;
const store = {
  report: async (_session: string, attempt: string, { event }: { event: EngineEvent }) => {
    attempts.add(attempt);
    return published.push(event) > 0;
  },
};
const onError = (): void => {};

function fractions(): number[] {
  return published.map((event) => (event.type === "tool_progress" ? event.progress : Number.NaN));
}

function lines(): string[] {
  return published.map((event) => (event.type === "inbox_message" ? event.data : ""));
}

beforeEach(() => {
  published = [];
  attempts = new Set();
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

describe("progress of a call", () => {
  it("EE-7: is brought into 0 to 1, and is that of the attempt, under the id of the call", () => {
    for (const fraction of [-1, 2, Number.NaN]) createCallReport({ store, job, onError }).progress(fraction);
    expect(fractions()).toEqual([0, 1, 0]);
    expect([...attempts]).toEqual(["c1.2"]);
    expect(published[0]).toMatchObject({ type: "tool_progress", id: "c1", toolName: "slow" });
  });

  it("is published at once, then at most once per interval, the newest of each", async () => {
    const { progress } = createCallReport({ store, job, onError, intervalMs: 100 });
    for (const fraction of [0.1, 0.2, 0.3]) progress(fraction);
    expect(fractions()).toEqual([0.1]);
    await vi.advanceTimersByTimeAsync(100);
    expect(fractions()).toEqual([0.1, 0.3]);
    await vi.advanceTimersByTimeAsync(100);
    progress(0.4);
    expect(fractions()).toEqual([0.1, 0.3, 0.4]);
  });

  it("stops when the call has ended, and a failing store disturbs nothing", async () => {
    const errors: unknown[] = [];
    const broken = { report: async () => await Promise.reject(new Error("Redis is away")) };
    const report = createCallReport({ store: broken, job, onError: (error) => errors.push(error) });
    report.progress(0.1);
    report.progress(0.2);
    await report.close();
    report.progress(0.3);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(errors).toHaveLength(1);
  });

  it("is not piled up while the store is slow", async () => {
    const answers: (() => void)[] = [];
    const slow = { report: async () => await new Promise<boolean>((resolve) => answers.push(() => resolve(true))) };
    const report = createCallReport({ store: slow, job, onError, intervalMs: 100 });
    for (let fraction = 0; fraction < 1; fraction += 0.01) {
      report.progress(fraction);
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(answers).toHaveLength(1);
  });
});

describe("the log of a call", () => {
  it("EE-44: is published as messages of kind log, lines together, all of them before the end", async () => {
    const report = createCallReport({ store, job, onError, intervalMs: 100 });
    for (const line of ["one", "two", "three"]) report.log(line);
    await report.close();
    expect(lines()).toEqual(["one\n", "two\nthree\n"]);
    expect(published[0]).toMatchObject({ messageType: "log", toolUseId: "c1", meta: '{"toolName":"slow"}' });
  });

  it("is cut when it is very long, and says so", async () => {
    const report = createCallReport({ store, job, onError });
    for (let line = 0; line < 5_000; line += 1) report.log("x".repeat(99));
    await report.close();
    const text = lines().join("");
    expect(text.length).toBeLessThan(65_000);
    expect(text).toMatch(/\[further lines are left out\]\n$/);
    expect(Math.max(...lines().map((event) => event.length))).toBeLessThanOrEqual(8_000);
  });
});
