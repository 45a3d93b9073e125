import { execFileSync } from "node:child_process";

/** Ids of the living processes that a process has started; the one that looks is not counted. */
export function childrenOf(parentId: number): number[] {
  const table = execFileSync("ps", ["-A", "-o", "pid=,ppid=,stat=,comm="], { encoding: "utf8" });
  return table
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(
      ([, parent, state = "", command]) =>
        Number(parent) === parentId && !state.startsWith("Z") && command !== "ps",
    )
    .map(([id]) => Number(id));
}

/** Whether a process runs; a zombie, which has ended but has not been reaped by its parent, does not. */
export function isAlive(id: number): boolean {
  try {
    return !execFileSync("ps", ["-o", "stat=", "-p", String(id)], { encoding: "utf8" })
      .trim()
      .startsWith("Z");
  } catch {
    return false; // ps finds none
  }
}
