import { expect, it } from "vitest";
import { runTogetherChaos } from "./together.ts";

it(
  "agents that work together lose and repeat nothing, whatever is killed, put to sleep, stopped or taken back meanwhile",
  { timeout: 240_000 },
  async () => {
    const report = await runTogetherChaos({
      seed: 5,
      durationMs: 4_000,
      chats: 1,
      pauseMs: 1_000,
      freezeMs: 2_000,
      patienceMs: 90_000,
    });
    console.dir(report, { depth: 3 });
    expect(new Set(Object.values(report.faults))).toEqual(new Set([0]));
    expect(Object.entries(report.counts).filter(([, count]) => count === 0)).toEqual([]);
    expect(Object.values(report.kills).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
  },
);
