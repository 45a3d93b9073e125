import { Type, type Static } from "typebox";
import { RiskLevel, RunnerName, ToolEffect } from "@larkline/protocol";

const time = Type.Integer({ minimum: 1, maximum: 86_400_000 });
const variable = Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]{0,127}$" });

/** What the deployment says of a tool, whatever its server claims. */
export const McpToolInput = Type.Object(
  {
    effect: Type.Optional(ToolEffect),
    requiresApproval: Type.Optional(Type.Boolean()),
    timeoutMs: Type.Optional(time),
    risk: Type.Optional(RiskLevel),
    /** Not offered. */
    hidden: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
export type McpToolInput = Static<typeof McpToolInput>;

/** What servers of both kinds have. */
const common = {
  /** Name of the runner that mounts it. Default: the one named `default`. */
  runner: Type.Optional(RunnerName),
  /** By name or pattern (`*` stands for any characters); of several that fit, later ones win. */
  tools: Type.Optional(Type.Record(Type.String({ minLength: 1, maxLength: 128 }), McpToolInput)),
  /** Deadline of one call. Default 60 s. */
  timeoutMs: Type.Optional(time),
  /** Deadline of connecting and of listing the tools. Default 30 s. */
  connectTimeoutMs: Type.Optional(time),
};

/** A server that is started: contained, because nobody here wrote it. */
export const McpProgramInput = Type.Object(
  {
    command: Type.String({ minLength: 1, maxLength: 1_000 }),
    args: Type.Optional(Type.Array(Type.String({ maxLength: 10_000 }), { maxItems: 200 })),
    /** Names of variables of the runner's environment that it gets. */
    env: Type.Optional(Type.Array(variable, { maxItems: 50 })),
    /** Directories that it may read. */
    readable: Type.Optional(Type.Array(Type.String({ pattern: "^/" }), { maxItems: 50 })),
    /** Default `none`. */
    network: Type.Optional(
      Type.Union([
        Type.Literal("none"),
        Type.Object(
          { allow: Type.Array(Type.String({ minLength: 1, maxLength: 260 }), { minItems: 1, maxItems: 100 }) },
          { additionalProperties: false },
        ),
      ]),
    ),
    ...common,
  },
  { additionalProperties: false },
);
export type McpProgramInput = Static<typeof McpProgramInput>;

/** A server that runs elsewhere. */
export const McpAddressInput = Type.Object(
  {
    url: Type.String({ minLength: 1, maxLength: 2_000 }),
    /** Header to the name of the variable that holds its value. */
    headers: Type.Optional(Type.Record(Type.String({ pattern: "^[A-Za-z0-9-]{1,100}$" }), variable)),
    /** Its address may be a private one. Default false. */
    allowPrivate: Type.Optional(Type.Boolean()),
    ...common,
  },
  { additionalProperties: false },
);
export type McpAddressInput = Static<typeof McpAddressInput>;

/** Servers of tools, by a name that begins the names of their tools. Each is a program or an address. */
export const McpInput = Type.Object(
  {
    servers: Type.Optional(
      Type.Record(
        Type.String({ pattern: "^[A-Za-z0-9_-]{1,32}$" }),
        // Checked against the schema of its kind when it is resolved.
        Type.Unsafe<McpProgramInput | McpAddressInput>(Type.Object({})),
      ),
    ),
  },
  { additionalProperties: false },
);
