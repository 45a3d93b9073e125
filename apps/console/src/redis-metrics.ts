import type { ServerState } from "@larkline/store/redis";
import type { Metrics } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";

/** How long Redis may take to answer a scrape, ms. */
const deadlineMs = 2_000;

/** Shows how the servers of Redis are, each time somebody scrapes; absent while one of them does not answer. */
export function showRedis(metrics: Metrics, read: () => Promise<readonly ServerState[]>): void {
  const labels = ["node"] as const;
  const memory = metrics.gauge({ name: "larkline_redis_memory_bytes", help: "Memory that Redis takes.", labels });
  const limit = metrics.gauge({
    name: "larkline_redis_memory_limit_bytes",
    help: "Memory that Redis may take.",
    labels,
  });
  const persists = metrics.gauge({
    name: "larkline_redis_persists",
    help: "Whether Redis keeps an append-only file and can write it (1 or 0).",
    labels,
  });
  metrics.onScrape(async () => {
    const states = await withDeadline(read(), deadlineMs).catch(() => []);
    for (const gauge of [memory, limit, persists]) gauge.clear();
    for (const { node, memoryBytes, memoryLimitBytes, persists: isSafe } of states) {
      memory.set({ node }, memoryBytes);
      limit.set({ node }, memoryLimitBytes);
      persists.set({ node }, isSafe ? 1 : 0);
    }
  });
}
