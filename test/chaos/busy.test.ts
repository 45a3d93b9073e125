import { isLongRun } from "@larkline/testkit";
import { expect, it } from "vitest";
import { runBusy } from "./busy.ts";

it(
  "beside busy loops, and with workers that are stopped for 1, 3 and 8 s, no turn is lost and no model asked twice",
  { timeout: 600_000 },
  async () => {
    const report = await runBusy({
      messages: isLongRun ? 400 : 160,
      chats: 40,
      loops: 4,
      stopsMs: [1_000, 3_000, 8_000],
      isRedisAway: false,
      patienceMs: 300_000,
    });
    console.log(report);
    expect(report).toMatchObject({
      lost: 0,
      duplicated: 0,
      misordered: 0,
      givenUp: 0,
      repeatedModelCalls: 0,
      lostLocks: 0,
      fencedRuns: 0,
    });
  },
);
