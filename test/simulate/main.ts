import { parseArgs } from "node:util";
import { startRedis } from "@larkline/testkit";
import { createRandom, type SeededRandom } from "../chaos/random.ts";
import { putBugIn } from "./bug.ts";
import { followConnections } from "./connections.ts";
import { runThreadsInside } from "./threads.ts";
import { ownTimeAndChance, realMs } from "./time.ts";

// `npm run simulate -- --seed N [--seeds M] [--stop] [--bug ID] [--verbose] [--trace]`: the whole product in this process, under a
// clock of its own, with the faults of the seed. What breaks a promise is printed with the seed; the exit code is the
// number of such seeds, 100 at most; 101: it was stopped. `--stop` ends with the first one. `--bug` puts back a bug of test/mutants, which is
// to be found. `--trace` prints every piece of traffic: where two runs of a seed part, it shows the first difference.

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    seeds: { type: "string" },
    verbose: { type: "boolean" },
    stop: { type: "boolean" },
    bug: { type: "string" },
    trace: { type: "boolean" },
  },
});
const first = Number(values.seed ?? 1);
let count = Number(values.seeds ?? 1);

if (values.bug !== undefined) putBugIn(values.bug);
// Redis answers in real time, so it starts before the time is ours. The product is loaded after that.
const redis = await startRedis();
process.once("exit", () => redis.process.kill("SIGKILL"));
for (const name of ["SIGHUP", "SIGINT", "SIGTERM"] as const) {
  process.once(name, () => process.exit(101));
}
let random: SeededRandom = createRandom(first);
ownTimeAndChance(() => random);
runThreadsInside();
followConnections();
const { RedisClock } = await import("./redis-time.ts");
const { simulate } = await import("./simulation.ts");

const clock = new RedisClock(redis.port);
// A run before the first one loads what is loaded when it is needed first: a seed is the same alone and after others.
await simulate(0, clock, redis.port);
const startedMs = realMs();
let failed = 0;
for (let seed = first; seed < first + count; seed += 1) {
  random = createRandom(seed + 0x9e3779b9);
  const { broken, faults, history, log, simulatedMs, trace } = await simulate(
    seed,
    clock,
    redis.port,
  );
  if (broken.length > 0) failed += 1;
  if (broken.length > 0 && values.stop === true) count = seed - first + 1;
  if (values.trace === true) console.log([`trace of seed ${seed}`, ...trace].join("\n"));
  if (broken.length > 0 || values.verbose === true) {
    console.log(`seed ${seed}: ${broken.length === 0 ? "well" : "BROKEN"}`);
    for (const line of [
      ...broken.map((each) => `! ${each}`),
      "faults:",
      ...faults.map((each) => `  ${each}`),
      ...history,
    ]) {
      console.log(`  ${line}`);
    }
    console.log(`  ${(simulatedMs / 1_000).toFixed(1)} s simulated, ${trace.length} steps`);
    const shown =
      values.verbose === true
        ? log
        : log.filter((line) => !line.includes('"level":"info"')).slice(-40);
    for (const line of shown) console.log(`  ${line.slice(0, 600)}`);
  }
}
const cpu = process.cpuUsage();
const cpuS = ((cpu.user + cpu.system) / 1e6).toFixed(1);
console.log(
  `${count} seeds, ${failed} broken; ${((realMs() - startedMs) / 1_000).toFixed(1)} s, ${cpuS} s of CPU`,
);
clock.close();
process.exit(Math.min(failed, 100));
