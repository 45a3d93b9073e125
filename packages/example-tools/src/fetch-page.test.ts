import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { runTool } from "@larkline/tool-kit";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createFetchPageTool, type FetchPageOptions } from "./fetch-page.ts";
import { isPublicAddress } from "@larkline/sandbox";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const answers = new Map<string, Answer>();
const requests: { url: string; host: string }[] = [];
const server = createServer((request, response) => {
  requests.push({ url: request.url ?? "", host: request.headers.host ?? "" });
  const answer = answers.get(request.url ?? "");
  if (answer === undefined) {
    response.writeHead(404, { "content-type": "text/plain" }).end("not here");
  } else answer(request, response);
});
let port = 0;

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.address() as AddressInfo).port; // listening on TCP
});
beforeEach(() => {
  answers.clear();
  requests.length = 0;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const loopback = { allowPrivate: (address: string) => address === "127.0.0.1" };

function page(path: string, contentType: string, body: string | Buffer): void {
  answers.set(path, (_request, response) =>
    response.writeHead(200, { "content-type": contentType }).end(body),
  );
}

async function fetchPage(
  url: string,
  options: FetchPageOptions = loopback,
  signal?: AbortSignal,
): Promise<ToolOutcome> {
  const context = {
    callId: "c",
    turnId: "t",
    signal: signal ?? new AbortController().signal,
    actor: { app: "a", userId: "u", chatId: "c" },
    authority: { by: "policy" } as const,
    progress: () => {},
    log: () => {},
  };
  return await runTool(createFetchPageTool(options), {
    argumentsText: JSON.stringify({ url }),
    context,
  });
}

const local = (path: string): string => `http://127.0.0.1:${port}${path}`;

function redirect(path: string, location: string): void {
  answers.set(path, (_request, response) => response.writeHead(302, { location }).end());
}

const mixedAnswer = async (): Promise<string[]> =>
  await Promise.resolve(["93.184.216.34", "127.0.0.1"]);

describe("fetch_page reads pages", () => {
  it("turns HTML into title and text without scripts and styles", async () => {
    page(
      "/",
      "text/html; charset=utf-8",
      "<html><head><title>Tea &amp; 茶</title><style>p{}</style></head><body><script>evil()</script><h1>Head</h1><p>One &lt;two&gt;</p><a href='/x'>link</a></body></html>",
    );
    const outcome = await fetchPage(local("/"));
    expect(outcome).toMatchObject({
      ok: true,
      result: { title: "Tea & 茶", status: 200, truncated: false, url: local("/") },
    });
    const text = JSON.stringify(outcome);
    expect(text).toContain("Head");
    expect(text).toContain("One <two>");
    expect(text).not.toContain("evil");
    expect(text).not.toContain("p{}");
  });

  it("decodes by header, by meta and by byte order mark", async () => {
    const gbk = Buffer.from([0xc4, 0xe3, 0xba, 0xc3]); // 你好
    page("/header", "text/html; charset=gb2312", gbk);
    page("/meta", "text/html", Buffer.concat([Buffer.from('<meta charset="gbk"><p>'), gbk]));
    page(
      "/bom",
      "text/plain",
      Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("你好", "utf16le")]),
    );
    page("/unknown", "text/plain; charset=klingon", "你好");
    for (const path of ["/header", "/meta", "/bom", "/unknown"]) {
      expect(await fetchPage(local(path)), path).toMatchObject({
        ok: true,
        result: { text: "你好" },
      });
    }
  });

  it("returns JSON and plain text as they are, and refuses other types", async () => {
    page("/json", "application/json", '{"a":"<b>"}');
    page("/png", "image/png", Buffer.from([0x89, 0x50]));
    page("/raw", "", Buffer.from([0, 1, 2]));
    expect(await fetchPage(local("/json"))).toMatchObject({
      ok: true,
      result: { text: '{"a":"<b>"}' },
    });
    expect(await fetchPage(local("/png"))).toEqual({
      ok: false,
      error: "the page is image/png, not text",
    });
    expect(await fetchPage(local("/raw"))).toMatchObject({
      ok: false,
      error: expect.stringContaining("not text"),
    });
  });

  it("tells the status of an error page", async () => {
    expect(await fetchPage(local("/none"))).toMatchObject({
      ok: true,
      result: { status: 404, text: "not here" },
    });
  });

  it("follows redirects, relative ones too, and gives up after five", async () => {
    page("/end", "text/plain", "arrived");
    redirect("/a", "/b");
    redirect("/b", local("/end"));
    redirect("/loop", "/loop");
    expect(await fetchPage(local("/a"))).toMatchObject({
      ok: true,
      result: { text: "arrived", url: local("/end") },
    });
    expect(await fetchPage(local("/loop"))).toEqual({ ok: false, error: "more than 5 redirects" });
    expect(requests.filter((request) => request.url === "/loop")).toHaveLength(6);
  });
});

describe("fetch_page has limits", () => {
  it("stops reading at the size cap", async () => {
    let sent = 0;
    answers.set("/endless", (_request, response) => {
      response.writeHead(200, { "content-type": "text/plain" });
      const more = (): void => {
        while (!response.destroyed && response.write("x".repeat(65_536))) sent += 65_536;
      };
      response.on("drain", more);
      more();
    });
    const outcome = await fetchPage(local("/endless"), { ...loopback, maxBytes: 100_000 });
    expect(outcome).toMatchObject({ ok: true, result: { truncated: true } });
    expect(sent).toBeLessThan(20_000_000);
  });

  it("leaves no half of a character at the cut of a long page", async () => {
    page("/long", "text/plain; charset=utf-8", `${"x".repeat(59_999)}😀😀`);
    const text = `${"x".repeat(59_999)}\uFFFD`;
    expect(await fetchPage(local("/long"))).toMatchObject({
      ok: true,
      result: { truncated: true, text },
    });
  });

  it("counts bytes after decompression", async () => {
    const bomb = gzipSync(Buffer.alloc(50_000_000, "x"));
    answers.set("/bomb", (_request, response) =>
      response
        .writeHead(200, { "content-type": "text/plain", "content-encoding": "gzip" })
        .end(bomb),
    );
    const outcome = await fetchPage(local("/bomb"), { ...loopback, maxBytes: 1_000 });
    expect(outcome).toMatchObject({
      ok: true,
      result: { truncated: true, text: "x".repeat(1_000) },
    });
    answers.set("/broken", (_request, response) =>
      response
        .writeHead(200, { "content-type": "text/plain", "content-encoding": "gzip" })
        .end("no gzip"),
    );
    expect(await fetchPage(local("/broken"))).toMatchObject({ ok: false });
  });

  it("answers at the deadline when the server is silent or drips", async () => {
    answers.set("/silent", () => {});
    answers.set("/drip", (_request, response) => {
      response.writeHead(200, { "content-type": "text/plain" });
      const timer = setInterval(() => response.write("x"), 10);
      response.on("close", () => clearInterval(timer));
    });
    for (const path of ["/silent", "/drip"]) {
      expect(await fetchPage(local(path), { ...loopback, timeoutMs: 150 })).toMatchObject({
        ok: false,
        error: expect.stringContaining("did not answer within 150 ms"),
      });
    }
  });

  it("closes the connection when the call is cancelled", async () => {
    const closed = Promise.withResolvers<void>();
    const controller = new AbortController();
    answers.set("/hang", (_request, response) => {
      response.on("close", () => closed.resolve());
      controller.abort(new Error("cancelled"));
    });
    expect(await fetchPage(local("/hang"), loopback, controller.signal)).toEqual({
      ok: false,
      error: "cancelled",
    });
    await closed.promise;
  });

  const hostile: [string, string][] = [
    ["deep", "<div>".repeat(400_000)],
    ["wide", "<b>x</b>".repeat(200_000)],
    ["closing tags without opening ones", "<i>".repeat(500) + "</b>".repeat(400_000)],
    ["one tag with many attributes", `<a ${"x=1 ".repeat(400_000)}>`],
    ["many tables", "<table><tr><td>".repeat(100_000)],
    ["titles", "<title>".repeat(250_000)],
    ["open meta tags", "<meta ".repeat(300_000)],
  ];
  it.each(hostile)(
    "reads hostile HTML in time that a runner can spare: %s",
    async (_what, html) => {
      page("/hostile", "text/html", html);
      const startMs = performance.now();
      expect(await fetchPage(local("/hostile"))).toMatchObject({ ok: true });
      expect(performance.now() - startMs).toBeLessThan(30_000);
    },
  );
});

describe("fetch_page stays on the public internet", () => {
  const refused = {
    ok: false,
    error: expect.stringMatching(
      /not on the public internet|only http|user name|valid URL|ENOTFOUND localhost/,
    ),
  };
  const urls = [
    "http://127.0.0.1:PORT/",
    "http://localhost:PORT/",
    "http://localhost.:PORT/",
    "http://127.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0.0.0.0:PORT/",
    "http://[::1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "https://127.0.0.1:PORT/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://127.0.0.1:6379/_INFO",
    "data:text/plain,hi",
    "http://user:password@example.com/",
    "//127.0.0.1/",
    "not a url",
  ];
  it.each(urls)("refuses %s without connecting", async (url) => {
    expect(await fetchPage(url.replace("PORT", String(port)), {})).toEqual(refused);
    expect(requests).toEqual([]);
  });

  it("checks every redirect again", async () => {
    for (const location of [
      `http://127.0.0.2:${port}/secret`,
      "http://169.254.169.254/",
      "file:///etc/passwd",
    ]) {
      answers.set("/away", (_request, response) => response.writeHead(302, { location }).end());
      const elsewhere = {
        ok: false,
        error: expect.stringMatching(/redirects to another host|only http and https/),
      };
      expect(await fetchPage(local("/away"))).toEqual(elsewhere);
    }
    expect(requests.map((request) => request.url)).toEqual(["/away", "/away", "/away"]);
  });

  it("refuses a name when any of its addresses is private", async () => {
    expect(await fetchPage(`http://mixed.test:${port}/`, { resolve: mixedAnswer })).toEqual(
      refused,
    );
    expect(requests).toEqual([]);
  });

  it("connects to the checked address even if the name changes its answer afterwards", async () => {
    page("/", "text/plain", "pinned");
    let asked = 0;
    // The first answer passes the check; a second question would lead elsewhere.
    const resolve = async (): Promise<string[]> =>
      await Promise.resolve(asked++ === 0 ? ["127.0.0.1"] : ["127.0.0.9"]);
    const outcome = await fetchPage(`http://rebind.test:${port}/`, { ...loopback, resolve });
    expect(outcome).toMatchObject({ ok: true, result: { text: "pinned" } });
    expect(asked).toBe(1);
    expect(requests).toEqual([{ url: "/", host: `rebind.test:${port}` }]);
  });

  it("resolves again after a redirect to the same name, and refuses the private answer", async () => {
    answers.set("/", (_request, response) => response.writeHead(302, { location: "/next" }).end());
    let asked = 0;
    const resolve = async (): Promise<string[]> =>
      await Promise.resolve(asked++ === 0 ? ["127.0.0.1"] : ["127.0.0.9"]);
    expect(await fetchPage(`http://rebind.test:${port}/`, { ...loopback, resolve })).toEqual(
      refused,
    );
  });

  it("knows public from other addresses", () => {
    for (const address of ["93.184.216.34", "8.8.8.8", "2606:4700::1111"]) {
      expect(isPublicAddress(address)).toBe(true);
    }
    const others = [
      "198.18.0.1",
      "192.0.0.192",
      "240.0.0.1",
      "224.0.0.1",
      "255.255.255.255",
      "ff02::1",
      "2001:db8::1",
      "fec0::1",
      "",
      "x",
    ];
    for (const address of others) expect(isPublicAddress(address), address).toBe(false);
  });
});
