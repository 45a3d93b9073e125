import { randomUUID } from "node:crypto";
import { describeBlobStore } from "./blob-store.suite.ts";
import { describeBudgetStore } from "./budget-store.suite.ts";
import { closeRedis, connectRedis, mastersOf } from "./connection.ts";
import {
  makeBlobStore,
  makeBudgetStore,
  makeDirectory,
  makeLookupCache,
  makeMemoryStore,
  makeSessionFiles,
  makeNameBook,
  makeAgentVersions,
  makePauses,
  makeRateGovernor,
  makeRatingStore,
  makeRunLog,
  makeStore,
  makeTokenCache,
  makeTraceLog,
  makeUsageStore,
} from "./harness.fixture.ts";
import { describeLookupCache } from "./lookup-cache.suite.ts";
import { describeMemoryStore } from "./memory-store.suite.ts";
import { describeSessionFiles } from "./session-files.suite.ts";
import { describeNameBook } from "./name-book.suite.ts";
import { describeAgentVersions } from "./agent-versions.suite.ts";
import { describePauses } from "./pauses.suite.ts";
import { describeRateGovernor } from "./rate-governor.suite.ts";
import { describeRatingStore } from "./ratings.suite.ts";
import { describeRunLog } from "./run-log.suite.ts";
import { describeRunnerDirectory } from "./runner-directory.suite.ts";
import { describeSessionStore } from "./session-store.suite.ts";
import { describeTokenCache } from "./token-cache.suite.ts";
import { describeTraceLog } from "./trace-log.suite.ts";
import { describeUsageStore } from "./usage-store.suite.ts";
import { startRedisCluster, type TestRedisNodes } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it } from "vitest";

// The same facts on three masters: a script that touched two slots would fail here.
let cluster: TestRedisNodes | undefined;
const url = (): string => cluster?.url ?? "";

beforeAll(async () => {
  // None of its servers dies: one that stands still for seconds must not count as dead to the others.
  cluster = await startRedisCluster({ silenceMs: 60_000 });
});
afterAll(async () => await cluster?.stop());

describeSessionStore("Cluster", async (demands) => await makeStore(url(), demands), 30);
describeRunnerDirectory("Cluster", async () => await makeDirectory(url()));
describeRateGovernor("Cluster", async () => await makeRateGovernor(url()));
describeLookupCache("Cluster", async () => await makeLookupCache(url()));
describeTokenCache("Cluster", async () => await makeTokenCache(url()));
describeSessionFiles("Cluster", async () => await makeSessionFiles(url()));
describeMemoryStore("Cluster", async () => await makeMemoryStore(url()));
describeBudgetStore("Cluster", async () => await makeBudgetStore(url()));
describeBlobStore("Cluster", async (demands) => await makeBlobStore(url(), demands));
describeTraceLog("Cluster", async (ttlMs) => await makeTraceLog(url(), ttlMs));
describeUsageStore("Cluster", async () => await makeUsageStore(url()));
describeNameBook("Cluster", async () => await makeNameBook(url()));
describeRatingStore("Cluster", async () => await makeRatingStore(url()));
describePauses("Cluster", async () => await makePauses(url()));
describeAgentVersions("Cluster", async () => await makeAgentVersions(url()));
describeRunLog("Cluster", async (ttlMs) => await makeRunLog(url(), ttlMs));

it("Cluster: a command whose connection breaks before the answer fails, and is not sent again", async () => {
  const redis = connectRedis(url());
  try {
    const key = `test-${randomUUID()}`;
    await redis.llen(key);
    const lost = redis.rpush(key, "once");
    const asked = mastersOf(redis).filter(({ commandQueue }) => commandQueue.length > 0);
    setImmediate(() => {
      for (const { stream } of asked) stream.destroy();
    });
    await expect(lost).rejects.toThrow("may have run");
    expect(asked).toHaveLength(1);
    expect(await redis.llen(key)).toBeLessThan(2);
  } finally {
    await closeRedis(redis);
  }
});
