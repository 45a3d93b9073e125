import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { codeCache, freePort } from "@larkline/testkit";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A run of `npm start` in a data folder and on ports of its own. */
export interface LauncherRun {
  ports: Record<"playground" | "ingress" | "worker" | "runner" | "console", number>;
  dataDirectory: string;
  /** Everything it has printed so far. */
  output(): string;
  kill(signal: NodeJS.Signals): void;
  /** Resolves when the launcher has ended and its output was read. */
  exitCode(): Promise<unknown>;
  /** Ids of the launcher and of everything that it started and that still runs (Linux). */
  processes(): number[];
  /** Ends whatever is left and removes the data folder. */
  cleanUp(): void;
}

function processesWith(variable: string): number[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      if (!/^\d+$/.test(name)) return [];
      return readFileSync(`/proc/${name}/environ`, "latin1").split("\0").includes(variable)
        ? [Number(name)]
        : [];
    } catch {
      return []; // ended meanwhile
    }
  });
}

export interface LauncherOptions {
  /** Changes the data folder, which is new and empty, before the start. */
  prepare?: (dataDirectory: string) => void;
  /** What the shell that starts it takes away from the rights of new files; default as ours. */
  umask?: string;
  /** Another checkout than this one. */
  checkout?: string;
}

/** Starts the launcher with these variables on top of a clean environment. */
export async function startLauncher(
  env: Record<string, string> = {},
  { prepare, umask = "", checkout = root }: LauncherOptions = {},
): Promise<LauncherRun> {
  const dataDirectory = mkdtempSync(join(tmpdir(), "larkline-launcher-"));
  prepare?.(dataDirectory);
  const [playground, ingress, worker, runner, operators] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const shell = `${umask === "" ? "" : `umask ${umask}; `}exec "$0" "$1"`;
  const child = spawn(
    "sh",
    ["-c", shell, process.execPath, join(checkout, "infra/dev/start.mjs")],
    {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        HOME: process.env["HOME"],
        LANG: "C",
        NODE_COMPILE_CACHE: codeCache,
        LARKLINE_INSTALL: "never",
        LARKLINE_DATA_DIR: dataDirectory,
        PLAYGROUND_PORT: String(playground),
        INGRESS_PORT: String(ingress),
        AGENT_WORKER_PORT: String(worker),
        TOOL_RUNNER_PORT: String(runner),
        CONSOLE_PORT: String(operators),
        ...env,
      },
    },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (data: string) => (output += data));
  }
  const ended = once(child, "exit");
  const processes = () => processesWith(`LARKLINE_DATA_DIR=${dataDirectory}`);
  return {
    ports: { playground, ingress, worker, runner, console: operators },
    dataDirectory,
    output: () => output,
    kill: (signal) => void child.kill(signal),
    exitCode: async () => (await ended)[0] as unknown,
    processes,
    cleanUp() {
      for (const pid of processes()) process.kill(pid, "SIGKILL");
      rmSync(dataDirectory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
