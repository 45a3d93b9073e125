import { randomUUID } from "node:crypto";
import { realpathSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";

/*
 * An MCP server of the revisions of 2025, with the official SDK for servers behind streamable HTTP: it asks people in the
 * middle of its calls (`elicitation/create`), and has each client in a session of its own.
 */

// What is used here of the SDK, which the reference server brings along.
interface Extra {
  sendRequest: (request: object, schema: unknown) => Promise<Told>;
}
interface SdkServer {
  setRequestHandler(
    schema: unknown,
    handler: (request: { params: Call }, extra: Extra) => object,
  ): void;
  connect(transport: SdkTransport): Promise<void>;
}
interface SdkTransport {
  handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void>;
}
interface Sdk {
  Server: new (info: object, options: object) => SdkServer;
  StreamableHTTPServerTransport: new (options: {
    sessionIdGenerator: () => string;
    onsessioninitialized: (id: string) => void;
    onsessionclosed: (id: string) => void;
  }) => SdkTransport;
  CallToolRequestSchema: unknown;
  ListToolsRequestSchema: unknown;
  ElicitResultSchema: unknown;
}

const ours = createRequire(new URL("../../packages/runner/package.json", import.meta.url));
const reference = realpathSync(
  ours.resolve("@modelcontextprotocol/server-everything/dist/index.js"),
);
const sdkOf = createRequire(reference);

function loadSdk(): Sdk {
  const parts = ["server/index.js", "server/streamableHttp.js", "types.js"];
  return Object.assign(
    {},
    ...parts.map((part) => sdkOf(`@modelcontextprotocol/sdk/${part}`) as object),
  ) as Sdk; // the names above are exported there
}

/** What a client answered to a question. */
interface Told {
  action: string;
  content?: Record<string, unknown>;
}

interface Call {
  name: string;
  arguments?: { id?: string };
}

/** One call, with the answers that the server got in it. */
interface AskingCall {
  id: string;
  told: Told[];
}

export interface AskingServer {
  url: string;
  /** Calls that it has got, in their order. */
  calls: AskingCall[];
  /** Sessions that are open. */
  sessions(): number;
  close(): void;
}

const questions = [
  { message: "Where to?", field: "city", schema: { type: "string", title: "City", maxLength: 40 } },
  { message: "Which seat?", field: "seat", schema: { type: "string", enum: ["window", "aisle"] } },
];

const tools = ["trip", "pay"].map((name) => ({
  name,
  description: name,
  inputSchema: { type: "object", properties: { id: { type: "string" } } },
}));

/** Its tools `trip` and `pay` ask for a city and then for a seat, and say what they got. */
export async function startAskingServer(): Promise<AskingServer> {
  const sdk = loadSdk();
  const calls: AskingCall[] = [];
  const sessions = new Map<string, SdkTransport>();

  const answerCall = async (given: Call, { sendRequest }: Extra): Promise<object> => {
    const call: AskingCall = { id: given.arguments?.id ?? "", told: [] };
    calls.push(call);
    for (const { message, field, schema } of questions) {
      const requestedSchema = {
        type: "object",
        properties: { [field]: schema },
        required: [field],
      };
      const params = { mode: "form", message, requestedSchema };
      const told = await sendRequest(
        { method: "elicitation/create", params },
        sdk.ElicitResultSchema,
      );
      call.told.push(told);
      if (told.action !== "accept") break;
    }
    const words = call.told.map(({ action, content }) =>
      [action, ...Object.values(content ?? {})].join(" "),
    );
    return { content: [{ type: "text", text: `${call.id}: ${words.join(", ")}` }] };
  };

  const openSession = async (): Promise<SdkTransport> => {
    const server = new sdk.Server(
      { name: "asking", version: "1" },
      { capabilities: { tools: {} } },
    );
    server.setRequestHandler(sdk.ListToolsRequestSchema, () => ({ tools }));
    server.setRequestHandler(
      sdk.CallToolRequestSchema,
      async ({ params }, extra) => await answerCall(params, extra),
    );
    const transport = new sdk.StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await server.connect(transport);
    return transport;
  };

  // A client may use a connection again that was idle for seconds.
  const http = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    const id = request.headers["mcp-session-id"];
    const known = typeof id === "string" ? sessions.get(id) : undefined;
    const handled = async (): Promise<void> => {
      if (id !== undefined && known === undefined) return void response.writeHead(404).end();
      await (known ?? (await openSession())).handleRequest(request, response);
    };
    handled().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo; // a TCP server has one
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    calls,
    sessions: () => sessions.size,
    close: () => {
      http.closeAllConnections();
      http.close();
    },
  };
}
