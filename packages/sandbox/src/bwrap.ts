import { lstat, readlink } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import type { Clock } from "@larkline/protocol/clock";
import {
  addressMb,
  baseEnv,
  dataMb,
  type GuestPlaces,
  type HostParts,
  type Launch,
  type LaunchPlan,
  proxyPort,
  supervisorArgs,
  systemDirectories,
  systemRoots,
  systemSettings,
  type TierPlan,
} from "./launch.ts";
import { filterName, questionsName } from "./seccomp.ts";
import type { Slot } from "./slot.ts";
import { ownTasks } from "./user-processes.ts";

// Descriptors for the command line: see `guest-process.ts`.
const lastDescriptor = "6";
const places: GuestPlaces = {
  node: "/opt/larkline/bin/node",
  python: "", // the host's own path
  guest: "/opt/larkline/guest",
  work: "/sandbox",
  temporary: "/tmp",
  egressSocket: "/run/egress.sock",
};

/** `/bin` and the like as they are on this host. */
async function rootArgs(): Promise<string[]> {
  const args = systemRoots.map(async (path) => {
    const facts = await lstat(path).catch(() => undefined);
    if (facts?.isSymbolicLink() === true) return ["--symlink", await readlink(path), path];
    return facts?.isDirectory() === true ? ["--ro-bind", path, path] : [];
  });
  return (await Promise.all(args)).flat();
}

function readOnly(paths: readonly string[]): string[] {
  return paths.flatMap((path) => ["--ro-bind-try", path, path]);
}

/** All mounts but the working directory and the paths that a program asks for. */
async function systemArgs(parts: HostParts): Promise<string[]> {
  const files = ["passwd", "group", "hosts", "nsswitch.conf"];
  return [
    readOnly([...systemDirectories, ...systemSettings]),
    await rootArgs(),
    files.flatMap((name) => ["--ro-bind", join(parts.etcDirectory, name), `/etc/${name}`]),
    ["--ro-bind", parts.nodePath, places.node],
    ["--ro-bind", parts.guestDirectory, places.guest],
    readOnly(parts.python?.readable ?? []),
    // A fresh /dev can be written without bound until it is mounted again.
    [
      "--proc",
      "/proc",
      "--dev",
      "/dev",
      "--size",
      "1048576",
      "--tmpfs",
      "/dev/shm",
      "--remount-ro",
      "/dev",
    ],
  ].flat();
}

// The program is the first process of its namespace: it leaves no zombie, and all others end with it.
const isolation = [
  [
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
  ],
  ["--cap-drop", "ALL", "--hostname", "sandbox", "--uid", "1000", "--gid", "1000", "--clearenv"],
].flat();

function setEnv(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value]);
}

function dropUser(slot: Slot): string[] {
  const user =
    slot.user === undefined
      ? []
      : [`--reuid=${slot.user}`, `--regid=${slot.user}`, "--clear-groups"];
  return ["setpriv", ...user, "--inh-caps=-all", "--no-new-privs"];
}

/** Starts the bridge, waits until it listens, and becomes the program. */
function bridged(command: readonly string[]): string[] {
  const bridge = `exec ${places.node} --max-old-space-size=32 ${places.guest}/bridge.cjs ${places.egressSocket} ${proxyPort}`;
  const script = `exec 9< <(${bridge} 3>&- 4<&- </dev/null 2>/dev/null); read -r -n 1 -u 9 || exit 73; exec 9<&-; exec "$@"`;
  return ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", ...command];
}

/** Directories for temporary files: those of the slot where they have a bounded number of files. */
function temporaryArgs({ limits }: Launch, { inside, sizedMb }: Slot): string[] {
  if (sizedMb !== undefined) {
    return ["/tmp", "/dev/shm"].flatMap((path) => ["--bind", inside.temporary, path]);
  }
  return ["--size", String(limits.diskMb * 1_048_576), "--tmpfs", "/tmp"];
}

/** Without control groups the supervisor of `sbx/sbx.c` counts memory, outside the namespaces. */
function supervision(parts: HostParts, { launch, slot }: { launch: Launch; slot: Slot }): string[] {
  const questions = questionsName({ files: false, tasks: false, sockets: true });
  return [
    ["-q", join(parts.filterDirectory, questions), "-o", lastDescriptor],
    ["-b", "memlock=65536", "-b", "msgqueue=0", "-b", "sigpending=256"],
    [...supervisorArgs(launch, slot), "-w", slot.directory, "--"],
  ].flat();
}

/**
 * Namespaces of the kernel through bubblewrap, as a user of its own where that is possible, with a
 * seccomp program and limits. What the program sees of the host is the operating system, read-only.
 */
export async function bwrapTier(parts: HostParts): Promise<TierPlan> {
  const system = await systemArgs(parts);
  const inside: GuestPlaces = { ...places, python: parts.python?.path ?? "" };

  async function plan(launch: Launch, slot: Slot): Promise<LaunchPlan> {
    const isNetworked = launch.egressSocket !== undefined;
    const isMemoryCounted = slot.group !== undefined;
    // Internet sockets have large buffers. Where no group counts them they are allowed for the proxy only.
    const sockets = isMemoryCounted || isNetworked ? "loopback" : "none";
    const supervisor = isMemoryCounted ? undefined : parts.launcherPath;
    const limitedInside = taskLimitInside(launch, slot);
    const command = [...limitedInside, ...launch.command(inside)];
    const privateArgs = setEnv(launch.env);
    const args = [
      await limitsPrefix(launch, slot, {
        clock: parts.clock,
        limitedInside: limitedInside.length > 0,
      }),
      dropUser(slot),
      [...slot.enter, "bwrap", ...isolation],
      setEnv(baseEnv(inside, isNetworked)),
      privateArgs.length === 0 ? [] : ["--args", "6"],
      system,
      temporaryArgs(launch, slot),
      launch.readable.flatMap(({ source, path }) => ["--ro-bind", source, path]),
      ["--bind", slot.inside.directory, inside.work, "--chdir", inside.work],
      isNetworked ? ["--ro-bind", launch.egressSocket ?? "", inside.egressSocket] : [],
      [
        "--remount-ro",
        "/",
        ...(supervisor === undefined ? ["--info-fd", "5"] : []),
        "--seccomp",
        "4",
        "--",
      ],
      isNetworked ? bridged(command) : command,
    ].flat();
    return {
      command: supervisor ?? "/bin/bash",
      args:
        supervisor === undefined
          ? args
          : [...supervision(parts, { launch, slot }), "/bin/bash", ...args],
      env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" },
      cwd: "/",
      filterPath: join(
        parts.filterDirectory,
        filterName({ sockets, isMemoryCounted, seesHost: false }),
      ),
      privateArgs,
      end: supervisor === undefined ? "namespace" : "supervisor",
      isDiskWatched: supervisor !== undefined,
    };
  }
  return { hasNetwork: true, hasOwnPaths: true, plan };
}

/* ---- Limits outside and inside ---- */

/** The kernel's limit of processes counts all of a user, so the processes of this process's own user are added. */
async function taskLimit(launch: Launch, slot: Slot, clock: Clock): Promise<number> {
  const others = slot.user === undefined ? await ownTasks(clock) : 0;
  return others + launch.limits.processes;
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`)}'`;
}

/** Since Linux 5.14 each user namespace has its own count of processes. */
const [major = 0, minor = 0] = release().split(".").map(Number);
const countsInNamespaces = major > 5 || (major === 5 && minor >= 14);

/**
 * For the inside of a user namespace that has no user of its own: limits the processes there exactly,
 * whatever else runs as this user, which a limit set outside would count as well.
 */
export function taskLimitInside({ limits }: Launch, slot: Slot): string[] {
  if (slot.user !== undefined || !countsInNamespaces) return [];
  return [
    "/bin/bash",
    "--noprofile",
    "--norc",
    "-c",
    `ulimit -u ${limits.processes} && exec "$@"`,
    "bash",
  ];
}

interface PrefixFacts {
  clock: Clock;
  /** Whether what follows limits the processes itself, in a namespace. */
  limitedInside: boolean;
}

/**
 * A shell that gives up the descriptors this process has itself inherited (Node passes them on),
 * enters the control group, takes its limits and becomes what follows.
 */
async function limitsPrefix(
  launch: Launch,
  slot: Slot,
  { clock, limitedInside }: PrefixFacts,
): Promise<string[]> {
  const { limits } = launch;
  const enter = (slot.group?.entryFiles ?? []).map((file) => `echo 0 > ${quoted(file)} || exit 71`);
  const script = [
    'for f in /proc/self/fd/*; do n=${f##*/}; [ "$n" -gt 6 ] && eval "exec $n>&-"; done',
    ...enter,
    "ulimit -c 0",
    // A limit that cannot be set is already lower.
    `ulimit -n ${limits.openFiles} 2>/dev/null`,
    `ulimit -f ${limits.diskMb * 1_024} 2>/dev/null`,
    `ulimit -t ${limits.cpuSeconds} 2>/dev/null`,
    `ulimit -v ${addressMb * 1_024} 2>/dev/null`,
    `ulimit -d ${dataMb(launch, slot) * 1_024} 2>/dev/null`,
    ...(limitedInside ? [] : [`ulimit -u ${await taskLimit(launch, slot, clock)} 2>/dev/null`]),
    'exec "$@"',
  ].join("\n");
  return ["--noprofile", "--norc", "-c", script, "sh"];
}
