import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { loadTools, openLevels } from "@larkline/runner";
import { createToolRegistry } from "@larkline/tool-kit";

/** What calls that come at once to level `process` take. */
export interface CallsAtOnce {
  tool: string;
  calls: number;
  /** Each call only waits for this long, ms: the lower bound. */
  waitMs: number;
  /** Until the last is answered, ms; median. */
  tookMs: number;
  /** Children while they run, and the proportional set size of them and of this process, MB; medians. */
  children: number;
  totalMb: number;
}

const fixture = fileURLToPath(new URL("../fixtures/at-once-tools.ts", import.meta.url));

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function descendants(of: number): number[] {
  const table = execFileSync("ps", ["-A", "-o", "pid=,ppid=,comm="], { encoding: "utf8" });
  const rows = table.split("\n").map((line) => line.trim().split(/\s+/));
  const found = [of];
  for (const parent of found) {
    for (const [pid, ppid, command] of rows) {
      if (Number(ppid) === parent && command !== "ps") found.push(Number(pid));
    }
  }
  return found.slice(1);
}

/** Proportional set size: memory that processes share counts once. */
function pssMb(pids: readonly number[]): number {
  const sizes = pids.map((pid) => {
    try {
      return Number(
        /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1] ?? 0,
      );
    } catch {
      return 0; // it has ended
    }
  });
  return sizes.reduce((sum, size) => sum + size, 0) / 1_024;
}

async function once(call: (n: number) => Promise<void>, { calls, waitMs }: Load): Promise<Seen> {
  const startMs = performance.now();
  const all = Promise.all(Array.from({ length: calls }, async (_, n) => await call(n)));
  let seen = { children: 0, totalMb: 0 };
  while ((await Promise.race([all, delay(Math.min(500, waitMs / 3), "running")])) === "running") {
    const children = descendants(process.pid).filter((pid) => pid !== process.pid);
    const totalMb = pssMb([process.pid, ...children]);
    if (totalMb > seen.totalMb) seen = { children: children.length, totalMb };
  }
  return { ...seen, tookMs: performance.now() - startMs };
}

interface Load {
  calls: number;
  waitMs: number;
}
type Seen = Pick<CallsAtOnce, "children" | "totalMb" | "tookMs">;

/** Each round in a runner that has just started: its children are not there yet. */
async function measure(tool: string, load: Load, rounds: number): Promise<CallsAtOnce> {
  const all: Seen[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const loaded = await loadTools([fixture], { directory: "/" });
    if (!loaded.ok) throw new Error(loaded.error);
    const found = loaded.value.registry.get(tool);
    const registry = createToolRegistry();
    registry.add(found);
    const levels = await openLevels({
      loaded: { ...loaded.value, registry },
      environment: {},
      concurrency: 32,
      onLine: () => undefined,
      onDropped: () => undefined,
      onSandboxEvent: () => undefined,
      onFinding: () => undefined,
    });
    await levels.warm();
    const call = async (n: number): Promise<void> => {
      const outcome = await levels.run(
        found,
        {
          argumentsText: JSON.stringify({ ms: load.waitMs }),
          context: {
            callId: `c${n}`,
            turnId: "t1",
            actor: { app: "cli", userId: "ou_1", chatId: "oc_1" },
            authority: { by: "policy" },
            signal: new AbortController().signal,
            progress: () => undefined,
            log: () => undefined,
          },
        },
        async () => await Promise.resolve(undefined),
      );
      if (!outcome.ok) throw new Error(`${tool}: ${outcome.error}`);
    };
    all.push(await once(call, load));
    await levels.close();
  }
  return {
    tool,
    ...load,
    tookMs: median(all.map(({ tookMs }) => tookMs)),
    children: median(all.map(({ children }) => children)),
    totalMb: median(all.map(({ totalMb }) => totalMb)),
  };
}

/** Ten calls of 1.5 s, and 32 that wait for long, in a child for each and in shared ones. */
export async function measureCallsAtOnce(
  rounds: number,
  tools: readonly string[],
): Promise<CallsAtOnce[]> {
  const numbers: CallsAtOnce[] = [];
  for (const tool of tools) {
    numbers.push(await measure(tool, { calls: 10, waitMs: 1_500 }, rounds));
    numbers.push(await measure(tool, { calls: 32, waitMs: 10_000 }, Math.min(rounds, 3)));
  }
  return numbers;
}
