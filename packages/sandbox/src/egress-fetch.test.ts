import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createGuardedFetch, type GuardedFetchOptions } from "./egress-fetch.ts";

const hits: string[] = [];
let port = 0;
let location = "";
let elsewhere: Server;

const server = createServer((request, response) => {
  hits.push(`${request.method} ${request.url} ${request.headers.host}`);
  if (request.url === "/away") return void response.writeHead(302, { location }).end();
  if (request.url === "/hang") return;
  request.pipe(response);
});

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.address() as AddressInfo).port; // listening on TCP
  elsewhere = createServer((_request, response) => {
    hits.push("private");
    response.end("private");
  });
  await new Promise<void>((resolve) => elsewhere.listen(port, "127.0.0.9", resolve));
});
beforeEach(() => void (hits.length = 0));
afterAll(() => {
  for (const each of [server, elsewhere]) {
    each.closeAllConnections();
    each.close();
  }
});

const names: Record<string, string[]> = {
  "good.test": ["127.0.0.1"],
  "other.test": ["127.0.0.1"],
  "private.test": ["127.0.0.9"],
  "mixed.test": ["127.0.0.1", "127.0.0.9"],
};

function guarded(options: GuardedFetchOptions = {}): typeof fetch {
  return createGuardedFetch({
    resolve: async (name) => names[name] ?? Promise.reject(new Error(`no such name: ${name}`)),
    allowPrivate: (address) => address === "127.0.0.1",
    ...options,
  });
}

describe("createGuardedFetch", () => {
  it("fetches like fetch, with a body and an answer to read", async () => {
    const response = await guarded()(`http://good.test:${port}/x`, {
      method: "POST",
      body: "hello",
    });
    expect(response).toBeInstanceOf(Response);
    expect([response.status, await response.text()]).toEqual([200, "hello"]);
    const request = new Request(`http://good.test:${port}/y`, { method: "PUT", body: "again" });
    expect(await (await guarded()(request)).text()).toBe("again");
    expect(hits).toEqual([`POST /x good.test:${port}`, `PUT /y good.test:${port}`]);
  });

  it.each([
    "http://private.test:PORT/",
    "http://mixed.test:PORT/",
    "http://127.0.0.9:PORT/",
    "http://2130706441:PORT/",
    "http://[::ffff:127.0.0.9]:PORT/",
    "http://[::1]:PORT/",
    "http://169.254.169.254/latest/meta-data/",
    "https://10.0.0.1/",
  ])("refuses %s, saying why", async (url) => {
    await expect(guarded()(url.replace("PORT", String(port)))).rejects.toThrow(
      /not on the public internet: refused/,
    );
    expect(hits).toEqual([]);
  });

  it("refuses the machine's own services without any options", async () => {
    const bare = createGuardedFetch();
    await expect(bare(`http://127.0.0.1:${port}/`)).rejects.toThrow(TypeError);
    await expect(bare(`http://localhost:${port}/`)).rejects.toThrow(/not on the public internet/);
    expect(hits).toEqual([]);
  });

  it("checks where a redirect leads", async () => {
    location = `http://private.test:${port}/secret`;
    await expect(guarded()(`http://good.test:${port}/away`)).rejects.toThrow(
      /not on the public internet/,
    );
    location = `http://127.0.0.9:${port}/secret`;
    await expect(guarded()(`http://good.test:${port}/away`)).rejects.toThrow(
      /not on the public internet/,
    );
    location = `http://other.test:${port}/away-from-the-list`;
    const listed = guarded({ allow: [`good.test:${port}`] });
    await expect(listed(`http://good.test:${port}/away`)).rejects.toThrow(/not on the allow-list/);
    expect(hits).toEqual(Array.from({ length: 3 }, () => `GET /away good.test:${port}`));
  });

  it("connects to the address that was checked, though the name changes its answer", async () => {
    let asked = 0;
    const resolve = async (): Promise<string[]> =>
      await Promise.resolve(asked++ === 0 ? ["127.0.0.1"] : ["127.0.0.9"]);
    const rebinding = guarded({ resolve });
    expect((await rebinding(`http://rebind.test:${port}/`)).status).toBe(200);
    expect(asked).toBe(1);
    await expect(rebinding(`https://rebind.test:${port}/`)).rejects.toThrow(
      /not on the public internet/,
    );
  });

  it("reaches listed names only when there is a list", async () => {
    const listed = guarded({ allow: [`*.test:${port}`] });
    expect((await listed(`http://good.test:${port}/`)).status).toBe(200);
    await expect(listed(`http://127.0.0.1:${port}/`)).rejects.toThrow(/not on the allow-list/);
    await expect(listed("http://good.test:8081/")).rejects.toThrow(/not on the allow-list/);
    expect(() => createGuardedFetch({ allow: ["http://good.test"] })).toThrow("names no host");
  });

  it("stops when it is aborted", async () => {
    const controller = new AbortController();
    const pending = guarded()(`http://good.test:${port}/hang`, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(pending).rejects.toThrow("enough");
  });
});
