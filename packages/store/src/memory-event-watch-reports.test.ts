import { describeEventWatchReports } from "./event-watch-reports.suite.ts";
import { createMemoryEventWatchReports } from "./memory-event-watch-reports.ts";

describeEventWatchReports("memory", async () => {
  const reports = createMemoryEventWatchReports();
  return { reports, elsewhere: reports, close: async () => undefined };
});
