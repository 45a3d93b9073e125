import { describe, expect, it, onTestFinished } from "vitest";
import { adapterOf, type Observer } from "./observers.ts";
import { telemetryFor } from "./telemetry.ts";

function recorder(): { told: unknown[]; core: Observer; whole: Observer } {
  const told: unknown[] = [];
  const core: Observer = {
    event: (...what) => void told.push(["event", ...what]),
    error: (...what) => void told.push(["error", ...what]),
  };
  const whole: Observer = {
    ...core,
    metric: (...what) => void told.push(["metric", ...what]),
    spanStart: (...what) => {
      told.push(["spanStart", ...what]);
      return "s1";
    },
    spanEnd: (...what) => void told.push(["spanEnd", ...what]),
  };
  return { told, core, whole };
}

const failure = new Error("no answer");

function useAll(observers: readonly Observer[]): void {
  const telemetry = telemetryFor(observers.map(adapterOf));
  telemetry.events.emit({ eventName: "turn.claimed", attributes: { tries: 1 } });
  telemetry.events.emit({ exception: failure, attributes: { session: "a.b" } });
  telemetry.samples["model.cost_usd"].add(0.5, { model: "m" });
  const span = telemetry.tracer.startSpan("turn.run", { attributes: { session: "a.b" } });
  span.recordException(failure);
  span.setAttributes({ outcome: "fenced" }).end();
  span.end();
}

const coreCalls = [
  ["event", "turn.claimed", { tries: 1 }],
  ["error", failure, { session: "a.b" }],
];

describe("telemetryFor", () => {
  it("EE-17: an observer with the core methods alone gets events and errors", () => {
    const { told, core } = recorder();
    useAll([core]);
    expect(told).toEqual(coreCalls);
  });

  it("EE-17: metrics and spans go to observers that have methods for them, the end of a span once", () => {
    const { told, whole } = recorder();
    useAll([whole]);
    expect(told).toEqual([
      ...coreCalls,
      ["metric", "model.cost_usd", 0.5, { model: "m" }],
      ["spanStart", "turn.run", { session: "a.b" }],
      ["spanEnd", "s1", failure, { outcome: "fenced" }],
    ]);
  });

  it("EE-18: an observer that throws in every method disturbs neither the run nor the other observers", () => {
    const refuse = (): never => {
      throw new Error("broken observer");
    };
    const broken = {
      event: refuse,
      error: refuse,
      metric: refuse,
      spanStart: refuse,
      spanEnd: refuse,
    };
    const { told, core } = recorder();
    useAll([broken, core, broken]);
    expect(told).toEqual(coreCalls);
  });

  it("EE-18: an observer whose promises reject leaves no rejection behind", async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    const reject = async (): Promise<never> => await Promise.reject(new Error("broken observer"));
    // As a module in JavaScript may have it: nothing checks its types.
    const broken: Record<string, unknown> = {
      event: reject,
      error: reject,
      metric: reject,
      spanStart: reject,
    };
    const { told, core } = recorder();
    useAll([broken as unknown as Observer, core]);
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled).toEqual([]);
    expect(told).toEqual(coreCalls);
  });
});
