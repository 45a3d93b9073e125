import { createInterface } from "node:readline";

/*
 * A server by the wire format alone, for what the reference servers do not do: it changes its list
 * of tools, dies in the middle of a call, never answers, floods its client, has too many tools and parts of results, gives
 * schemas that take exponential time to check, and prints garbage to stdout.
 */

interface Request {
  id?: number | string;
  method: string;
  params?: { name?: string; protocolVersion?: string };
}

/** Takes longer with every letter, without end after thirty. */
const trap = { type: "object", properties: { text: { type: "string", pattern: "^(a+)+$" } } };

const tools = [
  tool("grow"),
  tool("die"),
  tool("hang"),
  tool("grow_much"),
  tool("many_parts"),
  tool("odd name!", { type: "object", notAKeyword: 1 }),
  tool("flood"),
  { ...tool("trap", trap), outputSchema: trap },
  tool("huge", { type: "object", description: "x".repeat(70_000) }),
];

function tool(name: string, inputSchema: object = { type: "object" }): object {
  return { name, description: name, inputSchema };
}

function send(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function call(id: Request["id"], name: string | undefined): void {
  if (name === "die") process.exit(1);
  if (name === "hang") return;
  if (name === "grow") {
    tools.push(tool(`grown_${tools.length}`));
    send({ method: "notifications/tools/list_changed" });
  }
  if (name === "grow_much") {
    for (let i = 0; i < 1_000; i += 1) tools.push(tool(`more_${i}`));
    send({ method: "notifications/tools/list_changed" });
  }
  if (name === "many_parts") {
    const content = Array.from({ length: 205 }, (_, at) => ({ type: "text", text: `part ${at}` }));
    return send({ id, result: { content } });
  }
  if (name === "flood") {
    for (let i = 0; i < 5_000; i += 1) send({ id: `flood-${i}`, method: "ping" });
  }
  const structuredContent = { text: `${"a".repeat(40)}!` };
  send({ id, result: { content: [{ type: "text", text: `did ${name}` }], structuredContent } });
}

process.stdout.write("a banner that does not belong here\n");
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params = {} } = JSON.parse(line) as Request; // the client under test wrote it
  if (method === "initialize") {
    const capabilities = { tools: { listChanged: true } };
    send({
      id,
      result: {
        protocolVersion: params.protocolVersion,
        capabilities,
        serverInfo: { name: "x", version: "1" },
      },
    });
  } else if (method === "tools/list") send({ id, result: { tools } });
  else if (method === "tools/call") call(id, params.name);
  else if (id !== undefined) send({ id, error: { code: -32_601, message: "Method not found" } });
});
