import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { Stopped } from "./failure.mjs";
import { root } from "./paths.mjs";

/** Whether a program of this name is on the PATH. */
export function isInstalled(program) {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Sends a signal to a process and everything it started (it leads a group of its own). */
export function signalGroup(child, signal) {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, signal);
  } catch {
    // Already gone.
  }
}

/**
 * Runs a program to its end and resolves with its exit code; -1 when it cannot be started. The whole
 * group is ended when `signal` aborts. `output` as in Node's `stdio`; default is our error output,
 * which keeps standard output for results.
 */
export async function runCommand(command, { signal, env = process.env, output = process.stderr }) {
  if (signal.aborted) throw new Stopped();
  const [program, ...args] = command;
  const child = spawn(program, args, {
    cwd: root,
    env,
    detached: true,
    stdio: ["ignore", output, output],
  });
  let killTimer;
  const stop = () => {
    signalGroup(child, "SIGTERM");
    killTimer = setTimeout(() => signalGroup(child, "SIGKILL"), 3_000);
  };
  signal.addEventListener("abort", stop, { once: true });
  const code = await new Promise((resolve) => {
    child.once("error", () => resolve(-1));
    child.once("exit", (exitCode) => resolve(exitCode ?? -1));
  });
  clearTimeout(killTimer);
  signal.removeEventListener("abort", stop);
  if (signal.aborted) throw new Stopped();
  return code;
}
