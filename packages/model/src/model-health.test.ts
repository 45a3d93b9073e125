import type { Clock } from "@larkline/protocol/clock";
import { expect, it } from "vitest";
import { ModelHealth, type HealthCall } from "./model-chain.ts";

/** A clock that the test sets; what is due happens on the way. */
class SetClock implements Clock {
  #nowMs = 0;
  #due: { atMs: number; work: () => void }[] = [];

  now = (): number => this.#nowMs;
  monotonic = (): number => this.#nowMs;

  after(ms: number, work: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, work };
    this.#due.push(timer);
    return () => void (this.#due = this.#due.filter((other) => other !== timer));
  }

  every(): () => void {
    throw new Error("not needed");
  }

  set(nowMs: number): void {
    for (;;) {
      const next = this.#due.toSorted((one, other) => one.atMs - other.atMs)[0];
      if (next === undefined || next.atMs > nowMs) break;
      this.#due = this.#due.filter((other) => other !== next);
      this.#nowMs = next.atMs;
      next.work();
    }
    this.#nowMs = nowMs;
  }
}

function healthOf(slots: number) {
  const clock = new SetClock();
  const health = new ModelHealth({ slots, clock });
  const admit = (conversation?: string): HealthCall => {
    const admitted = health.admit(conversation);
    if ("refused" in admitted) throw new Error(`refused: ${admitted.refused}`);
    return admitted.call;
  };
  return { clock, health, admit };
}

it("is open after five failures in a row, and one call finds out whether the model is back", () => {
  const { clock, health, admit } = healthOf(50);
  for (const how of [
    "failed",
    "failed",
    "answered",
    "failed",
    "neutral",
    "failed",
    "failed",
    "failed",
  ] as const) {
    admit().ended(how);
  }
  admit().ended("failed");
  expect(health.admit()).toEqual({ refused: "open", waitMs: 10_000 });
  clock.set(10_000);
  const probe = admit();
  expect(health.admit()).toMatchObject({ refused: "open" });
  probe.ended("failed");
  expect(health.admit()).toEqual({ refused: "open", waitMs: 20_000 });
  clock.set(30_000);
  admit().ended("answered");
  admit();
  admit();
});

it("counts by conversation: what one of them does is no reason to leave others without the model", () => {
  const { clock, health, admit } = healthOf(50);
  for (let n = 0; n < 20; n += 1) admit("poisoned").ended("failed");
  for (const other of ["a", "b", "c"]) admit(other).ended("failed");
  admit("d");
  admit("e").ended("failed");
  expect(health.admit("f")).toEqual({ refused: "open", waitMs: 10_000 });
  clock.set(10_000);
  expect(health.admit("poisoned")).toEqual({ refused: "open", waitMs: 2_000 });
  admit("fresh").ended("answered");
  admit("poisoned");
});

it("lets conversations that it has failed probe where no other one comes", () => {
  const { clock, admit } = healthOf(50);
  for (const one of ["a", "b", "c", "d", "e"]) admit(one).ended("failed");
  clock.set(12_000);
  admit("a").ended("answered");
});

it("lets a probe that was broken off be followed by another one", () => {
  const { clock, admit } = healthOf(50);
  for (let n = 0; n < 5; n += 1) admit().ended("failed");
  clock.set(10_000);
  admit().ended("neutral");
  admit();
});

it("gives a model all slots as long as it begins to answer in time", () => {
  const { clock, admit } = healthOf(5);
  for (const beginsMs of [2_000, 4_000, 6_000]) {
    const calls = Array.from({ length: 5 }, () => admit());
    clock.set(beginsMs);
    for (const call of calls) call.alive();
    for (const call of calls) call.ended("answered");
    expect(calls.map(({ hasGivenWay }) => hasGivenWay)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
  }
});

it("leaves a part of the slots to others once the calls of a model are silent: the newest gives way", () => {
  const { clock, health, admit } = healthOf(5);
  const calls = Array.from({ length: 5 }, () => admit());
  const stopped: number[] = [];
  for (const [at, call] of calls.entries()) {
    call.giveWay = () => {
      stopped.push(at);
      call.ended("neutral");
    };
  }
  calls[0]?.alive(); // then nothing more
  clock.set(3_600);
  expect(stopped).toEqual([4]);
  expect(health.admit()).toEqual({ refused: "crowded", waitMs: 1_000 });
  for (const call of calls) call.alive();
  const more = admit();
  clock.set(7_000);
  expect(stopped).toEqual([4]);
  more.ended("answered");
  expect(health.admit()).toMatchObject({ refused: "crowded" });
});

it("stops no call that has received something: its person sees it", () => {
  const { clock, admit } = healthOf(5);
  const calls = Array.from({ length: 5 }, () => admit());
  for (const call of calls) call.alive();
  clock.set(60_000);
  expect(calls.some(({ hasGivenWay }) => hasGivenWay)).toBe(false);
});

it("lets one call through where there is one slot", () => {
  const { clock, health, admit } = healthOf(1);
  admit();
  clock.set(4_000);
  expect(health.admit()).toMatchObject({ refused: "crowded" });
});
