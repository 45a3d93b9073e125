// A process for the tests of runUntilSignal; the first argument says how its close behaves.
import { createLogger } from "./logger.ts";
import { runUntilSignal } from "./run-until-signal.ts";

const mode = process.argv[2];
const logger = createLogger({ service: "fixture" });
const keepAlive = setInterval(() => {}, 60_000);

async function close(): Promise<void> {
  if (process.connected) process.send?.("closing");
  if (mode === "failing") throw new Error("cannot close");
  if (mode === "stuck") await new Promise(() => {});
  clearInterval(keepAlive);
  logger.info({}, "fixture closed its things");
}

runUntilSignal({ close, deadlineMs: 1_500, givesWay: mode === "giving way", logger });
if (mode === "throwing") void Promise.reject(new Error("nobody caught this"));
