import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type CallReported, createCallReport } from "./call-handoff.ts";

let published: CallReported[];
const publish = async (reported: CallReported): Promise<void> => {
  published.push(reported);
  await Promise.resolve();
};
const onError = (): void => {};

function fractions(): number[] {
  return published.map((reported) =>
    reported.kind === "progress" ? reported.fraction : Number.NaN,
  );
}

function lines(): string[] {
  return published.map((reported) => (reported.kind === "log" ? reported.text : ""));
}

beforeEach(() => {
  published = [];
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

describe("progress of a call", () => {
  it("EE-7: is brought into 0 to 1", () => {
    for (const fraction of [-1, 2, Number.NaN]) {
      createCallReport({ publish, onError }).progress(fraction);
    }
    expect(fractions()).toEqual([0, 1, 0]);
  });

  it("is published at once, then at most once per interval, the newest of each", async () => {
    const { progress } = createCallReport({ publish, onError, intervalMs: 100 });
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
    const broken = async (): Promise<void> => await Promise.reject(new Error("Redis is away"));
    const report = createCallReport({ publish: broken, onError: (error) => errors.push(error) });
    report.progress(0.1);
    report.progress(0.2);
    await report.close();
    report.progress(0.3);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(errors).toHaveLength(1);
  });

  it("is not piled up while the store is slow", async () => {
    const answers: (() => void)[] = [];
    const slow = async (): Promise<void> => await new Promise((resolve) => answers.push(resolve));
    const report = createCallReport({ publish: slow, onError, intervalMs: 100 });
    for (let fraction = 0; fraction < 1; fraction += 0.01) {
      report.progress(fraction);
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(answers).toHaveLength(1);
  });
});

describe("the log of a call", () => {
  it("EE-44: is published as messages of kind log, lines together, all of them before the end", async () => {
    const report = createCallReport({ publish, onError, intervalMs: 100 });
    for (const line of ["one", "two", "three"]) report.log(line);
    await report.close();
    expect(lines()).toEqual(["one\n", "two\nthree\n"]);
  });

  it("is cut when it is very long, and says so", async () => {
    const report = createCallReport({ publish, onError });
    for (let line = 0; line < 5_000; line += 1) report.log("x".repeat(99));
    await report.close();
    const text = lines().join("");
    expect(text.length).toBeLessThan(65_000);
    expect(text).toMatch(/\[further lines are left out\]\n$/);
    expect(Math.max(...lines().map((event) => event.length))).toBeLessThanOrEqual(8_000);
  });
});
