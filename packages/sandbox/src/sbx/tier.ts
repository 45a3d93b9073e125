import { stat } from "node:fs/promises";
import { join } from "node:path";
import {
  addressMb,
  baseEnv,
  dataMb,
  type GuestPlaces,
  type HostParts,
  type Launch,
  type LaunchPlan,
  supervisorArgs,
  systemDirectories,
  systemRoots,
  systemSettings,
  type TierPlan,
} from "../launch.ts";
import { filterName, questionsName } from "../seccomp.ts";
import type { Slot } from "../slot.ts";
import { ownTasks } from "../user-processes.ts";

// Below 6 Landlock knows neither signals nor abstract sockets.
const leastLandlock = "6";
const devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

async function existing(paths: readonly string[]): Promise<string[]> {
  const facts = await Promise.all(
    paths.map(async (path) => await stat(path).catch(() => undefined)),
  );
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
  const name = filterName({
    sockets: "none",
    isMemoryCounted: slot.group !== undefined,
    seesHost: true,
  });
  return join(parts.filterDirectory, name);
}

function questionsOf(parts: HostParts, slot: Slot): string {
  const sockets = slot.group === undefined;
  return join(
    parts.filterDirectory,
    questionsName({ files: true, tasks: sockets && slot.user === undefined, sockets }),
  );
}

/**
 * Landlock, a seccomp program and limits through our own launcher: needs neither namespaces nor
 * privileges, and gives no network. A supervisor outside the sandbox ends what runs away from it.
 * Rejects when the launcher was not built.
 */
export async function sbxTier(parts: HostParts): Promise<TierPlan> {
  const { launcherPath } = parts;
  if (launcherPath === undefined) {
    throw new Error(
      "the launcher is not there: packages/sandbox/src/sbx/build.sh makes it with gcc",
    );
  }
  const readable = await readablePaths(parts);

  const command = launcherPath;

  async function plan(launch: Launch, slot: Slot): Promise<LaunchPlan> {
    const { limits } = launch;
    const bounds = {
      // One byte: too little for a file, and the mark by which the kernel starts no program that takes dumps.
      core: 1,
      nofile: limits.openFiles,
      fsize: limits.diskMb * 1_048_576,
      cpu: limits.cpuSeconds,
      data: dataMb(launch, slot) * 1_048_576,
      as: addressMb * 1_048_576,
      memlock: 65_536,
      msgqueue: 0,
      sigpending: 256,
      // The kernel counts all of a user. Where programs share this process's, the supervisor counts those of the run,
      // but can miss some that are made at the same moment: the kernel bounds them with all others of the user.
      nproc: limits.processes + (slot.user === undefined ? await ownTasks(parts.clock) : 0),
    };
    const args = [
      ["-l", leastLandlock, "-s", filterOf(parts, slot), "-q", questionsOf(parts, slot)],
      slot.user === undefined ? ["-n", String(limits.processes)] : ["-u", String(slot.user)],
      supervisorArgs(launch, slot),
      (slot.group?.entryFiles ?? []).flatMap((file) => ["-g", file]),
      Object.entries(bounds).flatMap(([name, value]) => ["-b", `${name}=${value}`]),
      [...readable, ...launch.readable.map(({ path }) => path)].flatMap((path) => ["-r", path]),
      [...devices, slot.directory].flatMap((path) => ["-w", path]),
      ["--", ...launch.command(placesOf(parts, slot))],
    ].flat();
    return {
      command,
      args,
      env: { ...baseEnv(placesOf(parts, slot), false), ...launch.env },
      cwd: slot.directory,
      filterPath: undefined,
      privateArgs: [],
      end: "supervisor",
      isDiskWatched: true,
    };
  }
  return { hasNetwork: false, hasOwnPaths: false, plan };
}
