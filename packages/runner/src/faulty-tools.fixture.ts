import { spawn } from "node:child_process";
import { writeSync } from "node:fs";
import { appendFile, readFile } from "node:fs/promises";
import { createRequire, getCompileCacheDir } from "node:module";
import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import {
  defineTool,
  OutcomeUnknownError,
  type HandlerTool,
  type ToolContext,
  type ToolDefinition,
} from "@larkline/tool-kit";

type Input = Record<string, unknown>;

function toolOf(
  name: string,
  run: (input: Input, context: ToolContext) => unknown,
  more: Partial<ToolDefinition<Input>> = {},
): HandlerTool {
  const input: Input = { type: "object" };
  return defineTool({ name, description: "d", input, effect: "pure", run, ...more });
}

function spin(): never {
  for (;;);
}

function devourHeap(): never {
  const held: unknown[] = [];
  for (;;) held.push(Array.from({ length: 1_000 }, () => ({})));
}

/** Takes far more than it may have, but not all there is, and waits for its end: its parent may look late. */
async function devourBuffers(): Promise<number> {
  const held: Buffer[] = [];
  while (held.length < 16) {
    held.push(Buffer.alloc(32 * 1_048_576, 1));
    await delay(5);
  }
  await delay(60_000);
  return held.length;
}

/** Writes what no tool can say through its context. */
function gossip(): string {
  for (let id = 1; id < 10; id += 1) {
    const text = JSON.stringify({ kind: "event", id, body: { kind: "gossip", secret: "geheim" } });
    const frame = Buffer.alloc(4 + Buffer.byteLength(text));
    frame.writeUInt32LE(Buffer.byteLength(text));
    frame.write(text, 4);
    writeSync(3, frame);
  }
  return "said";
}

/** A process that outlives its tool, if it can. */
function leaveBehind(): number {
  const child = spawn("sleep", ["600"], { stdio: "ignore" });
  child.unref();
  return child.pid ?? 0;
}

let calls = 0;

const shared = { isolation: { level: "process", concurrency: 16 } } as const;
const met: (() => void)[] = [];

/** Answers when as many calls as `input.calls` are in this process at once. */
async function meet({ calls: wanted }: Input): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<void>();
  met.push(resolve);
  if (met.length === wanted) for (const go of met.splice(0)) go();
  await promise;
  return process.pid;
}

/** Notes that it runs in the file `input.notes`, and answers when that says to go, or to how often it has been run. */
async function hold({ notes, until }: Input): Promise<string> {
  await appendFile(String(notes), "run\n");
  for (;;) {
    const lines = (await readFile(String(notes), "utf8")).trim().split("\n");
    if (lines.length >= Number(until) || lines.includes("go")) {
      return `${lines.filter((line) => line === "run").length} ${process.pid}`;
    }
    await delay(10);
  }
}

/** Tools that do what tools must not do. */
export default [
  toolOf("echo", (input) => input),
  toolOf("count", () => (calls += 1)),
  toolOf("pid", () => process.pid),
  toolOf("whoami", (_input, { callId, turnId, actor, authority }) => ({
    callId,
    turnId,
    actor,
    authority,
  })),
  toolOf("exit", () => process.exit(3)),
  toolOf("exit_once", () => process.exit(3), { effect: "once" }),
  toolOf("abort", () => process.abort()),
  toolOf("shot", () => process.kill(process.pid, "SIGKILL")),
  toolOf("late_throw", async () => {
    setTimeout(() => {
      throw new Error("nobody catches this");
    });
    await delay(2_000);
  }),
  toolOf("spin", spin, { timeoutMs: 300 }),
  toolOf("spin_once", spin, { timeoutMs: 300, effect: "once" }),
  toolOf("heap", devourHeap, { isolation: { level: "process", memoryMb: 64 } }),
  toolOf("buffers", devourBuffers, { isolation: { level: "process", memoryMb: 64 } }),
  toolOf("deaf", async () => await delay(60_000)),
  toolOf("obedient", async (_input, { signal }) => await delay(60_000, undefined, { signal })),
  toolOf("unsure", () => Promise.reject(new OutcomeUnknownError("the other side never answered")), {
    effect: "once",
  }),
  toolOf("variables", () => env),
  toolOf("named_variable", () => env, {
    isolation: { level: "process", env: ["LARKLINE_GIVEN", "NOT_SET"] },
  }),
  toolOf("start_of_process", () => ({
    codeCache: getCompileCacheDir(),
    checkers: Object.keys(createRequire(import.meta.url).cache).filter((path) =>
      path.includes("/ajv/"),
    ),
  })),
  toolOf("arguments_of_process", () => [...process.argv, ...process.execArgv]),
  toolOf("talk", async (_input, { progress, log }) => {
    progress(0.25, "a quarter");
    log("half way", { rows: 7 });
    process.stderr.write("a line on stderr\n");
    progress(1);
    return await Promise.resolve("done");
  }),
  toolOf("chatter", (_input, { progress, log }) => {
    for (let step = 0; step < 100_000; step += 1) {
      progress(step / 100_000);
      log(`line ${step}`);
    }
    return "tired";
  }),
  toolOf("gossip", gossip),
  toolOf("meet", meet, shared),
  toolOf("hold", hold, shared),
  toolOf("hold_once", hold, { ...shared, effect: "once" }),
  toolOf("shared_exit", () => process.exit(3), shared),
  toolOf("shared_spin", spin, { ...shared, timeoutMs: 300 }),
  toolOf("shared_deaf", async () => await delay(600_000), shared),
  toolOf("leave_behind", leaveBehind),
  toolOf("large", () => "长".repeat(400_000)),
  toolOf("deep", () => {
    let value: unknown = 1;
    for (let depth = 0; depth < 200; depth += 1) value = [value];
    return value;
  }),
  toolOf(
    "draw",
    async (_input, { saveFile }) =>
      await saveFile(Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1"), {
        mediaType: "image/png",
        name: "p",
      }),
    { savesFiles: true },
  ),
];
