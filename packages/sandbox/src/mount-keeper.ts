import { spawn } from "node:child_process";
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { runCommand } from "./removal.ts";

/**
 * A process that keeps a namespace of mounts, in which an ordinary user may mount file systems of a
 * bounded size. The namespace ends with this process, and all that is mounted in it.
 */
export interface MountKeeper {
  /** What a command is put behind in order to see the mounts. It has all rights there, and none outside. */
  readonly enter: readonly string[];
  /** Where this process sees what has a path in the namespace. */
  seen(path: string): string;
  mount(path: string, settings: string): Promise<void>;
  /** For a mount that is empty: a new one with other settings. */
  mountAgain(path: string, settings: string): Promise<void>;
  close(): void;
}

const startMs = 5_000;

/** Undefined where this user may make no such namespace. */
export async function openMountKeeper(): Promise<MountKeeper | undefined> {
  const keeper = spawn("unshare", ["--user", "--map-root-user", "--mount", "/bin/sh", "-c", "echo ready; read end"], {
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    stdio: ["pipe", "pipe", "ignore"],
    cwd: "/",
  });
  keeper.on("error", () => {});
  keeper.stdin.on("error", () => {});
  const ended = once(keeper, "close").then(() => undefined);
  const isReady = await Promise.race([once(keeper.stdout, "data", { signal: AbortSignal.timeout(startMs) }), ended])
    .then((said) => said !== undefined)
    .catch(() => false);
  const { pid } = keeper;
  if (!isReady || pid === undefined) {
    keeper.kill("SIGKILL");
    return undefined;
  }
  for (const one of [keeper, keeper.stdin, keeper.stdout]) if ("unref" in one) (one as { unref(): void }).unref(); // pipes are sockets
  const enter = ["nsenter", "--target", String(pid), "--user", "--mount", "--preserve-credentials", "--"];
  const seen = (path: string): string => `/proc/${pid}/root${path}`;
  const run = async (command: readonly string[]): Promise<void> => {
    const [program = "", ...args] = [...enter, ...command];
    await runCommand(program, args);
  };
  const mount = async (path: string, settings: string): Promise<void> => {
    await run(["mount", "-t", "tmpfs", "-o", settings, "larkline", path]);
    // A process that is not to be looked into keeps its mounts to itself.
    if ((await stat(seen(path))).dev === (await stat(path)).dev) throw new Error("the mount is not to be seen");
  };
  return {
    enter,
    seen,
    mount,
    mountAgain: async (path, settings) => {
      await run(["umount", path]);
      await mount(path, settings);
    },
    close: () => keeper.kill("SIGKILL"),
  };
}
