import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { systemClock } from "@larkline/protocol/clock";
import { afterEach, describe, expect, it, vi } from "vitest";
import { openSse, type SseOptions, type SseStream } from "./stream.ts";

const servers: Server[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

async function connected(
  options: Partial<SseOptions> = {},
): Promise<{ stream: SseStream; client: Socket }> {
  const opened = Promise.withResolvers<SseStream>();
  const server = createServer((_request, response) => {
    opened.resolve(
      openSse(systemClock, response, { headers: {}, heartbeatMs: 60_000, ...options }),
    );
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo; // A TCP server that listens has one.
  const client = connect(port, "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  return { stream: await opened.promise, client };
}

describe("an event stream", () => {
  it("notices a client that leaves, also between two events", async () => {
    const { stream, client } = await connected();
    client.destroy();
    await vi.waitFor(() => expect(stream.gone.aborted).toBe(true), { timeout: 60_000 });
    await stream.write("data: x\n\n");
    stream.end("late");
  });

  it("does not take its own end for a client that left", async () => {
    const { stream, client } = await connected();
    client.resume();
    stream.end("bye");
    stream.end("twice");
    await once(client, "close");
    expect(stream.gone.aborted).toBe(false);
  });

  it("waits for a slow client, and gives up one that reads nothing", async () => {
    const { stream, client } = await connected({ stallMs: 200 });
    client.pause();
    const big = `data: ${"x".repeat(1_000_000)}\n\n`;
    const startedMs = performance.now();
    let writes = 0;
    for (; !stream.gone.aborted && writes < 100; writes += 1) await stream.write(big);
    expect(writes).toBeLessThan(100); // the buffers of the kernel take a few
    expect(performance.now() - startedMs).toBeGreaterThan(150);
  });

  it("queues no heartbeats for a client that does not read", async () => {
    const { stream, client } = await connected({ heartbeatMs: 1, stallMs: 300 });
    client.pause();
    await stream.write(`data: ${"x".repeat(8_000_000)}\n\n`);
    expect(stream.gone.aborted).toBe(true);
  });

  it("ends at once for a client that left before the answer began", async () => {
    const opened = Promise.withResolvers<SseStream>();
    const server = createServer((request, response) => {
      request.socket.destroy();
      response.once("close", () =>
        opened.resolve(openSse(systemClock, response, { headers: {}, heartbeatMs: 1 })),
      );
    });
    servers.push(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo; // A TCP server that listens has one.
    const client = connect(port, "127.0.0.1");
    client.on("error", () => {});
    client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect((await opened.promise).gone.aborted).toBe(true);
  });
});
