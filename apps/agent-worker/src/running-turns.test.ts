import { systemClock } from "@larkline/protocol/clock";
import { expect, it } from "vitest";
import { RunningTurns } from "./running-turns.ts";

it("a cancel that comes before its turn has begun here stops it when it begins", () => {
  const running = new RunningTurns(systemClock);
  running.cancel("s", "s-2");
  expect(running.add("s", "s-1").signal.aborted).toBe(false);
  expect(running.add("s", "s-2").signal.reason).toBe("cancel");
});

it("a cancel of another turn leaves the running one alone", () => {
  const running = new RunningTurns(systemClock);
  const { signal } = running.add("s", "s-1");
  running.cancel("s", "s-2");
  running.cancel("other", "s-1");
  expect(signal.aborted).toBe(false);
  running.cancel("s", undefined);
  expect(signal.reason).toBe("cancel");
});

it("a cancel of a message that has joined a turn stops the turn, also one that came a moment before", () => {
  for (const early of [true, false]) {
    const running = new RunningTurns(systemClock);
    const controller = running.add("s", "s-1");
    if (early) running.cancel("s", "s-2");
    running.join("s", controller, "s-2");
    if (!early) running.cancel("s", "s-2");
    expect(controller.signal.reason).toBe("cancel");
  }
});
