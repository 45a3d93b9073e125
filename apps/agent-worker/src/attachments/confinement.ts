import type { ForkOptions } from "node:child_process";
import { Socket as DatagramSocket } from "node:dgram";
import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import { Server, Socket } from "node:net";
import { fileURLToPath } from "node:url";

/** The folders of the program and its libraries: all that the process may read. */
function readableFolders(): string[] {
  const library = fileURLToPath(import.meta.resolve("pdfjs-dist/package.json"));
  const modules = library.slice(0, library.indexOf("/node_modules/") + "/node_modules/".length);
  const own = fileURLToPath(new URL("./", import.meta.url));
  const links = ["@silvia-odwyer/photon-node", "htmlparser2", "pdfjs-dist", "yauzl"].map((name) =>
    fileURLToPath(new URL(`../../node_modules/${name}`, import.meta.url)),
  );
  return [own, ...links, modules];
}

/** How to start a process that reads hostile files: no environment, no output, few rights, little memory. */
export function confinedFork({ memoryMb }: { memoryMb: number }): ForkOptions {
  return {
    env: {},
    cwd: "/",
    execArgv: [
      // What files expand to lies outside the heap and needs room too.
      `--max-old-space-size=${Math.ceil(memoryMb * 0.6)}`,
      "--permission",
      "--allow-worker", // for the watchdog alone; see confine
      ...readableFolders().map((folder) => `--allow-fs-read=${folder}`),
      "--no-experimental-sqlite", // it opens and makes files past the permission model
      "--disallow-code-generation-from-strings",
      "--disable-proto=delete",
    ],
    serialization: "advanced",
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  };
}

function refuse(): never {
  throw new Error("not allowed here");
}

function functionsOf(target: object): string[] {
  return Object.getOwnPropertyNames(target).filter(
    (name) => typeof Reflect.get(target, name) === "function",
  );
}

/**
 * Gives up what the start of the process needed and its work does not. The permission model covers
 * neither threads, which run outside it, nor sockets, names and signals.
 */
export function confine(): void {
  const { permission } = process;
  // Neither all versions of Node nor its types have this function.
  if ("drop" in permission && typeof permission.drop === "function") permission.drop("worker");
  const doors: [object, string[]][] = [
    [Socket.prototype, ["connect"]],
    [Server.prototype, ["listen"]],
    [DatagramSocket.prototype, ["bind", "connect", "send"]],
    [dns.promises, functionsOf(dns.promises)],
    [dns, functionsOf(dns)],
    [process, ["kill", "_kill", "_debugProcess"]],
  ];
  for (const [target, names] of doors) {
    for (const name of names) Object.defineProperty(target, name, { value: refuse });
  }
  syncBuiltinESMExports();
}
