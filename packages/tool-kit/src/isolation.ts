import { parserOf, type ParseResult } from "@larkline/protocol";
import { Type } from "typebox";

/**
 * How far a tool is kept away from its runner, fixed when it is defined.
 *
 * - `inline`: inside the runner's process. Trusted; nothing is contained. For tools that only wait for others.
 * - `process`: in a reused child process with a clean environment. Trusted; its faults are contained.
 * - `sandbox`: in a sandbox that is used once and that the kernel keeps from everything not named here.
 * - `remote`: the same on another machine; for programs only.
 *
 * The module itself is loaded by the runner, whatever the level: it is `run` that is kept away.
 */
export const isolationLevels = ["inline", "process", "sandbox", "remote"] as const;
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
  /** `sandbox` and `remote`: hosts that may be reached (`api.example.com`, `*.example.org`, `host:8443`). Default none. */
  network?: "none" | { allow: readonly string[] };
  limits?: ProgramLimits;
  /** `sandbox`: directories and files that can be read besides the tool's package and what that depends on. */
  readable?: readonly string[];
}

/** A level alone, or with what it may be told. */
export type Isolation = IsolationLevel | IsolationSettings;

/** The settings of a tool, complete. */
export type ResolvedIsolation = IsolationSettings & Required<Pick<IsolationSettings, "env" | "network" | "readable">>;

const count = (maximum: number) => Type.Optional(Type.Integer({ minimum: 1, maximum }));
const env = Type.Optional(Type.Array(Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]{0,127}$" }), { maxItems: 100 }));
const memoryMb = Type.Optional(Type.Integer({ minimum: 16, maximum: 1_048_576 }));
const inSandbox = {
  env,
  memoryMb,
  network: Type.Optional(
    Type.Union([
      Type.Literal("none"),
      Type.Object({ allow: Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: 256 }) }),
    ]),
  ),
  limits: Type.Optional(
    Type.Object(
      {
        cpuSeconds: count(86_400),
        processes: count(32_768),
        openFiles: count(1_048_576),
        diskMb: count(1_048_576),
        outputBytes: count(1_073_741_824),
        resultBytes: count(16_777_216),
      },
      { additionalProperties: false },
    ),
  ),
};
const exactly = { additionalProperties: false };
const readable = Type.Optional(Type.Array(Type.String({ minLength: 1 }), { maxItems: 256 }));
const level = Type.Enum([...isolationLevels]);

/** What each level may be told. */
const parsers = {
  inline: parserOf(Type.Object({ level }, exactly)),
  process: parserOf(Type.Object({ level, env, memoryMb, concurrency: count(1_000) }, exactly)),
  sandbox: parserOf(Type.Object({ level, ...inSandbox, readable }, exactly)),
  remote: parserOf(Type.Object({ level, ...inSandbox }, exactly)),
} satisfies Record<IsolationLevel, unknown>;

/** Variables that give access to the deployment itself. No tool has a use for them. */
const withheld = new Set([
  "REDIS_URL",
  "RUNNER_KEY",
  "CALL_SIGNING_KEY",
  "SANDBOX_TOKEN",
  "API_TOKEN",
  "EVENTS_SIGNING_KEY",
  "CONSOLE_PASSWORD",
  "FEISHU_APP_SECRET",
  "FEISHU_ENCRYPT_KEY",
  "FEISHU_VERIFICATION_TOKEN",
]);

function isLevel(value: unknown): value is IsolationLevel {
  return isolationLevels.some((known) => known === value);
}

/** Completes what an author wrote. */
export function completedIsolation(isolation: Isolation): ResolvedIsolation {
  const settings: IsolationSettings = typeof isolation === "string" ? { level: isolation } : isolation;
  return { env: [], network: "none", readable: [], ...settings };
}

/** Checks and completes what an author wrote; an error says what a level does not take. */
export function resolvedIsolation(isolation: Isolation): ParseResult<ResolvedIsolation> {
  const settings: IsolationSettings = typeof isolation === "string" ? { level: isolation } : isolation;
  if (!isLevel(settings?.level)) {
    return { ok: false, error: `isolation level ${JSON.stringify(settings?.level)} does not exist` };
  }
  const parsed = parsers[settings.level](settings);
  if (!parsed.ok) return { ok: false, error: `isolation ${settings.level}: ${parsed.error}` };
  const secret = settings.env?.find((name) => withheld.has(name));
  if (secret !== undefined) return { ok: false, error: `isolation: ${secret} is never given to a tool` };
  return { ok: true, value: completedIsolation(settings) };
}
