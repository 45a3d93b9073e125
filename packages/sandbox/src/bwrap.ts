import { lstat, readlink } from "node:fs/promises";
import { join } from "node:path";
import {
  baseEnv,
  proxyPort,
  supervisorArgs,
  systemDirectories,
  systemRoots,
  systemSettings,
  type GuestPlaces,
  type HostParts,
  type Launch,
  type LaunchPlan,
  type TierPlan,
} from "./launch.ts";
import { filterName, questionsName } from "./seccomp.ts";
import { limitsPrefix, taskLimitInside } from "./limits-prefix.ts";
import type { Slot } from "./slot.ts";

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

/** Everything that is a file system, but the working directory and what the program asks for. */
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
    ["--proc", "/proc", "--dev", "/dev", "--size", "1048576", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"],
  ].flat();
}

// As the first process of its namespace the program leaves no zombie behind, and all end with it.
const isolation = [
  ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1"],
  ["--cap-drop", "ALL", "--hostname", "sandbox", "--uid", "1000", "--gid", "1000", "--clearenv"],
].flat();

function setEnv(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value]);
}

function dropUser(slot: Slot): string[] {
  const user = slot.user === undefined ? [] : [`--reuid=${slot.user}`, `--regid=${slot.user}`, "--clear-groups"];
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
  if (sizedMb !== undefined) return ["/tmp", "/dev/shm"].flatMap((path) => ["--bind", inside.temporary, path]);
  return ["--size", String(limits.diskMb * 1_048_576), "--tmpfs", "/tmp"];
}

/** Where no control group counts memory the supervisor of `native/sbx.c` does, outside the namespaces. */
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
    // Sockets of the internet keep more in their buffers than others: where no group counts that, only for the proxy.
    const sockets = isMemoryCounted || isNetworked ? "loopback" : "none";
    const supervisor = isMemoryCounted ? undefined : parts.launcherPath;
    const limitedInside = taskLimitInside(launch, slot);
    const command = [...limitedInside, ...launch.command(inside)];
    const privateArgs = setEnv(launch.env);
    const args = [
      await limitsPrefix(launch, slot, limitedInside.length > 0),
      dropUser(slot),
      [...slot.enter, "bwrap", ...isolation],
      setEnv(baseEnv(inside, isNetworked)),
      privateArgs.length === 0 ? [] : ["--args", "6"],
      system,
      temporaryArgs(launch, slot),
      launch.readable.flatMap(({ source, path }) => ["--ro-bind", source, path]),
      ["--bind", slot.inside.directory, inside.work, "--chdir", inside.work],
      isNetworked ? ["--ro-bind", launch.egressSocket ?? "", inside.egressSocket] : [],
      ["--remount-ro", "/", ...(supervisor === undefined ? ["--info-fd", "5"] : []), "--seccomp", "4", "--"],
      isNetworked ? bridged(command) : command,
    ].flat();
    return {
      command: supervisor ?? "/bin/bash",
      args: supervisor === undefined ? args : [...supervision(parts, { launch, slot }), "/bin/bash", ...args],
      env: { PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" },
      cwd: "/",
      filterPath: join(parts.filterDirectory, filterName({ sockets, isMemoryCounted, seesHost: false })),
      privateArgs,
      end: supervisor === undefined ? "namespace" : "supervisor",
      isDiskWatched: supervisor !== undefined,
    };
  }
  return { hasNetwork: true, hasOwnPaths: true, plan };
}
