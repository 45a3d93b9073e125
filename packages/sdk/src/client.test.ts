import { createServer, type RequestListener } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import { ConnectionError, createClient, RequestError } from "./index.ts";

// What a server or a proxy before it may do to a client; runs of real processes are in test/e2e/typed-runs.test.ts.

async function serving(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  onTestFinished(() => void server.close(() => undefined).closeAllConnections());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
}

const failureOf = async (work: Promise<unknown>): Promise<unknown> => await work.catch((error: unknown) => error);

it("a server that takes a request and never answers is no contact, and so is one that never ends its answer", async () => {
  const silent = await serving(() => undefined);
  const endless = await serving((_request, response) => void response.writeHead(202).write("{"));
  for (const url of [silent, endless]) {
    const failure = await failureOf(createClient({ url, retryForMs: 300 }).run("a").result());
    expect(failure).toBeInstanceOf(ConnectionError);
  }
});

it("a session that stays full is a refusal; a server that may have stored the message is not", async () => {
  const full = await serving(
    (_request, response) => void response.writeHead(429).end('{"error":"full","code":"full"}'),
  );
  const client = createClient({ url: full, retryForMs: 300 });
  const refused = await failureOf(client.run("a").result());
  expect(refused).toBeInstanceOf(RequestError);
  expect(refused).toMatchObject({ status: 429, code: "full" });
  const away = await serving((_request, response) => void response.writeHead(503).end('{"error":"uncertain"}'));
  expect(await failureOf(createClient({ url: away, retryForMs: 300 }).run("a").result())).toBeInstanceOf(
    ConnectionError,
  );
});

it("a run whose end is no longer kept is not taken for one that has ended well", async () => {
  const url = await serving((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).end('event: end\ndata: {"lost":true}\n\n');
  });
  const reading = async () => {
    for await (const event of createClient({ url }).attach("api.s-1").stream()) expect.unreachable(event.type);
  };
  await expect(reading()).rejects.toThrow("no longer kept");
});
