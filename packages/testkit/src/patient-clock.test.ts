import { pause, systemClock } from "@larkline/protocol/clock";
import { expect, it } from "vitest";
import { patientClock } from "./patient-clock.ts";

/** Longer than what is waited for. */
async function standStill(): Promise<void> {
  const untilMs = performance.now() + 500;
  while (performance.now() < untilMs) JSON.stringify(untilMs);
  await pause(systemClock, 0);
}

it("a wait does not pass while the process stands still, and passes after that", async () => {
  let isOver = false;
  patientClock.after(400, () => (isOver = true));
  await standStill();
  expect(isOver).toBe(false);
  await expect.poll(() => isOver).toBe(true);
});

it("a wait that is cancelled does not end", async () => {
  let isOver = false;
  const cancel = patientClock.after(20, () => (isOver = true));
  await pause(patientClock, 10);
  cancel();
  await pause(systemClock, 40);
  expect(isOver).toBe(false);
});
