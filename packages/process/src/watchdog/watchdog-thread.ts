import { writeSync } from "node:fs";
import { workerData } from "node:worker_threads";
import { machineNow, pause, systemClock } from "@larkline/protocol/clock";
import { lookEveryMs, StallCount } from "./stall-count.ts";
import type { StallNotePlace, WatchdogOrders } from "./watchdog.ts";

/** How long the note may take, ms. */
const noteMs = 3_000;

function watch(orders: WatchdogOrders): void {
  const { maxMs } = orders;
  const beats = new Int32Array(orders.beats);
  const count = new StallCount();
  const substitute = new SubstituteBeat(orders);
  const look = (): void => {
    const stalledMs = count.look(Atomics.load(beats, 0), systemClock.monotonic());
    if (stalledMs >= maxMs) {
      void end(orders, `the event loop stood still for ${Math.round(stalledMs / 1_000)} s`);
      return;
    }
    substitute.look(stalledMs);
    systemClock.after(lookEveryMs, look);
  };
  look();
}

/**
 * The beat in Redis that a loop which stands still does not make, after a third of the time that it may do so: one is
 * good for as long as the loop may stand still, and this one until the process has ended.
 */
class SubstituteBeat {
  readonly #orders: WatchdogOrders;
  /** In this stall, or it is on its way. */
  #isMade = false;

  constructor(orders: WatchdogOrders) {
    this.#orders = orders;
  }

  look(stalledMs: number): void {
    const { note, maxMs } = this.#orders;
    if (stalledMs === 0) this.#isMade = false;
    if (note === undefined || this.#isMade || stalledMs < maxMs / 3) return;
    this.#isMade = true;
    void this.#make(note).catch(() => {
      this.#isMade = false; // tried again by the next look
    });
  }

  async #make(place: StallNotePlace): Promise<void> {
    const { beatForStalled } = await import("@larkline/store/stall-notes");
    await beatForStalled(place);
  }
}

async function end(orders: WatchdogOrders, reason: string): Promise<void> {
  const { service, note } = orders;
  const facts = {
    level: "error",
    time: new Date(machineNow()).toISOString(),
    service,
    pid: process.pid,
    atWork: atWorkOf(orders),
  };
  // Standard output of a thread goes through the loop that stands still.
  writeSync(1, `${JSON.stringify({ ...facts, msg: `${reason}: this process ends` })}\n`);
  if (note !== undefined) {
    await Promise.race([write(orders, reason), pause(systemClock, noteMs)]);
  }
  process.kill(process.pid, "SIGKILL");
}

function atWorkOf({ atWork }: WatchdogOrders): string {
  const length = Atomics.load(new Int32Array(atWork, 0, 1), 0);
  const bytes = Uint8Array.from(new Uint8Array(atWork, Int32Array.BYTES_PER_ELEMENT, length));
  return new TextDecoder().decode(bytes);
}

/** What speaks to Redis is loaded when it is needed: until then the thread is a timer. */
async function write({ note }: WatchdogOrders, reason: string): Promise<void> {
  try {
    const { noteStall } = await import("@larkline/store/stall-notes");
    if (note !== undefined) await noteStall(note, reason);
  } catch {
    // The line in the log says the same.
  }
}

watch(workerData as WatchdogOrders); // written by watchEventLoop
