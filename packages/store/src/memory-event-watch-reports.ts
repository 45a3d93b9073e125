import type { EventWatchReport, EventWatchReports } from "./event-watch-report.ts";

/** Reports of one process. */
export function createMemoryEventWatchReports(): EventWatchReports {
  const reports = new Map<string, EventWatchReport>();
  return {
    save: async (report) => {
      reports.set(report.app, structuredClone(report));
    },
    of: async (app) => structuredClone(reports.get(app)),
  };
}
