// `npm test [-- --only checks|tests|launcher|long]`: sets up, runs every check and every test, or one part of them,
// and ends with "N passed, N failed".
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { runCommand } from "./launcher/command.mjs";
import { Failure, Stopped } from "./launcher/failure.mjs";
import { live } from "./launcher/life.mjs";
import { dataFolder, pinnedNode, toolPath } from "./launcher/paths.mjs";
import {
  browserProgram,
  installDependencies,
  installProgram,
  postgresProgram,
  offerProgram,
  redisProgram,
  rulesProgram,
  sandboxProgram,
} from "./launcher/set-up.mjs";

const resultFile = join(dataFolder("test"), "vitest.json");

const checks = [
  { title: "format", command: [toolPath("oxfmt"), "--check"] },
  { title: "lint", command: [toolPath("oxlint"), "--deny-warnings"] },
  // One program of all packages, and one of the pages of the simulator; the compiler's findings are among its own.
  {
    title: "types and promises",
    command: [toolPath("oxlint"), "--type-aware", "--type-check", "-c", "infra/dev/promises.oxlintrc.json"],
  },
  { title: "package boundaries", command: [toolPath("turbo"), "boundaries"] },
  { title: "unused code (knip)", command: [toolPath("knip"), "--no-progress"] },
];

const launcher = ["test/launcher/"];
/** Those that stop, freeze and attack for minutes: as their own part longer, with every attack. */
const long = ["test/chaos/", "test/upgrade/", "test/e2e/rolling-restart", "test/e2e/redis-nodes", "packages/sandbox/"];
const excluded = [...launcher, ...long].flatMap((path) => ["--exclude", `${path}**`]);

/** What vitest is given for each part that has tests. */
const testsOf = { all: [], tests: excluded, launcher, long };
const parts = ["checks", ...Object.keys(testsOf)];

const vitest = [toolPath("vitest"), "run", "--config", "test/vitest.config.ts"];
const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${resultFile}`];

function environment() {
  const pinned = join(pinnedNode, "..");
  return {
    ...process.env,
    PATH: `${pinned}:${process.env.PATH}`,
    // The type checker is written in Go, whose collector is set to use memory rather than time.
    GOGC: "400",
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
  console.log(`== ${title}: ${failed === 0 ? "ok" : "FAILED"} (${((Date.now() - startedMs) / 1_000).toFixed(1)} s)`);
}

/** Checks run one after the other beside the tests; what each says is printed at its end, in one piece. */
async function runChecks(signal) {
  const folder = mkdtempSync(join(tmpdir(), "larkline-checks-"));
  try {
    const outcomes = [];
    for (const { title, command } of checks) {
      const startedMs = Date.now();
      const path = join(folder, "output");
      const file = openSync(path, "w");
      const code = await runCommand(command, { signal, env: environment(), output: file }).finally(() =>
        closeSync(file),
      );
      const outcome = code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
      console.log(`\n== ${title}\n${readFileSync(path, "utf8").trimEnd()}`);
      sayOutcome(title, outcome, startedMs);
      outcomes.push(outcome);
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
  for (const { name, message, assertionResults } of JSON.parse(readFileSync(resultFile, "utf8")).testResults) {
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

/** A run that broke without a failed test (a file that does not load, a crash, no test) is one failure. */
async function runTests(part, signal) {
  rmSync(resultFile, { force: true });
  const env = { ...environment(), ...(part === "long" ? { LARKLINE_LONG_TESTS: "1" } : {}) };
  const code = await runCommand([...vitest, ...testsOf[part], ...reporters], { signal, env, output: "inherit" });
  const counted = countedTests();
  sayFailedTests();
  const broken = (code !== 0 || counted.passed === 0) && counted.failed === 0;
  return broken ? { ...counted, failed: 1 } : counted;
}

async function setUp(part, life) {
  await installDependencies(life);
  if (part === "checks") return { passed: 0, failed: 0 };
  await installProgram(redisProgram, life);
  await installProgram(browserProgram, life);
  await installProgram(postgresProgram, life);
  if (process.platform === "linux") await installProgram(sandboxProgram, life);
  await offerProgram(rulesProgram, life);
  return { passed: 0, failed: 0 };
}

function sum(outcomes) {
  return {
    passed: outcomes.reduce((count, { passed }) => count + passed, 0),
    failed: outcomes.reduce((count, { failed }) => count + failed, 0),
  };
}

function partOf(args) {
  const { only = "all" } = parseArgs({ args, options: { only: { type: "string" } } }).values;
  if (!parts.includes(only)) throw new Failure(`usage: npm test [-- --only ${parts.join("|")}]`);
  return only;
}

/** Tests wait for deadlines and processes much of their time, so checks run beside them. */
async function runAll(life) {
  const part = partOf(process.argv.slice(2));
  const outcomes = [await timed("set-up", () => setUp(part, life))];
  const running = [];
  if (part === "all" || part === "checks") running.push(runChecks(life.signal));
  if (part in testsOf) running.push(timed("tests", () => runTests(part, life.signal)));
  return sum([...outcomes, ...(await Promise.all(running))]);
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
