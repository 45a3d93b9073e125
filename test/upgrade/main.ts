// `npm run upgrade-test -- <commit>`: processes of that version, and then ones of this version, under load.
// With `--record` it keeps what that version stores as stored.json.
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { checkOut, previousVersion, type CheckedOut } from "./previous-version.ts";
import { recordStored } from "./record.ts";
import { runTwoVersions } from "./two-versions.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    record: { type: "boolean", default: false },
    seconds: { type: "string", default: "30" },
    chats: { type: "string", default: "8" },
  },
});

/** Resolves to how much of what happened must not. */
async function thenThisOne(previous: CheckedOut): Promise<number> {
  const eachMs = Number(values.seconds) * 500;
  const report = await runTwoVersions({
    previous,
    chats: Number(values.chats),
    eachMs,
    patienceMs: 120_000,
  });
  console.log(report);
  const { lost, duplicated, misordered, failed, onceRepeated, complaints } = report;
  return lost + duplicated + misordered + failed + onceRepeated + complaints.length;
}

async function run(): Promise<number> {
  const [version = previousVersion] = positionals;
  const previous = await checkOut(version, await mkdtemp(join(tmpdir(), "larkline-upgrade-")));
  if (previous === undefined) throw new Error(`${version} or what it depends on cannot be had`);
  try {
    if (!values.record) return await thenThisOne(previous);
    console.log(`${await recordStored(previous, version)} keys of ${version}`);
    return 0;
  } finally {
    await previous.remove();
  }
}

process.exit((await run()) === 0 ? 0 : 1);
