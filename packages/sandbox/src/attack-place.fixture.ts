import { type NaiveProgram, runNaively } from "./attack-naive.fixture.ts";
import { ProcessCallError, type ProcessFailure } from "./process-pool.ts";
import type {
  Sandbox,
  SandboxRequest,
  SandboxResult,
  SandboxStatus,
  SandboxTier,
} from "./sandbox.ts";

/** Where the attacks run. `inline` and `process` keep no attacker in: they prove that the attacks are real. */
export interface AttackedPlace {
  level: "inline" | "process" | "sandbox";
  tier?: SandboxTier;
  warm: number;
  slots: number;
  /** For working directories; writable for the runner. */
  directory: string;
  /** Of the tier `sbx`. */
  launcherPath?: string | undefined;
}

export type OpenedPlace =
  | { ok: true; sandbox: Sandbox; close(): Promise<void> }
  | { ok: false; reason: string };

function naivePlace(
  run: (program: NaiveProgram, request: SandboxRequest) => Promise<SandboxResult>,
): Sandbox {
  return {
    tier: "none",
    run: async (request) => {
      const { program, env = {}, limits } = request;
      if ("module" in program) throw new Error("no attack is a module");
      return await run({ ...program, env, wallMs: limits?.wallMs ?? 5_000 }, request);
    },
    open: () => Promise.reject(new Error("no attack is a session")),
    close: () => Promise.resolve(),
  };
}

const endings: Record<ProcessFailure, SandboxStatus> = {
  handler: "error",
  timeout: "timeout",
  cancelled: "cancelled",
  crashed: "crashed",
  oom: "oom",
  protocol: "protocol",
  closed: "crashed",
};

/** The level `process` as tools have it, with the program as the body of a call. */
async function processPlace({ slots }: AttackedPlace): Promise<Sandbox> {
  const { createProcessPool } = await import("./process-pool.ts");
  const pool = createProcessPool({
    entry: new URL("./attack-child.fixture.ts", import.meta.url),
    size: slots,
  });
  const sandbox = naivePlace(async (program, { signal, onProgress }) => {
    try {
      const onEvent = (): void => onProgress?.(0, "");
      const result = await pool.call(program, {
        signal,
        timeoutMs: program.wallMs,
        onEvent,
        onRequest: () => Promise.reject(new Error("nothing to ask for")),
      });
      return result as SandboxResult; // made by runNaively
    } catch (error) {
      if (!(error instanceof ProcessCallError)) throw error;
      const nothing = { stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs: 0 };
      return { status: endings[error.failure], error: error.message, ...nothing };
    }
  });
  return { ...sandbox, close: () => pool.close() };
}

async function openTier({
  tier,
  warm,
  slots,
  directory,
  launcherPath,
}: AttackedPlace): Promise<OpenedPlace> {
  const { openSandbox } = await import("./open-sandbox.ts");
  const accepted = tier === undefined ? {} : { tiers: [tier] };
  const launcher = launcherPath === undefined ? {} : { launcherPath };
  const opening = await openSandbox({ ...accepted, ...launcher, warm, slots, directory });
  if (opening.ok) {
    return { ok: true, sandbox: opening.sandbox, close: () => opening.sandbox.close() };
  }
  return {
    ok: false,
    reason: opening.findings.map(({ tier: name, reason }) => `${name}: ${reason}`).join("; "),
  };
}

/** Opens a place, or says why it cannot be here. Loads only what the place needs: most attacked runners live shortly. */
export async function openAttacked(place: AttackedPlace): Promise<OpenedPlace> {
  if (place.level === "sandbox") return await openTier(place);
  const sandbox =
    place.level === "process"
      ? await processPlace(place)
      : naivePlace(
          async (program, { onProgress }) => await runNaively(program, () => onProgress?.(0, "")),
        );
  return { ok: true, sandbox, close: () => sandbox.close() };
}
