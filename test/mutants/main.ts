// `npm run mutants [-- --only <id,...>] [--list]`: puts bugs into a copy of this checkout, one at a time, and runs the
// tests that have to find each. Ends with how many were found; one that was not found shows a missing test.
import { spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { mutants, withMutant, type Mutant } from "./table.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A bug may make tests wait for what never comes. */
const patience = [
  "--testTimeout=40000",
  "--hookTimeout=40000",
  "--expect.poll.timeout=15000",
  "--bail=1",
];
const longestRunMs = 300_000;
/** Besides three times what the tests take without the bug: what waits for {@link patience} may do so once. */
const patienceWithBugMs = 60_000;

/**
 * `BROKEN`: nothing was tested, because a file does not load, the tests fail without the bug as well, or no deadline of
 * theirs ends them.
 */
type Result = "killed" | "SURVIVED" | "BROKEN";

const stopping = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stopping.abort());

const options = { only: { type: "string" }, list: { type: "boolean", default: false } } as const;
const { only, list } = parseArgs({ options }).values;
const chosen = chosenOf(only?.split(","));
if (list) for (const { id, file, why } of chosen) console.log(`${id}  (${file})\n  ${why}`);
else process.exitCode = await runAll(chosen);

function chosenOf(ids: readonly string[] | undefined): readonly Mutant[] {
  const unknown = ids?.filter((id) => !mutants.some((mutant) => mutant.id === id)) ?? [];
  if (unknown.length > 0) throw new Error(`no mutant is called ${unknown.join(", ")}: see --list`);
  return mutants.filter(({ id }) => ids?.includes(id) ?? true);
}

/** Resolves to the exit code. */
async function runAll(all: readonly Mutant[]): Promise<number> {
  const copy = copyOfCheckout();
  try {
    const soundSeconds = new Map<string, number | undefined>();
    const counts: Record<Result, number> = { killed: 0, SURVIVED: 0, BROKEN: 0 };
    for (const mutant of all) {
      if (stopping.signal.aborted) break;
      const { result, seconds, by } = await runMutant(copy, mutant, soundSeconds);
      if (stopping.signal.aborted) break;
      counts[result] += 1;
      console.log(
        `${result.padEnd(8)} ${mutant.id} (${seconds.toFixed(0)} s)${by === "" ? "" : `: ${by}`}`,
      );
      if (result !== "killed") console.log(`  ${mutant.file}: ${mutant.why}`);
    }
    console.log(
      `\n${counts.killed} killed, ${counts.SURVIVED} survived, ${counts.BROKEN} broken, of ${all.length}`,
    );
    return counts.killed === all.length ? 0 : 1;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

/** The files that Git knows or would add; what is installed is linked. */
function copyOfCheckout(): string {
  const copy = mkdtempSync(join(tmpdir(), "larkline-mutants-"));
  const listed = execFileSync(
    "git",
    ["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    { cwd: root },
  );
  for (const path of listed.toString().split("\0")) {
    if (path === "" || !existsSync(join(root, path))) continue;
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    cpSync(join(root, path), join(copy, path), { verbatimSymlinks: true });
    const installed = join(dirname(path), "node_modules");
    if (!path.endsWith("package.json") || !existsSync(join(root, installed))) continue;
    // A workspace has links alone, to packages beside it and to what the root has.
    if (installed === "node_modules") symlinkSync(join(root, installed), join(copy, installed));
    else {
      cpSync(join(root, installed), join(copy, installed), {
        recursive: true,
        verbatimSymlinks: true,
      });
    }
  }
  return copy;
}

interface Run {
  result: Result;
  seconds: number;
  /** The first test that failed. */
  by: string;
}

/** `soundSeconds`: how long tests took without any bug, by their paths; undefined for those that fail so, too. */
async function runMutant(
  copy: string,
  mutant: Mutant,
  soundSeconds: Map<string, number | undefined>,
): Promise<Run> {
  const key = mutant.tests.join(" ");
  if (!soundSeconds.has(key)) {
    const { result, seconds, by } = await runTests(copy, mutant.tests, longestRunMs);
    soundSeconds.set(key, result === "SURVIVED" ? seconds : undefined);
    if (result !== "SURVIVED") console.log(`without any bug: ${by === "" ? result : by} (${key})`);
  }
  const usual = soundSeconds.get(key);
  if (usual === undefined) return { result: "BROKEN", seconds: 0, by: "its tests fail without it" };
  const file = join(copy, mutant.file);
  const sound = readFileSync(file, "utf8");
  writeFileSync(file, withMutant(sound, mutant));
  try {
    return await runTests(copy, mutant.tests, Math.round(patienceWithBugMs + 3_000 * usual));
  } finally {
    writeFileSync(file, sound);
  }
}

interface Report {
  numFailedTests: number;
  testResults: { assertionResults: { status: string; fullName: string }[] }[];
}

/** Tests have deadlines of their own, so a run that does not end within `longestMs` has found nothing. */
async function runTests(copy: string, tests: readonly string[], longestMs: number): Promise<Run> {
  const report = join(copy, "mutants.json");
  rmSync(report, { force: true });
  const command = [
    "run",
    "--config",
    "test/vitest.config.ts",
    ...patience,
    "--reporter=json",
    `--outputFile=${report}`,
  ];
  const startedMs = performance.now();
  const code = await exitOf(join(root, "node_modules/.bin/vitest"), [...command, ...tests], {
    cwd: copy,
    longestMs,
  });
  const seconds = (performance.now() - startedMs) / 1_000;
  if (code === "endless") {
    return { result: "BROKEN", seconds, by: "no test of it fails, and they do not end" };
  }
  const { numFailedTests = 0, testResults = [] } = existsSync(report)
    ? (JSON.parse(readFileSync(report, "utf8")) as Partial<Report>)
    : {};
  const failed = testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .find(({ status }) => status === "failed");
  const result = numFailedTests > 0 ? "killed" : code === 0 ? "SURVIVED" : "BROKEN";
  return { result, seconds, by: failed?.fullName ?? "" };
}

/** Ends the run and all that it has started; "endless" where it had to be ended. */
async function exitOf(
  program: string,
  args: string[],
  { cwd, longestMs }: { cwd: string; longestMs: number },
): Promise<number | null | "endless"> {
  const child = spawn(program, args, { cwd, stdio: "ignore", detached: true });
  const deadline = AbortSignal.timeout(longestMs);
  const endAll = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
  };
  for (const signal of [stopping.signal, deadline]) {
    signal.addEventListener("abort", endAll, { once: true });
  }
  const code = await new Promise<number | null>((resolve) => {
    child.once("error", () => resolve(null));
    child.once("exit", resolve);
  });
  stopping.signal.removeEventListener("abort", endAll);
  return deadline.aborted ? "endless" : code;
}
