import { randomUUID } from "node:crypto";
import { createConnection, createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import {
  closeRedis,
  type ConnectOptions,
  connectRedis,
  type RedisConnection,
  subscriberOf,
} from "./connection.ts";

/** Stands between Redis and its clients, and can swallow what those that are connected say. */
async function startLine(redisUrl: string) {
  const target = new URL(redisUrl);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const redis = createConnection(Number(target.port), target.hostname);
    client.pipe(redis).pipe(client);
    for (const socket of [client, redis]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        redis.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  return {
    url: `redis://127.0.0.1:${port}`,
    /** As when the machine at the other end loses its power: no end, no error, no answer. */
    goSilent: () => {
      for (const socket of sockets) socket.unpipe().pause();
    },
    cut: () => {
      for (const socket of sockets) socket.destroy();
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

describe("connection", () => {
  let line: Awaited<ReturnType<typeof startLine>>;
  let redis: RedisConnection | undefined;

  beforeEach(async () => {
    line = await startLine(inject("redisUrl"));
  });
  afterEach(async () => {
    if (redis !== undefined) await closeRedis(redis);
    redis = undefined;
    line.close();
  });

  async function connected(options: ConnectOptions): Promise<RedisConnection> {
    const connection = connectRedis(line.url, { silenceMs: 300, ...options });
    redis = connection;
    await answers(connection);
    return connection;
  }

  async function answers(connection: RedisConnection): Promise<void> {
    expect(await connection.ping()).toBe("PONG");
  }

  it("a command whose connection breaks before the answer fails, and is not sent again", async () => {
    const connection = await connected({ silenceMs: 20_000 });
    const key = `test-${randomUUID()}`;
    line.goSilent();
    const lost = connection.incr(key);
    const lostInTransaction = connection.multi().incr(key).pexpire(key, 60_000).exec();
    setImmediate(line.cut);
    await expect(lost).rejects.toThrow("may have run");
    await expect(lostInTransaction).rejects.toThrow("may have run");
    expect(await connection.get(key)).toBeNull();
  });

  it("a command that a dead peer never answers fails, and the next one finds the living", async () => {
    const connection = await connected({ role: "request" });
    line.goSilent();
    await expect(connection.ping()).rejects.toThrow();
    await answers(connection);
  });

  it("an answer that comes while this process stands still is read, however long that lasts", async () => {
    redis = connectRedis(inject("redisUrl"), { silenceMs: 300 });
    const key = `test-${randomUUID()}`;
    await answers(redis);
    const first = redis.incr(key);
    await new Promise((resolve) => setImmediate(resolve)); // it is sent
    const untilMs = performance.now() + 1_000;
    while (performance.now() < untilMs);
    expect(await first).toBe(1);
    await redis.del(key);
  });

  it("a worker's command is sent again to the living", async () => {
    const connection = await connected({ role: "worker" });
    line.goSilent();
    expect(await connection.ping()).toBe("PONG");
  });

  it("a connection on which nothing is asked may be silent", async () => {
    const errors: Error[] = [];
    const connection = await connected({ onError: (error) => errors.push(error) });
    const subscriber = subscriberOf(connection);
    subscriber.on("error", (error: Error) => errors.push(error));
    const heard = Promise.withResolvers<string>();
    subscriber.on("message", (_channel: string, text: string) => heard.resolve(text));
    await subscriber.subscribe("connection-test");
    errors.length = 0;
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(errors).toEqual([]);
    await answers(connection);
    await connection.publish("connection-test", "still here");
    expect(await heard.promise).toBe("still here");
    await closeRedis(subscriber);
  });
});
