// `npm test`: sets up, runs every check and every test, and ends with "N passed, N failed".
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
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
  // Needs the types of everything, so it has its own settings and takes a minute.
  { title: "promises", command: [toolPath("oxlint"), "--type-aware", "-c", "infra/dev/promises.oxlintrc.json"] },
  // One program for all packages: a fresh clone has no cache, and one for each takes ten times as long.
  { title: "typecheck", command: [toolPath("tsc"), "--noEmit", "-p", "infra/tsconfig.everything.json"] },
  { title: "typecheck of pages", command: [toolPath("tsc"), "--noEmit", "-p", "simulator/src/playground/page"] },
  { title: "package boundaries", command: [toolPath("turbo"), "boundaries"] },
  { title: "unused code (knip)", command: [toolPath("knip"), "--no-progress"] },
];

const vitest = [toolPath("vitest"), "run", "--config", "test/vitest.config.ts"];
const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${resultFile}`];

function environment() {
  const pinned = join(pinnedNode, "..");
  return {
    ...process.env,
    PATH: `${pinned}:${process.env.PATH}`,
    TURBO_TELEMETRY_DISABLED: "1",
    TURBO_NO_UPDATE_NOTIFIER: "1",
    DO_NOT_TRACK: "1",
  };
}

async function timed(title, run) {
  console.log(`\n== ${title}`);
  const startedMs = Date.now();
  const outcome = await run();
  console.log(
    `== ${title}: ${outcome.failed === 0 ? "ok" : "FAILED"} (${((Date.now() - startedMs) / 1_000).toFixed(1)} s)`,
  );
  return outcome;
}

async function runCheck({ command }, signal) {
  const code = await runCommand(command, { signal, env: environment(), output: "inherit" });
  return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

function countedTests() {
  if (!existsSync(resultFile)) return { passed: 0, failed: 0 };
  const { numPassedTests, numFailedTests } = JSON.parse(readFileSync(resultFile, "utf8"));
  return { passed: numPassedTests, failed: numFailedTests };
}

/** A run that broke without a failed test (a file that does not load, a crash, no test) is one failure. */
async function runTests(signal) {
  rmSync(resultFile, { force: true });
  const code = await runCommand([...vitest, ...reporters], { signal, env: environment(), output: "inherit" });
  const counted = countedTests();
  const broken = (code !== 0 || counted.passed === 0) && counted.failed === 0;
  return broken ? { ...counted, failed: 1 } : counted;
}

async function setUp(life) {
  await installDependencies(life);
  await installProgram(redisProgram, life);
  await installProgram(browserProgram, life);
  await installProgram(postgresProgram, life);
  if (process.platform === "linux") await installProgram(sandboxProgram, life);
  await offerProgram(rulesProgram, life);
  return { passed: 0, failed: 0 };
}

async function runAll(life) {
  const steps = [
    ...checks.map((check) => ({ title: check.title, run: () => runCheck(check, life.signal) })),
    { title: "tests", run: () => runTests(life.signal) },
  ];
  const outcomes = [await timed("set-up", () => setUp(life))];
  for (const { title, run } of steps) outcomes.push(await timed(title, run));
  return {
    passed: outcomes.reduce((sum, outcome) => sum + outcome.passed, 0),
    failed: outcomes.reduce((sum, outcome) => sum + outcome.failed, 0),
  };
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
