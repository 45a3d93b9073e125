import { matchesName } from "@larkline/agent/permissions";
import { parserOf, type ParseResult, type RiskLevel, type ToolEffect } from "@larkline/protocol";
import { McpAddressInput, McpProgramInput, type McpToolInput } from "./mcp-schema.ts";

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

/** One MCP server of the configuration, complete. */
export interface McpServerConfig {
  readonly name: string;
  readonly access: McpServerAccess;
  /** Name of the runner that mounts it. */
  readonly runner: string;
  /** Pattern of names to what the deployment says, in the order written. */
  readonly tools: readonly (readonly [pattern: string, policy: McpToolInput])[];
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
}

/** The MCP part of a configuration. */
export interface McpConfig {
  readonly servers: readonly McpServerConfig[];
}

/** What holds for one tool of a server. */
export interface McpToolSettings {
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly risk: RiskLevel;
  readonly hidden: boolean;
}

/**
 * What holds for a tool: what the configuration says of it, and by default the worst that its server
 * does not deny: `once` with an approval, unless it calls the tool read-only.
 */
export function mcpToolSettings(
  server: Pick<McpServerConfig, "tools" | "timeoutMs">,
  tool: { name: string; readOnly: boolean; idempotent: boolean },
): McpToolSettings {
  const { name, readOnly, idempotent } = tool;
  const repeatable = idempotent ? "idempotent" : "once";
  const said = server.tools.filter(([pattern]) => matchesName(pattern, name)).map(([, policy]) => policy);
  return Object.assign(
    {
      effect: readOnly ? "pure" : repeatable,
      requiresApproval: !readOnly,
      timeoutMs: server.timeoutMs,
      risk: readOnly ? "low" : "medium",
      hidden: false,
    } as const,
    ...said,
  );
}

const parseProgram = parserOf(McpProgramInput, { maxProblems: 100 });
const parseAddress = parserOf(McpAddressInput, { maxProblems: 100 });

function accessOf(input: McpProgramInput | McpAddressInput): McpServerAccess {
  if ("url" in input) {
    const { url, headers = {}, allowPrivate = false } = input;
    return { kind: "http", url, headers, allowPrivate };
  }
  const { command, args = [], env = [], readable = [], network = "none" } = input;
  return { kind: "stdio", command, args, env, readable, network };
}

function serverOf(name: string, input: McpProgramInput | McpAddressInput): McpServerConfig {
  const { runner = "default", tools = {}, timeoutMs = 60_000, connectTimeoutMs = 30_000 } = input;
  return { name, access: accessOf(input), runner, tools: Object.entries(tools), timeoutMs, connectTimeoutMs };
}

function isWebAddress(url: string): boolean {
  return /^https?:\/\//.test(url) && URL.canParse(url);
}

/** Whichever kind it is meant to be decides what is checked, so that problems are short. */
function parseServer(input: object): ParseResult<McpProgramInput | McpAddressInput> {
  if (!("url" in input)) return parseProgram(input);
  const parsed = parseAddress(input);
  if (!parsed.ok || isWebAddress(parsed.value.url)) return parsed;
  return { ok: false, error: "url must begin with http:// or https://" };
}

/** All servers with their defaults; the error names every server with a problem. */
export function resolveMcp(servers: Readonly<Record<string, object>>): ParseResult<McpConfig> {
  const parsed = Object.entries(servers).map(([name, input]) => ({ name, result: parseServer(input) }));
  const problems = parsed.flatMap(({ name, result }) => (result.ok ? [] : [`mcp.servers.${name}: ${result.error}`]));
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return {
    ok: true,
    value: { servers: parsed.flatMap(({ name, result }) => (result.ok ? [serverOf(name, result.value)] : [])) },
  };
}
