import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createClient, type RunEvent } from "@larkline/sdk";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import type { App } from "../system/app-process.ts";
import { decide, untilAsked } from "../system/approvals.ts";
import { noteSeen } from "../system/seen.ts";
import { send } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

// Tools of an MCP server in runs of the real processes: who gives them, who is asked, and what the model reads when it is gone.

let system: System;
let server: Server;
let operators: App;

const inputSchema = { type: "object", properties: { key: { type: "string" } } };
const tools = [
  {
    name: "look",
    description: "Looks.",
    inputSchema,
    annotations: { readOnlyHint: true, title: "Look around" },
  },
  { name: "change", title: "Move the furniture", description: "Changes.", inputSchema },
];

interface Asked {
  id?: number;
  method: string;
  params?: { name?: string; protocolVersion?: string };
}

function answerTo({ method, params = {} }: Asked): object {
  if (method === "initialize") {
    const { protocolVersion } = params;
    return {
      protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "things", version: "1" },
    };
  }
  return method === "tools/list"
    ? { tools }
    : { content: [{ type: "text", text: `${params.name}: done` }] };
}

beforeAll(async () => {
  // A client may use a connection again that was idle for seconds.
  server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    let text = "";
    request.on("data", (piece: Buffer) => (text += piece.toString()));
    request.on("end", () => {
      if (request.method !== "POST") return void response.writeHead(405).end();
      const asked = JSON.parse(text) as Asked; // the client of our own runner writes it
      if (asked.id === undefined) return void response.writeHead(202).end();
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result: answerTo(asked) }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server has one
  const things = {
    url: `http://127.0.0.1:${port}/mcp`,
    allowPrivate: true,
    runner: "recording",
    trusted: true,
    timeoutMs: 20_000,
  };
  system = await startSystem({ config: { mcp: { servers: { things } } } });
  operators = await system.start("console");
});
afterAll(async () => {
  await operators?.stop();
  await system?.close();
  server.closeAllConnections();
  server.close();
});

function eventsOf<T extends RunEvent["type"]>(
  events: readonly RunEvent[],
  type: T,
): Extract<RunEvent, { type: T }>[] {
  return events.filter((event): event is Extract<RunEvent, { type: T }> => event.type === type);
}

it("RI-39: a server and its tools are named, the person is asked, and the run's items say so", async () => {
  const client = createClient({ url: system.ingresses[0]?.url ?? "" });
  const isOffered = async () =>
    (await client.run("look\ncall things_look {}").result()).finalOutput;
  await expect.poll(isOffered, { timeout: 60_000, interval: 500 }).toBe("[look] ok:look: done");
  const run = client.run('go\ncall things_look {"key":"a"}\ncall things_change {"key":"b"}');
  const events: RunEvent[] = [];
  for await (const event of run.stream()) {
    events.push(event);
    if (event.type === "permission_request") await run.approve(event.id, "approve");
  }
  const [look, change] = eventsOf(events, "tool_use");
  const listed = [
    expect.objectContaining({
      name: "things_look",
      description: expect.stringMatching(/^Looks\./) as string,
    }),
    expect.objectContaining({
      name: "things_change",
      description: expect.stringMatching(/^Changes\./) as string,
    }),
  ];
  expect(look?.mcp).toEqual({ server: "things", tools: expect.arrayContaining(listed) as unknown });
  expect(look?.step).toMatchObject({ calls: 2 });
  expect(change?.mcp).toEqual({ server: "things" });
  expect(eventsOf(events, "permission_request")).toMatchObject([
    { toolName: "things_change", toolCallId: change?.id },
  ]);
  expect(eventsOf(events, "tool_summary").map(({ summary }) => summary)).toContain("look: done");
  expect(eventsOf(events, "tool_result")).toMatchObject([{ code: "" }, { code: "" }]);
  const { newItems } = await run.result();
  const types = newItems.map(({ type }) => type);
  for (const type of [
    "mcp_list_tools_item",
    "mcp_approval_request_item",
    "mcp_approval_response_item",
  ]) {
    expect(types).toContain(type);
  }
  noteSeen(
    "event",
    events.map(({ type }) => type),
  );
  noteSeen("item", types);
});

it("EE-12: a call that a person rejects is permission_denied, and no approval in the run's items", async () => {
  const run = createClient({ url: system.ingresses[0]?.url ?? "" }).run(
    'go\ncall things_change {"key":"c"}',
  );
  const events: RunEvent[] = [];
  for await (const event of run.stream()) {
    events.push(event);
    if (event.type === "permission_request") await run.approve(event.id, "reject");
  }
  const output = "User rejected this action.";
  expect(eventsOf(events, "tool_result")).toMatchObject([
    { isError: true, code: "permission_denied", output },
  ]);
  const { newItems } = await run.result();
  const responses = newItems.filter(({ type }) => type === "mcp_approval_response_item");
  expect(responses).toMatchObject([{ rawItem: { approve: false } }]);
});

it("the titles that a server gives its tools are what the card, the approval and the console show", async () => {
  const page = async (path: string): Promise<string> =>
    await (await fetch(`${operators.url}${path}`)).text();
  const ann = system.person("Ann");
  const { messageId } = await send(system, ann, {
    text: "go\ncall things_look {}\ncall things_change {}",
  });
  const [asked] = await untilAsked(system, ann.chatId);
  if (asked === undefined) throw new Error("no person was asked");
  expect(asked.title).toBe("Approve “Move the furniture”?");
  await vi.waitFor(
    async () => expect(await page("/approvals")).toContain("Move the furniture (things_change)"),
    {
      timeout: 60_000,
    },
  );
  for (const path of ["/agents", "/runners"]) {
    const shown = await page(path);
    for (const tool of ["Look around (things_look)", "Move the furniture (things_change)"]) {
      expect(shown, path).toContain(tool);
    }
  }
  await decide(system, asked, { openId: ann.openId, wanted: { decision: "approve" } });
  const { messages } = await waitForAnswer(system.feishu, messageId, { timeoutMs: 60_000 });
  const shown = JSON.stringify(messages.map(({ card }) => card?.json));
  expect(shown).toContain("✅ Look around");
  expect(shown).toContain("✅ Move the furniture");
});

it("EE-12: a call whose server is gone says so in its code and in its text", async () => {
  server.closeAllConnections();
  await new Promise<void>((resolve) => void server.close(() => resolve()));
  const run = createClient({ url: system.ingresses[0]?.url ?? "" }).run(
    "look\ncall things_look {}\ncall nothing {}",
  );
  const events: RunEvent[] = [];
  for await (const event of run.stream()) events.push(event);
  const results = eventsOf(events, "tool_result");
  const [gone, missing] = ["things_look", "nothing"].map((name) =>
    results.find(({ toolName }) => toolName === name),
  );
  expect(gone).toMatchObject({ isError: true, code: "mcp_connection_error" });
  expect(gone?.output).toMatch(/^mcp_connection_error: /);
  expect(missing).toMatchObject({ isError: true, code: "tool_not_found" });
  expect(missing?.output).toMatch(/^tool_not_found: /);
});
