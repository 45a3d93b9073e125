import { isLongRun } from "@larkline/testkit";
import { expect, it } from "vitest";
import { runApprovalChaos } from "./approvals.ts";
import { runCallChaos } from "./calls.ts";

it(
  "kill -9 of workers and runners strands no call, repeats no `once` call, and what is unknown is said",
  { timeout: 240_000 },
  async () => {
    const report = await runCallChaos({
      seed: 13,
      calls: isLongRun ? 300 : 150,
      chats: isLongRun ? 10 : 5,
      callsPerMessage: 10,
      pauseMs: 2_500,
      patienceMs: 120_000,
    });
    console.log(report);
    expect(report).toMatchObject({ stranded: 0, onceRepeated: 0, results: report.calls });
    expect(report.onceStarted).toBeGreaterThan(0);
    expect(Object.keys(report.kills).toSorted()).toEqual(["agent-worker", "tool-runner"]);
  },
);

it(
  "AL-39: kill -9 at random moments leaves batches of [plain, approval, plain, approval] with one result per call",
  { timeout: 240_000 },
  async () => {
    const report = await runApprovalChaos({
      seed: 12,
      chats: isLongRun ? 6 : 4,
      batchesPerChat: 3,
      pauseMs: 2_500,
      patienceMs: 120_000,
    });
    console.log(report);
    expect(report).toMatchObject({
      incomplete: 0,
      wrongRuns: 0,
      buttonsLeft: 0,
      answered: report.batches,
    });
    expect(report.approved).toBeGreaterThan(0);
    expect(report.rejected).toBeGreaterThan(0);
  },
);
