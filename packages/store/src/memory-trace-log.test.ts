import { createMemoryTraceLog } from "./memory-trace-log.ts";
import { describeTraceLog } from "./trace-log.suite.ts";

describeTraceLog("memory", async (ttlMs) => {
  let skippedMs = 0;
  const log = createMemoryTraceLog({ ttlMs, now: () => Date.now() + skippedMs });
  return {
    log,
    elsewhere: log,
    expire: async () => void (skippedMs += ttlMs),
    close: async () => undefined,
  };
});
