import { spawn, type ChildProcess } from "node:child_process";
import { createWriteStream } from "node:fs";
import { fileURLToPath } from "node:url";
import { codeCache } from "@larkline/testkit";

const repository = fileURLToPath(new URL("../..", import.meta.url));

/** What every process starts with. */
const ownEnvironment = {
  PATH: process.env["PATH"] ?? "",
  HOST: "127.0.0.1",
  NODE_COMPILE_CACHE: codeCache,
};

export type AppName = "ingress" | "agent-worker" | "tool-runner" | "console";

/** An app, in the test's own process or in one of its own. */
export interface App {
  readonly name: string;
  readonly url: string;
  /** The newest output, for a failure's message. */
  output(): string;
  /** Lets it finish or hand over its work, and waits. Resolves to the exit code. */
  stop(): Promise<number | null>;
  /** Ends it at once, whatever it is doing: a process by SIGKILL, and waits. */
  kill(): Promise<void>;
}

/** A real process of one app. */
export interface AppProcess extends App {
  readonly pid: number;
  /** Settles when the process has ended. */
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  signal(name: NodeJS.Signals): void;
}

/** What to run: a file of the repository, with arguments. */
export interface Program {
  file: string;
  args?: string[];
}

export interface AppProcessOptions {
  program: Program;
  port: number;
  env: Record<string, string>;
  /** How long it may take to be ready. */
  readyMs?: number;
  /** Where all that it says is kept; the process id is added to the name. */
  logFile?: string;
}

function collect(
  child: ChildProcess,
  { most, logFile }: { most: number; logFile?: string | undefined },
): () => string {
  let text = "";
  const log =
    logFile === undefined ? undefined : createWriteStream(`${logFile}-${child.pid ?? 0}.log`);
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (data: Buffer) => {
      text = (text + data.toString()).slice(-most);
      log?.write(data);
    });
  }
  return () => text;
}

/** Waits until the process answers `/ready` with 200. */
async function untilReady(url: string, ended: () => boolean, deadlineMs: number): Promise<void> {
  const until = Date.now() + deadlineMs;
  for (;;) {
    const ready = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(2_000) }).catch(
      () => undefined,
    );
    if (ready?.status === 200) return;
    if (ended()) throw new Error("ended before it was ready");
    if (Date.now() > until) {
      throw new Error(`not ready after ${deadlineMs} ms (${ready?.status ?? "no answer"})`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** As the images and `npm start` do (infra/docker/Dockerfile, infra/dev/launcher/service.mjs). */
const nodeFlags = ["--max-semi-space-size=16"];

/** Starts a program with Node and nothing of our own environment but PATH. */
export async function startApp(options: AppProcessOptions): Promise<AppProcess> {
  const { program, port, env, readyMs = 180_000, logFile } = options;
  const child = spawn(process.execPath, [...nodeFlags, program.file, ...(program.args ?? [])], {
    cwd: repository,
    env: { ...ownEnvironment, PORT: String(port), LOG_LEVEL: "info", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = collect(child, { most: 20_000, logFile });
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  const url = `http://127.0.0.1:${port}`;
  try {
    await untilReady(url, () => child.exitCode !== null || child.signalCode !== null, readyMs);
  } catch (error) {
    child.kill("SIGKILL");
    throw new Error(
      `${program.file}: ${error instanceof Error ? error.message : String(error)}\n${output()}`,
      {
        cause: error,
      },
    );
  }
  return {
    name: program.file,
    url,
    pid: child.pid ?? 0,
    exited,
    output,
    signal: (name) => void child.kill(name),
    stop: async () => {
      child.kill("SIGTERM");
      return (await exited).code;
    },
    kill: async () => {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Runs a program that is expected to end by itself; after `deadlineMs` it is killed. */
export async function runApp(
  { file, args = [] }: Program,
  env: Record<string, string>,
  deadlineMs = 80_000,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [file, ...args], {
    cwd: repository,
    env: { ...ownEnvironment, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: deadlineMs,
    killSignal: "SIGKILL",
  });
  const output = collect(child, { most: 10_000_000 });
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, output: output() };
}
