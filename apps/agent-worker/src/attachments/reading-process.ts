import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { confine } from "./confinement.ts";
import { usedCpuMs } from "./draft.ts";
import type { Extraction, ReadingJob, ScaledPicture } from "./extraction.ts";
import { readFile } from "./file-reader.ts";
import type { WatchdogOrders } from "./watchdog.ts";

// The program of the reading process. It reads one file after another, from the messages of its
// parent, without access to the network, to files other than its own code, or to the environment.

/** Answer to one file. `retire` asks for a new process: this one has grown or served long enough. */
export interface ReadingAnswer {
  result: Extraction | ScaledPicture;
  retire: boolean;
}

const maxFiles = 50;

/** What the parent says on the command line. */
function ordersFrom([parentId, memoryMb, patienceMs, cpuMs]: string[]): Omit<
  WatchdogOrders,
  "begunAt"
> {
  return {
    parentId: Number(parentId),
    maxResidentBytes: Number(memoryMb) * 1024 * 1024,
    patienceMs: Number(patienceMs),
    cpuMs: Number(cpuMs),
  };
}

async function serve(): Promise<void> {
  const orders = ordersFrom(process.argv.slice(2));
  const begunAt = new SharedArrayBuffer(2 * Float64Array.BYTES_PER_ELEMENT);
  const begun = new Float64Array(begunAt);
  const workerData: WatchdogOrders = { ...orders, begunAt };
  const watchdog = new Worker(new URL("./watchdog.ts", import.meta.url), { workerData });
  watchdog.once("exit", () => process.exit(1)); // never unwatched
  await once(watchdog, "online");
  confine();
  let files = 0;
  // An aborted read can leave a library in a bad state: the answers are good, but the process is replaced.
  process.on("unhandledRejection", () => {
    files = maxFiles;
  });
  process.on("disconnect", () => process.exit());
  const read = async (job: ReadingJob): Promise<void> => {
    begun[1] = usedCpuMs();
    begun[0] = Date.now();
    const result = await resultOf(job);
    begun[0] = 0;
    files += 1;
    const retire = files >= maxFiles || process.memoryUsage.rss() > orders.maxResidentBytes / 2;
    const answer: ReadingAnswer = { result, retire };
    process.send?.(answer);
  };
  // From the parent, which is our own code.
  process.on("message", (job: ReadingJob) => void read(job));
}

async function resultOf(job: ReadingJob): Promise<Extraction | ScaledPicture> {
  if (job.scaleTo === undefined) return await readFile(job);
  // Large: a process that scales no picture never loads it.
  const { scalePicture } = await import("./picture-scaling.ts");
  return scalePicture(job, job.scaleTo);
}

await serve();
