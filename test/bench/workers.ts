import { setTimeout as delay } from "node:timers/promises";
import { memoryOf, plainText, startSubject } from "./measure.ts";
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
    const work = { inFlight: workers * slots * 2, perChat: 5, before: "nothing" } as const;
    await running.load({ ...work, messages: bound * 3 });
    const messages = bound * runSeconds;
    const { seconds } = await running.load({ ...work, messages });
    return { workers, turnsPerSecond: messages / seconds, bound };
  } finally {
    await running.close();
    await vendors.close();
  }
}

/** What a worker holds while many turns wait for the model. */
export interface ModelWaitNumbers {
  turns: number;
  workerMb: { before: number; waiting: number };
}

/** So many turns at once in one worker that has a slot for each. */
export async function measureModelWait(turns: number): Promise<ModelWaitNumbers> {
  const vendors = await BenchVendors.start();
  const options = { workers: 1, workerConcurrency: turns, config: plainText };
  const running = await startSubject(vendors, { name: `${turns} turns`, options });
  try {
    const work = { perChat: 1, before: "nothing" } as const;
    await running.load({ ...work, inFlight: 32, messages: 2_000 });
    const before = memoryOf(running)["agent-worker"];
    vendors.modelMs = 20_000;
    const asked = vendors.modelCalls + turns;
    const load = running.load({ ...work, inFlight: turns, messages: turns });
    while (vendors.modelCalls < asked) await Promise.race([load, delay(100)]);
    await delay(2_000); // what the claims have left behind is collected by then
    const waiting = memoryOf(running)["agent-worker"];
    await load;
    return { turns, workerMb: { before, waiting } };
  } finally {
    await running.close();
    await vendors.close();
  }
}
