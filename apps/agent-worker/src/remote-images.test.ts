import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createGuardedFetch } from "@larkline/sandbox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { remoteImages } from "./remote-images.ts";

const png = Buffer.from("89504e470d0a1a0a0000000d49484452", "hex");
const never = new AbortController().signal;
/** For the test's server the guard lets this machine through; names are looked up as always. */
const fetched = remoteImages(createGuardedFetch({ allowPrivate: () => true }));
let server: Server;
let host: string;
let asked: string[] = [];

beforeAll(async () => {
  server = createServer(({ url = "" }, response) => {
    asked.push(url);
    const [, what = "", rest = ""] = /^\/(\w+)(?:\?(.*))?$/.exec(url) ?? [];
    if (what === "to") response.writeHead(302, { location: decodeURIComponent(rest) }).end();
    else if (what === "large") response.end(Buffer.alloc(10 * 1024 * 1024 + 1));
    else response.writeHead(what === "gone" ? 404 : 200).end(png);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`; // it listens on a port
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

describe("a picture at an address", () => {
  it("is fetched from hosts that may be reached unasked, through redirects among them", async () => {
    expect(await fetched(`http://${host}/a`, [host], never)).toEqual(png);
    expect(await fetched(`http://${host}/to?/a`, [host], never)).toEqual(png);
    expect(await fetched(`http://${host}/to?/to?/to?/to?/a`, [host], never)).toBeUndefined();
  });

  it.each([
    ["of another host", (at: string) => `http://${at}/a`, ["example.com"]],
    ["with a name in it", (at: string) => `http://secret@${at}/a`, undefined],
    ["of another kind", (at: string) => `file://${at}/a`, undefined],
  ])("%s is not asked for", async (_what, address, hosts) => {
    asked = [];
    expect(await fetched(address(host), hosts ?? [host], never)).toBeUndefined();
    expect(asked).toEqual([]);
  });

  it("is none where a redirect leads elsewhere, where there is none, and above 10 MB", async () => {
    expect(await fetched(`http://${host}/to?http://example.com/a`, [host], never)).toBeUndefined();
    expect(await fetched(`http://${host}/gone`, [host], never)).toBeUndefined();
    expect(await fetched(`http://${host}/large`, [host], never)).toBeUndefined();
  });

  it("is never fetched from this machine or its network", async () => {
    asked = [];
    await expect(remoteImages()(`http://${host}/a`, ["*"], never)).rejects.toThrow(
      "not on the public internet",
    );
    await expect(
      remoteImages()(`http://localhost:${host.split(":")[1]}/a`, ["*"], never),
    ).rejects.toThrow();
    expect(asked).toEqual([]);
  });
});
