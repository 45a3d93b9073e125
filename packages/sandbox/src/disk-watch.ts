import { lstat, opendir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Slot } from "./slot.ts";

const watchedFiles = 4_096;
const lookMs = 150;

/** Whether a directory holds more than it may. Counts no further than needed. */
async function isOverfull(directory: string, diskMb: number): Promise<boolean> {
  let bytes = 0;
  let entries = 0;
  const waiting = [directory];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const found = await opendir(next).catch(() => undefined);
    if (found === undefined) continue;
    for await (const entry of found) {
      const path = join(next, entry.name);
      entries += 1;
      if (entry.isDirectory()) waiting.push(path);
      else bytes += await blocksOf(path);
      if (entries > watchedFiles || bytes > diskMb * 1_048_576) return true;
    }
  }
  return false;
}

async function blocksOf(path: string): Promise<number> {
  try {
    return (await lstat(path)).blocks * 512;
  } catch {
    return 0; // removed meanwhile
  }
}

/**
 * Calls back, once, when a working directory holds more than it may. Coarse: only for slots without
 * a size of their own, where the kernel holds each single file to the limit. Returns what ends the watch.
 */
export function watchDisk(slot: Slot, diskMb: number, onOverfull: () => void): () => void {
  if (slot.sizedMb !== undefined) return () => {};
  const over = new AbortController();
  const watch = async (): Promise<void> => {
    while (!(await isOverfull(slot.directory, diskMb))) {
      await delay(lookMs, undefined, { signal: over.signal, ref: false });
    }
    if (!over.signal.aborted) onOverfull();
  };
  void watch().catch(() => {}); // ended
  return () => over.abort();
}
