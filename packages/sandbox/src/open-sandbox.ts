import type { Sandbox, TierFinding } from "./sandbox.ts";
import type { SandboxEvent, SandboxTier } from "./tier.ts";

export interface OpenSandboxOptions {
  /** Tiers that are accepted; tried from the strongest to the weakest. Default: all. */
  tiers?: readonly SandboxTier[];
  /** Programs that run at once, at most 32. Default: two for each core. Others wait in order. */
  slots?: number;
  /** Sandboxes kept booted for each kind of program that was run lately, at most 8. Default 2; 0 boots for every run. */
  warm?: number;
  /** Sessions that live at once, besides `slots`, at most 16. Default 16. */
  sessions?: number;
  /** Node.js for the programs. Default: the one that runs this process. */
  nodePath?: string;
  /** Python for the programs. Default: `/usr/bin/python3`; without it Python programs are refused. */
  pythonPath?: string;
  /** The compiled launcher of the tier `sbx`. Default: what `native/build.sh` makes. Without it the tier does not hold. */
  launcherPath?: string;
  /** Where working directories are made, in a directory of their own. Default: the system's temporary directory. */
  directory?: string;
  onEvent?(event: SandboxEvent): void;
}

export type SandboxOpening =
  | { ok: true; sandbox: Sandbox; findings: TierFinding[] }
  | { ok: false; findings: TierFinding[] };

/**
 * Opens the strongest tier that holds on this host: each is attacked live before it is used, for up
 * to some seconds in all. Nothing falls back to an unprotected process: where no tier holds, the
 * findings say why, and that is all there is. Removes what a killed predecessor left behind.
 */
export async function openSandbox(_options: OpenSandboxOptions = {}): Promise<SandboxOpening> {
  return { ok: false, findings: await probeTiers(_options) };
}

/** Attacks every accepted tier and reports, the strongest first. For health checks: repeat it hourly, hosts change. */
export async function probeTiers(_options: OpenSandboxOptions = {}): Promise<TierFinding[]> {
  return [];
}
