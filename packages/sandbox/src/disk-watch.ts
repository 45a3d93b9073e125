import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Slot } from "./slot.ts";

const watchedFiles = 4_096;
const lookMs = 100;
const sizesAtOnce = 256;

/** The files of a directory and all below it; undefined when there are too many. Reads names only, which is quick. */
async function filesBelow(directory: string): Promise<string[] | undefined> {
  const files: string[] = [];
  let entries = 0;
  const waiting = [directory];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const found = await readdir(next, { withFileTypes: true }).catch(() => []);
    entries += found.length;
    if (entries > watchedFiles) return undefined;
    for (const entry of found) (entry.isDirectory() ? waiting : files).push(join(next, entry.name));
  }
  return files;
}

/** Whether a directory holds more than it may. Many sizes are asked for at a time: a program makes files faster than one by one. */
async function isOverfull(directory: string, diskMb: number): Promise<boolean> {
  const files = await filesBelow(directory);
  if (files === undefined) return true;
  let bytes = 0;
  for (let from = 0; from < files.length && bytes <= diskMb * 1_048_576; from += sizesAtOnce) {
    const sizes = await Promise.all(files.slice(from, from + sizesAtOnce).map(blocksOf));
    bytes += sizes.reduce((sum, size) => sum + size, 0);
  }
  return bytes > diskMb * 1_048_576;
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
