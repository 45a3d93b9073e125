import { parseArgs } from "node:util";
import { runChaos } from "./chaos.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: String(Date.now() % 100_000) },
    chats: { type: "string", default: "30" },
    messages: { type: "string", default: "40" },
    kills: { type: "string", default: "30" },
    freezes: { type: "string", default: "3" },
  },
});

const report = await runChaos({
  seed: Number(values.seed),
  chats: Number(values.chats),
  messagesPerChat: Number(values.messages),
  kills: Number(values.kills),
  freezes: Number(values.freezes),
  freezeMs: 12_000,
  pauseMs: 1_500,
  clickPauseMs: 1_000,
  patienceMs: 120_000,
});
console.log(`seed ${values.seed}`);
console.log(report);
const broken = report.lost + report.duplicated + report.misordered + report.leftOpen + report.onceRepeated;
process.exit(broken === 0 ? 0 : 1);
