import { execFile } from "node:child_process";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A disk of its own, small enough to be filled. */
export interface SmallDisk {
  path: string;
  fill(): Promise<void>;
  clear(): Promise<void>;
  remove(): Promise<void>;
}

const megabyte = Buffer.alloc(1_048_576, 1);

/** Undefined where this process may not mount one: only root may, and not everywhere. */
export async function mountDisk(size = "256m"): Promise<SmallDisk | undefined> {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return undefined;
  const path = await mkdtemp(join(tmpdir(), "larkline-disk-"));
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${size}`, "larkline-chaos", path]);
  } catch {
    await rm(path, { recursive: true, force: true });
    return undefined;
  }
  const filler = join(path, "filler");
  return {
    path,
    fill: async () => {
      const file = await open(filler, "w");
      try {
        for (;;) await file.write(megabyte);
      } catch (error) {
        if (!(error instanceof Error) || !("code" in error) || error.code !== "ENOSPC") throw error;
      } finally {
        await file.close();
      }
    },
    clear: async () => await rm(filler, { force: true }),
    remove: async () => {
      await run("umount", ["-l", path]);
      await rm(path, { recursive: true, force: true });
    },
  };
}
