import { readdirSync, readFileSync } from "node:fs";
import { openSandbox, type Sandbox } from "@larkline/sandbox";

/** What a long row of runs must not make grow. */
interface Footprint {
  descriptors: number;
  zombies: number;
  mounts: number;
  groups: number;
}

function folders(path: string): number {
  const found = readdirSync(path, { withFileTypes: true, recursive: true });
  return found.filter((entry) => entry.isDirectory()).length;
}

function footprint(): Footprint {
  const states = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((id) => {
      try {
        return readFileSync(`/proc/${id}/status`, "utf8");
      } catch {
        return ""; // it has ended meanwhile
      }
    });
  return {
    descriptors: readdirSync("/proc/self/fd").length,
    zombies: states.filter((status) => /^State:\s+Z/m.test(status)).length,
    mounts: readFileSync("/proc/self/mounts", "utf8").split("\n").length,
    groups:
      ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map((path) => {
        try {
          return folders(path);
        } catch {
          return 0;
        }
      })[0] ?? 0,
  };
}

async function runMany(sandbox: Sandbox, runs: number): Promise<number[]> {
  const times: number[] = [];
  let left = runs;
  const lane = async (): Promise<void> => {
    while (left-- > 0) {
      const startedMs = performance.now();
      const program = { runtime: "node" as const, code: "return input", input: left };
      const result = await sandbox.run({ program, signal: new AbortController().signal });
      if (result.status !== "ok") {
        throw new Error(`a run ended as ${result.status}: ${result.error}`);
      }
      times.push(performance.now() - startedMs);
    }
  };
  await Promise.all([lane(), lane()]);
  return times.sort((a, b) => a - b);
}

/** Attack B3: thousands of runs in a row, two at a time, must leave nothing behind and none may be slow. */
export async function soak(runs: number): Promise<boolean> {
  const opening = await openSandbox({ slots: 2, warm: 0 });
  if (!opening.ok) {
    console.error("B3 not run: no sandbox holds here");
    return true;
  }
  const { sandbox } = opening;
  await runMany(sandbox, 10);
  const before = footprint();
  const startedMs = performance.now();
  const times = await runMany(sandbox, runs);
  const seconds = (performance.now() - startedMs) / 1_000;
  const after = footprint();
  await sandbox.close();
  const at = (share: number): string =>
    (times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(0);
  console.log(
    `B3: ${runs} runs as ${sandbox.tier}, ${(runs / seconds).toFixed(0)}/s, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, slowest ${at(1)} ms`,
  );
  console.log(`B3: before ${JSON.stringify(before)}, after ${JSON.stringify(after)}`);
  // Others use the machine as well, and slots are made as they are needed; what leaks, leaks once a run.
  const names = ["descriptors", "zombies", "mounts", "groups"] as const;
  const isFlat = names.every((name) => after[name] <= before[name] + 16);
  return isFlat && (times.at(-1) ?? 0) < 5_000;
}
