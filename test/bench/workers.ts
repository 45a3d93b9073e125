import { plainText, startSubject } from "./measure.ts";
import { BenchVendors } from "./vendors.ts";

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
  const vendors = await BenchVendors.start();
  vendors.modelMs = modelMs;
  const options = { workers, workerConcurrency: slots, config: plainText };
  const running = await startSubject(vendors, { name: `${workers} workers`, options });
  try {
    const work = { inFlight: workers * slots * 2, perChat: 5, tool: false };
    await running.load({ ...work, messages: bound * 3 });
    const messages = bound * runSeconds;
    const { seconds } = await running.load({ ...work, messages });
    return { workers, turnsPerSecond: messages / seconds, bound };
  } finally {
    await running.close();
    await vendors.close();
  }
}
