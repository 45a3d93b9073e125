import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { getuid } from "node:process";
import { fileURLToPath } from "node:url";
import type { JudgeOrder } from "./attack-judge.fixture.ts";

const judgeScript = fileURLToPath(new URL("./attack-judge.fixture.ts", import.meta.url));
const checkout = fileURLToPath(new URL("../../..", import.meta.url));

/** A network of its own, in which the address of the metadata service is ours. */
const networkScript = 'ip link set lo up && ip addr add 169.254.169.254/32 dev lo && exec "$@"';
const ownNetwork = ["unshare", "--net", "/bin/sh", "-c", networkScript, "sh"];

/** A view of its own of the file system, in which the checkout has a place that every user may enter. */
function withOpenCheckout(place: string): string[] {
  const script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"';
  return ["unshare", "--mount", "/bin/sh", "-c", script, "sh", checkout, place];
}

function works(prefix: readonly string[]): boolean {
  const [command = "", ...args] = [...prefix, "true"];
  return getuid?.() === 0 && spawnSync(command, args, { stdio: "ignore" }).status === 0;
}

/** Whether any user may read the checkout: runners of ordinary users must. */
function isOpenToAll(): boolean {
  for (let path = checkout; path !== "/"; path = dirname(path)) {
    if ((statSync(path).mode & 0o001) === 0) return false;
  }
  return true;
}

/** The command of a judge, or why there can be none here. */
export function judgeCommand(
  order: JudgeOrder,
): { command: readonly string[]; cleanUp(): void } | { unavailable: string } {
  const network = works(ownNetwork) ? ownNetwork : [];
  const program = ["--no-warnings", judgeScript, JSON.stringify(order)];
  if (order.uid === undefined || isOpenToAll()) {
    return { command: [...network, process.execPath, ...program], cleanUp: () => {} };
  }
  const place = mkdtempSync(join(tmpdir(), "larkline-checkout-"));
  chmodSync(place, 0o755);
  if (!works(withOpenCheckout(place))) {
    rmdirSync(place);
    return { unavailable: "the checkout lies in a directory that ordinary users may not enter" };
  }
  const there = (path: string): string => join(place, relative(checkout, path));
  const node = process.execPath.startsWith(checkout) ? there(process.execPath) : process.execPath;
  return {
    command: [
      ...network,
      ...withOpenCheckout(place),
      node,
      "--no-warnings",
      there(judgeScript),
      JSON.stringify(order),
    ],
    cleanUp: () => rmdirSync(place),
  };
}
