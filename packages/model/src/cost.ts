import type { Usage } from "@larkline/protocol";
import type { ModelInfo } from "./model-info.ts";

/** What one answer cost, in USD. Unknown prices are 0. */
export function costOf(usage: Usage, info: ModelInfo): number {
  const millionths =
    usage.inputTokens * info.inputPricePer1M +
    usage.outputTokens * info.outputPricePer1M +
    usage.cacheReadTokens * info.cacheReadPricePer1M +
    usage.cacheCreationTokens * info.cacheWritePricePer1M;
  return millionths / 1_000_000;
}
