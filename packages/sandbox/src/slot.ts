import { deadline, type Clock } from "@larkline/protocol/clock";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, chown, mkdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import type { ControlGroup, ControlGroups } from "./control-group.ts";
import { usersPerInstance } from "./users.ts";
import { groupName, type InstanceDirectory } from "./instance-directory.ts";
import { emptyDirectory, runCommand } from "./removal.ts";
import type { KernelLimits, SandboxEvent } from "./sandbox.ts";

/** What one run has for itself: user, group and directories. Two running programs never share one. */
export interface Slot {
  readonly number: number;
  /** The user that programs run as; undefined for this process's own. */
  readonly user: number | undefined;
  readonly group: ControlGroup | undefined;
  /** The working directory as this process sees it: empty at the start, wiped after the run. */
  readonly directory: string;
  /** The same and the directory for temporary files, as seen by commands that run behind `enter`. */
  readonly inside: { readonly directory: string; readonly temporary: string };
  readonly enter: readonly string[];
  /** Size of each directory, MB, when the kernel holds it to that; otherwise they have to be watched. */
  readonly sizedMb: number | undefined;
}

interface MutableSlot extends Slot {
  sizedMb: number | undefined;
  /** The settings of its mounts. */
  settings: string;
}

export interface SlotStoreOptions {
  instance: InstanceDirectory;
  groups: ControlGroups | undefined;
  mounts: boolean;
  /** Mounts the directories instead where this process may not. */
  keeper: MountKeeper | undefined;
  /** Prefix of its directories, unique in the instance. */
  name: string;
  onEvent(event: SandboxEvent): void;
}

// The launcher's own processes.
const extraProcesses = 4;

/** Makes slots when they are needed and keeps them for reuse. */
export class SlotStore {
  readonly #options: SlotStoreOptions;
  readonly #free: MutableSlot[] = [];
  #mounts: boolean;
  #made = 0;
  #lost = 0;

  constructor(options: SlotStoreOptions) {
    this.#options = options;
    this.#mounts = options.mounts || options.keeper !== undefined;
  }

  /** An empty slot, bounded for a run. Rejects when none can be made. */
  async take(limits: KernelLimits): Promise<Slot> {
    const slot = this.#free.pop() ?? (await this.#make(limits));
    try {
      await this.#size(slot, limits);
      slot.group?.bound({
        memoryMb: limits.memoryMb,
        processes: limits.processes + extraProcesses,
      });
      return slot;
    } catch (error) {
      await this.discard(slot); // some of its bounds may not be set
      throw error;
    }
  }

  /** Wipes a slot in which nothing runs any more. A slot that cannot be wiped is not used again. */
  async giveBack(slot: Slot): Promise<void> {
    try {
      for (const directory of this.#directoriesOf(slot)) {
        await chmod(directory, 0o700);
        await emptyDirectory(directory);
      }
      this.#free.push(slot as MutableSlot); // made here
    } catch {
      await this.discard(slot);
    }
  }

  /** Gives up a slot for good. */
  async discard(slot: Slot): Promise<void> {
    this.#lost += 1;
    const grave = join(this.#options.instance.path, `lost-${this.#lost}`);
    await rename(slot.directory, grave).catch(() => {});
    await chmod(grave, 0o700).catch(() => {});
    await slot.group?.remove();
    this.#options.onEvent({
      event: "slot_discarded",
      detail: `slot ${slot.number} could not be wiped`,
    });
  }

  /** Removes what was made outside the instance's directory. */
  async close(): Promise<void> {
    await Promise.all(this.#free.map(async ({ group }) => await group?.remove()));
  }

  async #make(limits: KernelLimits): Promise<MutableSlot> {
    const { instance, groups } = this.#options;
    const number = this.#made;
    if (number >= usersPerInstance) throw new Error("too many slots had to be given up");
    this.#made += 1;
    const place = join(instance.path, `${this.#options.name}-${number}`);
    const inside = { directory: place, temporary: `${place}-tmp` };
    const user = instance.firstUser === undefined ? undefined : instance.firstUser + number;
    for (const directory of [inside.directory, inside.temporary]) {
      await mkdir(directory, { mode: 0o700 });
      if (user !== undefined) await chown(directory, user, user);
    }
    const group = groups?.create(groupName(instance.name, String(number)));
    const plain: MutableSlot = {
      number,
      user,
      group,
      directory: place,
      inside,
      enter: [],
      sizedMb: undefined,
      settings: "",
    };
    return this.#mounts ? await this.#mounted(plain, limits) : plain;
  }

  /** As this process sees them. */
  #directoriesOf(slot: Slot): string[] {
    const { keeper } = this.#options;
    const { directory, temporary } = slot.inside;
    if (slot.sizedMb === undefined || keeper === undefined) return [directory, temporary];
    return [keeper.seen(directory), keeper.seen(temporary)];
  }

  async #mounted(slot: MutableSlot, limits: KernelLimits): Promise<MutableSlot> {
    const { keeper } = this.#options;
    const all = this.#settings(slot, limits);
    const sized = { settings: all, sizedMb: limits.diskMb };
    try {
      for (const path of [slot.inside.directory, slot.inside.temporary]) {
        if (keeper === undefined) {
          await runCommand("mount", ["-t", "tmpfs", "-o", all, "larkline", path]);
        } else await keeper.mount(path, all);
      }
    } catch {
      this.#mounts = false; // mounting failed in spite of the capability: the directories are watched instead
      return slot;
    }
    if (keeper === undefined) return { ...slot, ...sized };
    return {
      ...slot,
      ...sized,
      directory: keeper.seen(slot.inside.directory),
      enter: keeper.enter,
    };
  }

  #settings({ user }: Slot, { diskMb, files }: KernelLimits): string {
    // In the namespace of a keeper this process's user is the first one.
    const owner = this.#options.keeper === undefined ? (user ?? process.getuid?.() ?? 0) : 0;
    const facts = [
      `size=${diskMb}m`,
      `nr_inodes=${files}`,
      "mode=0700",
      `uid=${owner}`,
      `gid=${owner}`,
    ];
    return [...facts, "nosuid", "nodev"].join();
  }

  async #size(slot: MutableSlot, limits: KernelLimits): Promise<void> {
    const settings = this.#settings(slot, limits);
    if (slot.sizedMb === undefined || slot.settings === settings) return;
    const { keeper } = this.#options;
    const { diskMb, files } = limits;
    for (const path of [slot.inside.directory, slot.inside.temporary]) {
      if (keeper !== undefined) await keeper.mountAgain(path, settings);
      else await runCommand("mount", ["-o", `remount,size=${diskMb}m,nr_inodes=${files}`, path]);
    }
    slot.sizedMb = diskMb;
    slot.settings = settings;
  }
}

/* ---- Mounts of an ordinary user ---- */

/**
 * A process that keeps a namespace of mounts, in which an ordinary user may mount file systems of a
 * bounded size. The namespace ends with this process, and all that is mounted in it.
 */
export interface MountKeeper {
  /** Command prefix that enters the namespace. The command has all rights in there, and none outside. */
  readonly enter: readonly string[];
  /** The path outside of a path in the namespace. */
  seen(path: string): string;
  mount(path: string, settings: string): Promise<void>;
  /** For a mount that is empty: a new one with other settings. */
  mountAgain(path: string, settings: string): Promise<void>;
  close(): void;
}

const startMs = 5_000;

/** Undefined where this user may make no such namespace. */
export async function openMountKeeper(clock: Clock): Promise<MountKeeper | undefined> {
  const keeper = spawn(
    "unshare",
    ["--user", "--map-root-user", "--mount", "/bin/sh", "-c", "echo ready; read end"],
    {
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: ["pipe", "pipe", "ignore"],
      cwd: "/",
    },
  );
  keeper.on("error", () => {});
  keeper.stdin.on("error", () => {});
  const ended = once(keeper, "close").then(() => undefined);
  const isReady = await Promise.race([
    once(keeper.stdout, "data", { signal: deadline(clock, startMs) }),
    ended,
  ])
    .then((said) => said !== undefined)
    .catch(() => false);
  const { pid } = keeper;
  if (!isReady || pid === undefined) {
    keeper.kill("SIGKILL");
    return undefined;
  }
  for (const one of [keeper, keeper.stdin, keeper.stdout]) {
    if ("unref" in one) (one as { unref(): void }).unref();
  } // pipes are sockets
  const enter = [
    "nsenter",
    "--target",
    String(pid),
    "--user",
    "--mount",
    "--preserve-credentials",
    "--",
  ];
  const seen = (path: string): string => `/proc/${pid}/root${path}`;
  const run = async (command: readonly string[]): Promise<void> => {
    const [program = "", ...args] = [...enter, ...command];
    await runCommand(program, args);
  };
  const mount = async (path: string, settings: string): Promise<void> => {
    await run(["mount", "-t", "tmpfs", "-o", settings, "larkline", path]);
    // Where `/proc` of the keeper is hidden, so are its mounts.
    if ((await stat(seen(path))).dev === (await stat(path)).dev) {
      throw new Error("the mount is not to be seen");
    }
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
