import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { type Clock, type Random, systemClock, systemRandom } from "@larkline/protocol/clock";
import { bwrapTier } from "./bwrap.ts";
import { findControlGroups, groupParents } from "./control-group.ts";
import type { EgressSettings } from "./egress-policy.ts";
import { defaultLauncherPath, hostPowers, prepareParts, Views } from "./host.ts";
import { groupName, type InstanceDirectory, openInstanceDirectory } from "./instance-directory.ts";
import { sbxTier } from "./sbx/tier.ts";
import type { HostParts, TierPlan } from "./launch.ts";
import { LocalSandbox } from "./local-sandbox.ts";
import { attackTier } from "./probe.ts";
import {
  type Sandbox,
  type SandboxEvent,
  type SandboxTier,
  sandboxTiers,
  type TierFinding,
} from "./sandbox.ts";
import { openMountKeeper, SlotStore } from "./slot.ts";

export interface OpenSandboxOptions {
  /** Tiers that are accepted; tried from the strongest to the weakest. Default: all. */
  tiers?: readonly SandboxTier[];
  /** Programs that run at once, at most 32. Default: two for each core. Others wait in order. */
  slots?: number;
  /** Sandboxes kept booted for each of the four kinds of programs run last, at most 8. Default 2; 0 boots for every run. */
  warm?: number;
  /** Sessions that live at once, besides `slots`, at most 16. Default 16. */
  sessions?: number;
  /** Node.js for the programs. Default: the one that runs this process. */
  nodePath?: string;
  /** Python for the programs. Default: `/usr/bin/python3`; without it Python programs are refused. */
  pythonPath?: string;
  /** The compiled launcher of the tier `sbx`. Default: what `sbx/build.sh` makes. Without it the tier does not hold. */
  launcherPath?: string;
  /**
   * Accepts a tier in which programs get more than twice the memory that they may have: without control
   * groups and without a launcher nothing counts the memory of several processes together.
   */
  allowUnboundedMemory?: boolean;
  /** Where working directories are made; its own, of a path up to 80 bytes. Default: one for this user in the system's temporary directory. */
  directory?: string;
  /** For all programs and sessions that have a network. */
  egress?: EgressSettings;
  clock?: Clock | undefined;
  random?: Random | undefined;
  /** Must not throw. */
  onEvent?(event: SandboxEvent): void;
}

export type SandboxOpening =
  | { ok: true; sandbox: Sandbox; findings: TierFinding[] }
  | { ok: false; findings: TierFinding[] };

/** What all tiers of one sandbox share. */
interface Host {
  instance: InstanceDirectory;
  parts: HostParts;
  /** Slots for a tier that has mounts of its own, and for others. */
  storeFor(plan: TierPlan): SlotStore;
  views: Views;
  close(): Promise<void>;
}

const tierPlans: Record<SandboxTier, (parts: HostParts) => Promise<TierPlan>> = {
  bwrap: bwrapTier,
  sbx: sbxTier,
};

interface Sizes {
  slots: number;
  warm: number;
  sessions: number;
}

const least: Sizes = { slots: 1, warm: 0, sessions: 0 };
const most: Sizes = { slots: 32, warm: 8, sessions: 16 };

function sizesFrom(options: OpenSandboxOptions): Sizes {
  const {
    slots = Math.min(most.slots, availableParallelism() * 2),
    warm = 2,
    sessions = most.sessions,
  } = options;
  const sizes = { slots, warm, sessions };
  for (const name of ["slots", "warm", "sessions"] as const) {
    if (!Number.isInteger(sizes[name]) || sizes[name] < least[name] || sizes[name] > most[name]) {
      throw new RangeError(`${name} must be a whole number from ${least[name]} to ${most[name]}`);
    }
  }
  return sizes;
}

async function openHost(options: OpenSandboxOptions): Promise<Host> {
  const { onEvent = () => {}, clock = systemClock } = options;
  if (process.platform !== "linux") {
    throw new Error(`the kernel of ${process.platform} has no way of keeping a program in`);
  }
  const powers = hostPowers();
  const root = options.directory ?? join(tmpdir(), `larkline-sandbox-${process.getuid?.() ?? 0}`);
  const instance = await openInstanceDirectory(root, {
    ownUsers: powers.ownUsers,
    clock,
    onRemains: (count) =>
      onEvent({ event: "remains_removed", detail: `of ${count} that did not close` }),
  });
  try {
    await instance.noteGroups(groupParents());
    const groups = await findControlGroups(groupName(instance.name, "proof"), clock);
    const {
      nodePath = process.execPath,
      pythonPath = "/usr/bin/python3",
      launcherPath = defaultLauncherPath,
      random = systemRandom,
    } = options;
    const parts = await prepareParts(instance.path, {
      nodePath,
      pythonPath,
      launcherPath,
      clock,
      random,
    });
    const ownUsers = instance.firstUser !== undefined;
    const views = new Views({ directory: instance.path, ownUsers, mounts: powers.mounts, random });
    const keeper = powers.mounts || ownUsers ? undefined : await openMountKeeper(clock);
    const common = { instance, groups, mounts: powers.mounts, onEvent };
    const store = new SlotStore({ ...common, keeper: undefined, name: "slot" });
    const kept =
      keeper === undefined ? undefined : new SlotStore({ ...common, keeper, name: "kept" });
    const close = async (): Promise<void> => {
      await store.close();
      await kept?.close();
      keeper?.close();
      await instance.close();
    };
    const storeFor = ({ hasOwnPaths }: TierPlan): SlotStore =>
      hasOwnPaths ? (kept ?? store) : store;
    return { instance, parts, storeFor, views, close };
  } catch (error) {
    await instance.close();
    throw error;
  }
}

/** A tier, opened and attacked. Closed again where it does not hold. */
async function tryTier(
  tier: SandboxTier,
  { host, sizes, options }: { host: Host; sizes: Sizes; options: OpenSandboxOptions },
): Promise<{ finding: TierFinding; sandbox: LocalSandbox | undefined }> {
  const { parts, views, instance } = host;
  let lastBoot = "";
  const common = {
    tier,
    parts,
    views,
    directory: instance.path,
    ...sizes,
    egress: options.egress,
    onEvent: (event: SandboxEvent) => {
      if (event.event === "boot_failed") lastBoot = event.detail;
      options.onEvent?.(event);
    },
  };
  try {
    const plan = await tierPlans[tier](parts);
    const store = host.storeFor(plan);
    const attacked = new LocalSandbox({ ...common, plan, store, warm: 0 });
    let finding: TierFinding;
    try {
      finding = await attackTier(attacked, {
        directory: instance.path,
        hasPython: parts.python !== undefined,
        allowUnboundedMemory: options.allowUnboundedMemory === true,
        clock: parts.clock,
        random: parts.random,
      });
    } finally {
      await attacked.close();
    }
    if (finding.holds) return { finding, sandbox: new LocalSandbox({ ...common, plan, store }) };
    return {
      finding: { ...finding, reason: [finding.reason, lastBoot].filter(Boolean).join(" ") },
      sandbox: undefined,
    };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { finding: { tier, holds: false, reason }, sandbox: undefined };
  }
}

function accepted({ tiers = sandboxTiers }: OpenSandboxOptions): SandboxTier[] {
  return sandboxTiers.filter((tier) => tiers.includes(tier));
}

async function hostOrFindings(options: OpenSandboxOptions): Promise<Host | TierFinding[]> {
  try {
    return await openHost(options);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return accepted(options).map((tier) => ({ tier, holds: false, reason }));
  }
}

function owning(sandbox: LocalSandbox, host: Host): Sandbox {
  let closed: Promise<void> | undefined;
  return {
    tier: sandbox.tier,
    run: async (request) => await sandbox.run(request),
    open: async (command) => await sandbox.open(command),
    close: async () => await (closed ??= sandbox.close().then(async () => await host.close())),
  };
}

/**
 * Opens the strongest tier that holds on this host: each is attacked live before it is used, for up
 * to some seconds in all. Nothing falls back to an unprotected process: where no tier holds, the
 * findings say why, and that is all there is. Removes what a killed predecessor left behind. Rejects
 * for options out of range only.
 */
export async function openSandbox(options: OpenSandboxOptions = {}): Promise<SandboxOpening> {
  const sizes = sizesFrom(options);
  const host = await hostOrFindings(options);
  if (Array.isArray(host)) return { ok: false, findings: host };
  const findings: TierFinding[] = [];
  for (const tier of accepted(options)) {
    const { finding, sandbox } = await tryTier(tier, { host, sizes, options });
    findings.push(finding);
    if (sandbox !== undefined) return { ok: true, sandbox: owning(sandbox, host), findings };
  }
  await host.close();
  return { ok: false, findings };
}

/** Attacks every accepted tier and reports, the strongest first. For health checks: repeat it hourly, hosts change. */
export async function probeTiers(options: OpenSandboxOptions = {}): Promise<TierFinding[]> {
  const sizes = sizesFrom(options);
  const host = await hostOrFindings(options);
  if (Array.isArray(host)) return host;
  const findings: TierFinding[] = [];
  for (const tier of accepted(options)) {
    const { finding, sandbox } = await tryTier(tier, { host, sizes, options });
    await sandbox?.close(); // it has run nothing, and so keeps nothing warm
    findings.push(finding);
  }
  await host.close();
  return findings;
}
