import { spawn, type ChildProcess } from "node:child_process";
import { chmodSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { resolveConfig, type McpServerConfig } from "@larkline/process/config";
import { freePort, isLongRun } from "@larkline/testkit";
import { Metrics, silentLogger, silentTelemetry } from "@larkline/process/telemetry";
import { defineTool } from "@larkline/tool-kit";
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished } from "vitest";
import { startRunnerApp } from "./run-runner.ts";
import { startRunner, type RunnerSetup, type ToolRunner } from "./runner.ts";
import { createTestBed, keyOf, until } from "./test-bed.fixture.ts";
import { toolsFrom } from "./tool-modules.ts";

const require = createRequire(import.meta.url);
const dependencies = realpathSync(
  fileURLToPath(new URL("../../../node_modules/.pnpm", import.meta.url)),
);
const everything = realpathSync(
  require.resolve("@modelcontextprotocol/server-everything/dist/index.js"),
);
const filesystem = realpathSync(
  require.resolve("@modelcontextprotocol/server-filesystem/dist/index.js"),
);

let bed: ReturnType<typeof createTestBed>;
let runners: ToolRunner[] = [];
const children: ChildProcess[] = [];

beforeEach(() => {
  bed = createTestBed(inject("redisUrl"));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await Promise.all(runners.map(async (runner) => await runner.close()));
  runners = [];
  await bed.close();
});

function serversOf(servers: Record<string, object>): readonly McpServerConfig[] {
  const resolved = resolveConfig({ mcp: { servers } });
  if (!resolved.ok) throw new Error(resolved.error);
  return resolved.value.mcp.servers;
}

async function start(
  servers: Record<string, object>,
  changes: Partial<RunnerSetup> = {},
): Promise<ToolRunner> {
  const loaded = toolsFrom([]);
  if (!loaded.ok) throw new Error(loaded.error);
  const runner = await startRunner({
    config: {
      redisUrl: inject("redisUrl"),
      namespace: bed.namespace,
      runner: "default",
      runnerKey: keyOf("default"),
      concurrency: 4,
    },
    loaded: loaded.value,
    mcpServers: serversOf(servers),
    logger: silentLogger,
    metrics: new Metrics({ service: "test" }),
    telemetry: silentTelemetry,
    onRefused: (conflict) => {
      throw new Error(conflict);
    },
    graceMs: 300,
    ...changes,
  });
  runners.push(runner);
  return runner;
}

async function untilOffered(name: string): Promise<void> {
  await until(
    name,
    async () => ((await bed.directory.tools()).has(name) ? true : undefined),
    240_000,
  );
}

async function call(name: string, given: object): Promise<string> {
  const outcome = await bed.outcomeOf(
    await bed.send("default", { name, effect: "pure", arguments: JSON.stringify(given) }),
  );
  return outcome.ok ? String(outcome.result) : `failed: ${outcome.error}`;
}

/** A server by the wire format alone; each of its tools has one answer. */
const serverCode = `
const answers = JSON.parse(process.argv[1]);
const tools = Object.keys(answers).map((name) => ({ name, description: name, inputSchema: { type: "object" } }));
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "x", version: "1" } }),
    "tools/list": () => ({ tools }),
    "tools/call": () => ({ content: [{ type: "text", text: answers[params.name] }] }),
  };
  const found = results[method];
  const answer = found ? { result: found() } : { error: { code: -32601, message: "Method not found" } };
  if (id !== undefined) process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...answer }) + "\\n");
});`;

function serverWith(answers: Record<string, string>): object {
  const tools = { "*": { effect: "pure", requiresApproval: false } };
  const args = ["-e", serverCode, JSON.stringify(answers)];
  return { command: process.execPath, args, readable: [dependencies], tools };
}

it("a runner says which servers it does not mount, and which runner has to", async () => {
  const directory = mkdtempSync(join(tmpdir(), "larkline-mcp-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const url = "http://127.0.0.1:1/mcp";
  const config = { mcp: { servers: { wiki: { url }, crm: { url, runner: "crm" } } } };
  writeFileSync(
    join(directory, "larkline.config.mjs"),
    `export default ${JSON.stringify(config)};`,
  );
  const lines: string[] = [];
  const app = await startRunnerApp(
    { load: async () => await Promise.resolve(toolsFrom([])) },
    {
      REDIS_URL: inject("redisUrl"),
      REDIS_NAMESPACE: bed.namespace,
      RUNNER_NAME: "other",
      RUNNER_KEY: keyOf("other"),
      LARKLINE_CONFIG: join(directory, "larkline.config.mjs"),
      PORT: "0",
      HOST: "127.0.0.1",
    },
    { destination: { write: (line) => void lines.push(line) } },
  );
  await app.close();
  const said = lines.map((line) => JSON.parse(line) as Record<string, unknown>); // as our logger writes
  expect(
    said.filter(({ msg }) => msg === "an MCP server of another runner is not mounted here"),
  ).toMatchObject([
    { server: "wiki", runner: "default" },
    { server: "crm", runner: "crm" },
  ]);
});

describe("a runner mounts MCP servers", () => {
  it("as programs in a sandbox, which see what they are given and nothing else", async () => {
    const shared = realpathSync(mkdtempSync(join(tmpdir(), "larkline-shared-")));
    chmodSync(shared, 0o755); // the server runs as another user
    writeFileSync(join(shared, "hello.txt"), "from the shared folder");
    const secret = join(
      realpathSync(mkdtempSync(join(tmpdir(), "larkline-hidden-"))),
      "secret.txt",
    );
    writeFileSync(secret, "hidden");
    await start({
      files: {
        command: process.execPath,
        args: [filesystem, shared],
        readable: [shared, dependencies],
        tools: { write_file: { hidden: true } },
      },
    });
    await untilOffered("files_read_text_file");
    expect(await call("files_read_text_file", { path: join(shared, "hello.txt") })).toContain(
      "from the shared folder",
    );
    expect(await call("files_read_text_file", { path: secret })).toMatch(/^failed: /);
    expect((await bed.directory.tools()).has("files_write_file")).toBe(false);
    expect((await bed.directory.tools()).get("files_edit_file")?.announcement).toMatchObject({
      effect: "once",
      requiresApproval: true,
    });
  });

  it.runIf(isLongRun)(
    "without the runner's environment and without network, except for what the configuration names",
    async () => {
      const environment = { RUNNER_KEY: "secret-of-the-runner", GIVEN: "for the server" };
      const server = {
        command: process.execPath,
        args: [everything, "stdio"],
        readable: [dependencies],
        env: ["GIVEN"],
      };
      await start(
        { all: { ...server, tools: { "*": { effect: "pure", requiresApproval: false } } } },
        { environment },
      );
      await untilOffered("all_get-env");
      const variables = await call("all_get-env", {});
      expect(variables).toContain("for the server");
      expect(variables).not.toContain("secret-of-the-runner");
      expect(variables).not.toContain("REDIS_URL");
    },
  );

  it.runIf(isLongRun)(
    "by address only where it is public, or where the configuration allows a private one",
    async () => {
      const port = await freePort();
      const child = spawn(process.execPath, [everything, "streamableHttp"], {
        stdio: ["ignore", "ignore", "pipe"],
        env: { PORT: String(port) },
      });
      children.push(child);
      await new Promise<void>((resolve, reject) => {
        child.stderr.on("data", (chunk: Buffer) => {
          if (chunk.toString().includes("listening")) resolve();
        });
        child.once("exit", () => reject(new Error("the server did not start")));
      });
      const url = `http://127.0.0.1:${port}/mcp`;
      const reasons: string[] = [];
      const logger: RunnerSetup["logger"] = Object.assign(Object.create(silentLogger), {
        warn: (facts: { reason?: string }) => reasons.push(facts.reason ?? ""),
      });
      await start({ closed: { url }, open: { url, allowPrivate: true } }, { logger });
      await untilOffered("open_echo");
      expect(await call("open_echo", { message: "hi" })).toContain("hi");
      await until("the refusal", () =>
        reasons.find((reason) => /private|not public|denied|refused/i.test(reason)),
      );
      expect((await bed.directory.tools()).has("closed_echo")).toBe(false);
    },
  );

  it("whose tools take the place of no other: neither the runner's own, nor one of a server named before", async () => {
    const own = defineTool({
      name: "a_b_c",
      description: "d",
      input: { type: "object" },
      effect: "pure",
      isolation: "inline",
      run: () => "the runner's own",
    });
    const loaded = toolsFrom([own]);
    if (!loaded.ok) throw new Error(loaded.error);
    const servers = {
      a: serverWith({ b_c: "an intruder", b_d: "the first" }),
      a_b: serverWith({ c: "an intruder", d: "an intruder", e: "the second" }),
    };
    await start(servers, { loaded: loaded.value });
    // The server named first may be reached last: until then its names are the other one's.
    const isOfFirst = async () =>
      (await bed.directory.tools()).get("a_b_d")?.announcement.spec.description.startsWith("b_d ");
    await until(
      "the first server",
      async () => ((await isOfFirst()) === true ? true : undefined),
      240_000,
    );
    await untilOffered("a_b_e");
    expect(
      await Promise.all(["a_b_c", "a_b_d", "a_b_e"].map(async (name) => await call(name, {}))),
    ).toEqual(["the runner's own", "the first", "the second"]);
    const [announced] = await bed.directory.runners();
    expect(announced?.tools.map(({ spec }) => spec.name).sort()).toEqual([
      "a_b_c",
      "a_b_d",
      "a_b_e",
    ]);
  });

  it.runIf(isLongRun)(
    "and leaves a tool out that another runner offers already, instead of stopping",
    async () => {
      const spec = { name: "all_echo", description: "d", inputSchema: { type: "object" } };
      const taken = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
      await bed.directory.announce({ runner: "other", instance: "1", tools: [taken] }, 600_000);
      await start({
        all: { command: process.execPath, args: [everything, "stdio"], readable: [dependencies] },
      });
      await untilOffered("all_get-sum");
      expect((await bed.directory.tools()).get("all_echo")?.runner).toBe("other");
    },
  );
});
