import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { loadTools, openLevels, type Levels } from "@larkline/runner";
import type { Tool } from "@larkline/tool-kit";
import { spread, type Spread } from "./measure.ts";

const begin = async (): Promise<undefined> => await Promise.resolve(undefined);

/** What one level of isolation costs. */
export interface LevelNumbers {
  name: string;
  roundTripMs: Spread;
  /** With two calls at once, one per core. */
  callsPerSecond: number;
}

const fixture = fileURLToPath(new URL("../fixtures/level-tools.ts", import.meta.url));
const atOnce = 2;

const rows: readonly { tool: string; name: string; calls: number }[] = [
  { tool: "echo_inline", name: "inline", calls: 20_000 },
  { tool: "echo_process", name: "process (reused child)", calls: 20_000 },
  { tool: "echo_sandbox", name: "sandbox, a tool's module (used once)", calls: 60 },
  { tool: "program_sandbox", name: "sandbox, a program (used once)", calls: 120 },
];

async function callOnce(levels: Levels, tool: Tool, n: number): Promise<number> {
  const startMs = performance.now();
  const outcome = await levels.run(
    tool,
    {
      argumentsText: JSON.stringify({ n }),
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
    begin,
  );
  if (!outcome.ok) throw new Error(`${tool.name}: ${outcome.error}`);
  return performance.now() - startMs;
}

async function measured(
  call: (n: number) => Promise<number>,
  calls: number,
): Promise<Omit<LevelNumbers, "name">> {
  for (let n = 0; n < calls / 10; n += 1) await call(n);
  const trips: number[] = [];
  for (let n = 0; n < calls; n += 1) trips.push(await call(n));
  const startMs = performance.now();
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < calls) {
      next += 1;
      await call(next);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return {
    roundTripMs: spread(trips),
    callsPerSecond: (calls * 1_000) / (performance.now() - startMs),
  };
}

/** The plain call of a function, which no level can beat. */
async function plainCall(n: number): Promise<number> {
  const startMs = performance.now();
  await Promise.resolve(n);
  return performance.now() - startMs;
}

/** A new Node.js that does nothing: no sandbox that is used once makes more calls a second. */
async function plainStart(): Promise<number> {
  const startMs = performance.now();
  await once(spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }), "exit");
  return performance.now() - startMs;
}

/** Measures every level with the same tool, beside the plain call of a function and the plain start of a process. */
export async function measureLevels(): Promise<LevelNumbers[]> {
  const loaded = await loadTools([fixture], { directory: "/" });
  if (!loaded.ok) throw new Error(loaded.error);
  const levels = await openLevels({
    loaded: loaded.value,
    environment: {},
    concurrency: atOnce,
    onLine: () => undefined,
    onDropped: () => undefined,
    onSandboxEvent: () => undefined,
    onFinding: () => undefined,
  });
  await levels.warm();
  try {
    const numbers: LevelNumbers[] = [
      { name: "plain call of a function", ...(await measured(plainCall, 20_000)) },
      { name: "plain start of Node.js", ...(await measured(plainStart, 60)) },
    ];
    for (const { tool, name, calls } of rows) {
      const found = loaded.value.registry.get(tool);
      numbers.push({
        name,
        ...(await measured(async (n) => await callOnce(levels, found, n), calls)),
      });
    }
    return numbers;
  } finally {
    await levels.close();
  }
}
