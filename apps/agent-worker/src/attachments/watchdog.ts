import { workerData } from "node:worker_threads";
import { usedCpuMs } from "./draft.ts";

/** What the watchdog thread watches. */
export interface WatchdogOrders {
  parentId: number;
  maxResidentBytes: number;
  /** Longest time for one file, ms: only for when the parent cannot keep it. */
  patienceMs: number;
  /** CPU time for one file, ms. */
  cpuMs: number;
  /**
   * Two Float64: when the running file was begun, epoch ms, 0 while there is none; and the CPU time that the process
   * had used by then, ms.
   */
  begunAt: SharedArrayBuffer;
}

const pollMs = 50;

// A thread of its own, because the main thread may hang in a loop that a hostile file caused. It
// alone sees memory outside the heap of V8, and the death of the parent while the main thread hangs.
function watch({ parentId, maxResidentBytes, patienceMs, cpuMs, begunAt }: WatchdogOrders): void {
  const begun = new Float64Array(begunAt);
  setInterval(() => {
    const begunAtMs = begun[0] ?? 0;
    const late = begunAtMs > 0 && Date.now() - begunAtMs > patienceMs;
    if (process.ppid !== parentId || late) process.kill(process.pid, "SIGKILL");
    // Signals of their own, so that the parent can tell the reason.
    if (begunAtMs > 0 && usedCpuMs() - (begun[1] ?? 0) > cpuMs) {
      process.kill(process.pid, "SIGVTALRM");
    }
    if (process.memoryUsage.rss() > maxResidentBytes) process.kill(process.pid, "SIGUSR2");
  }, pollMs);
}

watch(workerData as WatchdogOrders); // written by the reading process
