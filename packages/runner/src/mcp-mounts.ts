import { mcpToolSettings, type Env, type McpServerConfig } from "@larkline/process/config";
import { mountMcpServer, type McpEvent, type McpMount, type McpTransport } from "./mcp/index.ts";
import { createGuardedFetch, type SandboxCommand, type SandboxSession } from "@larkline/sandbox";
import type { Tool } from "@larkline/tool-kit";

export interface McpMountsOptions {
  servers: readonly McpServerConfig[];
  /** Where the variables are that servers name. */
  environment: Env;
  /** Starts a server that is a program, contained. */
  openSession(command: SandboxCommand): Promise<SandboxSession>;
  /** What is offered is another list now. */
  onChange(): void;
  onEvent(event: McpEvent): void;
}

/** The tools of all MCP servers that a runner mounts. */
export interface McpMounts {
  /** Of two servers whose tools come to the same name, the one named first has it. */
  tools(): Tool[];
  find(name: string): Tool | undefined;
  /** Leaves a tool out for a while: somebody else offers it in another way. False when it is none of these. */
  exclude(name: string): boolean;
  close(): Promise<void>;
}

/** Then the other one may be gone, or have followed the same change. */
const excludedMs = 15_000;

/** Values of the named variables; {@link missingVariables} has made sure that they are there. */
function valuesOf(names: Readonly<Record<string, string>>, environment: Env): Record<string, string> {
  return Object.fromEntries(Object.entries(names).map(([key, variable]) => [key, environment[variable] ?? ""]));
}

/** Variables that a server names, by what they become: names of variables, or of headers. */
function variablesOf({ access }: McpServerConfig): Readonly<Record<string, string>> {
  return access.kind === "http" ? access.headers : Object.fromEntries(access.env.map((name) => [name, name]));
}

/** What a server names and the environment lacks, a line each. */
export function missingVariables(server: McpServerConfig, environment: Env): string[] {
  return Object.values(variablesOf(server))
    .filter((variable) => (environment[variable] ?? "") === "")
    .map((variable) => `mcp.servers.${server.name} needs the variable ${variable}, which is not set.`);
}

function transportOf(server: McpServerConfig, { environment, openSession }: McpMountsOptions): McpTransport {
  const { access } = server;
  const values = valuesOf(variablesOf(server), environment);
  if (access.kind === "http") {
    return {
      kind: "http",
      url: new URL(access.url),
      headers: values,
      fetch: createGuardedFetch(access.allowPrivate ? { allowPrivate: () => true } : {}),
    };
  }
  const { command, args, readable, network } = access;
  const open = async (): Promise<SandboxSession> => {
    const session = await openSession({ command, args, readable, network, env: values });
    session.stderr.resume(); // what nobody reads would stop the server in the end
    return session;
  };
  return { kind: "stdio", open };
}

class OpenMounts implements McpMounts {
  readonly #mounts: McpMount[];
  readonly #excludedUntilMs = new Map<string, number>();

  constructor(options: McpMountsOptions) {
    const { onChange, onEvent } = options;
    this.#mounts = options.servers.map((server) =>
      mountMcpServer(
        {
          name: server.name,
          transport: transportOf(server, options),
          policyOf: (hints) => mcpToolSettings(server, hints),
          connectTimeoutMs: server.connectTimeoutMs,
        },
        { onChange, onEvent },
      ),
    );
  }

  tools(): Tool[] {
    const nowMs = Date.now();
    const isOffered = ({ name }: Tool): boolean => (this.#excludedUntilMs.get(name) ?? 0) <= nowMs;
    return this.#all().filter(isOffered);
  }

  find(name: string): Tool | undefined {
    return this.#all().find((tool) => tool.name === name);
  }

  exclude(name: string): boolean {
    if (this.find(name) === undefined) return false;
    this.#excludedUntilMs.set(name, Date.now() + excludedMs);
    return true;
  }

  async close(): Promise<void> {
    await Promise.all(this.#mounts.map(async (mount) => await mount.close()));
  }

  #all(): Tool[] {
    const byName = new Map<string, Tool>();
    for (const tool of this.#mounts.flatMap((mount) => mount.tools())) {
      if (!byName.has(tool.name)) byName.set(tool.name, tool);
    }
    return [...byName.values()];
  }
}

/** Starts to mount the servers; their tools come as they are reached. */
export function openMcpMounts(options: McpMountsOptions): McpMounts {
  return new OpenMounts(options);
}
