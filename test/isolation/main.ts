import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import {
  attackColumn,
  attackColumns,
  controlColumns,
  matrixOf,
  type ColumnOutcome,
} from "@larkline/sandbox/attack.suite";
import { soak } from "./soak.ts";
import { attackWithStolenUsers } from "./stolen-users.ts";

const { values } = parseArgs({
  options: {
    /** Writes the matrix into docs/isolation.md. */
    write: { type: "boolean", default: false },
    /** Columns, comma-separated. Default: all. */
    columns: { type: "string" },
    /** Attacks, comma-separated. Default: all. */
    only: { type: "string" },
    /** Runs in a row that must leave nothing behind; 0 for none. */
    soak: { type: "string", default: "3000" },
  },
});

const document = fileURLToPath(new URL("../../docs/isolation.md", import.meta.url));
const marks = ["<!-- matrix -->", "<!-- /matrix -->"] as const;

async function writeDocument(matrix: string): Promise<void> {
  const text = await readFile(document, "utf8");
  const [before = "", rest = ""] = text.split(marks[0]);
  const [, after = ""] = rest.split(marks[1]);
  await writeFile(document, `${before}${marks[0]}\n\n${matrix}\n\n${marks[1]}${after}`);
  execFileSync(fileURLToPath(new URL("../../node_modules/.bin/oxfmt", import.meta.url)), [document]);
}

const names = values.columns?.split(",");
const only = values.only === undefined ? {} : { only: values.only.split(",") };
const columns = [...controlColumns(), ...attackColumns()].filter(({ name }) => names?.includes(name) ?? true);
const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stop.abort());

// One after the other: what is measured is the tier, not the machine.
const outcomes: ColumnOutcome[] = [];
for (const column of columns) {
  const startedMs = performance.now();
  const outcome = await attackColumn({ ...column, order: { ...column.order, ...only } }, stop.signal);
  outcomes.push(outcome);
  console.error(`${column.name}: ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);
  if ("unavailable" in outcome) console.error(`  cannot be here: ${outcome.unavailable}`);
  else {
    for (const { id, verdict, finding, expected } of outcome.verdicts) {
      if (verdict !== "held" || !expected) console.error(`  ${id} ${verdict}: ${finding}`);
    }
  }
}
const stolen = names === undefined ? await attackWithStolenUsers() : [];
for (const { user, tried, forged } of stolen) {
  console.log(`stolen Redis user ${user}: ${forged.length} of ${tried} forgeries`);
  for (const one of forged) console.error(`  ${one}`);
}
const matrix = matrixOf(outcomes);
console.log(matrix);
if (values.write) await writeDocument(matrix);
const controls = new Set(controlColumns().map(({ name }) => name));
const gotOut = outcomes.some(
  (outcome) =>
    !controls.has(outcome.name) &&
    "verdicts" in outcome &&
    outcome.verdicts.some(({ verdict, expected }) => verdict !== "held" || !expected),
);
const soakRuns = Number(values.soak);
const isFlat = stop.signal.aborted || soakRuns === 0 || (await soak(soakRuns));
process.exitCode = gotOut || !isFlat || stolen.some(({ forged }) => forged.length > 0) ? 1 : 0;
