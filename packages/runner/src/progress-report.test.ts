import type { EngineEvent, ToolJob } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createProgressReport } from "./progress-report.ts";

const job: ToolJob = {
  v: 1,
  session: "app.oc_1",
  turnId: "app.oc_1-1",
  callId: "c1",
  name: "slow",
  arguments: "{}",
  effect: "pure",
  actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
  deadlineMs: 0,
};

let published: EngineEvent[];
const store = {
  report: async (_session: string, _callId: string, { event }: { event: EngineEvent }) => published.push(event) > 0,
};
const onError = (): void => {};

function fractions(): number[] {
  return published.map((event) => (event.type === "tool_progress" ? event.progress : Number.NaN));
}

beforeEach(() => {
  published = [];
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

describe("progress of a call", () => {
  it("EE-7: is brought into 0 to 1", () => {
    for (const fraction of [-1, 2, Number.NaN]) createProgressReport({ store, job, onError }).report(fraction);
    expect(fractions()).toEqual([0, 1, 0]);
  });

  it("is published at once, then at most once per interval, the newest of each", () => {
    const { report } = createProgressReport({ store, job, onError, intervalMs: 100 });
    for (const fraction of [0.1, 0.2, 0.3]) report(fraction);
    expect(fractions()).toEqual([0.1]);
    vi.advanceTimersByTime(100);
    expect(fractions()).toEqual([0.1, 0.3]);
    vi.advanceTimersByTime(100);
    report(0.4);
    expect(fractions()).toEqual([0.1, 0.3, 0.4]);
  });

  it("stops when the call has ended, and a failing store disturbs nothing", async () => {
    const errors: unknown[] = [];
    const broken = { report: async () => await Promise.reject(new Error("Redis is away")) };
    const progress = createProgressReport({ store: broken, job, onError: (error) => errors.push(error) });
    progress.report(0.1);
    progress.report(0.2);
    await progress.close();
    vi.advanceTimersByTime(1_000);
    expect(errors).toHaveLength(1);
  });
});
