import { isLongRun } from "@larkline/testkit";
import { expect, it } from "vitest";
import { runFailover } from "./failover.ts";

const load = {
  rounds: 1,
  chats: isLongRun ? 4 : 3,
  replicas: 1,
  silenceMs: 2_000,
  patienceMs: 90_000,
};
const kept = { misordered: 0, foreign: 0, stuck: 0 };

it(
  "under Sentinel, the end of the master in the middle of load loses and repeats nothing while a replica has to be there",
  { timeout: 300_000 },
  async () => {
    const settings = ["--min-replicas-to-write", "1"];
    const report = await runFailover({
      ...load,
      kind: "sentinel",
      settings,
      failure: { cutMs: 0 },
    });
    console.dir(report, { depth: 4 });
    expect(report).toMatchObject({ ...kept, lost: 0, duplicated: 0, onceRepeated: 0 });
    expect(report.flowing.count).toBe(1);
  },
);

it(
  "in a Cluster, sessions whose state has gone back in time continue, and answer no other person's question",
  { timeout: 300_000 },
  async () => {
    const report = await runFailover({
      ...load,
      kind: "cluster",
      settings: [],
      failure: { cutMs: 300 },
    });
    console.dir(report, { depth: 4 });
    expect(report).toMatchObject(kept);
    expect(report.flowing.count).toBe(1);
  },
);
