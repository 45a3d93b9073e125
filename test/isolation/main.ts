import { execFileSync, spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import {
  attackColumn,
  attackColumns,
  controlColumns,
  matrixOf,
  type AttackColumn,
  type ColumnOutcome,
} from "@larkline/sandbox/attack.suite";
import { playPrivacy, privacyTable, scenarios } from "./privacy.ts";
import { soak } from "./soak.ts";
import { attackWithStolenUsers } from "./stolen-users.ts";

const { values } = parseArgs({
  options: {
    /** Writes the matrix into results.md beside this file. */
    write: { type: "boolean", default: false },
    /** Columns, comma-separated. Default: all. */
    columns: { type: "string" },
    /** Attacks, comma-separated. Default: all. */
    only: { type: "string" },
    /** How often the tiers are attacked; each time everything must hold. Levels without isolation are attacked once. */
    rounds: { type: "string", default: "1" },
    /** Keeps every core busy meanwhile: what holds by being quick does not hold then. */
    busy: { type: "boolean", default: false },
    /** Attacks on the privacy of people in groups, ways of each kind; 0 for none. With 10 there are 560. */
    privacy: { type: "string", default: "10" },
    /** Runs in a row that must leave nothing behind; 0 for none. */
    soak: { type: "string", default: "3000" },
  },
});

const document = fileURLToPath(new URL("results.md", import.meta.url));
const marks = ["<!-- matrix -->", "<!-- /matrix -->"] as const;

async function writeDocument(matrix: string): Promise<void> {
  const text = await readFile(document, "utf8");
  const [before = "", rest = ""] = text.split(marks[0]);
  const [, after = ""] = rest.split(marks[1]);
  await writeFile(document, `${before}${marks[0]}\n\n${matrix}\n\n${marks[1]}${after}`);
  execFileSync(fileURLToPath(new URL("../../node_modules/.bin/oxfmt", import.meta.url)), [
    document,
  ]);
}

const names = values.columns?.split(",");
const only = values.only === undefined ? {} : { only: values.only.split(",") };
const isWanted = ({ name }: AttackColumn): boolean => names?.includes(name) ?? true;
const tiers = attackColumns().filter(isWanted);
const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stop.abort());

/** Uses up what every core has, beside what is measured. */
function keepBusy(): () => void {
  const loops = Array.from({ length: availableParallelism() }, () =>
    spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
  );
  return () => {
    for (const loop of loops) loop.kill("SIGKILL");
  };
}

/** One column after the other: what is measured is the tier, not the machine. */
async function attackAll(columns: readonly AttackColumn[]): Promise<ColumnOutcome[]> {
  const outcomes: ColumnOutcome[] = [];
  for (const column of columns) {
    const startedMs = performance.now();
    const outcome = await attackColumn(
      { ...column, order: { ...column.order, ...only } },
      stop.signal,
    );
    outcomes.push(outcome);
    console.error(`${column.name}: ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);
    if ("unavailable" in outcome) console.error(`  cannot be here: ${outcome.unavailable}`);
    else {
      for (const { id, verdict, finding, expected } of outcome.verdicts) {
        if (verdict !== "held" || !expected) console.error(`  ${id} ${verdict}: ${finding}`);
      }
    }
  }
  return outcomes;
}

/** How many attacks were made on these tiers, and how many of them were held. */
function countOf(outcomes: readonly ColumnOutcome[]): { made: number; held: number } {
  const verdicts = outcomes.flatMap((outcome) => ("verdicts" in outcome ? outcome.verdicts : []));
  return {
    made: verdicts.length,
    held: verdicts.filter(({ verdict, expected }) => verdict === "held" && expected).length,
  };
}

const controls = await attackAll(controlColumns().filter(isWanted));
const endLoad = values.busy ? keepBusy() : () => {};
const rounds = Number(values.rounds);
let outcomes: ColumnOutcome[] = [];
let gotOut = false;
for (let round = 1; round <= rounds && !stop.signal.aborted; round += 1) {
  outcomes = await attackAll(tiers);
  const { made, held } = countOf(outcomes);
  // A tier that should be here and is not was not attacked.
  const isMissing = outcomes.some((outcome) => "unavailable" in outcome && !outcome.isLimitOfTests);
  gotOut ||= held < made || isMissing;
  const beside = values.busy ? `, beside ${availableParallelism()} endless loops` : "";
  console.log(
    `round ${round} of ${rounds}: ${held} of ${made} attacks held in ${outcomes.length} tiers${beside}`,
  );
}
endLoad();
const stolen = names === undefined ? await attackWithStolenUsers() : [];
for (const { user, tried, forged } of stolen) {
  console.log(`stolen Redis user ${user}: ${forged.length} of ${tried} forgeries`);
  for (const one of forged) console.error(`  ${one}`);
}
const privacy =
  names === undefined && values.privacy !== "0"
    ? await playPrivacy(scenarios(Number(values.privacy)))
    : [];
const leaks = privacy.filter(({ through }) => through.length > 0);
for (const { number, attacker, goal, way, through } of leaks) {
  console.error(`privacy ${number}, ${attacker}, ${goal}, way ${way}: ${through.join("; ")}`);
}
if (privacy.length > 0) {
  console.log(
    `privacy: ${privacy.length - leaks.length} of ${privacy.length} scenarios held\n${privacyTable(privacy)}`,
  );
}
const matrix = matrixOf([...controls, ...outcomes]);
console.log(matrix);
if (values.write) await writeDocument(matrix);
const soakRuns = Number(values.soak);
const isFlat = stop.signal.aborted || soakRuns === 0 || (await soak(soakRuns));
process.exitCode =
  leaks.length > 0 || gotOut || !isFlat || stolen.some(({ forged }) => forged.length > 0) ? 1 : 0;
