import { expect, it } from "vitest";
import { Gate } from "./local-sandbox.ts";

const never = new AbortController().signal;

it("as many enter as there are places; the others in the order in which they came", async () => {
  const gate = new Gate(2);
  const entered: number[] = [];
  const leaves: (() => void)[] = [];
  const all = [1, 2, 3, 4].map(async (number) => {
    const leave = await gate.enter(never);
    entered.push(number);
    leaves.push(leave);
  });
  await Promise.all(all.slice(0, 2));
  expect(entered).toEqual([1, 2]);
  expect(gate.tryEnter()).toBeUndefined();
  for (const expected of [3, 4]) {
    leaves.shift()?.();
    await all[expected - 1];
    expect(entered.at(-1)).toBe(expected);
  }
  for (const leave of leaves) leave();
  expect(gate.tryEnter()).toBeDefined();
});

it("who gives up does not enter, and takes no place away", async () => {
  const gate = new Gate(1);
  const leave = await gate.enter(never);
  const stop = new AbortController();
  const second = gate.enter(stop.signal);
  const third = gate.enter(never);
  stop.abort(new Error("enough"));
  await expect(second).rejects.toThrow("enough");
  await expect(gate.enter(stop.signal)).rejects.toThrow("enough");
  leave();
  (await third)();
  expect(gate.tryEnter()).toBeDefined();
});
