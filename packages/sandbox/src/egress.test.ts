import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { allowListOf, type EgressDecision } from "./egress-policy.ts";
import { createEgressProxy, type EgressProxy, type EgressProxyOptions } from "./egress.ts";

const hits: string[] = [];
const seen: IncomingMessage["headers"][] = [];
const opened: Server[] = [];
let folder = "";
let socketPath = "";
let port = 0;
let rawPort = 0;
let proxy: EgressProxy | undefined;
const decisions: EgressDecision[] = [];
const bigBody = Buffer.alloc(6_000_000, "0123456789");

async function listen(server: Server, at: { host: string; port: number }): Promise<number> {
  opened.push(server);
  await new Promise<void>((resolve) => server.listen(at.port, at.host, resolve));
  return (server.address() as AddressInfo).port; // listening on TCP
}

function site(name: string): Server {
  return createHttpServer((request, response) => {
    hits.push(`${name} ${request.method} ${request.url} ${request.headers.host}`);
    seen.push(request.headers);
    if (request.url === "/big") return void response.end(bigBody);
    if (request.url === "/hang") return;
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => (body += text));
    request.on("end", () =>
      response
        .writeHead(200, { "x-site": name, connection: "x-hop", "x-hop": "1" })
        .end(body || `from ${name}`),
    );
  });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "larkline-egress-"));
  socketPath = join(folder, "proxy.sock");
  port = await listen(site("good"), { host: "127.0.0.1", port: 0 });
  await listen(site("private"), { host: "127.0.0.9", port });
  const echo = createServer((socket) => {
    hits.push("raw");
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  rawPort = await listen(echo, { host: "127.0.0.1", port: 0 });
});
beforeEach(() => {
  hits.length = 0;
  seen.length = 0;
  decisions.length = 0;
});
afterEach(async () => await proxy?.close());
afterAll(async () => {
  for (const server of opened) server.close();
  await rm(folder, { recursive: true, force: true });
});

const names: Record<string, string[]> = {
  "api.good.test": ["127.0.0.1"],
  "mixed.good.test": ["127.0.0.9", "127.0.0.1"],
  "rebind.good.test": ["127.0.0.9"],
  "mapped.good.test": ["::ffff:127.0.0.9", "::ffff:7f00:9"],
  "meta.good.test": ["169.254.169.254", "fd00:ec2::254"],
  "lan.good.test": ["10.1.2.3", "192.168.0.1", "172.16.9.9", "100.64.0.1", "fc00::1"],
  "wrapped.good.test": ["64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"],
  "nowhere.good.test": [],
  "evil.test": ["127.0.0.1"],
  "notgood.test": ["127.0.0.1"],
  "good.test": ["127.0.0.1"],
};

async function start(options: Partial<EgressProxyOptions> = {}): Promise<EgressProxy> {
  proxy = await createEgressProxy({
    allow: [`*.good.test:${port}`, `api.good.test:${rawPort}`],
    socketPath,
    resolve: async (name) => names[name] ?? Promise.reject(new Error("no such name")),
    allowPrivate: (address) => address === "127.0.0.1",
    onDecision: (decision) => decisions.push(decision),
    ...options,
  });
  return proxy;
}

/** All that comes back for some bytes, until the proxy closes. */
async function talk(text: string): Promise<string> {
  return await new Promise((resolve, reject) => {
    const socket = connect(socketPath, () => socket.write(text));
    let answer = "";
    socket.setEncoding("latin1").on("data", (chunk: string) => (answer += chunk));
    const cutOff = new Set(["EPIPE", "ECONNRESET"]);
    socket.on("error", (error: NodeJS.ErrnoException) =>
      cutOff.has(error.code ?? "") ? undefined : reject(error),
    );
    socket.on("close", () => resolve(answer));
  });
}

function get(url: string, headers = ""): Promise<string> {
  return talk(
    `GET ${url} HTTP/1.1\r\nHost: irrelevant.test\r\n${headers}Connection: close\r\n\r\n`,
  );
}

/** A tunnel after its first answer. */
async function tunnel(authority: string): Promise<{ socket: Socket; answer: string }> {
  const socket = connect(socketPath, () => socket.write(`CONNECT ${authority} HTTP/1.1\r\n\r\n`));
  const answer = await new Promise<string>((resolve, reject) => {
    socket.once("data", (chunk: Buffer) => resolve(chunk.toString("latin1"))).once("error", reject);
  });
  return { socket, answer };
}

describe("the egress proxy lets allowed names through", () => {
  it("E1: an allowed name answers over HTTP", async () => {
    const { denied } = await start();
    const answer = await get(`http://api.good.test:${port}/path?q=1`);
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(answer).toContain("from good");
    expect(hits).toEqual([`good GET /path?q=1 api.good.test:${port}`]);
    expect([denied(), decisions]).toEqual([
      [],
      [{ host: "api.good.test", port, allowed: true, reason: "allowed" }],
    ]);
  });

  it("E2: of several addresses the private ones are left out", async () => {
    await start();
    expect(await get(`http://mixed.good.test:${port}/`)).toContain("from good");
    expect(hits).toEqual([`good GET / mixed.good.test:${port}`]);
  });

  it("E15: CONNECT to an allowed host and port opens a tunnel both ways", async () => {
    await start();
    const { socket, answer } = await tunnel(`api.good.test:${rawPort}`);
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    const echoed = new Promise<string>((resolve) => {
      let text = "";
      socket
        .on("data", (chunk: Buffer) => (text += chunk.toString()))
        .on("close", () => resolve(text));
    });
    socket.end("hello through the tunnel");
    expect(await echoed).toBe("hello through the tunnel");
  });

  it("forwards a body, framed as it came, and no header that belongs to one hop", async () => {
    await start();
    const chunked = "5\r\nhello\r\n0\r\n\r\n";
    const head = `POST http://api.good.test:${port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic c2VjcmV0\r\nConnection: close, X-Private\r\nX-Private: 1\r\nX-Kept: 2\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const answer = await talk(head + chunked);
    expect(answer).toContain("hello");
    expect(answer).not.toContain("x-hop");
    expect(seen[0]).toMatchObject({ "x-kept": "2", "transfer-encoding": "chunked" });
    for (const name of ["x-private", "proxy-authorization"]) {
      expect(seen[0]).not.toHaveProperty(name);
    }
  });

  it("loses nothing of a large answer, however slowly it is read", async () => {
    await start();
    const { socket } = await tunnel(`api.good.test:${port}`);
    socket.pause();
    socket.write(`GET /big HTTP/1.1\r\nHost: api.good.test\r\nConnection: close\r\n\r\n`);
    const length = await new Promise<number>((resolve) => {
      let size = 0;
      const read = (): void => {
        const chunk = socket.read() as Buffer | null; // no encoding is set
        if (chunk !== null) size += chunk.length;
        if (!socket.destroyed) setTimeout(read, 1);
      };
      read();
      socket.on("close", () => resolve(size));
    });
    expect(length).toBeGreaterThan(bigBody.length);
    expect(length).toBeLessThan(bigBody.length + 1_000);
  });
});

describe("the egress proxy refuses everything else", () => {
  const http: [string, string, string][] = [
    ["E5: a name that is not on the list", "http://evil.test:PORT/", "not on the allow-list"],
    [
      "E6: a name that only ends like an allowed one",
      "http://notgood.test:PORT/",
      "not on the allow-list",
    ],
    ["E6: the parent of a wildcard", "http://good.test:PORT/", "not on the allow-list"],
    [
      "E7: a name that leads to 127.0.0.9",
      "http://rebind.good.test:PORT/",
      "not on the public internet",
    ],
    [
      "E8: a name that leads to an IPv4-mapped address",
      "http://mapped.good.test:PORT/",
      "not on the public internet",
    ],
    [
      "E9: a name that leads to the metadata service",
      "http://meta.good.test:PORT/",
      "not on the public internet",
    ],
    [
      "E10: a name that leads into private networks",
      "http://lan.good.test:PORT/",
      "not on the public internet",
    ],
    [
      "E10: a name that leads to NAT64 and 6to4 forms",
      "http://wrapped.good.test:PORT/",
      "not on the public internet",
    ],
    ["E11: an address", "http://127.0.0.1:PORT/", "names only"],
    ["E11: an IPv6 address", "http://[::ffff:127.0.0.1]:PORT/", "names only"],
    ["E12: a decimal address", "http://2130706433:PORT/", "names only"],
    ["E12: an octal address", "http://0177.0.0.1:PORT/", "names only"],
    ["E12: a hexadecimal address", "http://0x7f000001:PORT/", "names only"],
    ["E12: a short address", "http://127.1:PORT/", "names only"],
    ["E13: the metadata service by address", "http://169.254.169.254/", "names only"],
    ["E14: a port that is not on the list", "http://api.good.test:6379/", "not on the allow-list"],
    ["a name that does not resolve", "http://gone.good.test:PORT/", "cannot be resolved"],
    ["a name without addresses", "http://nowhere.good.test:PORT/", "not on the public internet"],
  ];
  it("E14: without a port in its entry a name has the ports of the web alone", () => {
    const allows = allowListOf(["api.good.test", "*.wide.test", "mail.good.test:25"]);
    const ports = (host: string) =>
      [25, 80, 443, 6379].filter((each) => allows({ host, port: each }));
    expect(["api.good.test", "a.wide.test", "mail.good.test"].map(ports)).toEqual([
      [80, 443],
      [80, 443],
      [25],
    ]);
  });

  it.each(http)("%s gets 403", async (_what, url, reason) => {
    const { denied } = await start();
    const answer = await get(url.replace("PORT", String(port)));
    expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden\r\nx-egress: denied\r\n/);
    expect(answer).toContain(reason);
    expect(hits).toEqual([]);
    expect(decisions).toMatchObject([{ allowed: false }]);
    expect(denied()).toEqual([expect.stringMatching(new RegExp(`^denied: .*${reason}`))]);
  });

  const authorities: [string, number][] = [
    ["api.good.test:6379", 403],
    ["127.0.0.1:PORT", 403],
    ["2130706433:PORT", 403],
    ["[::1]:PORT", 403],
    ["rebind.good.test:PORT", 403],
    ["evil.test:443", 403],
    ["api.good.test", 400],
    ["api.good.test:99999", 400],
    ["evil@api.good.test:PORT", 400],
    ["evil.test/api.good.test:PORT", 400],
    ["evil.test#api.good.test:PORT", 400],
    ["evil.test?api.good.test:PORT", 400],
    ["evil.test\\.good.test:PORT", 400],
    ["/", 400],
  ];
  it.each(authorities)("E14: CONNECT %s gets %i", async (authority, status) => {
    await start();
    const { socket, answer } = await tunnel(authority.replace("PORT", String(port)));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(hits).toEqual([]);
    socket.destroy();
  });

  it("E16: the Host header is that of the checked name", async () => {
    await start();
    await get(`http://api.good.test:${port}/`, "X-Forwarded-Host: internal.corp\r\n");
    expect(hits).toEqual([`good GET / api.good.test:${port}`]);
  });

  it("E17: a request without an absolute URL gets 400", async () => {
    await start();
    for (const url of ["/", "https://api.good.test/", "ftp://api.good.test/", "//api.good.test/"]) {
      expect(await get(url), url).toMatch(/^HTTP\/1\.1 400 /);
    }
    expect(hits).toEqual([]);
  });

  it("survives bytes that are no HTTP", async () => {
    await start();
    expect(await talk("\u0000\u0001\u0002 garbage\r\n\r\n")).toMatch(/^HTTP\/1\.1 400 /);
    expect(await get(`http://api.good.test:${port}/`)).toContain("from good");
  });

  it("dials the address that was checked, though the name changes its answer", async () => {
    let asked = 0;
    await start({
      resolve: async () => await Promise.resolve(asked++ === 0 ? ["127.0.0.1"] : ["127.0.0.9"]),
    });
    expect(await get(`http://api.good.test:${port}/`)).toContain("from good");
    expect(asked).toBe(1);
    expect(await get(`http://api.good.test:${port}/`)).toMatch(/^HTTP\/1\.1 403 /);
    expect(hits).toHaveLength(1);
  });
});

describe("the egress proxy has limits", () => {
  it("cuts everything off past the bytes, and says so", async () => {
    const { denied } = await start({ limits: { bytes: 1_000_000 } });
    const answer = await get(`http://api.good.test:${port}/big`);
    expect(answer.length).toBeLessThan(1_100_000);
    expect(denied()).toEqual(["denied: more than 1000000 bytes over the network"]);
    expect(await get(`http://api.good.test:${port}/`)).toMatch(/^HTTP\/1\.1 403 /);
  });

  it("refuses attempts past their number, and keeps its list short", async () => {
    const { denied } = await start({ limits: { attempts: 60 } });
    for (let count = 0; count < 60; count += 1) await get(`http://evil${count}.test/`);
    expect(await get(`http://api.good.test:${port}/`)).toContain("more than 60 attempts");
    expect(denied()).toHaveLength(50);
  });

  it("has no more connections than allowed, and says so", async () => {
    const { denied } = await start({ limits: { connections: 1 } });
    const { socket } = await tunnel(`api.good.test:${rawPort}`);
    expect(await get(`http://api.good.test:${port}/`)).toBe("");
    expect(denied()).toEqual(["denied: more than 1 connections at once"]);
    socket.destroy();
  });

  it("gives up on a name or a host that does not answer, and closes silent connections", async () => {
    await start({ limits: { connectMs: 50 }, resolve: () => new Promise(() => {}) });
    expect(await get(`http://api.good.test:${port}/`)).toContain("cannot be resolved");
    await proxy?.close();
    await start({ limits: { idleMs: 100 } });
    expect(await get(`http://api.good.test:${port}/hang`)).not.toContain("200 OK");
  });

  it("answers 502 when an allowed host refuses the connection", async () => {
    const { denied } = await start({ allow: ["api.good.test:1"] });
    expect(await get("http://api.good.test:1/")).toMatch(/^HTTP\/1\.1 502 /);
    const { answer } = await tunnel("api.good.test:1");
    expect(answer).toMatch(/^HTTP\/1\.1 502 /);
    expect(denied()).toEqual([]);
  });

  it.each([
    "HTTP/1.1 099 Odd\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\u0001b\r\n\r\n",
    "nonsense\r\n\r\n",
    "HTTP/1.1 101 S\r\n\r\n",
    "",
  ])("survives a host that answers %j", async (bytes) => {
    const rude = createServer((socket) => void socket.on("error", () => {}).end(bytes, "latin1"));
    const rudePort = await listen(rude, { host: "127.0.0.1", port: 0 });
    await start({ allow: [`api.good.test:${rudePort}`] });
    expect(await get(`http://api.good.test:${rudePort}/`)).not.toMatch(/^HTTP\/1\.1 200 /);
  });

  it("cuts connections when it closes, twice without harm, and leaves no socket behind", async () => {
    const { close } = await start();
    const { socket } = await tunnel(`api.good.test:${rawPort}`);
    const ended = new Promise<void>((resolve) => socket.on("close", () => resolve()));
    await Promise.all([close(), close()]);
    await ended;
    await expect(get("http://api.good.test/")).rejects.toMatchObject({ code: "ENOENT" });
  });

  it.each([
    "*",
    "*.",
    "http://api.test",
    "127.0.0.1",
    "[::1]:80",
    "a b",
    "host:0",
    "host:70000",
    "",
    "a.test/x",
  ])(
    "refuses to start with %j on its list",
    async (entry) => await expect(start({ allow: [entry] })).rejects.toThrow("names no host"),
  );
});
