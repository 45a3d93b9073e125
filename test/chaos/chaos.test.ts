import { expect, it } from "vitest";
import { runChaos } from "./chaos.ts";

it(
  "kill -9 and SIGSTOP at random moments lose nothing, repeat nothing and keep the order",
  { timeout: 180_000 },
  async () => {
    const report = await runChaos({
      seed: 7,
      chats: 12,
      messagesPerChat: 14,
      kills: 9,
      freezes: 1,
      freezeMs: 12_000,
      pauseMs: 900,
      clickPauseMs: 600,
      patienceMs: 90_000,
    });
    console.log(report);
    expect(report.onceStarted).toBeGreaterThan(0);
    expect(report.stopClicks).toBeGreaterThan(0);
    expect(report).toMatchObject({ lost: 0, duplicated: 0, misordered: 0, leftOpen: 0, onceRepeated: 0 });
    expect(report.answered).toBe(report.accepted);
  },
);
