import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "@larkline/protocol/clock";
import {
  type Instance,
  type InstanceDirectory,
  refuseOlderInstances,
} from "./instance-directory.ts";

export interface InstanceDirectoryHarness {
  directory: InstanceDirectory;
  /** The same directory as another process sees it. */
  elsewhere: InstanceDirectory;
  now(): number;
  close(): Promise<void>;
}

function instanceOf(id: string, changes: Partial<Instance> = {}): Instance {
  return {
    id,
    service: "ingress",
    host: "node-1",
    version: "1.2.3",
    startedAtMs: 1_700_000_000_000,
    apps: ["cli_1"],
    feeds: [{ app: "cli_1", transport: "websocket", state: "connected" }],
    ...changes,
  };
}

/** What every InstanceDirectory promises. Call it at the top level of a test file. */
export function describeInstanceDirectory(
  name: string,
  makeHarness: () => Promise<InstanceDirectoryHarness>,
): void {
  describe(`${name}: instance directory`, () => {
    let harness: InstanceDirectoryHarness;

    beforeEach(async () => {
      harness = await makeHarness();
    });
    afterEach(() => harness.close());

    it("shows everybody who there is, until they leave", async () => {
      const { directory, elsewhere, now } = harness;
      await directory.announce(instanceOf("a"), 30_000);
      await elsewhere.announce(instanceOf("b", { service: "agent-worker", feeds: [] }), 30_000);
      const [first] = (await elsewhere.instances()).filter(({ id }) => id === "a");
      expect(first).toMatchObject(instanceOf("a"));
      expect(first?.expiresAtMs).toBeGreaterThan(now());
      await elsewhere.withdraw("a");
      expect((await directory.instances()).map(({ id }) => id)).toEqual(["b"]);
    });

    it("knows the newest word of an instance", async () => {
      const { directory } = harness;
      await directory.announce(instanceOf("a"), 30_000);
      const feeds = [
        { app: "cli_1", transport: "websocket", state: "failed", lastEventAtMs: 5 },
      ] as const;
      await directory.announce(instanceOf("a", { feeds }), 30_000);
      expect(await directory.instances()).toMatchObject([{ id: "a", feeds }]);
    });

    it("still shows who went silent, as gone", async () => {
      const { directory, now } = harness;
      await directory.announce(instanceOf("a"), -1);
      const [silent] = await directory.instances();
      expect(silent?.expiresAtMs).toBeLessThan(now());
    });

    it("forgets who has been silent for an hour", async () => {
      const { directory } = harness;
      await directory.announce(instanceOf("a"), -3_600_001);
      expect(await directory.instances()).toEqual([]);
    });

    describe("a process beside one of an older form", () => {
      it("refuses to start, and says which one has to be stopped", async () => {
        const { directory } = harness;
        const waited: string[][] = [];
        await directory.announce(instanceOf("old-1", { stateVersion: 2 }), 60_000);
        await directory.announce(instanceOf("new-1", { stateVersion: 3 }), 60_000);
        let nowMs = 0;
        const start = refuseOlderInstances(directory, {
          patienceMs: 2_000,
          clock: { ...systemClock, monotonic: () => nowMs },
          onWait: (processes) => {
            waited.push(processes);
            nowMs = 2_000;
          },
        });
        await expect(start).rejects.toThrow(
          "processes of an older version still run: ingress node-1 old-1",
        );
        expect(waited).toEqual([["ingress node-1 old-1"]]);
        await directory.withdraw("old-1");
        await refuseOlderInstances(directory, { patienceMs: 0 });
      });

      it("waits for one that died without a word for as long as it is believed to live", async () => {
        const { directory } = harness;
        await directory.announce(instanceOf("old-1", { stateVersion: 2 }), 600);
        await refuseOlderInstances(directory);
      });
    });
  });
}
