import { startSystem } from "../system/system.ts";
import { load, noteModel } from "./driver.ts";
import { plainText } from "./measure.ts";

/** How the number of workers decides. */
export interface ScaleNumbers {
  workers: number;
  turnsPerSecond: number;
  /** What the slots allow when everything besides the model takes no time. */
  bound: number;
}

const modelMs = 500;
const slots = 20;
const runSeconds = 10;

/** Turns of one model step that takes half a second, with 20 slots in each worker. */
export async function measureScale(workers: number): Promise<ScaleNumbers> {
  const bound = (workers * slots * 1_000) / modelMs;
  const system = await startSystem({
    transport: "webhook",
    workers,
    workerConcurrency: slots,
    simulator: { logCapacity: 100 },
    config: plainText,
    env: { LOG_LEVEL: "error" },
    script: ({ messages }) => {
      noteModel(messages.at(-1)?.text ?? "", "in");
      return { text: "done", firstDelayMs: modelMs };
    },
  });
  try {
    const run = { system, inFlight: workers * slots * 2, perChat: 5, text: (key: string) => key };
    await load({ ...run, messages: bound * 3 });
    const messages = bound * runSeconds;
    const { seconds } = await load({ ...run, messages });
    return { workers, turnsPerSecond: messages / seconds, bound };
  } finally {
    await system.close();
  }
}
