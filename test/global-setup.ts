import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { codeCache, startRedis } from "@larkline/testkit";
import type { TestProject } from "vitest/node";

/**
 * Images are built by pnpm, which a machine need not have: the launcher gets it from npm, and so do the tests that
 * run the steps of an image.
 */
function offerPnpm(): void {
  try {
    execFileSync("pnpm", ["--version"], { stdio: "ignore" });
  } catch {
    const file = new URL("../package.json", import.meta.url);
    const { packageManager } = JSON.parse(readFileSync(file, "utf8")) as { packageManager: string };
    const command = [
      "exec",
      "--yes",
      `--package=${packageManager}`,
      "--",
      "node",
      "-p",
      "process.env.PATH",
    ];
    process.env["PATH"] = execFileSync("npm", command, { encoding: "utf8" }).trim();
  }
}

/** All that a process has started and that still runs (Linux; elsewhere none is found). */
function descendantsOf(pid: number): number[] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`);
    const children = tasks.flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").split(" "),
    );
    return children
      .filter((child) => child !== "")
      .flatMap((child) => [Number(child), ...descendantsOf(Number(child))]);
  } catch {
    return []; // it has ended
  }
}

/** What tests have started ends with the run, also when that is interrupted. */
function endWithRun(): void {
  process.once("SIGHUP", () => process.exit(129));
  process.once("exit", () => {
    for (const pid of descendantsOf(process.pid)) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended by itself.
      }
    }
  });
}

/** One Redis server for the whole run; tests get its address by `inject("redisUrl")`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  endWithRun();
  offerPnpm();
  process.env["NODE_COMPILE_CACHE"] = codeCache;
  const redis = await startRedis();
  project.provide("redisUrl", redis.url);
  return redis.stop;
}
