import { openTestStores, type TestStores } from "@larkline/store/testing";
import { beforeEach, expect, it } from "vitest";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";
import { takeOverState, untilStateIsTakenOver } from "./worker.ts";

let stores: TestStores;
beforeEach(() => {
  stores = openTestStores();
});

const signal = AbortSignal.timeout(20_000);

/** What one of several workers has. */
function workerNamed(owner: string) {
  const world = newWorld(stores);
  return { world, services: servicesOf(world, { services: { owner } }) };
}

const old = { service: "ingress", host: "h", version: "1", startedAtMs: 1, apps: [], feeds: [] };

it("nothing is taken over while a process of the version before lives, and everything once it has gone", async () => {
  const { world, services: one } = workerNamed("one");
  await one.instances.announce({ ...old, id: "old-1" }, 60_000);
  await one.instances.announce({ ...old, id: "new-1", stateVersion: 2 }, 60_000);
  expect(await takeOverState(one, signal)).toBe(false);
  expect(JSON.stringify(world.logged)).toContain("ingress h old-1");
  expect(JSON.stringify(world.logged)).not.toContain("new-1");
  const others = [
    untilStateIsTakenOver(workerNamed("two").services, signal),
    untilStateIsTakenOver(workerNamed("three").services, signal),
  ];
  await one.instances.withdraw("old-1");
  expect(await Promise.all(others)).toEqual([true, true]);
});

it("a process of the version before that comes after it has no part in it", async () => {
  const one = workerNamed("one").services;
  expect(await takeOverState(one, signal)).toBe(true);
  await one.instances.announce({ ...old, id: "old-1" }, 60_000);
  expect(await takeOverState(workerNamed("two").services, signal)).toBe(true);
});

it("one that died without a word is waited for no longer than it is believed to live", async () => {
  const one = workerNamed("one").services;
  await one.instances.announce({ ...old, id: "old-1" }, 600);
  expect(await takeOverState(one, signal)).toBe(false);
  expect(await untilStateIsTakenOver(one, signal)).toBe(true);
});
