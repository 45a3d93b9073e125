import type { EngineEvent } from "@larkline/protocol";

/** The only event of a run that was cancelled before it began. */
export const cancelledRun: EngineEvent = {
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCacheReadTokens: 0,
  totalCacheCreationTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
  reason: "cancelled",
  final: "",
};
