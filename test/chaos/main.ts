import { parseArgs } from "node:util";
import { runApprovalChaos } from "./approvals.ts";
import { runCallChaos } from "./calls.ts";
import { runChaos } from "./chaos.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: String(Date.now() % 100_000) },
    /** `messages`, `calls` or `approvals`. */
    part: { type: "string", default: "messages" },
    chats: { type: "string", default: "30" },
    messages: { type: "string", default: "40" },
    kills: { type: "string", default: "30" },
    freezes: { type: "string", default: "3" },
    calls: { type: "string", default: "20000" },
    batches: { type: "string", default: "10" },
  },
});
const seed = Number(values.seed);
const chats = Number(values.chats);
const patienceMs = 120_000;

/** Prints what was counted; resolves to how much of it must never happen. */
const parts: Readonly<Record<string, () => Promise<number>>> = {
  messages: async () => {
    const report = await runChaos({
      seed,
      chats,
      messagesPerChat: Number(values.messages),
      kills: Number(values.kills),
      freezes: Number(values.freezes),
      freezeMs: 12_000,
      pauseMs: 1_500,
      clickPauseMs: 1_000,
      patienceMs,
    });
    console.log(report);
    return report.lost + report.duplicated + report.misordered + report.leftOpen + report.onceRepeated;
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
    return report.batches - report.answered + report.incomplete + report.wrongRuns + report.buttonsLeft;
  },
};

const run = parts[values.part];
if (run === undefined) throw new Error(`--part takes ${Object.keys(parts).join(", ")}`);
console.log(`seed ${seed}`);
process.exit((await run()) === 0 ? 0 : 1);
