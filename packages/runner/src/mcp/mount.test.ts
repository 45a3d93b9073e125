import type { ChildProcess } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { runTool, type HandlerTool } from "@larkline/tool-kit";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { CallInput, ToolOutcome } from "@larkline/protocol/tool";
import { afterEach, describe, expect, it, vi } from "vitest";
import { mountMcpServer, type McpMount } from "./mounts.ts";
import type { McpEvent, McpServer, McpToolHints, McpTransport } from "./connection.ts";
import { openChannel, startHttpServer } from "./server.fixture.ts";

interface Mounted {
  mount: McpMount;
  events: McpEvent[];
  hints: McpToolHints[];
  tool(name: string): Promise<HandlerTool>;
}

const mounts: McpMount[] = [];
const children: ChildProcess[] = [];
const closers: (() => void)[] = [];

afterEach(async () => {
  await Promise.all(mounts.splice(0).map(async (mount) => await mount.close()));
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const close of closers.splice(0)) close();
});

function mounted(
  transport: McpTransport,
  options: Partial<McpServer> = {},
  clock: Clock = systemClock,
): Mounted {
  const events: McpEvent[] = [];
  const hints: McpToolHints[] = [];
  const server: McpServer = {
    name: "srv",
    transport,
    connectTimeoutMs: 120_000,
    elicitation: false,
    policyOf: (given) => {
      hints.push(given);
      const effect = given.readOnly ? "pure" : "once";
      return {
        effect,
        requiresApproval: !given.readOnly,
        timeoutMs: 120_000,
        risk: "medium",
        hidden: false,
      };
    },
    ...options,
  };
  const onEvent = (event: McpEvent): void => void events.push(event);
  const mount = mountMcpServer(server, { onChange: () => undefined, onEvent, clock });
  mounts.push(mount);
  return {
    mount,
    events,
    hints,
    tool: async (name) =>
      await vi.waitUntil(
        () =>
          mount
            .tools()
            .find((tool): tool is HandlerTool => tool.kind === "handler" && tool.name === name),
        { timeout: 60_000, interval: 10 },
      ),
  };
}

interface Call {
  input?: object;
  signal?: AbortSignal;
  onProgress?: (fraction: number) => void;
  saved?: string[];
  /** What people answered in the attempt before. */
  answers?: CallInput;
}

async function call(
  tool: HandlerTool,
  { input = {}, signal, onProgress, saved, answers }: Call = {},
): Promise<ToolOutcome> {
  return await runTool(tool, {
    argumentsText: JSON.stringify(input),
    context: {
      callId: "c1",
      turnId: "t1",
      signal: signal ?? new AbortController().signal,
      actor: { app: "cli", userId: "ou_1", chatId: "oc_1" },
      authority: { by: "policy" },
      ...(answers === undefined ? {} : { input: answers }),
      progress: (fraction) => onProgress?.(fraction),
      log: () => undefined,
    },
    storeFile: async (_bytes, facts) => {
      saved?.push(facts.mediaType);
      return await Promise.resolve("blob_x");
    },
  });
}

function textOf(outcome: ToolOutcome): string {
  return outcome.ok ? String(outcome.result) : `failed: ${outcome.error}`;
}

describe.each(["stdio", "http"] as const)("the reference server over %s", (kind) => {
  const start = async (options: Partial<McpServer> = {}): Promise<Mounted> => {
    if (kind === "stdio") {
      return mounted({ kind, open: openChannel("everything", children) }, options);
    }
    const { url, child } = await startHttpServer();
    children.push(child);
    return mounted({ kind, url, headers: { "x-test": "1" }, fetch }, options);
  };

  it("offers its tools under a prefix, with their schemas and hints, and runs them", async () => {
    const { tool, hints } = await start();
    const sum = await tool("srv_get-sum");
    expect(sum.title).toBe("Get Sum Tool");
    expect(sum.inputSchema).toMatchObject({ type: "object", required: ["a", "b"] });
    expect(await call(sum, { input: { a: 2, b: 40 } })).toMatchObject({ ok: true });
    expect(textOf(await call(sum, { input: { a: 2, b: 40 } }))).toContain("42");
    expect(textOf(await call(sum, { input: { a: "two" } }))).toMatch(/invalid arguments/i);
    expect(hints.find(({ name }) => name === "trigger-long-running-operation")).toMatchObject({
      readOnly: true,
    });
  });

  it("returns progress, images, resources and links", async () => {
    const { tool } = await start();
    const fractions: number[] = [];
    const enough = new AbortController();
    const onProgress = (fraction: number): void => {
      fractions.push(fraction);
      if (fractions.length === 3) enough.abort(new Error("enough"));
    };
    const long = await tool("srv_trigger-long-running-operation");
    await call(long, { input: { duration: 60, steps: 600 }, signal: enough.signal, onProgress });
    expect(fractions).toEqual([1 / 600, 2 / 600, 3 / 600]);
    const saved: string[] = [];
    expect(textOf(await call(await tool("srv_get-tiny-image"), { saved }))).toContain(
      "![image](blob:blob_x)",
    );
    expect(saved).toEqual(["image/png"]);
    const links = textOf(await call(await tool("srv_get-resource-links"), { input: { count: 1 } }));
    const uri = /\[resource (\S+):/.exec(links)?.[1];
    expect(textOf(await call(await tool("srv_read_resource"), { input: { uri } }))).toContain(
      `[resource ${uri}]`,
    );
  });

  it("gets a cancel when the call is cancelled, and keeps serving others", async () => {
    const { tool } = await start();
    const stop = new AbortController();
    const long = await tool("srv_trigger-long-running-operation");
    const outcome = call(long, {
      input: { duration: 60, steps: 600 },
      signal: stop.signal,
      onProgress: () => stop.abort(new Error("cancelled by the person")),
    });
    expect(textOf(await outcome)).toBe("failed: cancelled by the person");
    expect(
      textOf(await call(await tool("srv_echo"), { input: { message: "still here" } })),
    ).toContain("still here");
  });

  const policyWith = (effect: "idempotent" | "once"): McpServer["policyOf"] => {
    return () => ({
      effect,
      requiresApproval: false,
      timeoutMs: 120_000,
      risk: "low",
      hidden: false,
    });
  };

  it("ends a call in which it asks, and has the answer when the call is repeated", async () => {
    const { tool } = await start({ elicitation: true, policyOf: policyWith("idempotent") });
    const asking = await tool("srv_trigger-elicitation-request");
    const first = await call(asking);
    if (first.ok || first.input === undefined) throw new Error(textOf(first));
    const { server, requests, state } = first.input;
    expect({ server, state }).toEqual({ server: "srv", state: undefined });
    expect(requests).toMatchObject([
      { message: "Please provide inputs for the following fields:" },
    ]);
    const key = requests[0]?.key ?? "";
    const accepted = await call(asking, {
      answers: { responses: { [key]: { action: "accept", content: { name: "Ann" } } } },
    });
    expect(textOf(accepted)).toContain("- Name: Ann");
    const declined = await call(asking, {
      answers: { responses: { [key]: { action: "decline" } } },
    });
    expect(textOf(declined)).toContain("User declined");
    if (kind === "stdio") {
      const [listing, ...ofCalls] = children;
      await vi.waitFor(
        () =>
          expect(ofCalls.map(({ signalCode }) => signalCode)).toEqual([
            "SIGKILL",
            "SIGKILL",
            "SIGKILL",
          ]),
        { timeout: 60_000 },
      );
      expect(listing?.signalCode).toBeNull();
    }
  });

  it("learns that it cannot ask in a call that may not be repeated", async () => {
    const { tool } = await start({ elicitation: true, policyOf: policyWith("once") });
    const outcome = await call(await tool("srv_trigger-elicitation-request"));
    expect(textOf(outcome)).toContain(
      "nobody was asked: people are asked only inside calls that may be repeated",
    );
    expect(outcome).not.toHaveProperty("input");
  });
});

describe("a server that misbehaves", () => {
  it("is followed when it changes its list of tools", async () => {
    const { tool } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    expect(textOf(await call(await tool("srv_grow")))).toBe("did grow");
    expect(textOf(await call(await tool("srv_grown_9")))).toBe("did grown_9");
  });

  it("gets names and schemas that vendors and our validator accept", async () => {
    const { mount, tool } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    await tool("srv_grow");
    const odd = mount.tools().find(({ name }) => name.startsWith("srv_odd_name"));
    expect(odd?.name).toMatch(/^srv_odd_name__[0-9a-f]{8}$/);
    expect(odd?.inputSchema).toMatchObject({ notAKeyword: 1 });
  });

  it("does not hold this process up with a schema: only the server checks against it", async () => {
    const { tool } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    expect(
      textOf(await call(await tool("srv_trap"), { input: { text: `${"a".repeat(40)}!` } })),
    ).toBe("did trap");
  });

  it("has no tool whose schema is too long", async () => {
    const { mount, events, tool } = mounted({
      kind: "stdio",
      open: openChannel("changing", children),
    });
    await tool("srv_grow");
    expect(mount.tools().some(({ name }) => name === "srv_huge")).toBe(false);
    expect(events).toContainEqual(expect.objectContaining({ type: "tool_refused", tool: "huge" }));
  });

  it("has 1,000 tools at most, and says which is the first that is left out", async () => {
    const { mount, events, tool } = mounted({
      kind: "stdio",
      open: openChannel("changing", children),
    });
    expect(textOf(await call(await tool("srv_grow_much")))).toBe("did grow_much");
    await tool("srv_more_990");
    expect(mount.tools().at(-1)?.name).toBe("srv_more_990");
    const reason = expect.stringContaining("the server has 1009 tools");
    expect(events).toContainEqual({
      type: "tool_refused",
      server: "srv",
      tool: "more_991",
      reason,
    });
  });

  it("gives 200 parts of a result, and says how many were left out", async () => {
    const { tool } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    const lines = textOf(await call(await tool("srv_many_parts"))).split("\n");
    expect(lines.slice(-2)).toEqual(["part 199", "[5 further parts were left out]"]);
  });

  it("loses its connection when it floods this process", async () => {
    // No second passes here: a slow machine sends and reads fewer messages in one.
    const clock = { ...systemClock, monotonic: () => 5_000 };
    const { tool, events } = mounted(
      { kind: "stdio", open: openChannel("changing", children) },
      {},
      clock,
    );
    expect(await call(await tool("srv_flood"))).toMatchObject({ ok: false, unknown: true });
    const lost = await vi.waitUntil(() => events.find(({ type }) => type === "disconnected"), {
      timeout: 60_000,
    });
    expect(lost).toMatchObject({ reason: "more than 2000 messages in a second" });
  });

  it("leaves a `once` call unknown when it dies in the middle, and is started again", async () => {
    const { tool, events } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    expect(await call(await tool("srv_die"))).toMatchObject({ ok: false, unknown: true });
    expect(textOf(await call(await tool("srv_grow")))).toBe("did grow");
    const types = events.map(({ type }) => type).filter((type) => type !== "tool_refused");
    expect(types).toEqual(["connected", "disconnected", "connected"]);
  });

  it("is given up at the deadline of the call, not before it is connected", async () => {
    const policyOf: McpServer["policyOf"] = () => ({
      effect: "pure",
      requiresApproval: false,
      timeoutMs: 300,
      risk: "low",
      hidden: false,
    });
    const { tool } = mounted(
      { kind: "stdio", open: openChannel("changing", children) },
      { policyOf },
    );
    expect(textOf(await call(await tool("srv_hang")))).toMatch(/^failed: /);
  });

  it("is tried again with a growing pause when it cannot be reached", async () => {
    const url = new URL("http://127.0.0.1:1/mcp");
    const { events, mount } = mounted({ kind: "http", url, headers: {}, fetch });
    await vi.waitUntil(() => events.length >= 2, { timeout: 60_000, interval: 10 });
    expect(events.every(({ type }) => type === "disconnected")).toBe(true);
    expect(mount.tools()).toEqual([]);
    expect(mount.connected()).toBe(false);
  });

  it("is gone when the mount is closed, and closing twice is harmless", async () => {
    const { mount, tool } = mounted({ kind: "stdio", open: openChannel("changing", children) });
    await tool("srv_grow");
    const [child] = children;
    await mount.close();
    await mount.close();
    await vi.waitUntil(() => child?.exitCode !== null || child.signalCode !== null, {
      timeout: 60_000,
      interval: 10,
    });
  });
});

describe("a server that has forgotten its sessions", () => {
  /** Answers 404 to sessions from before the last `forget`. */
  async function forgetfulServer() {
    let session = 1;
    const done: string[] = [];
    const results: Readonly<Record<string, object>> = {
      initialize: {
        protocolVersion: "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name: "forgetful", version: "1" },
      },
      "tools/list": {
        tools: ["look", "pay"].map((name) => {
          return {
            name,
            inputSchema: { type: "object" },
            annotations: { readOnlyHint: name === "look" },
          };
        }),
      },
    };
    const server = createServer((request, response) => {
      let text = "";
      request.on("data", (piece: Buffer) => (text += piece.toString()));
      request.on("end", () => {
        if (request.method !== "POST") return void response.writeHead(405).end();
        const { id, method, params } = JSON.parse(text) as {
          id?: number;
          method: string;
          params?: { name?: string };
        };
        const isNew = method === "initialize" || method === "server/discover";
        if (!isNew && request.headers["mcp-session-id"] !== `s${session}`) {
          return void response.writeHead(404).end();
        }
        if (id === undefined) return void response.writeHead(202).end();
        response.setHeader("content-type", "application/json");
        if (method === "initialize") response.setHeader("mcp-session-id", `s${session}`);
        if (method === "tools/call") done.push(params?.name ?? "");
        const result =
          method === "tools/call" ? { content: [{ type: "text", text: "done" }] } : results[method];
        const answer =
          result === undefined
            ? { error: { code: -32_601, message: "Method not found" } }
            : { result };
        response.end(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closers.push(() => {
      server.close();
      server.closeAllConnections();
    });
    const { port } = server.address() as AddressInfo; // a TCP server has one
    return { url: new URL(`http://127.0.0.1:${port}/mcp`), done, forget: () => (session += 1) };
  }

  it("gets a new one: a call that may be repeated continues, another one is not made", async () => {
    const { url, done, forget } = await forgetfulServer();
    const { tool } = mounted({ kind: "http", url, headers: {}, fetch });
    const [look, pay] = [await tool("srv_look"), await tool("srv_pay")];
    expect(textOf(await call(look))).toBe("done");
    forget();
    expect(textOf(await call(look))).toBe("done");
    forget();
    const refused = await call(pay);
    expect(refused).toMatchObject({
      ok: false,
      error: expect.stringContaining("the call was not made"),
    });
    expect(refused).not.toHaveProperty("unknown");
    expect(textOf(await call(pay))).toBe("done");
    expect(done).toEqual(["look", "look", "pay"]);
  });
});
