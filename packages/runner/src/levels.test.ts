import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ToolOutcome } from "@larkline/protocol/tool";
import {
  defineProgramTool,
  defineTool,
  type RunToolRequest,
  type StoreFile,
  type Tool,
} from "@larkline/tool-kit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { IsolationRefusedError, openLevels, type Levels, type LevelsOptions } from "./levels.ts";
import { loadTools, toolsFrom, type LoadedTools } from "./tool-modules.ts";

const begin = async (): Promise<undefined> => await Promise.resolve(undefined);

// Starting processes takes its time on a busy machine.

const fixture = fileURLToPath(new URL("sandboxed-tools.fixture.ts", import.meta.url));
const manifest = fileURLToPath(new URL("../package.json", import.meta.url));
const repository = fileURLToPath(new URL("../../..", import.meta.url));
const environment = {
  REDIS_URL: "redis://:geheim@host",
  RUNNER_KEY: "geheim",
  LARKLINE_GIVEN: "given",
};
const actor = { app: "app", userId: "ou_1", chatId: "oc_1" };

let loaded: LoadedTools;
let levels: Levels;
const findings: string[] = [];

function optionsFor(tools: LoadedTools, changes: Partial<LevelsOptions> = {}): LevelsOptions {
  return {
    loaded: tools,
    environment,
    concurrency: 2,
    onLine: () => {},
    onDropped: () => {},
    onSandboxEvent: () => {},
    onFinding: ({ tier, holds }) =>
      void findings.push(`${tier} ${holds ? "holds" : "does not hold"}`),
    ...changes,
  };
}

function toolsOf(...tools: Tool[]): LoadedTools {
  const found = toolsFrom(tools, "file:///nowhere.ts");
  if (!found.ok) throw new Error(found.error);
  return found.value;
}

beforeAll(async () => {
  const tools = await loadTools([fixture], { directory: "/" });
  if (!tools.ok) throw new Error(tools.error);
  loaded = tools.value;
  levels = await openLevels(optionsFor(loaded));
});
afterAll(async () => await levels.close());

interface Changes {
  signal?: AbortSignal;
  storeFile?: StoreFile;
  told?: unknown[];
  printed?: string[];
}

function requestOf(
  args: object,
  { signal, storeFile, told = [], printed = [] }: Changes = {},
): RunToolRequest {
  return {
    argumentsText: JSON.stringify(args),
    onOutput: (text) => void printed.push(text),
    ...(storeFile === undefined ? {} : { storeFile }),
    context: {
      callId: "c1",
      turnId: "t1",
      signal: signal ?? new AbortController().signal,
      actor,
      authority: { by: "policy" },
      progress: (fraction, detail) => void told.push([fraction, detail]),
      log: (message) => void told.push(message),
    },
  };
}

async function call(name: string, args: object, changes?: Changes): Promise<ToolOutcome> {
  return await levels.run(loaded.registry.get(name), requestOf(args, changes), begin);
}

describe("a handler in a sandbox", () => {
  it("has its module and what that depends on, and sees no secret, no other file and no network", async () => {
    const listening = createServer((socket) => socket.destroy()).listen(0, "127.0.0.1");
    await once(listening, "listening");
    const { port } = listening.address() as AddressInfo; // it listens on a port
    const paths = [
      manifest,
      "/etc/shadow",
      `${repository}.git`,
      `${repository}README.md`,
      "/proc/1/environ",
      "/root",
    ];
    const told: unknown[] = [];
    const outcome = await call("look", { paths, port }, { told });
    listening.close();
    expect(outcome).toMatchObject({
      ok: true,
      result: { facts: { callId: "c1", actor, authority: { by: "policy" } } },
    });
    const { seen, variables, reached } = Object(outcome.ok ? outcome.result : undefined);
    expect(seen[manifest]).toContain("@larkline/runner");
    for (const path of paths.slice(1)) {
      expect([path, seen[path]]).toEqual([path, expect.not.stringContaining("geheim")]);
    }
    for (const path of ["/etc/shadow", `${repository}.git`, `${repository}README.md`, "/root"]) {
      expect([path, seen[path]]).toEqual([path, expect.stringMatching(/^(ENOENT|EACCES|EPERM)$/)]);
    }
    expect(variables).toContain("LARKLINE_GIVEN");
    expect(variables).not.toContain("REDIS_URL");
    expect(reached).not.toBe("connected");
    expect(told).toContainEqual([0.5, "looking"]);
  });

  it("has what its module is lent, and nothing of the lender besides", async () => {
    const directory = await mkdtemp(join(tmpdir(), "lent-"));
    await chmod(directory, 0o755);
    const file = join(directory, "tool.mjs");
    const queues = createRequire(manifest).resolve("@larkline/store/queues");
    await writeFile(
      file,
      `import { existsSync } from "node:fs";
       import { defineTool } from "@larkline/tool-kit";
       import { Type } from "typebox";
       const run = ({ path }) => existsSync(path);
       const input = Type.Object({ path: Type.String() });
       export default defineTool({ name: "lent", description: "d", input, effect: "pure", isolation: "sandbox", run });`,
    );
    const tool = defineTool({
      name: "lent",
      description: "d",
      input: { type: "object" },
      effect: "pure",
      isolation: "sandbox",
      run: () => null,
    });
    const tools = toolsFrom([tool], pathToFileURL(file).href);
    if (!tools.ok) throw new Error(tools.error);
    const lend = { names: ["@larkline/tool-kit", "typebox"], lender: import.meta.url };
    const own = await openLevels(optionsFor({ ...tools.value, lend }));
    const seen = async (path: string): Promise<ToolOutcome> =>
      await own.run(tool, requestOf({ path }), begin);
    // Twice: the second may have loaded its module ahead.
    for (let n = 0; n < 2; n += 1) {
      expect(await seen(file)).toEqual({ ok: true, result: true });
      expect(await seen(queues)).toEqual({ ok: true, result: false });
    }
    await own.close();
    await rm(directory, { recursive: true });
  });

  it("is killed at its deadline: without network it cannot have changed anything, so the outcome is known", async () => {
    const outcome = await call("spin_inside", {});
    expect(outcome).toEqual({ ok: false, error: expect.stringMatching(/1500 ms|1\.5|time/) });
  });
});

describe("a program in a sandbox", () => {
  it("gives its result, what it prints, and the files that it leaves: images are kept, others named", async () => {
    const printed: string[] = [];
    const kept: unknown[] = [];
    const storeFile: StoreFile = async (_bytes, facts) => {
      kept.push(facts);
      return await Promise.resolve(`blob_${"x".repeat(43)}`);
    };
    const code = `
      console.log("hello"); console.error("oh"); progress(0.5, "half");
      const fs = require("fs");
      fs.writeFileSync("plot.png", Buffer.from("89504e470d0a1a0a00", "hex"));
      fs.writeFileSync("rows.csv", "a,b");
      return { answer: 42 };`;
    const told: unknown[] = [];
    expect(await call("javascript", { code }, { storeFile, told, printed })).toEqual({
      ok: true,
      result: {
        exitCode: 0,
        result: { answer: 42 },
        stdout: "hello\n",
        stderr: "oh\n",
        files: expect.arrayContaining([
          `![plot.png](blob:blob_${"x".repeat(43)})`,
          "rows.csv (3 bytes, not kept)",
        ]),
      },
    });
    expect(kept).toEqual([{ mediaType: "image/png", name: "plot.png" }]);
    expect(told).toEqual([[0.5, "half"]]);
    expect(printed.join("")).toContain("hello");
  });

  it("in a shell gives its exit code, whatever that is", async () => {
    expect(await call("shell", { code: "echo hi; exit 3" })).toEqual({
      ok: true,
      result: { exitCode: 3, stdout: "hi\n" },
    });
  });

  it("AT-26: that fails gives its exit code, what it printed, and where it failed", async () => {
    const thrown = await call("javascript", {
      code: 'console.log("before"); throw new Error("oops")',
    });
    expect(thrown).toEqual({
      ok: true,
      result: {
        exitCode: 1,
        stdout: "before\n",
        stderr: expect.stringMatching(/^Error: oops\n.*program\.js/),
      },
    });
    const left = await call("javascript", { code: 'console.error("bye"); process.exit(3)' });
    expect(left).toEqual({ ok: true, result: { exitCode: 3, stderr: "bye\n" } });
  });

  it("is killed when its call is cancelled", async () => {
    const cancel = new AbortController();
    const calling = call("shell", { code: "sleep 60" }, { signal: cancel.signal });
    setTimeout(() => cancel.abort(new Error("cancelled")), 300);
    expect(await calling).toEqual({ ok: false, error: "cancelled" });
  });
});

describe("what a host cannot give is refused when tools are registered", () => {
  const run = (): string => "";
  const base = {
    description: "d",
    input: { type: "object" } as Record<string, unknown>,
    effect: "pure" as const,
  };
  const program = defineProgramTool({
    ...base,
    name: "code",
    program: () => ({ runtime: "node", code: "" }),
  });

  async function refusalOf(
    tools: LoadedTools,
    changes: Partial<LevelsOptions> = {},
  ): Promise<string> {
    const opening = openLevels(optionsFor(tools, changes));
    const error: unknown = await opening.then(
      () => "nothing was refused",
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(IsolationRefusedError);
    return error instanceof Error ? error.message : "";
  }

  it("a sandbox, with the tool, what was found of each tier, and the ways out, in one line", async () => {
    const before = process.env["TMPDIR"];
    process.env["TMPDIR"] = "/dev/null/nothing";
    const message = await refusalOf(toolsOf(program)).finally(() => {
      if (before === undefined) delete process.env["TMPDIR"];
      else process.env["TMPDIR"] = before;
    });
    expect(message).toMatch(
      /^tool "code" asks for isolation "sandbox": no sandbox holds on this host \(bwrap: .+; sbx: .+\)\. /,
    );
    const ways = ["bubblewrap", "Landlock", "another machine", "out of this runner"];
    for (const way of ways) expect(message).toContain(way);
    expect(message).not.toContain("\n");
  });

  it("a tier that the operator does not accept", async () => {
    expect(await refusalOf(toolsOf(program), { tiers: [] })).toMatch(
      /^tool "code" .* no sandbox holds/,
    );
  });

  it("a process for a tool that only the runner's memory holds", async () => {
    const found = toolsFrom([defineTool({ ...base, name: "here", run })]);
    expect(await refusalOf(found.ok ? found.value : loaded)).toMatch(
      /^tool "here" .*no other process finds it/,
    );
  });

  it("a path to be read that does not exist", async () => {
    const isolation = { level: "sandbox", readable: ["/nonexistent"] } as const;
    expect(
      await refusalOf(toolsOf(defineTool({ ...base, name: "reader", isolation, run }))),
    ).toMatch(/^tool "reader" .*"\/nonexistent" in its readable/);
  });

  it("reports the sandbox in use, at the start and whenever it is looked at again", async () => {
    const sandbox = levels.sandbox();
    expect(sandbox?.holds).toBe(true);
    const before = findings.length;
    await levels.recheck();
    expect(findings.slice(before)).toEqual([`${sandbox?.tier} holds`]);
    const plain = await openLevels(optionsFor(toolsOf()));
    expect(plain.sandbox()).toBeUndefined();
    await plain.close();
  });

  it("a sandbox that has ceased to hold runs nothing until it holds again", async () => {
    const before = process.env["TMPDIR"];
    process.env["TMPDIR"] = "/dev/null/nothing";
    await levels.recheck().finally(() => {
      if (before === undefined) delete process.env["TMPDIR"];
      else process.env["TMPDIR"] = before;
    });
    expect(levels.sandbox()?.holds).toBe(false);
    expect(await call("javascript", { code: "return 1" })).toEqual({
      ok: false,
      error: expect.stringContaining("does not hold any more"),
    });
    await levels.recheck();
    expect(await call("javascript", { code: "return 1" })).toMatchObject({ ok: true });
  });
});
