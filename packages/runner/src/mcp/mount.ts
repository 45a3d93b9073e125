import type { Client, Tool as ListedTool } from "@modelcontextprotocol/client";
import type { Tool } from "@larkline/tool-kit";
import { connectMcp } from "./connection.ts";
import { mountedTool, resourceReader } from "./mcp-tools.ts";
import type { McpEvent, McpServer } from "./server.ts";

/** A server whose tools can be called like any others. */
export interface McpMount {
  /**
   * Its tools as last listed; empty until it was reached for the first time. They stay while the
   * connection is lost: a call waits for it, up to its own deadline.
   */
  tools(): readonly Tool[];
  /** Whether it is connected now. */
  connected(): boolean;
  /** Ends the connection, and a server that was started for it. Idempotent. */
  close(): Promise<void>;
}

export interface MountOptions {
  /** The list is another one now. */
  onChange(): void;
  onEvent(event: McpEvent): void;
}

/** Of all that one server says of its tools: it is announced every few seconds, and told to models. */
const maxListCharacters = 1_048_576;

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Mounts a server: connects in the background, follows its list of tools, comes back after every break. */
export function mountMcpServer(server: McpServer, { onChange, onEvent }: MountOptions): McpMount {
  let tools: readonly Tool[] = [];
  let isConnected = false;

  const mount = (listed: readonly ListedTool[], client: Client): Tool[] => {
    const mounted = new Map<string, Tool>();
    const add = (name: string, make: () => Tool | undefined): void => {
      try {
        const tool = make();
        if (tool !== undefined) mounted.set(tool.name, tool);
      } catch (error) {
        onEvent({ type: "tool_refused", server: server.name, tool: name, reason: messageOf(error) });
      }
    };
    // First, so that a tool of the server with that name wins.
    if (client.getServerCapabilities()?.resources !== undefined) {
      add("read_resource", () => resourceReader(server, clients));
    }
    let left = maxListCharacters;
    for (const tool of listed) {
      left -= JSON.stringify([tool.description, tool.inputSchema]).length;
      const isTooMuch = left < 0;
      add(tool.name, () => {
        if (isTooMuch) throw new RangeError(`the list of tools has more than ${maxListCharacters} characters`);
        return mountedTool(server, tool, clients);
      });
    }
    return [...mounted.values()];
  };

  const connection = connectMcp({
    server,
    onTools: (listed, client) => {
      tools = mount(listed, client);
      onChange();
    },
    onEvent: (event) => {
      isConnected = event.type === "connected";
      onEvent(event);
    },
  });
  const clients = async (signal: AbortSignal): Promise<Client> => await connection.client(signal);

  return {
    tools: () => tools,
    connected: () => isConnected,
    close: async () => await connection.close(),
  };
}
