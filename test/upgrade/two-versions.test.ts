import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { checkOut, previousVersion } from "./previous-version.ts";
import { runTwoVersions } from "./two-versions.ts";

const folder = await mkdtemp(join(tmpdir(), "larkline-upgrade-"));
const previous = await checkOut(previousVersion, folder);
afterAll(async () => await rm(folder, { recursive: true, force: true }));

// Where the history is shallow or there is no network, the recorded formats of stored-formats.test.ts are what is proved.
it.skipIf(previous === undefined)(
  "processes of this version that take over from killed ones of the previous version lose, repeat and reorder nothing, nor do they complain",
  async () => {
    if (previous === undefined) throw new Error("unreachable: the test is skipped");
    const report = await runTwoVersions({ previous, chats: 3, eachMs: 4_000, patienceMs: 60_000 });
    console.log(report);
    const none = {
      lost: 0,
      duplicated: 0,
      misordered: 0,
      failed: 0,
      onceRepeated: 0,
      complaints: [],
    };
    expect(report).toMatchObject(none);
    expect(
      Math.min(report.approved, report.takenUpBy.previous, report.takenUpBy.current),
    ).toBeGreaterThan(0);
  },
);
