import { startRedis } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it } from "vitest";
import { closeRedis, connectRedis, takesWrites } from "../connection.ts";
import { createTurnWorker } from "./job-worker.ts";

let server: Awaited<ReturnType<typeof startRedis>>;
let admin: Redis;

beforeAll(async () => {
  server = await startRedis();
  admin = new Redis(server.port);
});
afterAll(async () => {
  admin.disconnect();
  await server.stop();
});

it.each([
  ["info", "'info'"],
  ["bzpopmin", "'bzpopmin'"],
  ["rpoplpush", "a command of one of its scripts"],
  ["evalsha", "'evalsha'"],
])(
  "a worker whose Redis user lacks %s waits longer and longer, and says which command it is",
  { timeout: 60_000 },
  async (command, named) => {
    await admin.call(
      "ACL",
      "SETUSER",
      "worker",
      "reset",
      "on",
      ">secret",
      "~*",
      "&*",
      "+@all",
      `-${command}`,
    );
    const url = `redis://worker:secret@127.0.0.1:${server.port}`;
    const waited = Promise.withResolvers<void>();
    const errorsMs: number[] = [];
    const onError = (): void => {
      const nowMs = performance.now();
      if (nowMs - (errorsMs.at(-1) ?? nowMs) >= 800) waited.resolve();
      errorsMs.push(nowMs);
    };
    const connection = connectRedis(url, { role: "worker" });
    const shared = { connection, prefix: "{refused}", onError, redact: (text: string) => text };
    const worker = createTurnWorker({
      ...shared,
      concurrency: 1,
      handle: async () => await Promise.resolve("done"),
      onFailed: async () => await Promise.resolve(),
    });
    await waited.promise;
    expect(errorsMs.length).toBeLessThan(20);
    expect(await takesWrites(connection)).toContain(named);
    await worker.close({ deadlineMs: 100 });
    await closeRedis(connection);
  },
);
