import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { EventWatchReport, EventWatchReports } from "./event-watch-reports.ts";

export interface EventWatchReportsHarness {
  reports: EventWatchReports;
  /** The same reports as another process sees them. */
  elsewhere: EventWatchReports;
  close(): Promise<void>;
}

const report: EventWatchReport = {
  app: "cli_1",
  checkedAtMs: 1_700_000_000_000,
  compared: 3,
  missed: [{ messageId: "om_1", chatId: "oc_1", createdAtMs: 1_699_999_999_000 }],
};

/** What every EventWatchReports promises. Call it at the top level of a test file. */
export function describeEventWatchReports(
  name: string,
  makeHarness: () => Promise<EventWatchReportsHarness>,
): void {
  describe(`${name}: event watch reports`, () => {
    let harness: EventWatchReportsHarness;

    beforeEach(async () => {
      harness = await makeHarness();
    });
    afterEach(() => harness.close());

    it("shows everybody the newest report of an app", async () => {
      const { reports, elsewhere } = harness;
      expect(await elsewhere.of("cli_1")).toBeUndefined();
      await reports.save(report);
      expect(await elsewhere.of("cli_1")).toEqual(report);
      const newer = {
        ...report,
        checkedAtMs: report.checkedAtMs + 1,
        missed: [],
        problem: "forbidden 230027",
      };
      await elsewhere.save(newer);
      expect(await reports.of("cli_1")).toEqual(newer);
      expect(await reports.of("cli_2")).toBeUndefined();
    });
  });
}
