import { createEnvReader, type Env } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { sandboxTiers, type SandboxTier } from "@larkline/sandbox";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

export interface SandboxHostConfig {
  /** What runners must send; every program of every runner that has it may run here. */
  token: string;
  host: string;
  port: number;
  /** Health, readiness and metrics, without the token. */
  opsPort: number;
  logLevel: LogLevel;
  /** Programs that run at once; undefined for two for each core. */
  slots: number | undefined;
  /** Programs that may wait for a slot, more are turned away. */
  waiting: number;
  /** Sandboxes kept booted for each kind of program. */
  warm: number;
  /** Tiers that the operator accepts. */
  tiers: readonly SandboxTier[];
  /** Whether a tier is accepted in which programs get far more memory than they may have. */
  allowUnboundedMemory: boolean;
}

const leastTokenCharacters = 16;

/** Reads the environment; every problem is reported at once, one per line, naming the variable. */
export function loadConfig(env: Env): ParseResult<SandboxHostConfig> {
  const reader = createEnvReader(env);
  const token = reader.secret("SANDBOX_TOKEN", { required: true });
  if (token !== "" && token.length < leastTokenCharacters) {
    reader.problem(`SANDBOX_TOKEN must have at least ${leastTokenCharacters} characters.`);
  }
  const named = reader.list("SANDBOX_TIERS");
  const tiers = named.length === 0 ? sandboxTiers : sandboxTiers.filter((tier) => named.includes(tier));
  for (const name of named.filter((one) => !tiers.some((tier) => tier === one))) {
    reader.problem(`SANDBOX_TIERS must name some of ${sandboxTiers.join(", ")}, but names ${JSON.stringify(name)}.`);
  }
  return reader.finish({
    token,
    host: reader.text("HOST", { default: "127.0.0.1" }),
    port: reader.port("PORT", { default: 8_005 }),
    opsPort: reader.port("SANDBOX_OPS_PORT", { default: 8_006 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    slots: reader.integer("SANDBOX_SLOTS", { min: 1, max: 32 }),
    waiting: reader.integer("SANDBOX_WAITING", { default: 64, min: 0, max: 10_000 }),
    warm: reader.integer("SANDBOX_WARM", { default: 2, min: 0, max: 8 }),
    tiers,
    allowUnboundedMemory:
      reader.choice("SANDBOX_ALLOW_UNBOUNDED_MEMORY", ["false", "true"], { default: "false" }) === "true",
  });
}
