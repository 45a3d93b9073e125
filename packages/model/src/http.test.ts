import { createServer, type RequestListener, type Server } from "node:http";
import { afterEach, expect, it } from "vitest";
import { jsonBody } from "./http.ts";
import { httpFetch } from "./index.ts";

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve));
});

async function serve(listener: RequestListener): Promise<string> {
  // It closes no connection that is to be used again because this process stood still.
  const own = createServer({ keepAliveTimeout: 60_000 }, listener);
  server = own;
  await new Promise<void>((resolve) => own.listen(0, "127.0.0.1", resolve));
  const address = own.address();
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return `http://127.0.0.1:${address.port}/path?query=1`;
}

it("sends method, headers and text, and gives status, headers and body", async () => {
  const url = await serve((incoming, response) => {
    let text = "";
    incoming.on("data", (piece) => (text += String(piece)));
    incoming.on("end", () => {
      response.writeHead(429, { "retry-after": "3", "content-type": "application/json" });
      response.end(
        JSON.stringify({
          text,
          method: incoming.method,
          url: incoming.url,
          own: incoming.headers["x-own"],
        }),
      );
    });
  });
  const response = await httpFetch(url, {
    method: "POST",
    headers: { "x-own": "1" },
    body: "你好",
  });
  expect(response).toMatchObject({ ok: false, status: 429 });
  expect(response.headers.get("Retry-After")).toBe("3");
  expect(await response.json()).toEqual({
    text: "你好",
    method: "POST",
    url: "/path?query=1",
    own: "1",
  });
});

it("sends tools that were offered before without making their text again", async () => {
  const url = await serve((incoming, response) => {
    const pieces: Buffer[] = [];
    incoming.on("data", (piece: Buffer) => pieces.push(piece));
    incoming.on("end", () => response.end(Buffer.concat(pieces)));
  });
  let made = 0;
  const tool = (name: string) => ({ toJSON: () => ({ name: `${name} 夜`, at: (made += 1) }) });
  const [one, two, three] = ["one", "two", "three"].map(tool);
  const sent = async (request: object): Promise<unknown> => {
    const body = jsonBody(request);
    return await (await httpFetch(url, { method: "POST", body })).json();
  };
  const named = (name: string, at: number) => ({ name: `${name} 夜`, at });
  const first = { text: "你好", tools: [one, two], stream: true };
  const tools = [named("one", 1), named("two", 2)];
  expect(await sent(first)).toEqual({ ...first, tools });
  expect(await sent({ text: "again", tools: [one, two] })).toEqual({ text: "again", tools });
  expect(made).toBe(2);
  const others = [named("one", 3), named("three", 4)];
  expect(await sent({ text: "others", tools: [one, three] })).toEqual({
    text: "others",
    tools: others,
  });
  expect(await sent({ text: "first", tools: [one, two] })).toEqual({ text: "first", tools });
  expect(await sent({ text: "none", tools: [] })).toEqual({ text: "none", tools: [] });
  expect(await sent({ tools: ["word"] })).toEqual({ tools: ["word"] });
});

it("uses one connection for one request after another, also when a body is left early", async () => {
  const url = await serve((_, response) => void response.end("x".repeat(10_000)));
  let connections = 0;
  server?.on("connection", () => (connections += 1));
  for (let n = 0; n < 5; n += 1) {
    const response = await httpFetch(url, { method: "POST", body: "" });
    if (n % 2 === 0) await response.text();
    else for await (const _ of response.body ?? []) break;
    // The rest of a body that was left is read in the background.
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(connections).toBeLessThan(4);
});

it("stops when it is aborted: before the request, while waiting, and in the middle of the body", async () => {
  let closed = 0;
  const url = await serve((incoming, response) => {
    response.on("close", () => (closed += 1));
    if (incoming.headers["x-begin"] === undefined) return;
    response.write("begin");
  });
  await expect(httpFetch(url, { signal: AbortSignal.abort() })).rejects.toThrow("aborted");
  const waiting = new AbortController();
  const pending = httpFetch(url, { signal: waiting.signal });
  setImmediate(() => waiting.abort());
  await expect(pending).rejects.toThrow("aborted");
  const reading = new AbortController();
  const response = await httpFetch(url, { headers: { "x-begin": "1" }, signal: reading.signal });
  const body = response.text();
  reading.abort();
  await expect(body).rejects.toThrow();
  await expect.poll(() => closed).toBeGreaterThanOrEqual(1);
});

it("does nothing when it is aborted after the answer is complete", async () => {
  const url = await serve((_, response) => void response.end("done"));
  const controller = new AbortController();
  const response = await httpFetch(url, { signal: controller.signal });
  expect(await response.text()).toBe("done");
  controller.abort();
  expect(await (await httpFetch(url)).text()).toBe("done");
});

it("fails when no server listens", async () => {
  const url = await serve(() => {});
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve));
  await expect(httpFetch(url)).rejects.toThrow("ECONNREFUSED");
});
