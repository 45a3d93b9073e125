import type { ServerState } from "@larkline/store/redis";
import { createMetrics } from "@larkline/process/telemetry";
import { expect, it } from "vitest";
import { showRedis } from "./redis-metrics.ts";

const server: ServerState = { node: "redis:6379", memoryBytes: 3, memoryLimitBytes: 4, persists: true };

it("shows how each server of Redis is, and nothing of one that does not answer any more", async () => {
  let states: () => Promise<ServerState[]> = async () => [server];
  const metrics = createMetrics({ service: "console" });
  showRedis(metrics, async () => await states());
  const lines = async () => (await metrics.text()).split("\n").filter((line) => line.startsWith("larkline_"));
  const labels = '{node="redis:6379",service="console"}';
  expect(await lines()).toEqual([
    `larkline_redis_memory_bytes${labels} 3`,
    `larkline_redis_memory_limit_bytes${labels} 4`,
    `larkline_redis_persists${labels} 1`,
  ]);
  states = async () => await Promise.reject(new Error("it is away"));
  expect(await lines()).toEqual([]);
});
