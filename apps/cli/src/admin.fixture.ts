import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { codeCache, freePort } from "@larkline/testkit";

// For tests: the program as a process of its own, in an empty folder.

const program = fileURLToPath(new URL("main.ts", import.meta.url));

export interface AdminRun {
  /** Ctrl-C, or another signal. */
  interrupt(signal?: NodeJS.Signals): void;
  /** Everything it has printed so far. */
  output(): string;
  /** Types a line. */
  type(line: string): void;
  endInput(): void;
  exitCode(): Promise<unknown>;
}

export interface Workplace {
  /** Where it runs. */
  folder: string;
  /** Ports without a listener, as variables. */
  ports: Readonly<Record<string, string>>;
  run(args: readonly string[], env?: Record<string, string>): AdminRun;
  /** Ends what still runs and removes the folder. */
  close(): Promise<void>;
}

/** A folder to run in. Nothing listens on the ports that the program looks at, unless `env` says so. */
export async function openWorkplace(): Promise<Workplace> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-admin-"));
  const ports = {
    INGRESS_PORT: await freePort(),
    AGENT_WORKER_PORT: await freePort(),
    TOOL_RUNNER_PORT: await freePort(),
  };
  const base = Object.fromEntries(
    Object.entries(ports).map(([name, port]) => [name, String(port)]),
  );
  const children: ChildProcess[] = [];
  return {
    folder,
    ports: base,
    run: (args, env = {}) => {
      const child = spawn(process.execPath, [program, ...args], {
        cwd: folder,
        env: { LANG: "C", NODE_COMPILE_CACHE: codeCache, ...base, ...env },
        stdio: ["pipe", "pipe", "pipe"],
      });
      children.push(child);
      let output = "";
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (data: string) => (output += data));
      }
      child.stdin.on("error", () => undefined); // it may have left before reading
      const ended = once(child, "close");
      return {
        interrupt: (signal = "SIGINT") => void child.kill(signal),
        output: () => output,
        type: (line) => void child.stdin.write(`${line}\n`),
        endInput: () => void child.stdin.end(),
        exitCode: async () => {
          const [code] = await ended;
          return code as unknown;
        },
      };
    },
    close: async () => {
      for (const child of children) child.kill("SIGKILL");
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
