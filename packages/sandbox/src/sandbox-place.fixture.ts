import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openSandbox, type OpenSandboxOptions, type Sandbox, type SandboxTier } from "./index.ts";

/** A directory of its own that other users of the host can pass through. */
export function makePlace(): string {
  const place = mkdtempSync(join(tmpdir(), "larkline-test-"));
  chmodSync(place, 0o755);
  return place;
}

/** Whether a program is installed here. */
export function hasProgram(name: string): boolean {
  try {
    execFileSync("/bin/sh", ["-c", 'command -v "$0"', name], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Builds the launcher into a place of its own; undefined where there is no compiler. */
export function buildLauncher(place: string): string | undefined {
  if (!hasProgram("gcc")) return undefined;
  const target = join(place, "launcher");
  execFileSync(fileURLToPath(new URL("sbx/build.sh", import.meta.url)), [target], {
    stdio: "inherit",
  });
  return target;
}

/** Opens one tier; fails with its finding. */
export async function openTier(tier: SandboxTier, options: OpenSandboxOptions): Promise<Sandbox> {
  const opening = await openSandbox({ warm: 0, ...options, tiers: [tier] });
  if (!opening.ok) {
    throw new Error(opening.findings.map(({ reason }) => `${tier}: ${reason}`).join("\n"));
  }
  return opening.sandbox;
}

export function removePlace(place: string): void {
  rmSync(place, { recursive: true, force: true });
}
