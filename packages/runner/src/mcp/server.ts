import type { RiskLevel, ToolEffect } from "@larkline/protocol";

/** A running MCP server on the other end of two pipes, wherever it runs. */
export interface StdioChannel {
  readonly stdin: NodeJS.WritableStream;
  readonly stdout: NodeJS.ReadableStream;
  /** Resolves when it has ended, with a reason for people. */
  readonly ended: Promise<string>;
  /** Idempotent. */
  close(): Promise<void>;
}

/** How a server is reached. Each `open` starts a server of its own. */
export type McpTransport =
  | { kind: "stdio"; open(): Promise<StdioChannel> }
  | { kind: "http"; url: URL; headers: Readonly<Record<string, string>>; fetch: typeof fetch };

/** What the deployment says of one tool, whatever its server claims. */
export interface McpToolPolicy {
  readonly effect: ToolEffect;
  readonly requiresApproval: boolean;
  readonly timeoutMs: number;
  readonly risk: RiskLevel;
  /** Not mounted. */
  readonly hidden: boolean;
}

/** What a server says of a tool itself: hints, which nobody has to believe. */
export interface McpToolHints {
  readonly name: string;
  readonly readOnly: boolean;
  readonly idempotent: boolean;
}

/** One server of the configuration. */
export interface McpServer {
  /** Part of the names of its tools: letters, digits, `_` and `-`. */
  readonly name: string;
  readonly transport: McpTransport;
  policyOf(hints: McpToolHints): McpToolPolicy;
  readonly connectTimeoutMs: number;
}

/** What happens to a mounted server, for logs and metrics. */
export type McpEvent =
  | { type: "connected"; server: string; tools: number }
  | { type: "disconnected"; server: string; reason: string; retryInMs: number }
  | { type: "tool_refused"; server: string; tool: string; reason: string };
