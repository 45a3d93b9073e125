import { describeBlobStore } from "./blob-store.suite.ts";
import { describeBudgetStore } from "./budget-store.suite.ts";
import { describeEventWatchReports } from "./event-watch-reports.suite.ts";
import {
  makeBlobStore,
  makeBudgetStore,
  makeDirectory,
  makeEventWatchReports,
  makeInstanceDirectory,
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
import { describeInstanceDirectory } from "./instance-directory.suite.ts";
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
import { inject } from "vitest";

const url = (): string => inject("redisUrl");

describeSessionStore("Redis", async (demands) => await makeStore(url(), demands));
describeRunnerDirectory("Redis", async () => await makeDirectory(url()));
describeRateGovernor("Redis", async () => await makeRateGovernor(url()));
describeLookupCache("Redis", async () => await makeLookupCache(url()));
describeTokenCache("Redis", async () => await makeTokenCache(url()));
describeSessionFiles("Redis", async () => await makeSessionFiles(url()));
describeMemoryStore("Redis", async () => await makeMemoryStore(url()));
describeBudgetStore("Redis", async () => await makeBudgetStore(url()));
describeBlobStore("Redis", async (demands) => await makeBlobStore(url(), demands));
describeTraceLog("Redis", async (ttlMs) => await makeTraceLog(url(), ttlMs));
describeUsageStore("Redis", async () => await makeUsageStore(url()));
describeNameBook("Redis", async () => await makeNameBook(url()));
describeRatingStore("Redis", async () => await makeRatingStore(url()));
describePauses("Redis", async () => await makePauses(url()));
describeAgentVersions("Redis", async () => await makeAgentVersions(url()));
describeRunLog("Redis", async (ttlMs) => await makeRunLog(url(), ttlMs));
describeInstanceDirectory("Redis", async () => await makeInstanceDirectory(url()));
describeEventWatchReports("Redis", async () => await makeEventWatchReports(url()));
