import { isLongRun } from "@larkline/testkit";
import { expect, it } from "vitest";
import { runChaos } from "./chaos.ts";
import type { DisasterName } from "./disasters.ts";

const plan: DisasterName[] = [
  "kill_worker",
  "freeze",
  "feishu_faults",
  "kill_runner",
  "model_errors",
  "dropped_connections",
  "kill_ingress",
  "late_events",
  "redis_restart",
  "kill_worker",
  "feishu_outage",
  "half_open",
  "wrong_clock",
  "redis_full",
  "disk_full",
  "dead_lines",
];

it(
  "whatever breaks, accepted messages are answered once, in order, and no `once` call is repeated",
  { timeout: 420_000 },
  async () => {
    const report = await runChaos({
      seed: 7,
      durationMs: 240_000,
      chats: isLongRun ? 8 : 4,
      groups: 1,
      workers: 2,
      runners: 2,
      ingresses: 2,
      plan,
      disasters: plan.length,
      poison: 1,
      pauseMs: 600,
      freezeMs: 9_000,
      clickPauseMs: 600,
      patienceMs: 90_000,
    });
    console.dir(report, { depth: 4 });
    expect(Object.values(report.disasters).reduce((sum, count) => sum + count, 0)).toBe(
      plan.length,
    );
    expect(report.onceStarted).toBeGreaterThan(0);
    expect(report.stopClicks).toBeGreaterThan(0);
    expect(report.decided).toBeGreaterThan(0);
    expect(report).toMatchObject({
      lost: 0,
      duplicated: 0,
      misordered: 0,
      failed: 0,
      leftOpen: 0,
      onceRepeated: 0,
    });
    expect(report).toMatchObject({ poison: 1, givenUp: 1 });
    expect(report.answered).toBe(report.accepted);
  },
);
