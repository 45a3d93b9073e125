/*
 * Checks what authors write. Only the process that makes tools loads it: TypeBox and ajv cost half a second of CPU, and
 * a process that runs a tool for a runner need not check again what the runner has checked.
 */
import { parserOf, type ParseResult } from "@larkline/protocol";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import { ToolAnnouncement } from "@larkline/protocol/tool";
import { Type } from "@larkline/protocol/type";
import {
  completedIsolation,
  isolationLevels,
  type Isolation,
  type IsolationLevel,
  type IsolationSettings,
  type ResolvedIsolation,
} from "./isolation.ts";

/** Checks what a runner would announce of a tool. */
export const parseAnnouncement = parserOf(ToolAnnouncement);

/** Makes the check of a tool's input. Throws when the schema does not compile. */
export { compileJsonSchema };

/** Checks and completes what an author wrote; an error says what a level does not take. */
export function resolvedIsolation(isolation: Isolation): ParseResult<ResolvedIsolation> {
  const settings: IsolationSettings =
    typeof isolation === "string" ? { level: isolation } : isolation;
  if (!isLevel(settings?.level)) {
    return {
      ok: false,
      error: `isolation level ${JSON.stringify(settings?.level)} does not exist`,
    };
  }
  const parsed = parsers[settings.level](settings);
  if (!parsed.ok) return { ok: false, error: `isolation ${settings.level}: ${parsed.error}` };
  const secret = settings.env?.find((name) => withheld.has(name));
  if (secret !== undefined) {
    return { ok: false, error: `isolation: ${secret} is never given to a tool` };
  }
  return { ok: true, value: completedIsolation(settings) };
}

function isLevel(value: unknown): value is IsolationLevel {
  return isolationLevels.some((known) => known === value);
}

const count = (maximum: number) => Type.Optional(Type.Integer({ minimum: 1, maximum }));
const env = Type.Optional(
  Type.Array(Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]{0,127}$" }), { maxItems: 100 }),
);
const memoryMb = Type.Optional(Type.Integer({ minimum: 16, maximum: 1_048_576 }));
const inSandbox = {
  env,
  memoryMb,
  network: Type.Optional(
    Type.Union([
      Type.Literal("none"),
      Type.Object({
        allow: Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: 256 }),
      }),
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

/** The settings that each level may have. */
const parsers = {
  inline: parserOf(Type.Object({ level }, exactly)),
  process: parserOf(Type.Object({ level, env, memoryMb, concurrency: count(1_000) }, exactly)),
  sandbox: parserOf(Type.Object({ level, ...inSandbox, readable }, exactly)),
} satisfies Record<IsolationLevel, unknown>;

/** Variables that give access to the deployment itself. No tool has a use for them. */
const withheld = new Set([
  "REDIS_URL",
  "RUNNER_KEY",
  "CALL_SIGNING_KEY",
  "GRANT_KEY",
  "API_TOKEN",
  "API_KEYS",
  "API_JWT_SECRET",
  "EVENTS_SIGNING_KEY",
  "CONSOLE_PASSWORD",
  "FEISHU_APP_SECRET",
  "FEISHU_ENCRYPT_KEY",
  "FEISHU_VERIFICATION_TOKEN",
]);
