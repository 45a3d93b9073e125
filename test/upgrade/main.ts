// `npm run upgrade-test -- <commit>`: processes of that version beside ones of this version, under load.
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { checkOut, previousVersion } from "./previous-version.ts";
import { runTwoVersions } from "./two-versions.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: "string", default: "30" }, chats: { type: "string", default: "8" } },
});
const [ref = previousVersion] = positionals;
const previous = await checkOut(ref, await mkdtemp(join(tmpdir(), "larkline-upgrade-")));
if (previous === undefined) throw new Error(`${ref} is not in the history here, or its dependencies are not installed`);
const besideMs = Number(values.seconds) * 1_000;
const report = await runTwoVersions({ previous, chats: Number(values.chats), besideMs, patienceMs: 120_000 }).finally(
  previous.remove,
);
console.log(report);
const { lost, duplicated, misordered, failed, onceRepeated, complaints } = report;
process.exit(lost + duplicated + misordered + failed + onceRepeated + complaints.length === 0 ? 0 : 1);
