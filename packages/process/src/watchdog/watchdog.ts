import { Worker } from "node:worker_threads";
import { systemClock, type Clock } from "@larkline/protocol/clock";

/** How long an event loop may stand still before its process is ended, ms. */
export const maxStallMs = 15_000;

export interface WatchdogOptions {
  /** Name of the app, for its last log line. */
  service: string;
  /** Where to note in Redis why the process ended; absent: it is logged only. */
  note?: StallNotePlace | undefined;
  /** What the process works on: turns. */
  atWork?: (() => readonly string[]) | undefined;
  clock?: Clock;
  maxMs?: number;
}

/** Where the note about a process stands. */
export interface StallNotePlace {
  redisUrl: string;
  namespace: string;
  /** The process, as others know it. */
  id: string;
}

/** What the thread is started with. */
export interface WatchdogOrders {
  service: string;
  note: StallNotePlace | undefined;
  maxMs: number;
  /** An Int32: the beats of the loop. */
  beats: SharedArrayBuffer;
  /** An Int32 with the length of what follows: what the process works on, as text. */
  atWork: SharedArrayBuffer;
}

/** More often than the thread looks. */
const beatEveryMs = 250;
const maxAtWorkBytes = 2_048;

/**
 * Ends this process with SIGKILL when its event loop has stood still for 15 s: a loop that hangs answers no signal. A
 * thread does that, which has loaded nothing before. It writes what it saw: a line in the log, and for a worker a note
 * that the dead letter of the message at fault names; a worker counts as alive until then. Returns how to stop watching.
 */
export function watchEventLoop({
  service,
  note,
  atWork,
  clock = systemClock,
  maxMs = maxStallMs,
}: WatchdogOptions): () => Promise<void> {
  const orders: WatchdogOrders = {
    service,
    note,
    maxMs,
    beats: new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT),
    atWork: new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT + maxAtWorkBytes),
  };
  const beats = new Int32Array(orders.beats);
  const length = new Int32Array(orders.atWork, 0, 1);
  const text = new Uint8Array(orders.atWork, Int32Array.BYTES_PER_ELEMENT);
  const encoder = new TextEncoder();
  const beat = (): void => {
    if (atWork !== undefined) {
      // TextEncoder writes to no shared memory.
      const bytes = encoder.encode(atWork().join(" ")).subarray(0, maxAtWorkBytes);
      text.set(bytes);
      Atomics.store(length, 0, bytes.length);
    }
    Atomics.add(beats, 0, 1);
  };
  const stopBeating = clock.every(beatEveryMs, beat);
  const resourceLimits = { maxYoungGenerationSizeMb: 1, maxOldGenerationSizeMb: 48 };
  const thread = new Worker(new URL("./watchdog-thread.ts", import.meta.url), {
    workerData: orders,
    resourceLimits,
  });
  thread.unref();
  thread.on("error", () => undefined); // the process works without
  return async () => {
    stopBeating();
    await thread.terminate();
  };
}
