import type { Clock, Random } from "@larkline/protocol/clock";
import type { KernelLimits, SandboxProgram } from "./sandbox.ts";
import type { Slot } from "./slot.ts";

/** What a tier starts inside. */
export interface Launch {
  /** Builds the command line from the paths inside. */
  command(places: GuestPlaces): readonly string[];
  limits: KernelLimits;
  /** Whether descriptor 3 carries frames; otherwise stdin is open instead, for a session. */
  hasControl: boolean;
  /** Memory that the interpreter reserves and never uses, MB: a data limit counts it. */
  reservedMb: number;
  /** Directories and files that can be read inside at `path`, and where they are found outside. */
  readable: readonly { source: string; path: string }[];
  /** The proxy's socket, outside; undefined for a program without network. */
  egressSocket: string | undefined;
  /** Further environment, for sessions only: a program gets its own with its job. */
  env: Readonly<Record<string, string>>;
}

/** Paths as seen from inside. */
export interface GuestPlaces {
  node: string;
  python: string;
  /** The programs of `guest/`. */
  guest: string;
  /** The working directory. */
  work: string;
  temporary: string;
  egressSocket: string;
}

/** The command line that starts a sandbox, and how the sandbox is ended. */
export interface LaunchPlan {
  command: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** A file that is opened for this start and inherited as descriptor 4. */
  filterPath: string | undefined;
  /** Arguments that the launcher reads from descriptor 6, so that no other process of the host sees them. */
  privateArgs: readonly string[];
  /** How everything inside is ended; see `GuestProcess`. */
  end: "namespace" | "supervisor";
  /** Whether a supervisor watches the size of the working directory; otherwise this process has to. */
  isDiskWatched: boolean;
}

/** One way of isolating a program. */
export interface TierPlan {
  /** Whether it can give a program a network through a proxy. */
  hasNetwork: boolean;
  /** Whether files can have another path inside than outside. */
  hasOwnPaths: boolean;
  plan(launch: Launch, slot: Slot): Promise<LaunchPlan>;
}

/** What the tiers have in common on this host. */
export interface HostParts {
  clock: Clock;
  random: Random;
  /** Real path of the Node.js for programs, readable by every slot's user. */
  nodePath: string;
  python: HostPython | undefined;
  hasBash: boolean;
  /** A copy of `guest/`, readable by every slot's user. */
  guestDirectory: string;
  /** Files that replace the host's `/etc`. */
  etcDirectory: string;
  /** Directory of the seccomp programs. */
  filterDirectory: string;
  /** Of `sbx/sbx.c`; undefined when it was not built. */
  launcherPath: string | undefined;
}

export interface HostPython {
  path: string;
  /** What has to be readable for it besides the system's own directories. */
  readable: readonly string[];
}

export const proxyPort = 3128;

/** The environment of every program. */
export function baseEnv(places: GuestPlaces, isNetworked: boolean): Record<string, string> {
  const proxy = `http://127.0.0.1:${proxyPort}`;
  const network = {
    HTTP_PROXY: proxy,
    HTTPS_PROXY: proxy,
    http_proxy: proxy,
    https_proxy: proxy,
    NO_PROXY: "127.0.0.1,localhost",
    no_proxy: "127.0.0.1,localhost",
    NODE_USE_ENV_PROXY: "1",
  };
  return {
    PATH: `${places.node.slice(0, places.node.lastIndexOf("/"))}:/usr/local/bin:/usr/bin:/bin`,
    HOME: places.work,
    TMPDIR: places.temporary,
    LANG: "C.UTF-8",
    TZ: "UTC",
    NO_COLOR: "1",
    PYTHONDONTWRITEBYTECODE: "1",
    UV_USE_IO_URING: "0",
    ...(isNetworked ? network : {}),
  };
}

/**
 * Directories of the operating system that programs see, read-only. Not all of `/usr`: services are
 * often installed in `/usr/src`.
 */
export const systemDirectories = [
  "/usr/bin",
  "/usr/sbin",
  "/usr/lib",
  "/usr/lib32",
  "/usr/lib64",
  "/usr/libexec",
  "/usr/share",
  "/usr/local/bin",
  "/usr/local/lib",
  "/usr/local/share",
];
/** Links into `/usr` on most systems, directories on some. */
export const systemRoots = ["/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/** Of the host's `/etc`: no accounts, no names, no configuration of services. */
export const systemSettings = [
  "/etc/ssl/certs",
  "/etc/ssl/openssl.cnf",
  "/etc/pki/tls/certs",
  "/etc/ld.so.cache",
  "/etc/alternatives",
  "/etc/fonts",
];

// V8 reserves memory that counts as data and is mostly never used.
const nodeReservedMb = 640;

/** What the interpreter of a program reserves. */
export function reservedMbOf(runtime: SandboxProgram["runtime"], hasBridge: boolean): number {
  return runtime === "node" || hasBridge ? nodeReservedMb : 0;
}

/** Arguments of a supervisor for the limits that no control group and no file system enforces. */
export function supervisorArgs({ limits }: Launch, slot: Slot): string[] {
  const memory =
    slot.group === undefined
      ? ["-m", String(limits.memoryMb), "-k", String(channelLimit(limits.memoryMb))]
      : [];
  const disk =
    slot.sizedMb === undefined ? ["-f", String(limits.files), "-d", String(limits.diskMb)] : [];
  return [...memory, ...disk];
}

const leastChannels = 64;
/** Sockets and pipes, of which each can hold a quarter of a megabyte in its buffers: as many as are a quarter of the memory. */
function channelLimit(memoryMb: number): number {
  return Math.max(leastChannels, memoryMb);
}

// V8 reserves ten gigabytes for each WebAssembly memory. What is reserved costs page tables at most, a 512th part.
/** The limit on addresses of each process, MB. */
export const addressMb = 32_768;

/** The limit on data of each process, MB. */
export function dataMb(launch: Launch, slot: Slot): number {
  // Where a control group counts what is used, what is reserved may be left to every interpreter.
  return launch.limits.memoryMb + (slot.group === undefined ? launch.reservedMb : nodeReservedMb);
}
