import { parserOf, type ParseResult } from "@larkline/protocol";
import { RunnerName } from "@larkline/protocol/runner";
import { RiskLevel, ToolEffect } from "@larkline/protocol/tool";
import { Type, type Static } from "@larkline/protocol/type";
import { matchesName } from "@larkline/agent/permissions";

const variable = Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]{0,127}$" });

const time = Type.Integer({ minimum: 1, maximum: 86_400_000 });

/** What the deployment says of a tool, whatever its server claims. */
const McpToolInput = Type.Object(
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
type McpToolInput = Static<typeof McpToolInput>;

/** What servers of both kinds have. */
const common = {
  /** Name of the runner that mounts it. Default: the one of `npm start`, elsewhere the one named `default`. */
  runner: Type.Optional(RunnerName),
  /** What it says of its tools counts: those that it calls read-only run unasked, as of low risk. Default false. */
  trusted: Type.Optional(Type.Boolean()),
  /** By name or pattern (`*` stands for any characters); of several that fit, later ones win. */
  tools: Type.Optional(Type.Record(Type.String({ minLength: 1, maxLength: 128 }), McpToolInput)),
  /** Deadline of one call. Default 60 s. */
  timeoutMs: Type.Optional(time),
  /** Deadline of connecting and of listing the tools. Default 30 s. */
  connectTimeoutMs: Type.Optional(time),
};

/** A server that the runner starts. It runs contained, because its code is foreign. */
const McpProgramInput = Type.Object(
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
          {
            allow: Type.Array(Type.String({ minLength: 1, maxLength: 260 }), {
              minItems: 1,
              maxItems: 100,
            }),
          },
          { additionalProperties: false },
        ),
      ]),
    ),
    ...common,
  },
  { additionalProperties: false },
);
type McpProgramInput = Static<typeof McpProgramInput>;

/** A server that runs elsewhere. */
const McpAddressInput = Type.Object(
  {
    url: Type.String({ minLength: 1, maxLength: 2_000 }),
    /** Header to the name of the variable that holds its value. */
    headers: Type.Optional(
      Type.Record(Type.String({ pattern: "^[A-Za-z0-9-]{1,100}$" }), variable),
    ),
    /** Its address may be a private one. Default false. */
    allowPrivate: Type.Optional(Type.Boolean()),
    /** With an older revision: it may ask people inside calls that may be repeated. Default false. */
    elicitation: Type.Optional(Type.Boolean()),
    ...common,
  },
  { additionalProperties: false },
);
type McpAddressInput = Static<typeof McpAddressInput>;

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

/** The MCP part of a configuration. */
export interface McpConfig {
  readonly servers: readonly McpServerConfig[];
}

/** One MCP server of the configuration, complete. */
export interface McpServerConfig {
  readonly name: string;
  readonly access: McpServerAccess;
  /** Name of the runner that mounts it; undefined: see {@link mountsServer}. */
  readonly runner: string | undefined;
  readonly trusted: boolean;
  /** Pattern of names to what the deployment says, in the order written. */
  readonly tools: readonly (readonly [pattern: string, policy: McpToolInput])[];
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  /** False for programs: each of its calls takes a connection of its own, which for a program is a process. */
  readonly elicitation: boolean;
}

/** How a server is reached. `env` and the values of `headers` are names of variables of the runner. */
export type McpServerAccess =
  | {
      readonly kind: "stdio";
      readonly command: string;
      readonly args: readonly string[];
      readonly env: readonly string[];
      readonly readable: readonly string[];
      readonly network: "none" | { readonly allow: readonly string[] };
    }
  | {
      readonly kind: "http";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
      readonly allowPrivate: boolean;
    };

/** What holds for one tool of a server. */
export interface McpToolSettings {
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly risk: RiskLevel;
  readonly hidden: boolean;
}

/** All servers with their defaults; the error names every server with a problem. */
export function resolveMcp(servers: Readonly<Record<string, object>>): ParseResult<McpConfig> {
  const parsed = Object.entries(servers).map(([name, input]) => ({
    name,
    result: parseServer(input),
  }));
  const problems = parsed.flatMap(({ name, result }) =>
    result.ok ? [] : [`mcp.servers.${name}: ${result.error}`],
  );
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return {
    ok: true,
    value: {
      servers: parsed.flatMap(({ name, result }) =>
        result.ok ? [serverOf(name, result.value)] : [],
      ),
    },
  };
}

const parseProgram = parserOf(McpProgramInput, { maxProblems: 100 });

const parseAddress = parserOf(McpAddressInput, { maxProblems: 100 });

/** Whichever kind it is meant to be decides what is checked, so that problems are short. */
function parseServer(input: object): ParseResult<McpProgramInput | McpAddressInput> {
  if (!("url" in input)) return parseProgram(input);
  const parsed = parseAddress(input);
  if (!parsed.ok || isWebAddress(parsed.value.url)) return parsed;
  return { ok: false, error: "url must begin with http:// or https://" };
}

function isWebAddress(url: string): boolean {
  return /^https?:\/\//.test(url) && URL.canParse(url);
}

function serverOf(name: string, input: McpProgramInput | McpAddressInput): McpServerConfig {
  const {
    runner,
    trusted = false,
    tools = {},
    timeoutMs = 60_000,
    connectTimeoutMs = 30_000,
  } = input;
  const elicitation = "url" in input && input.elicitation === true;
  const deadlines = { timeoutMs, connectTimeoutMs };
  return {
    name,
    access: accessOf(input),
    runner,
    trusted,
    tools: Object.entries(tools),
    ...deadlines,
    elicitation,
  };
}

function accessOf(input: McpProgramInput | McpAddressInput): McpServerAccess {
  if ("url" in input) {
    const { url, headers = {}, allowPrivate = false } = input;
    return { kind: "http", url, headers, allowPrivate };
  }
  const { command, args = [], env = [], readable = [], network = "none" } = input;
  return { kind: "stdio", command, args, env, readable, network };
}

/** The runners that mount servers for which none is named: of a deployment, and of `npm start`. */
const mainRunners: readonly string[] = ["default", "local"];

/** Whether a runner mounts a server. */
export function mountsServer(runner: string, server: Pick<McpServerConfig, "runner">): boolean {
  return server.runner === undefined ? mainRunners.includes(runner) : server.runner === runner;
}

/**
 * What holds for a tool: what the configuration says of it, and by default the worst. What its server says may make it
 * repeatable, since a server can repeat its own work anyway; people are left out only where the server is trusted.
 */
export function mcpToolSettings(
  server: Pick<McpServerConfig, "tools" | "timeoutMs" | "trusted">,
  tool: { name: string; readOnly: boolean; idempotent: boolean },
): McpToolSettings {
  const { name, readOnly, idempotent } = tool;
  const isHarmless = readOnly && server.trusted;
  const repeatable = idempotent ? "idempotent" : "once";
  const said = server.tools
    .filter(([pattern]) => matchesName(pattern, name))
    .map(([, policy]) => policy);
  return Object.assign(
    {
      effect: readOnly ? "pure" : repeatable,
      requiresApproval: !isHarmless,
      timeoutMs: server.timeoutMs,
      risk: isHarmless ? "low" : "medium",
      hidden: false,
    } as const,
    ...said,
  );
}
