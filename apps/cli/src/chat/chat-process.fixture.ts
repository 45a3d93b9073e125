import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { codeCache } from "@larkline/testkit";
import { expect, vi } from "vitest";

// For tests: the program as a process of its own.

const program = fileURLToPath(new URL("../main.ts", import.meta.url));

export interface ChatProcess {
  process: ChildProcessByStdio<Writable, Readable, null>;
  type(line: string): void;
  /** All that it has printed. */
  screen(): string;
  until(part: string): Promise<void>;
  exitCode(): Promise<unknown>;
}

export function startChat(
  args: string[],
  env: Record<string, string> = {},
  cwd = process.cwd(),
): ChatProcess {
  const started = spawn(process.execPath, [program, "chat", ...args], {
    env: { NODE_COMPILE_CACHE: codeCache, ...env },
    cwd,
    stdio: ["pipe", "pipe", "inherit"],
  });
  let screen = "";
  started.stdout.setEncoding("utf8").on("data", (data: string) => (screen += data));
  const ended = once(started, "close");
  return {
    process: started,
    type: (line) => void started.stdin.write(`${line}\n`),
    screen: () => screen,
    until: async (part) =>
      await vi.waitFor(() => expect(screen).toContain(part), { timeout: 60_000, interval: 10 }),
    exitCode: async () => (await ended)[0] as unknown,
  };
}
