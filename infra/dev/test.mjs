// `npm test [-- --only <part>]`: sets up, runs the checks and the tests that `test/parts.json` gives to no other part, or
// one part, and ends with "N passed, N failed". `npm run test:all [-- --only <part>]`: every part but those with a command
// of their own (`apart`), each of them longer.
// `npm run coverage [-- --only <part>] [<path>...]`: the tests alone, or those whose path contains one of these words, and
// how many lines of each package they have run in their own processes; what they start as a process is not counted.
import { spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { runCommand } from "./launcher/command.mjs";
import { Failure, Stopped } from "./launcher/failure.mjs";
import { live } from "./launcher/life.mjs";
import { dataFolder, pinnedNode, root, toolPath } from "./launcher/paths.mjs";
import {
  browserProgram,
  containerPrograms,
  installDependencies,
  installProgram,
  postgresProgram,
  offerProgram,
  redisProgram,
  rulesProgram,
  sandboxProgram,
} from "./launcher/set-up.mjs";

const resultFile = join(dataFolder("test"), "vitest.json");
/** The content of the checkout with which each check has last passed. */
const checkedFile = join(dataFolder("test"), "checks.json");
/** Which lines have run, by file. */
const coverageFolder = join(dataFolder("test"), "coverage");
/** What each file of tests cost, a line each; by `test/each-file.ts`. */
const costFile = join(dataFolder("test"), "cpu.jsonl");

const checks = [
  { title: "format", command: [toolPath("oxfmt"), "--check"] },
  { title: "lint", command: [toolPath("oxlint"), "--deny-warnings"] },
  // One program of all packages, and one of the pages of the simulator; the compiler's findings are among its own.
  {
    title: "types and promises",
    command: [
      toolPath("oxlint"),
      "--type-aware",
      "--type-check",
      "-c",
      "infra/dev/promises.oxlintrc.json",
    ],
  },
  { title: "package boundaries", command: [toolPath("turbo"), "boundaries"] },
  { title: "unused code (knip)", command: [toolPath("knip"), "--no-progress"] },
];

/** Which part each test belongs to, and what it needs of this machine. The part "tests" has all that is not named. */
const testParts = JSON.parse(readFileSync(join(root, "test", "parts.json"), "utf8"));
const parts = ["checks", ...Object.keys(testParts)];
const programs = {
  chromium: [browserProgram],
  postgres: [postgresProgram],
  ...(process.platform === "linux" ? { sandbox: [sandboxProgram] } : {}),
  containers: containerPrograms,
};

/** What vitest is given to run a part. */
function filesOf(part, isLong) {
  const { files, short, atOnce } = testParts[part];
  if (files !== undefined) {
    return atOnce === undefined ? files : [...files, `--maxWorkers=${atOnce}`];
  }
  const others = Object.values(testParts).flatMap(({ files: named = [] }) => named);
  return others
    .filter((path) => isLong || !short.includes(path))
    .flatMap((path) => ["--exclude", `${path}**`]);
}

const vitest = [toolPath("vitest"), "run", "--config", "test/vitest.config.ts"];
const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${resultFile}`];
const coverage = [
  "--coverage",
  "--coverage.provider=v8",
  "--coverage.reporter=json-summary",
  `--coverage.reportsDirectory=${coverageFolder}`,
  "--coverage.reportOnFailure",
  "--coverage.include={apps,packages}/*/src/**/*.{ts,tsx}",
  "--coverage.include=simulator/src/**/*.{ts,tsx}",
  "--coverage.exclude=**/*.{test,suite,fixture,d}.ts",
];

function environment() {
  const pinned = join(pinnedNode, "..");
  return {
    ...process.env,
    PATH: `${pinned}:${process.env.PATH}`,
    // The type checker is written in Go, whose collector is set to use memory rather than time, as far as there is some.
    GOGC: "400",
    GOMEMLIMIT: "3GiB",
    TURBO_TELEMETRY_DISABLED: "1",
    TURBO_NO_UPDATE_NOTIFIER: "1",
    DO_NOT_TRACK: "1",
  };
}

async function timed(title, run) {
  console.log(`\n== ${title}`);
  const startedMs = Date.now();
  const outcome = await run();
  sayOutcome(title, outcome, startedMs);
  return outcome;
}

function sayOutcome(title, { failed }, startedMs) {
  console.log(
    `== ${title}: ${failed === 0 ? "ok" : "FAILED"} (${((Date.now() - startedMs) / 1_000).toFixed(1)} s)`,
  );
}

/** The digest of everything that a commit of this moment would hold; undefined without Git. */
function contentDigest(folder) {
  const env = { ...process.env, GIT_INDEX_FILE: join(folder, "index") };
  const git = (...args) => spawnSync("git", args, { cwd: root, env, encoding: "utf8" });
  if (git("add", "--all").status !== 0) return undefined;
  return git("write-tree").stdout.trim() || undefined;
}

function checksThatPassed() {
  return existsSync(checkedFile) ? JSON.parse(readFileSync(checkedFile, "utf8")) : {};
}

/**
 * Checks run one after the other beside the tests; what each says is printed at its end, in one piece. Their answer
 * depends on the content of the checkout alone, so one that has passed with this content is not run again.
 */
async function runChecks(signal) {
  const folder = mkdtempSync(join(tmpdir(), "larkline-checks-"));
  try {
    const outcomes = [];
    const content = contentDigest(folder);
    for (const { title, command } of checks) {
      if (content !== undefined && checksThatPassed()[title] === content) {
        console.log(`\n== ${title}: ok (with this content before)`);
        outcomes.push({ passed: 1, failed: 0 });
        continue;
      }
      const startedMs = Date.now();
      const path = join(folder, "output");
      const file = openSync(path, "w");
      const code = await runCommand(command, { signal, env: environment(), output: file }).finally(
        () => closeSync(file),
      );
      const outcome = code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
      console.log(`\n== ${title}\n${readFileSync(path, "utf8").trimEnd()}`);
      sayOutcome(title, outcome, startedMs);
      outcomes.push(outcome);
      if (code === 0) {
        writeFileSync(checkedFile, JSON.stringify({ ...checksThatPassed(), [title]: content }));
      }
    }
    return sum(outcomes);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function countedTests() {
  if (!existsSync(resultFile)) return { passed: 0, failed: 0 };
  const { numPassedTests, numFailedTests } = JSON.parse(readFileSync(resultFile, "utf8"));
  return { passed: numPassedTests, failed: numFailedTests };
}

/** Named last, with the first words of why: the details stand far above, or are lost with the beginning of a log. */
function sayFailedTests() {
  if (!existsSync(resultFile)) return;
  for (const { name, message, assertionResults } of JSON.parse(readFileSync(resultFile, "utf8"))
    .testResults) {
    const file = relative(process.cwd(), name);
    const failed = assertionResults.filter(({ status }) => status === "failed");
    if (failed.length === 0 && message) console.log(`failed: ${file}: ${beginningOf(message)}`);
    for (const { fullName, failureMessages } of failed) {
      console.log(`failed: ${file} > ${fullName}\n  ${beginningOf(failureMessages.join("\n"))}`);
    }
  }
}

function beginningOf(message) {
  const own = message.split("\n").filter((line) => !line.includes("/node_modules/"));
  return own.slice(0, 12).join("\n  ").slice(0, 1_500);
}

/**
 * A file of `npm test` is too dear when it costs both more than this and a 25th of all files: seconds of CPU are worth
 * less on a slow or busy machine, shares are not.
 */
const dearSeconds = 15;
const dearShare = 1 / 25;

/** Says what the dearest files cost, and returns those that cost more than a file of this part may. */
function sayCosts(part, isLong) {
  if (!existsSync(costFile)) return [];
  const costs = readFileSync(costFile, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  costs.sort((one, other) => other.own + other.started - one.own - one.started);
  const whole = costs.reduce((seconds, { own, started }) => seconds + own + started, 0);
  console.log(
    `\nCPU of ${costs.length} files: ${whole.toFixed(0)} s; the dearest (own + started processes):`,
  );
  for (const { file, own, started } of costs.slice(0, 20)) {
    console.log(
      `  ${(own + started).toFixed(1).padStart(6)} s (${own.toFixed(1)} + ${started.toFixed(1)})  ${file}`,
    );
  }
  const { dear } = testParts[part];
  if (dear === undefined || isLong) return [];
  const bound = Math.max(dearSeconds, whole * dearShare);
  return costs.filter(({ file, own, started }) => own + started > bound && !(file in dear));
}

/** Prints how many lines of each package have run, the packages with the most lines that have not first. */
function sayCoverage() {
  const { total, ...files } = JSON.parse(
    readFileSync(join(coverageFolder, "coverage-summary.json"), "utf8"),
  );
  const packages = new Map([["all", total.lines]]);
  for (const [path, { lines }] of Object.entries(files)) {
    const name = relative(root, path).split("/src/")[0];
    const { covered, total: known } = packages.get(name) ?? { covered: 0, total: 0 };
    packages.set(name, { covered: covered + lines.covered, total: known + lines.total });
  }
  const counted = [...packages].map(([name, { covered, total: known }]) => ({
    name,
    covered,
    known,
  }));
  counted.sort((one, other) => other.known - other.covered - (one.known - one.covered));
  console.log("\nlines that the tests have run in their own processes:");
  for (const { name, covered, known } of counted.filter((each) => each.known > 0)) {
    const share = ((100 * covered) / known).toFixed(1);
    console.log(`  ${share.padStart(5)} %  ${`${covered} of ${known}`.padEnd(16)}  ${name}`);
  }
}

/** A run that broke without a failed test (a file that does not load, a crash, no test) is one failure. */
async function runTests(part, { isLong, signal, isCoverage, paths }) {
  rmSync(resultFile, { force: true });
  rmSync(costFile, { force: true });
  const env = {
    ...environment(),
    LARKLINE_CPU_FILE: costFile,
    ...(isLong ? { LARKLINE_LONG_TESTS: "1" } : {}),
  };
  const extra = isCoverage ? [...coverage, ...paths] : [];
  const code = await runCommand([...vitest, ...filesOf(part, isLong), ...reporters, ...extra], {
    signal,
    env,
    output: "inherit",
  });
  const counted = countedTests();
  const tooDear = isCoverage ? [] : sayCosts(part, isLong);
  sayFailedTests();
  if (isCoverage && existsSync(coverageFolder)) sayCoverage();
  for (const { file } of tooDear) console.log(`failed: ${file}: too much CPU, see test/parts.json`);
  const broken = (code !== 0 || counted.passed === 0) && counted.failed === 0;
  return { ...counted, failed: counted.failed + tooDear.length + (broken ? 1 : 0) };
}

async function setUp(wanted, life) {
  await installDependencies(life);
  const needs = new Set(wanted.flatMap((part) => testParts[part]?.needs ?? []));
  if (wanted.some((part) => part in testParts)) await installProgram(redisProgram, life);
  for (const [name, each] of Object.entries(programs)) {
    if (!needs.has(name)) continue;
    for (const program of each) await installProgram(program, life);
  }
  if (needs.has("rules")) await offerProgram(rulesProgram, life);
  return { passed: 0, failed: 0 };
}

function sum(outcomes) {
  return {
    passed: outcomes.reduce((count, { passed }) => count + passed, 0),
    failed: outcomes.reduce((count, { failed }) => count + failed, 0),
  };
}

/** The parts that the command line asks for, and whether tests that have a long form run that. */
function wantedParts(args) {
  const flag = { type: "boolean", default: false };
  const options = { all: flag, coverage: flag, only: { type: "string" } };
  const { values, positionals: paths } = parseArgs({ args, options, allowPositionals: true });
  const { all, coverage: isCoverage, only } = values;
  if (paths.length > 0 && !isCoverage) throw new Failure("paths are for --coverage");
  const usual = isCoverage ? ["tests"] : ["checks", "tests"];
  const together = parts.filter((part) => testParts[part]?.apart !== true);
  const wanted = only?.split(",") ?? (all ? together : usual);
  const isKnown = wanted.every((part) => parts.includes(part));
  if (!isKnown) throw new Failure(`--only takes ${parts.join(", ")}; several are joined by commas`);
  return {
    wanted,
    isLong: (part) => all || testParts[part].files !== undefined,
    isCoverage,
    paths,
  };
}

/** Tests wait for deadlines and processes some of their time, so the checks run beside the first of them. */
async function runAll(life) {
  const { wanted, isLong, isCoverage, paths } = wantedParts(process.argv.slice(2));
  const outcomes = [await timed("set-up", () => setUp(wanted, life))];
  const checked = wanted.includes("checks") ? runChecks(life.signal) : { passed: 0, failed: 0 };
  const testAll = async () => {
    for (const part of wanted.filter((name) => name in testParts)) {
      const options = { isLong: isLong(part), signal: life.signal, isCoverage, paths };
      outcomes.push(await timed(part, () => runTests(part, options)));
    }
  };
  const [ofChecks] = await Promise.all([checked, testAll()]);
  return sum([...outcomes, ofChecks]);
}

async function reported(life) {
  try {
    return await runAll(life);
  } catch (error) {
    if (error instanceof Stopped) throw error;
    life.say(error instanceof Failure ? error.message : String(error));
    return { passed: 0, failed: 1 };
  }
}

await live(
  async (life) => {
    const { passed, failed } = await reported(life);
    console.log(`\n${passed} passed, ${failed} failed`);
    return failed === 0 && passed > 0 ? 0 : 1;
  },
  { stoppedCode: 130 },
);
