import { startRedis } from "@larkline/testkit";
import type { TestProject } from "vitest/node";

/** One Redis server for the whole run; tests get its address by `inject("redisUrl")`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const redis = await startRedis();
  project.provide("redisUrl", redis.url);
  return redis.stop;
}
