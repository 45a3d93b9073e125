export { mountMcpServer, type McpMount, type MountOptions } from "./mount.ts";
export type { McpEvent, McpServer, McpToolHints, McpToolPolicy, McpTransport, StdioChannel } from "./server.ts";
