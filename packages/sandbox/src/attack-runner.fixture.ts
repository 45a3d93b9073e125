/*
 * The process under attack: it holds secrets, runs what it is sent in the tier it was started for, and
 * reports each attack's results and its own state on descriptor 4. The judge watches it from outside.
 */
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import type { AttackAim, AttackProgram, RunnerReport } from "./attack-case.fixture.ts";
import { type AttackedPlace, openAttacked } from "./attack-place.fixture.ts";
import type { Sandbox, SandboxLimits, SandboxResult } from "./sandbox.ts";

/** What the judge sends, one line each. */
export interface AttackOrder {
  aim: AttackAim;
  programs: readonly AttackProgram[];
  parallel: boolean;
  limits: SandboxLimits;
}

/** What comes back; the bytes of files as base64. */
export interface AttackReply {
  mark: string;
  results: (Omit<SandboxResult, "files"> & { files: { name: string; base64: string }[] })[];
  progress: number;
  runner: RunnerReport;
}

const { stringify } = JSON;
const say = (message: unknown): void => {
  const line = Buffer.from(`${stringify(message)}\n`);
  for (let at = 0; at < line.length;) {
    try {
      at += writeSync(4, line, at);
    } catch {
      // The pipe is full; the judge is reading.
    }
  }
};

const held = Buffer.from(["MEM", "SECRET", process.pid].join("-"));
Object.assign(globalThis, { attackSecret: held.toString() });

/** Longest standstill and largest memory since the last look. */
const gauge = { lastMs: performance.now(), delayMs: 0, rssMb: 0 };
function measure(): void {
  const nowMs = performance.now();
  gauge.delayMs = Math.max(gauge.delayMs, nowMs - gauge.lastMs - 10);
  gauge.lastMs = nowMs;
  gauge.rssMb = Math.max(gauge.rssMb, process.memoryUsage.rss() / 1_048_576);
}
setInterval(measure, 10);

function mergeCarelessly(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  try {
    merge({}, value);
  } catch {
    // Some of what an attack sends cannot be assigned; what could be is.
  }
}

/** What careless code does with a result. */
function merge(target: Record<string, unknown>, value: object): Record<string, unknown> {
  for (const [key, inner] of Object.entries(value)) {
    if (typeof inner !== "object" || inner === null || Array.isArray(inner)) target[key] = inner;
    else target[key] = merge((target[key] ?? {}) as Record<string, unknown>, inner as object); // careless on purpose
  }
  return target;
}

function pollutedNames(): string[] {
  const fresh: object = {};
  return ["polluted", "polluted2"].filter((name) => name in fresh);
}

function isIntact(): boolean {
  try {
    return (
      JSON.stringify === stringify && !readFileSync("/proc/self/status", "utf8").includes("EVIL")
    );
  } catch {
    return false;
  }
}

async function attack(sandbox: Sandbox, order: AttackOrder): Promise<AttackReply> {
  const { aim, programs, parallel, limits } = order;
  let progress = 0;
  const env = Object.fromEntries(
    Object.entries(aim).map(([name, value]) => [`ATTACK_${name.toUpperCase()}`, String(value)]),
  );
  const run = async ({ runtime, code, wallMs }: AttackProgram): Promise<SandboxResult> =>
    await sandbox.run({
      program: { runtime, code, ...(runtime === "bash" ? {} : { input: aim }) },
      limits: { ...limits, ...(wallMs === undefined ? {} : { wallMs }) },
      env,
      signal: new AbortController().signal,
      onProgress: () => void (progress += 1),
    });
  gauge.delayMs = 0;
  gauge.rssMb = 0;
  measure();
  const startMb = gauge.rssMb;
  const results: SandboxResult[] = [];
  if (parallel) results.push(...(await Promise.all(programs.map(run))));
  else for (const program of programs) results.push(await run(program));
  for (const { value } of results) mergeCarelessly(value);
  await new Promise((resolve) => setTimeout(resolve, 20)); // a loop that stood still shows at its next turn
  return {
    mark: aim.mark,
    results: results.map(({ files, ...rest }) => ({
      ...rest,
      files: files.map(({ name, bytes }) => ({
        name,
        base64: Buffer.from(bytes).toString("base64"),
      })),
    })),
    progress,
    runner: {
      delayMs: gauge.delayMs,
      grownMb: gauge.rssMb - startMb,
      polluted: pollutedNames(),
      intact: isIntact(),
    },
  };
}

const [place = ""] = process.argv.slice(2);
const opened = await openAttacked(JSON.parse(place) as AttackedPlace); // written by the judge
if (opened.ok) {
  say({ ready: true, tier: opened.sandbox.tier, pid: process.pid });
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const order = JSON.parse(line) as AttackOrder; // written by the judge
      void attack(opened.sandbox, order).then(say, (error: unknown) =>
        say({ mark: order.aim.mark, threw: String(error) }),
      );
    })
    .on("close", () => void opened.close().finally(() => process.exit(0)));
} else {
  say({ ready: false, reason: opened.reason });
  process.exit(0);
}
