import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { codeCache } from "@larkline/testkit";
import { expect, it } from "vitest";

const main = fileURLToPath(new URL("./main.ts", import.meta.url));

// In a process of its own, whose clock and chance it replaces.
it(
  "keeps what it promises under the faults of each of 200 seeds",
  { timeout: 900_000 },
  async ({ signal }) => {
    const env = { PATH: process.env["PATH"], NODE_COMPILE_CACHE: codeCache };
    const args = [main, "--seed", "1", "--seeds", "200"];
    const { stdout } = await promisify(execFile)(process.execPath, args, {
      env,
      signal,
      maxBuffer: 2 ** 27,
    }).catch((error: { stdout: string }) => error);
    expect(stdout).toMatch(/^200 seeds, 0 broken; /);
  },
);
