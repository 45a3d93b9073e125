import { chmod, chown, mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import type { ControlGroup, ControlGroups } from "./control-group.ts";
import { usersPerInstance } from "./host-powers.ts";
import { groupName, type InstanceDirectory } from "./instance-directory.ts";
import type { KernelLimits } from "./limits.ts";
import { emptyDirectory, runCommand } from "./removal.ts";

import type { SandboxEvent } from "./tier.ts";

/** What one run has for itself. Never shared by two that live. */
export interface Slot {
  readonly number: number;
  /** The user that programs run as; undefined for this process's own. */
  readonly user: number | undefined;
  readonly group: ControlGroup | undefined;
  /** The working directory as this process sees it: empty at the start, wiped after the run. */
  readonly directory: string;
  /** Size of the working directory, MB, when the kernel holds it to that; otherwise somebody has to watch. */
  readonly sizedMb: number | undefined;
}

interface MutableSlot extends Slot {
  sizedMb: number | undefined;
}

export interface SlotStoreOptions {
  instance: InstanceDirectory;
  groups: ControlGroups | undefined;
  mounts: boolean;
  onEvent(event: SandboxEvent): void;
}

const maxFiles = 4_096;
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
    this.#mounts = options.mounts;
  }

  /** An empty slot, bounded for a run. Rejects when none can be made. */
  async take(limits: KernelLimits): Promise<Slot> {
    const slot = this.#free.pop() ?? (await this.#make(limits));
    try {
      await this.#size(slot, limits.diskMb);
      slot.group?.bound({ memoryMb: limits.memoryMb, processes: limits.processes + extraProcesses });
      return slot;
    } catch (error) {
      this.#free.push(slot);
      throw error;
    }
  }

  /** Wipes a slot in which nothing runs any more. A slot that cannot be wiped is not used again. */
  async giveBack(slot: Slot): Promise<void> {
    try {
      await chmod(slot.directory, 0o700);
      await emptyDirectory(slot.directory);
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
    this.#options.onEvent({ event: "slot_discarded", detail: `slot ${slot.number} could not be wiped` });
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
    const directory = join(instance.path, `slot-${number}`);
    const user = instance.firstUser === undefined ? undefined : instance.firstUser + number;
    await mkdir(directory, { mode: 0o700 });
    if (user !== undefined) await chown(directory, user, user);
    const group = groups?.create(groupName(instance.name, String(number)));
    const slot: MutableSlot = { number, user, group, directory, sizedMb: undefined };
    if (this.#mounts) await this.#mount(slot, limits.diskMb);
    return slot;
  }

  async #mount(slot: MutableSlot, diskMb: number): Promise<void> {
    const owner = slot.user ?? process.getuid?.() ?? 0;
    const settings = [`size=${diskMb}m`, `nr_inodes=${maxFiles}`, "mode=0700", `uid=${owner}`, `gid=${owner}`];
    try {
      await runCommand("mount", [
        "-t",
        "tmpfs",
        "-o",
        [...settings, "nosuid", "nodev"].join(),
        "larkline",
        slot.directory,
      ]);
      slot.sizedMb = diskMb;
    } catch {
      this.#mounts = false; // having the capability was not enough: somebody watches instead
    }
  }

  async #size(slot: MutableSlot, diskMb: number): Promise<void> {
    if (slot.sizedMb === undefined || slot.sizedMb === diskMb) return;
    await runCommand("mount", ["-o", `remount,size=${diskMb}m`, slot.directory]);
    slot.sizedMb = diskMb;
  }
}
