import { expect, it } from "vitest";
import { ModelHealth, type HealthCall } from "./model-chain.ts";

function healthOf(slots: number) {
  const clock = { nowMs: 0 };
  const health = new ModelHealth({ slots, now: () => clock.nowMs });
  const admit = (): HealthCall => {
    const admitted = health.admit();
    if ("refused" in admitted) throw new Error(`refused: ${admitted.refused}`);
    return admitted.call;
  };
  return { clock, health, admit };
}

it("is open after five failures in a row, and one call finds out whether the model is back", () => {
  const { clock, health, admit } = healthOf(50);
  for (const how of ["failed", "failed", "answered", "failed", "neutral", "failed", "failed", "failed"] as const) {
    admit().ended(how);
  }
  admit().ended("failed");
  expect(health.admit()).toEqual({ refused: "open", waitMs: 10_000 });
  clock.nowMs = 10_000;
  const probe = admit();
  expect(health.admit()).toMatchObject({ refused: "open" });
  probe.ended("failed");
  expect(health.admit()).toEqual({ refused: "open", waitMs: 20_000 });
  clock.nowMs = 30_000;
  admit().ended("answered");
  admit();
  admit();
});

it("lets a probe that was broken off be followed by another one", () => {
  const { clock, admit } = healthOf(50);
  for (let n = 0; n < 5; n += 1) admit().ended("failed");
  clock.nowMs = 10_000;
  admit().ended("neutral");
  admit();
});

it("gives a model a part of the slots while its calls are silent, and all of them once they speak", () => {
  const { clock, health, admit } = healthOf(5);
  const calls = [1, 2, 3, 4].map(() => admit());
  expect(health.admit()).toEqual({ refused: "crowded", waitMs: 1_000 });
  calls[0]?.alive();
  calls.push(admit());
  expect(health.admit()).toMatchObject({ refused: "crowded" });
  clock.nowMs = 1_000;
  for (const call of calls) call.alive();
  for (let n = 0; n < 4; n += 1) admit().alive();
  clock.nowMs = 7_000;
  expect(health.admit()).toMatchObject({ refused: "crowded" });
});

it("lets one call through where there is one slot", () => {
  const { health, admit } = healthOf(1);
  admit();
  expect(health.admit()).toMatchObject({ refused: "crowded" });
});
