import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openSandbox } from "./open-sandbox.ts";
import type { Sandbox, SandboxProgram, SandboxResult } from "./sandbox.ts";

const canBeHere =
  spawnSync("bwrap", ["--unshare-all", "--ro-bind", "/", "/", "/bin/true"]).status === 0;

const hits: string[] = [];
const servers: Server[] = [];
const directory = mkdtempSync(join(tmpdir(), "larkline-egress-"));
let sandbox: Sandbox | undefined;
let port = 0;
let rawPort = 0;

async function listen(server: Server, at: { host: string; port: number }): Promise<number> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(at.port, at.host, resolve));
  return (server.address() as AddressInfo).port; // listening on TCP
}

function site(name: string): Server {
  return createHttpServer((request, response) => {
    hits.push(`${name} ${request.headers.host}`);
    response.end(`from ${name}`);
  });
}

const names: Record<string, string[]> = {
  "api.good.test": ["127.0.0.1"],
  "mixed.good.test": ["127.0.0.9", "127.0.0.1"],
  "rebind.good.test": ["127.0.0.9"],
  "mapped.good.test": ["::ffff:127.0.0.9"],
  "meta.good.test": ["169.254.169.254"],
  "lan.good.test": ["10.1.2.3"],
  "evil.test": ["127.0.0.1"],
  "notgood.test": ["127.0.0.1"],
};

beforeAll(async () => {
  port = await listen(site("good"), { host: "127.0.0.1", port: 0 });
  await listen(site("private"), { host: "127.0.0.9", port });
  const raw = createServer((socket) => {
    hits.push("raw");
    socket.on("error", () => {});
    socket.end("RAW");
  });
  rawPort = await listen(raw, { host: "127.0.0.1", port: 0 });
  const egress = {
    resolve: async (name: string) => names[name] ?? Promise.reject(new Error("no such name")),
    allowPrivate: (address: string) => address === "127.0.0.1",
  };
  const opening = await openSandbox({ tiers: ["bwrap"], directory, egress, warm: 0 });
  if (opening.ok) ({ sandbox } = opening);
  else if (canBeHere) throw new Error(JSON.stringify(opening.findings));
});
beforeEach((context) => {
  hits.length = 0;
  if (sandbox === undefined) context.skip("no bubblewrap here");
});
afterAll(async () => {
  await sandbox?.close();
  for (const server of servers) server.close();
  rmSync(directory, { recursive: true, force: true });
});

async function run(program: SandboxProgram): Promise<SandboxResult> {
  const network = { allow: [`*.good.test:${port}`, `api.good.test:${rawPort}`] };
  const result = await sandbox?.run({
    program,
    network,
    limits: { wallMs: 60_000 },
    signal: new AbortController().signal,
  });
  if (result === undefined) throw new Error("no sandbox");
  return result;
}

function node(code: string): Promise<SandboxResult> {
  return run({ runtime: "node", code });
}

function fetched(url: string): Promise<SandboxResult> {
  return node(`try {
    const response = await fetch(${JSON.stringify(url)});
    return response.status + ' ' + await response.text();
  } catch (error) { return 'failed: ' + error.message }`);
}

/** All that the proxy answers to some bytes of a program that knows where it listens. */
function spoken(text: string): Promise<SandboxResult> {
  return node(`return await new Promise((resolve) => {
    let answer = '';
    const { port, hostname } = new URL(process.env.HTTP_PROXY);
    const socket = require('net').connect(Number(port), hostname, () => socket.write(${JSON.stringify(text)}));
    socket.on('data', (chunk) => answer += chunk).on('error', (error) => resolve(error.code)).on('close', () => resolve(answer));
  })`);
}

describe("a program with a network", () => {
  it("E1: reaches an allowed name", async () => {
    expect(await fetched(`http://api.good.test:${port}/`)).toMatchObject({
      status: "ok",
      value: "200 from good",
      denied: [],
    });
  });

  it("E2: reaches it past its private addresses", async () => {
    expect(await fetched(`http://mixed.good.test:${port}/`)).toMatchObject({
      value: "200 from good",
    });
  });

  it("E3: reaches it from Python", async () => {
    const code = `import urllib.request\nresult = urllib.request.urlopen("http://api.good.test:${port}/", timeout=30).read().decode()`;
    const result = await run({ runtime: "python", code });
    if (result.status !== "refused") {
      expect(result).toMatchObject({ status: "ok", value: "from good" });
    }
  });

  it.runIf(existsSync("/usr/bin/curl"))("E4: reaches it with curl", async () => {
    const result = await run({
      runtime: "bash",
      code: `curl -s -m 30 http://api.good.test:${port}/`,
    });
    expect(result).toMatchObject({ status: "ok", stdout: "from good" });
  });

  const refused: [string, string, string][] = [
    ["E5: a name that is not allowed", "http://evil.test:PORT/", "evil.test:PORT"],
    [
      "E6: a name that only ends like an allowed one",
      "http://notgood.test:PORT/",
      "notgood.test:PORT",
    ],
    [
      "E7: an allowed name that leads to loopback",
      "http://rebind.good.test:PORT/",
      "rebind.good.test:PORT",
    ],
    [
      "E8: an allowed name that leads to a mapped address",
      "http://mapped.good.test:PORT/",
      "mapped.good.test:PORT",
    ],
    [
      "E9: an allowed name that leads to the metadata service",
      "http://meta.good.test:PORT/",
      "meta.good.test:PORT",
    ],
    [
      "E10: an allowed name that leads into a private network",
      "http://lan.good.test:PORT/",
      "lan.good.test:PORT",
    ],
    ["E11: an address", "http://203.0.113.10:PORT/", "203.0.113.10:PORT"],
    ["E12: a decimal address", "http://3405803786:PORT/", "203.0.113.10:PORT"],
    ["E13: the address of the metadata service", "http://169.254.169.254/", "169.254.169.254:80"],
  ];
  it.each(refused)("%s is out of reach", async (_what, url, denied) => {
    const result = await fetched(url.replace("PORT", String(port)));
    expect(result).toMatchObject({ status: "ok", value: expect.stringMatching(/^403|failed/) });
    expect(hits).toEqual([]);
    expect(result.denied.join()).toContain(`denied: ${denied.replace("PORT", String(port))}`);
  });

  it("E14: a port that is not allowed is out of reach", async () => {
    expect(await spoken("CONNECT api.good.test:6379 HTTP/1.1\r\n\r\n")).toMatchObject({
      value: expect.stringContaining("403"),
    });
    expect(hits).toEqual([]);
  });

  it("E15: gets a tunnel to an allowed host and port", async () => {
    const { value } = await spoken(`CONNECT api.good.test:${rawPort} HTTP/1.1\r\n\r\n`);
    expect(value).toMatch(/^HTTP\/1\.1 200 .*RAW$/s);
  });

  it("E16: cannot smuggle another name in the Host header", async () => {
    await spoken(
      `GET http://api.good.test:${port}/ HTTP/1.1\r\nHost: internal.corp\r\nConnection: close\r\n\r\n`,
    );
    expect(hits).toEqual([`good api.good.test:${port}`]);
  });

  it("E17: cannot use the proxy as a server", async () => {
    const { value } = await spoken("GET / HTTP/1.1\r\nHost: api.good.test\r\n\r\n");
    expect(value).toMatch(/^HTTP\/1\.1 400 /);
    expect(hits).toEqual([]);
  });

  it("E18: cannot connect past the proxy", async () => {
    const { value } = await node(`return await new Promise((resolve) => {
      require('net').connect(${port}, '127.0.0.1', () => resolve('connected')).on('error', (error) => resolve(error.code));
    })`);
    expect(value).toBe("ECONNREFUSED");
    expect(hits).toEqual([]);
  });

  it("E19: cannot ask the DNS", async () => {
    const { value } = await node(
      "return await require('dns').promises.resolve4('api.good.test').then((found) => 'found ' + found, (error) => error.code)",
    );
    expect(value).not.toContain("found");
  });

  it("gets no network at all for a policy that names no hosts", async () => {
    const signal = new AbortController().signal;
    const program = { runtime: "node" as const, code: "return 1" };
    const result = await sandbox?.run({ program, network: { allow: ["http://x"] }, signal });
    expect(result).toMatchObject({
      status: "refused",
      error: expect.stringContaining("names no host"),
    });
  });
});
