import { createServer, type RequestListener } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import { ConnectionError, createClient, RequestError } from "./index.ts";

// What a server or a proxy before it may do to a client; runs of real processes are in test/e2e/http-typed-runs.suite.ts.

async function serving(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  onTestFinished(() => void server.close(() => undefined).closeAllConnections());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
}

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.catch((error: unknown) => error);

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
  // Waits for each answer, however late: that an answer which is late is no contact is the test above.
  const patient: typeof fetch = async (input, init) =>
    await fetch(input, { ...init, signal: null });
  const client = createClient({ url: full, retryForMs: 300, fetch: patient });
  const refused = await failureOf(client.run("a").result());
  expect(refused).toBeInstanceOf(RequestError);
  expect(refused).toMatchObject({ status: 429, code: "full" });
  const away = await serving(
    (_request, response) => void response.writeHead(503).end('{"error":"uncertain"}'),
  );
  expect(
    await failureOf(createClient({ url: away, retryForMs: 300 }).run("a").result()),
  ).toBeInstanceOf(ConnectionError);
});

it("a run whose end is no longer kept is not taken for one that has ended well", async () => {
  const url = await serving((_request, response) => {
    response
      .writeHead(200, { "content-type": "text/event-stream" })
      .end('event: end\ndata: {"lost":true}\n\n');
  });
  const reading = async () => {
    for await (const event of createClient({ url }).attach("api.s-1").stream()) {
      expect.unreachable(event.type);
    }
  };
  await expect(reading()).rejects.toThrow("no longer kept");
});

/** What a client makes of a stream that comes in these pieces. */
async function textsIn(...pieces: Uint8Array[]): Promise<string[]> {
  const fetch = async (): Promise<Response> => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const piece of pieces) controller.enqueue(piece);
        controller.close();
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  const texts: string[] = [];
  for await (const event of createClient({ url: "http://server", fetch })
    .attach("api.s-1")
    .stream()) {
    texts.push(event.type === "text_delta" ? `${event.seq}${event.text}` : event.type);
  }
  return texts;
}

const blockOf = (seq: number, event: object): string =>
  `id: ${seq}\ndata: ${JSON.stringify({ seq, runId: "api.s-1", agent: "a", atMs: 1, event })}\n\n`;

const streamed = [
  blockOf(1, { type: "text_delta", text: "北京天气？" }),
  ": ping\n\n",
  blockOf(2, { type: "text_delta", text: "好，\n🌤" }),
  blockOf(3, { type: "done", reason: "", final: "" }),
  "event: end\ndata: {}\n\n",
].join("");

it("SA-33: reads the same events wherever the bytes are cut, inside a Chinese character too", async () => {
  const bytes = new TextEncoder().encode(streamed);
  const whole = ["1北京天气？", "2好，\n🌤", "done"];
  for (let cut = 1; cut < bytes.length; cut += 1) {
    expect(await textsIn(bytes.subarray(0, cut), bytes.subarray(cut))).toEqual(whole);
  }
  expect(await textsIn(...Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(whole);
});

it("SA-34: skips comments and unknown fields, and reads other ends of lines", async () => {
  const other = `retry: 5\n\n: ping\n\n${streamed}`.replaceAll("\n", "\r\n");
  expect(await textsIn(new TextEncoder().encode(other))).toEqual([
    "1北京天气？",
    "2好，\n🌤",
    "done",
  ]);
});
