import { systemClock } from "@larkline/protocol";
import { refuseOlderInstances } from "@larkline/store/operations";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { beforeEach, describe, expect, it } from "vitest";
import { newWorld, servicesOf } from "./turn-world.fixture.ts";
import { takeOverState, untilStateIsTakenOver } from "./worker.ts";

let stores: TestStores;
beforeEach(() => {
  stores = openTestStores();
});

const signal = AbortSignal.timeout(60_000);

/** What one of several workers has. */
function workerNamed(owner: string) {
  return { services: servicesOf(newWorld(stores), { services: { owner } }) };
}

it("one worker takes over, the others wait for it", async () => {
  const taking = ["one", "two", "three"].map(
    async (owner) => await untilStateIsTakenOver(workerNamed(owner).services, signal),
  );
  expect(await Promise.all(taking)).toEqual([true, true, true]);
  expect(await takeOverState(workerNamed("four").services, signal)).toBe(true);
});

const old = {
  service: "ingress",
  host: "h",
  version: "1",
  stateVersion: 2,
  startedAtMs: 1,
  apps: [],
  feeds: [],
};

describe("a process beside one of an older version", () => {
  it("refuses to start, and says which one has to be stopped", async () => {
    const { instances } = workerNamed("one").services;
    const waited: string[][] = [];
    await instances.announce({ ...old, id: "old-1" }, 60_000);
    await instances.announce({ ...old, id: "new-1", stateVersion: 3 }, 60_000);
    let nowMs = 0;
    const start = refuseOlderInstances(instances, {
      patienceMs: 2_000,
      clock: { ...systemClock, monotonic: () => nowMs },
      onWait: (processes) => {
        waited.push(processes);
        nowMs = 2_000;
      },
    });
    await expect(start).rejects.toThrow("processes of an older version still run: ingress h old-1");
    expect(waited).toEqual([["ingress h old-1"]]);
    await instances.withdraw("old-1");
    await refuseOlderInstances(instances, { patienceMs: 0 });
  });

  it("waits for one that died without a word for as long as it is believed to live", async () => {
    const { instances } = workerNamed("one").services;
    await instances.announce({ ...old, id: "old-1" }, 600);
    await refuseOlderInstances(instances);
  });
});
