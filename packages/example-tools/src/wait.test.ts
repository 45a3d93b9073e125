import { runTool } from "@larkline/tool-kit";
import { expect, it } from "vitest";
import { createWaitTool } from "./wait.ts";

it("waits and tells how far it is", async () => {
  const told: unknown[] = [];
  const outcome = await runTool(createWaitTool(1), {
    argumentsText: '{"seconds":4}',
    context: {
      callId: "c1",
      turnId: "t1",
      actor: { app: "cli", userId: "ou_1", chatId: "oc_1" },
      authority: { by: "policy" },
      signal: new AbortController().signal,
      progress: (...each) => told.push(each),
      log: () => undefined,
    },
  });
  expect(outcome).toEqual({ ok: true, result: "4 seconds are over" });
  expect(told).toEqual([
    [0, "0/4"],
    [0.25, "1/4"],
    [0.5, "2/4"],
    [0.75, "3/4"],
  ]);
});
