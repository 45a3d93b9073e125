import { appendFileSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { forgetClock } from "@larkline/protocol/clock";
import * as fc from "fast-check";
import { afterAll, expect, vi } from "vitest";

// A test of a change must not depend on dice: properties see the same examples in every run, unless new ones are wanted.
if (process.env["PROPERTY_SEED"] !== "random") {
  fc.configureGlobal({ seed: Number(process.env["PROPERTY_SEED"] ?? 1) });
}

// Files share the process that runs them, since loading every module anew for each file takes longer than its tests.
// What a file may have left changed in that process is put back here.
afterAll(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  forgetClock();
});

/** CPU seconds of this process, and of those that it has started and that have ended (Linux; elsewhere none is known). */
function cpuSeconds(): { own: number; started: number } {
  const { user, system } = process.cpuUsage();
  return { own: (user + system) / 1e6, started: startedTicks() / 100 };
}

/** `cutime` and `cstime` of proc_pid_stat(5), in ticks of a hundredth of a second. */
function startedTicks(): number {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return Number(fields[13]) + Number(fields[14]);
  } catch {
    return 0;
  }
}

// One file after the other runs in this process: each is charged with what has been used since the one before ended.
const sinceFile = globalThis as { larklineCpu?: ReturnType<typeof cpuSeconds> };
afterAll(() => {
  const costFile = process.env["LARKLINE_CPU_FILE"];
  const { testPath } = expect.getState();
  if (costFile === undefined || testPath === undefined) return;
  const { own, started } = cpuSeconds();
  const before = sinceFile.larklineCpu ?? { own: 0, started: 0 };
  sinceFile.larklineCpu = { own, started };
  const cost = {
    file: relative(process.cwd(), testPath),
    own: own - before.own,
    started: started - before.started,
  };
  appendFileSync(costFile, `${JSON.stringify(cost)}\n`);
});
