/** What a program may reach: nothing, or the named hosts (`api.example.com`, `*.example.org`, `host:8443`) through a proxy. */
export type NetworkPolicy = "none" | { allow: readonly string[] };

/** Bounds of one run, whole numbers above 0; see `defaultLimits`. */
export interface SandboxLimits {
  /** Wall-clock time of the program, ms. Waiting for a place and booting have deadlines of their own. */
  wallMs: number;
  /** CPU time of each process, seconds: a backstop of `wallMs`. */
  cpuSeconds: number;
  /** Memory of everything inside; of each process where no control group can be used. */
  memoryMb: number;
  /** Processes and threads. */
  processes: number;
  /** Per process. */
  openFiles: number;
  /** Working directory, and again temporary files, MB. */
  diskMb: number;
  /** Files and directories in the working directory, and again in that for temporary files. */
  files: number;
  /** Bytes on stdout and stderr together, after which it is killed. */
  outputBytes: number;
  /** Bytes of the result as JSON. */
  resultBytes: number;
}

/** A file of the working directory; `name` is relative to it. */
export interface SandboxFile {
  name: string;
  bytes: Uint8Array;
}

/** What runs inside. */
export type SandboxProgram =
  /**
   * Source text. `node` and `python` may leave a JSON value as result (`return ...` in JavaScript,
   * `result = ...` in Python), with `input` and `progress(fraction, detail)` in scope. The result of
   * `bash` is its exit code, whatever that is; it finds `input` as JSON in `$INPUT`, which
   * is exported up to 30,000 characters.
   */
  | {
      runtime: "node" | "python" | "bash";
      code: string;
      input?: unknown;
      files?: readonly SandboxFile[];
    }
  /**
   * A module of the deployer, with the directories it needs, readable at their own paths (sockets in
   * them can be connected to). Its export `main(input, { progress })` gives the result.
   *
   * With `preparation`, a JSON value, the module's export `prepare(preparation)` is awaited before. Sandboxes may be kept
   * that have done so, each for one run with the same module, preparation, `env`, limits and readable paths: nothing
   * that belongs to one call, or to one person, may be in it.
   */
  | {
      runtime: "node";
      module: string;
      readable: readonly string[];
      preparation?: unknown;
      input?: unknown;
      files?: readonly SandboxFile[];
    };

/** One run. */
export interface SandboxRequest {
  program: SandboxProgram;
  limits?: Partial<SandboxLimits>;
  /** Added to the few variables every program gets. Never the runner's own environment. */
  env?: Readonly<Record<string, string>>;
  network?: NetworkPolicy;
  /** Cancels: everything inside is killed at once. */
  signal: AbortSignal;
  /**
   * Called once, when there is a place and a sandbox for the program, before it starts. Where it resolves to false
   * nothing is run, and the run ends as `cancelled`. Must not reject.
   */
  begin?(): Promise<boolean>;
  /** Must not throw. */
  onProgress?(fraction: number, detail: string): void;
  /** Output as it comes. Must not throw. */
  onOutput?(stream: "stdout" | "stderr", text: string): void;
}

/** How a run ended. All but `crashed` without an exit code are final: running it again would end the same way. */
export type SandboxStatus =
  | "ok"
  | "error"
  | "timeout"
  | "cancelled"
  | "oom"
  | "crashed"
  | "output_limit"
  | "disk_limit"
  | "protocol"
  | "refused";

export interface SandboxResult {
  status: SandboxStatus;
  /** The program's result, a JSON value; with status `ok` only. */
  value?: unknown;
  /**
   * With which the program ended by itself: 0 with a result, 1 with an error that it did not catch, else its own choice.
   * Absent where it was stopped, was killed or did not run.
   */
  exitCode?: number;
  /** What went wrong, for a model: limit and hint included, no host path, no secret. */
  error?: string;
  /** Head and tail, with a mark where something was left out. */
  stdout: string;
  stderr: string;
  /** What was left in the working directory: regular files only. */
  files: SandboxFile[];
  /** Files that were left out, and why. */
  skipped: { name: string; reason: string }[];
  /** Decisions of the proxy against the program, such as `denied: evil.test:80`. */
  denied: string[];
  wallMs: number;
  cpuMs?: number;
  peakMemoryBytes?: number;
}

/** A command that lives on inside and is talked to over its stdin and stdout, such as an MCP server. */
export interface SandboxCommand {
  command: string;
  args: readonly string[];
  env?: Readonly<Record<string, string>>;
  network?: NetworkPolicy;
  /** Directories readable at their own paths. */
  readable: readonly string[];
  limits?: Partial<Omit<SandboxLimits, "wallMs" | "resultBytes" | "outputBytes">>;
}

export interface SandboxSession {
  readonly stdin: NodeJS.WritableStream;
  readonly stdout: NodeJS.ReadableStream;
  readonly stderr: NodeJS.ReadableStream;
  /** Resolves when everything inside has ended, with a reason for people. */
  readonly ended: Promise<string>;
  /** Kills everything inside and wipes its files. Idempotent. */
  close(): Promise<void>;
}

/** Runs untrusted programs. */
export interface Sandbox {
  /** Which tier holds here, such as `bwrap`. */
  readonly tier: string;
  run(request: SandboxRequest): Promise<SandboxResult>;
  /** Rejects where the tier cannot hold sessions. */
  open(command: SandboxCommand): Promise<SandboxSession>;
  close(): Promise<void>;
}

/** What the live attack on one tier found. */
export interface TierFinding {
  tier: string;
  holds: boolean;
  /** Why it does not, in words: the attack that got through, or what is missing. Where it holds: what was allowed. */
  reason: string;
}

/** The ways of keeping a program in, the strongest first. */
export const sandboxTiers = ["bwrap", "sbx"] as const;
export type SandboxTier = (typeof sandboxTiers)[number];

/** An event for operators, not for callers: a failed boot, a slot that was given up. */
export interface SandboxEvent {
  event: "boot_failed" | "slot_discarded" | "remains_removed";
  detail: string;
}

/* ---- Limits ---- */

/** Limits of a run that names none. */
export const defaultLimits: Readonly<SandboxLimits> = {
  wallMs: 30_000,
  cpuSeconds: 30,
  memoryMb: 256,
  processes: 64,
  openFiles: 256,
  diskMb: 64,
  files: 4_096,
  outputBytes: 4 * 1024 * 1024,
  resultBytes: 1024 * 1024,
};

// With less no interpreter boots.
const lowest: Partial<SandboxLimits> = { memoryMb: 32, processes: 16, openFiles: 32, files: 64 };
// Larger numbers are mistakes, and some would overflow the kernel or a timer.
const highest: Readonly<SandboxLimits> = {
  wallMs: 86_400_000,
  cpuSeconds: 86_400,
  memoryMb: 1_048_576,
  processes: 32_768,
  openFiles: 1_048_576,
  diskMb: 1_048_576,
  files: 10_000_000,
  outputBytes: 1024 * 1024 * 1024,
  resultBytes: 64 * 1024 * 1024,
};

/** Completes limits with the defaults. Throws a RangeError that names a limit that is no whole number in range. */
export function limitsFrom(
  asked: Partial<SandboxLimits> | undefined,
  defaults = defaultLimits,
): SandboxLimits {
  const limits = { ...defaults, ...asked };
  for (const [name, value] of Object.entries(limits)) {
    if (!isLimit(name)) throw new RangeError(`limit ${JSON.stringify(name)} does not exist`);
    const [least, most] = [lowest[name] ?? 1, highest[name]];
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new RangeError(`limit ${name} must be a whole number from ${least} to ${most}`);
    }
  }
  return limits;
}

function isLimit(name: string): name is keyof SandboxLimits {
  return Object.hasOwn(highest, name);
}

/** Limits that the kernel enforces from the start; the others are watched from outside. */
export type KernelLimits = Omit<SandboxLimits, "wallMs" | "outputBytes" | "resultBytes">;

export function kernelLimits(limits: SandboxLimits): KernelLimits {
  const { cpuSeconds, memoryMb, processes, openFiles, diskMb, files } = limits;
  return { cpuSeconds, memoryMb, processes, openFiles, diskMb, files };
}
