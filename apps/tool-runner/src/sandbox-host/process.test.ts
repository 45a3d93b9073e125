import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { env } from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createRemoteSandbox, type SandboxRequest } from "@larkline/sandbox";
import { afterAll, afterEach, describe, expect, it } from "vitest";

const main = fileURLToPath(new URL("../main.ts", import.meta.url));
const token = "the token of this test, long enough";
const directory = mkdtempSync(join(tmpdir(), "larkline-host-"));
// Programs run as other users, who must be able to pass.
chmodSync(directory, 0o755);
const hasSandbox = spawnSync("bwrap", ["--unshare-all", "--ro-bind", "/", "/", "/bin/true"]).status === 0;

const started: ChildProcess[] = [];
afterEach(async () => {
  for (const child of started.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Started {
  child: ChildProcess;
  /** Everything it wrote so far. */
  output(): string;
  ended: Promise<number | null>;
}

async function metricsOf(opsPort: number): Promise<string> {
  return await (await fetch(`http://127.0.0.1:${opsPort}/metrics`)).text();
}

function start(variables: Record<string, string>): Started {
  const own = { PORT: "0", SANDBOX_OPS_PORT: "0", SANDBOX_WARM: "0", SANDBOX_SLOTS: "2", TMPDIR: directory };
  const child = spawn(process.execPath, ["--no-warnings", main, "--sandbox-host"], {
    env: { PATH: env["PATH"], ...own, ...variables },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  const ended = new Promise<number | null>((resolve) => child.on("close", (code) => resolve(code)));
  return { child, output: () => output, ended };
}

async function ready({ child, output }: Started): Promise<{ port: number; opsPort: number; tier: string }> {
  if (child.stdout === null) throw new Error("no stdout");
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.includes('"sandbox-host ready"')) {
      return JSON.parse(line) as { port: number; opsPort: number; tier: string };
    }
  }
  throw new Error(output());
}

const request: SandboxRequest = {
  program: {
    runtime: "node",
    code: "return { sum: input.a + input.b, files: require('fs').readdirSync('.') }",
    input: { a: 1, b: 2 },
    files: [{ name: "in.txt", bytes: Buffer.from("x") }],
  },
  signal: new AbortController().signal,
};

describe("the process sandbox-host", () => {
  it.runIf(hasSandbox)("runs programs of those who have the token, tells how it is, and ends on SIGTERM", async () => {
    const host = start({ SANDBOX_TOKEN: token });
    const { port, opsPort, tier } = await ready(host);
    expect(["bwrap", "sbx"]).toContain(tier);
    const sandbox = createRemoteSandbox({ url: `http://127.0.0.1:${port}`, token });
    expect(await sandbox.run(request)).toMatchObject({ status: "ok", value: { sum: 3, files: ["in.txt"] } });
    const stranger = createRemoteSandbox({ url: `http://127.0.0.1:${port}`, token: "a guess" });
    expect(await stranger.run(request)).toMatchObject({ status: "refused" });
    const answers = await Promise.all(
      ["health", "ready", "metrics"].map((path) => fetch(`http://127.0.0.1:${opsPort}/${path}`)),
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const metrics = (await answers[2]?.text()) ?? "";
    expect(metrics).toContain('larkline_sandbox_runs_total{status="ok",service="sandbox-host"} 1');
    expect(metrics).toContain('larkline_sandbox_refused_total{status="401",service="sandbox-host"} 1');
    host.child.kill("SIGTERM");
    expect(await host.ended).toBe(0);
    expect(host.output()).not.toContain(token);
    expect(await sandbox.run(request)).toMatchObject({ status: "crashed" });
  });

  it.runIf(hasSandbox)("has a run confirmed when there is a place for it, and starts it after that", async () => {
    const host = start({ SANDBOX_TOKEN: token, SANDBOX_SLOTS: "1" });
    const { port, opsPort } = await ready(host);
    const sandbox = createRemoteSandbox({ url: `http://127.0.0.1:${port}`, token });
    const begun: string[] = [];
    const asked = { first: Promise.withResolvers<boolean>(), second: Promise.withResolvers<boolean>() };
    const cancel = new AbortController();
    const program = {
      runtime: "node" as const,
      code: "await new Promise((r) => setTimeout(r, input)); return Date.now()",
    };
    const run = async (name: "first" | "second", input: number, signal: AbortSignal) =>
      await sandbox.run({
        program: { ...program, input },
        signal,
        begin: async () => {
          begun.push(name);
          return await asked[name].promise;
        },
      });
    const first = run("first", 600_000, cancel.signal);
    await expect.poll(() => begun, { timeout: 60_000 }).toEqual(["first"]);
    asked.first.resolve(true);
    const second = run("second", 0, new AbortController().signal);
    await expect
      .poll(async () => await metricsOf(opsPort))
      .toContain('larkline_sandbox_running{service="sandbox-host"} 2');
    expect(begun).toEqual(["first"]); // the second waits for the only place
    cancel.abort();
    expect(await first).toMatchObject({ status: "cancelled" });
    await expect.poll(() => begun, { timeout: 60_000 }).toEqual(["first", "second"]);
    const confirmedMs = Date.now();
    asked.second.resolve(true);
    const result = await second;
    expect(result).toMatchObject({ status: "ok", value: expect.any(Number) });
    expect(result.value).toBeGreaterThanOrEqual(confirmedMs);
    host.child.kill("SIGTERM");
    expect(await host.ended).toBe(0);
  });

  it.runIf(hasSandbox)("runs nothing that is not to begin any more, and gives its place to the next", async () => {
    const host = start({ SANDBOX_TOKEN: token, SANDBOX_SLOTS: "1" });
    const { port, opsPort } = await ready(host);
    const sandbox = createRemoteSandbox({ url: `http://127.0.0.1:${port}`, token });
    const declined = await sandbox.run({ ...request, begin: async () => await Promise.resolve(false) });
    expect(declined).toMatchObject({ status: "cancelled" });
    expect(await sandbox.run({ ...request, begin: async () => await Promise.resolve(true) })).toMatchObject({
      status: "ok",
    });
    const metrics = await metricsOf(opsPort);
    expect(metrics).toContain('larkline_sandbox_runs_total{status="run_abandoned",service="sandbox-host"} 1');
    expect(metrics).toContain('larkline_sandbox_runs_total{status="ok",service="sandbox-host"} 1');
    host.child.kill("SIGTERM");
    expect(await host.ended).toBe(0);
  });

  it("refuses to start without a token, saying so", async () => {
    const host = start({});
    expect(await host.ended).toBe(1);
    expect(host.output()).toBe("SANDBOX_TOKEN is not set.\n");
  });

  it("refuses to start where no tier holds, with the finding of each", async () => {
    // Too long for the socket of a proxy, so nothing can be opened there.
    const host = start({ SANDBOX_TOKEN: token, SANDBOX_TIERS: "bwrap,sbx", TMPDIR: join(directory, "x".repeat(100)) });
    expect(await host.ended).toBe(1);
    expect(host.output()).toMatch(/No sandbox holds on this host:\n {2}bwrap: .+\n {2}sbx: .+\n$/);
  });
});
