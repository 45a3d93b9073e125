import { spawn, type ChildProcess, type SpawnOptions } from "node:child_process";

/**
 * Starts a process. Throws where none can be made because this process has no descriptors left: Node
 * then returns one without streams. Other failures come as the event `error`.
 */
export function spawnProcess(command: string, args: readonly string[], options: SpawnOptions): ChildProcess {
  const child = spawn(command, args, options);
  child.on("error", () => {}); // who waits for the end listens too
  const stdio: unknown = child.stdio;
  if (stdio === undefined) throw new Error("no process can be started: too many open files");
  return child;
}
