/**
 * How far a tool is kept away from its runner, fixed when it is defined.
 *
 * - `inline`: inside the runner's process. Trusted; nothing is contained. For tools that only wait for others.
 * - `process`: in a reused child process with a clean environment. Trusted; its faults are contained.
 * - `sandbox`: in a sandbox that is used once and that the kernel keeps from everything not named here.
 *
 * The module itself is loaded by the runner, whatever the level: it is `run` that is kept away.
 */
export const isolationLevels = ["inline", "process", "sandbox"] as const;
export type IsolationLevel = (typeof isolationLevels)[number];

/** Bounds of one run in a sandbox, whole numbers; what is left out has the sandbox's own default. */
export interface ProgramLimits {
  /** CPU time of each process, in seconds. */
  cpuSeconds?: number;
  /** Processes and threads. */
  processes?: number;
  openFiles?: number;
  /** Working directory, and again temporary files, in MB. */
  diskMb?: number;
  /** stdout and stderr together. */
  outputBytes?: number;
  /** The result as JSON. */
  resultBytes?: number;
}

export interface IsolationSettings {
  level: IsolationLevel;
  /** Names of variables of the runner's environment that the tool sees. Others it does not. */
  env?: readonly string[];
  /** Memory of one call; of a child that several calls share, that of the child. */
  memoryMb?: number;
  /**
   * `process`: calls that one child runs at once, 1 to 1,000. Default 1. For tools that only wait for others: what
   * blocks, crashes or fills the memory of the child does so for all of its calls.
   */
  concurrency?: number;
  /** `sandbox`: hosts that may be reached (`api.example.com`, `*.example.org`, `host:8443`). Default none. */
  network?: "none" | { allow: readonly string[] };
  limits?: ProgramLimits;
  /** `sandbox`: directories and files that can be read besides the tool's package and what that depends on. */
  readable?: readonly string[];
}

/** A level alone, or with its settings. */
export type Isolation = IsolationLevel | IsolationSettings;

/** The settings of a tool, complete. */
export type ResolvedIsolation = IsolationSettings &
  Required<Pick<IsolationSettings, "env" | "network" | "readable">>;

/** Completes what an author wrote. */
export function completedIsolation(isolation: Isolation): ResolvedIsolation {
  const settings: IsolationSettings =
    typeof isolation === "string" ? { level: isolation } : isolation;
  return { env: [], network: "none", readable: [], ...settings };
}
