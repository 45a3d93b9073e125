import { describeBlobStore } from "@larkline/session/blob-store.suite";
import { describeBudgetStore } from "@larkline/session/budget-store.suite";
import { describeEventWatchReports } from "@larkline/session/event-watch-reports.suite";
import { describeInstanceDirectory } from "@larkline/session/instance-directory.suite";
import { describeLookupCache } from "@larkline/session/lookup-cache.suite";
import { describeRateGovernor } from "@larkline/session/rate-governor.suite";
import { describeRunnerDirectory } from "@larkline/session/runner-directory.suite";
import { describeSessionStore } from "@larkline/session/session-store.suite";
import { describeTokenCache } from "@larkline/session/token-cache.suite";
import { describeTraceLog } from "@larkline/session/trace-log.suite";
import { inject } from "vitest";
import {
  makeBlobStore,
  makeBudgetStore,
  makeDirectory,
  makeEventWatchReports,
  makeInstanceDirectory,
  makeLookupCache,
  makeRateGovernor,
  makeStore,
  makeTokenCache,
  makeTraceLog,
} from "./harness.fixture.ts";

const url = (): string => inject("redisUrl");

describeSessionStore("Redis", async (demands) => await makeStore(url(), demands));
describeRunnerDirectory("Redis", async () => await makeDirectory(url()));
describeRateGovernor("Redis", async () => await makeRateGovernor(url()));
describeLookupCache("Redis", async () => await makeLookupCache(url()));
describeTokenCache("Redis", async () => await makeTokenCache(url()));
describeBudgetStore("Redis", async () => await makeBudgetStore(url()));
describeBlobStore("Redis", async (demands) => await makeBlobStore(url(), demands));
describeTraceLog("Redis", async (ttlMs) => await makeTraceLog(url(), ttlMs));
describeInstanceDirectory("Redis", async () => await makeInstanceDirectory(url()));
describeEventWatchReports("Redis", async () => await makeEventWatchReports(url()));
