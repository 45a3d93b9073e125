import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

function commandOf(pid) {
  try {
    if (process.platform === "linux") return readFileSync(`/proc/${pid}/cmdline`, "utf8");
    return execFileSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" });
  } catch {
    return "";
  }
}

/** Whether this process lives and is the program we think it is (numbers are used again). */
export function isRunning(pid, program) {
  return Number.isInteger(pid) && pid > 0 && commandOf(pid).includes(program);
}

/** Asks every 30 ms until the answer is yes; false when the deadline passes. */
export async function until(ask, { deadlineMs }) {
  const endMs = Date.now() + deadlineMs;
  while (Date.now() < endMs) {
    if (await ask()) return true;
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  return false;
}
