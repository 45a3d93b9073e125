import { parseArgs } from "node:util";
import { runApprovalChaos } from "./approvals.ts";
import { runBusy } from "./busy.ts";
import { runCallChaos } from "./calls.ts";
import { runChaos } from "./chaos.ts";
import { disasterNames, type DisasterName } from "./disasters.ts";
import { printFailovers } from "./failover-table.ts";
import { recoveryTable } from "./recovery.ts";
import { runTogetherChaos, togetherTable } from "./together.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: String(Date.now() % 100_000) },
    /** `everything`, `together`, `calls`, `approvals`, `failover` or `busy`. */
    part: { type: "string", default: "everything" },
    chats: { type: "string", default: "30" },
    /** Groups in which others write while one person's call waits for a decision. */
    groups: { type: "string", default: "3" },
    /** Disasters of `everything`, with commas; default: all, every second one a kill. */
    plan: { type: "string", default: "" },
    /** A folder for what the processes say, for those who look for a cause. */
    logs: { type: "string" },
    /** Of `together`: only helpers work, and so many workers are killed. */
    kills: { type: "string" },
    /** Of `busy`: messages, loops beside the product, and whether Redis is away for a second. */
    messages: { type: "string", default: "2000" },
    loops: { type: "string", default: "6" },
    "redis-away": { type: "boolean", default: false },
    /** How long people write. */
    seconds: { type: "string", default: "300" },
    workers: { type: "string", default: "3" },
    runners: { type: "string", default: "2" },
    ingresses: { type: "string", default: "2" },
    calls: { type: "string", default: "20000" },
    batches: { type: "string", default: "10" },
    /** Masters that die in each case of `failover`. */
    rounds: { type: "string", default: "5" },
  },
});
const seed = Number(values.seed);
const chats = Number(values.chats);
const patienceMs = 120_000;

/** Every second one is a kill. */
const kills = disasterNames.filter((name) => name.startsWith("kill"));
const others = disasterNames.filter((name) => !name.startsWith("kill"));
const everything = others.flatMap((name, at) => [
  ...kills.slice(at % kills.length, (at % kills.length) + 1),
  name,
]);

function planned(names: string): DisasterName[] {
  return names.split(",").map((name) => {
    const known = disasterNames.find((each) => each === name);
    if (known === undefined) throw new Error(`--plan takes ${disasterNames.join(", ")}`);
    return known;
  });
}

/** Prints what was counted; resolves to how much of it must never happen. */
const parts: Readonly<Record<string, () => Promise<number>>> = {
  everything: async () => {
    const report = await runChaos({
      seed,
      durationMs: Number(values.seconds) * 1_000,
      chats,
      groups: Number(values.groups),
      workers: Number(values.workers),
      runners: Number(values.runners),
      ingresses: Number(values.ingresses),
      plan: values.plan === "" ? everything : planned(values.plan),
      ...(values.logs === undefined ? {} : { logDirectory: values.logs }),
      poison: 3,
      freezeMs: 25_000,
      pauseMs: 2_500,
      clickPauseMs: 1_000,
      patienceMs,
    });
    console.log(report);
    console.log(recoveryTable(report.recovery));
    const together = await parts["together"]?.();
    const { lost, duplicated, misordered, leftOpen, onceRepeated, poison, givenUp } = report;
    return (
      lost +
      duplicated +
      misordered +
      leftOpen +
      onceRepeated +
      (poison - givenUp) +
      (together ?? 0)
    );
  },
  together: async () => {
    const durationMs = Math.min(Number(values.seconds), 60) * 1_000;
    const options = { seed, durationMs, chats: 2, pauseMs: 3_000, freezeMs: 25_000, patienceMs };
    const workerKills = values.kills === undefined ? undefined : Number(values.kills);
    const report = await runTogetherChaos(
      workerKills === undefined ? options : { ...options, workerKills, chats: 6, pauseMs: 800 },
    );
    console.log(report);
    console.log(togetherTable(report));
    return Object.values(report.faults).reduce((sum, count) => sum + count, 0);
  },
  calls: async () => {
    const report = await runCallChaos({
      seed,
      calls: Number(values.calls),
      chats,
      callsPerMessage: 20,
      pauseMs: 3_000,
      patienceMs,
    });
    console.log(report);
    return report.onceRepeated + report.stranded + Math.abs(report.calls - report.results);
  },
  approvals: async () => {
    const batches = { chats, batchesPerChat: Number(values.batches) };
    const report = await runApprovalChaos({ seed, ...batches, pauseMs: 3_000, patienceMs });
    console.log(report);
    return (
      report.batches - report.answered + report.incomplete + report.wrongRuns + report.buttonsLeft
    );
  },
  busy: async () => {
    const report = await runBusy({
      messages: Number(values.messages),
      chats: 80,
      loops: Number(values.loops),
      stopsMs: values["redis-away"] ? [] : [1_000, 3_000, 8_000],
      isRedisAway: values["redis-away"],
      ...(values.logs === undefined ? {} : { logDirectory: values.logs }),
      patienceMs: 600_000,
    });
    console.log(report);
    const { lost, duplicated, misordered, givenUp, repeatedModelCalls, lostLocks } = report;
    const repeated = values["redis-away"] ? 0 : repeatedModelCalls + lostLocks;
    return lost + duplicated + misordered + givenUp + repeated;
  },
  failover: async () =>
    await printFailovers({ rounds: Number(values.rounds), chats: Math.min(chats, 8), patienceMs }),
};

const run = parts[values.part];
if (run === undefined) throw new Error(`--part takes ${Object.keys(parts).join(", ")}`);
console.log(`seed ${seed}`);
process.exit((await run()) === 0 ? 0 : 1);
