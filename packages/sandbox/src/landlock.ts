import { access, stat } from "node:fs/promises";
import { constants } from "node:fs";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import {
  baseEnv,
  dataMb,
  systemDirectories,
  systemRoots,
  systemSettings,
  type GuestPlaces,
  type HostParts,
  type Launch,
  type LaunchPlan,
  type TierPlan,
} from "./launch.ts";
import { limitsPrefix, taskLimit } from "./limits-prefix.ts";
import type { Slot } from "./slot.ts";

const execute = promisify(execFile);
// Below 6 Landlock knows neither signals nor abstract sockets.
const leastLandlock = "6";
const devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

async function existing(paths: readonly string[]): Promise<string[]> {
  const facts = await Promise.all(paths.map(async (path) => await stat(path).catch(() => undefined)));
  return paths.filter((_, at) => facts[at] !== undefined);
}

function placesOf(parts: HostParts, slot: Slot): GuestPlaces {
  const { directory } = slot;
  return {
    node: parts.nodePath,
    python: parts.python?.path ?? "",
    guest: parts.guestDirectory,
    work: directory,
    temporary: directory,
    egressSocket: "",
  };
}

/** What programs see of the host. */
async function readablePaths(parts: HostParts): Promise<string[]> {
  return await existing([
    ...systemDirectories,
    ...systemRoots,
    ...systemSettings,
    parts.nodePath,
    parts.guestDirectory,
    ...(parts.python?.readable ?? []),
  ]);
}

function filterOf(parts: HostParts, slot: Slot): string {
  return join(parts.filterDirectory, slot.group === undefined ? "none-without-shared-memory" : "none");
}

function common(
  parts: HostParts,
  { launch, slot }: { launch: Launch; slot: Slot },
): Omit<LaunchPlan, "command" | "args" | "end"> {
  return {
    env: { ...baseEnv(placesOf(parts, slot), false), ...launch.env },
    cwd: slot.directory,
    filterPath: undefined,
    privateArgs: [],
  };
}

/**
 * Landlock, a seccomp program and limits through our own launcher: needs neither namespaces nor
 * privileges, and gives no network. A supervisor outside the sandbox ends what runs away from it.
 * Rejects when the launcher was not built.
 */
export async function supervisedTier(parts: HostParts): Promise<TierPlan> {
  const isBuilt = await access(parts.launcherPath, constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!isBuilt) throw new Error("the launcher is not there: packages/sandbox/native/build.sh makes it with gcc");
  const readable = await readablePaths(parts);

  async function plan(launch: Launch, slot: Slot): Promise<LaunchPlan> {
    const { limits } = launch;
    const bounds = {
      core: 0,
      nofile: limits.openFiles,
      fsize: limits.diskMb * 1_048_576,
      cpu: limits.cpuSeconds,
      data: dataMb(launch, slot) * 1_048_576,
      nproc: await taskLimit(launch, slot),
    };
    const args = [
      ["-l", leastLandlock, "-s", filterOf(parts, slot)],
      slot.user === undefined ? [] : ["-u", String(slot.user)],
      (slot.group?.entryFiles ?? []).flatMap((file) => ["-g", file]),
      Object.entries(bounds).flatMap(([name, value]) => ["-b", `${name}=${value}`]),
      [...readable, ...launch.readable.map(({ path }) => path)].flatMap((path) => ["-r", path]),
      [...devices, slot.directory].flatMap((path) => ["-w", path]),
      ["--", ...launch.command(placesOf(parts, slot))],
    ].flat();
    return { ...common(parts, { launch, slot }), command: parts.launcherPath, args, end: "supervisor" };
  }
  return { hasNetwork: false, hasOwnPaths: false, plan };
}

async function requireSetpriv(): Promise<void> {
  const { stdout } = await execute("setpriv", ["--help"], { env: { PATH: "/usr/bin:/bin" } }).catch(() => ({
    stdout: "",
  }));
  if (!stdout.includes("--landlock-access") || !stdout.includes("--seccomp-filter")) {
    throw new Error("setpriv of util-linux 2.41 or newer is not there");
  }
}

function rule(rights: string, path: string): string[] {
  return ["--landlock-rule", `path-beneath:${rights}:${path}`];
}

async function readRule(path: string): Promise<string[]> {
  return rule((await stat(path)).isDirectory() ? "execute,read-file,read-dir" : "execute,read-file", path);
}

const ownRights =
  "read-file,write-file,read-dir,remove-dir,remove-file,make-dir,make-reg,make-sym,make-fifo,make-sock,truncate,refer,execute";

/**
 * The same through the system's own setpriv, as a user for each slot: only that finds what runs
 * away. Rejects where setpriv is too old or this process may not change users.
 */
export async function setprivTier(parts: HostParts): Promise<TierPlan> {
  await requireSetpriv();
  const readable = await readablePaths(parts);

  async function plan(launch: Launch, slot: Slot): Promise<LaunchPlan> {
    if (slot.user === undefined) throw new Error("this process may not start programs as other users");
    const rules = await Promise.all([...readable, ...launch.readable.map(({ path }) => path)].map(readRule));
    const args = [
      await limitsPrefix(launch, slot),
      [
        "setpriv",
        `--reuid=${slot.user}`,
        `--regid=${slot.user}`,
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
      ],
      ["--pdeathsig", "KILL", "--landlock-access", "fs"],
      rules.flat(),
      devices.flatMap((path) => rule("read-file,write-file", path)),
      rule(ownRights, slot.directory),
      ["--seccomp-filter", filterOf(parts, slot), "--", ...launch.command(placesOf(parts, slot))],
    ].flat();
    return { ...common(parts, { launch, slot }), command: "/bin/bash", args, end: "group" };
  }
  return { hasNetwork: false, hasOwnPaths: false, plan };
}
