import {
  freePort,
  startRedis,
  startRedisCluster,
  startTcpLine,
  type Swallowed,
  type TcpLine,
} from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { AppProcess } from "../system/app-process.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

// Connections that have died without a word: what is said into them goes nowhere, and nothing comes back.

interface Place {
  url: string;
  lines: TcpLine[];
  stop(): Promise<void>;
}

async function oneServer(): Promise<Place> {
  const redis = await startRedis();
  const line = await startTcpLine(Number(new URL(redis.url).port));
  const stop = async (): Promise<void> => {
    line.close();
    await redis.stop();
  };
  return { url: `redis://127.0.0.1:${line.port}`, lines: [line], stop };
}

/** Every node is known by the port of its line. */
async function cluster(): Promise<Place> {
  const nodes = await startRedisCluster();
  const ports = await nodes.masters();
  const lines = await Promise.all(ports.map(startTcpLine));
  await Promise.all(
    ports.map(async (port, at) => {
      await nodes.ask(port, "config", "set", "cluster-announce-port", String(lines[at]?.port));
    }),
  );
  await vi.waitFor(
    async () => {
      for (const port of ports) {
        const known = await nodes.ask(port, "cluster", "slots");
        for (const line of lines) expect(known).toContain(String(line.port));
      }
    },
    { timeout: 60_000, interval: 50 },
  );
  const stop = async (): Promise<void> => {
    for (const line of lines) line.close();
    await nodes.stop();
  };
  return {
    url: `redis+cluster://${lines.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    lines,
    stop,
  };
}

async function readyStatus({ url }: AppProcess): Promise<number> {
  return (await fetch(`${url}/ready`)).status;
}

function waitsForJobs(lastSent: string): boolean {
  return /bzpopmin/i.test(lastSent);
}

// Both wait for deadlines nearly all of their time: beside each other, the tests of each in their order.
describe.concurrent.each([
  ["one server", oneServer],
  ["a Cluster", cluster],
] as const)("connections to Redis that are swallowed: %s", (_name, start) => {
  let place: Place;
  let system: ProcessSystem;
  beforeAll(async () => {
    place = await start();
    // The platform delivers an unacknowledged event again every 200 ms.
    system = await startProcesses({
      redisUrl: place.url,
      simulator: { retryDelaysMs: Array.from({ length: 40 }, () => 200) },
    });
  }, 240_000);
  afterAll(async () => {
    await system?.close();
    await place?.stop();
  });

  it.each<Swallowed>(["both", "toClient", "toServer"])(
    "the first message is answered, once, long before TCP gives up (%s)",
    { timeout: 240_000, concurrent: false },
    async (what) => {
      const person = system.person(`Ann ${what}`);
      expect(await system.ask(person, "before")).toBe("[before]");
      for (const line of place.lines) line.swallow(what);
      const startedMs = performance.now();
      expect(await system.ask(person, "after", 120_000)).toBe("[after]");
      expect(performance.now() - startedMs).toBeLessThan(100_000);
      const answers = system.feishu
        .messages(person.chatId)
        .filter(({ senderType }) => senderType === "app");
      expect(answers).toHaveLength(2);
    },
  );

  it(
    "/ready of those that wait for jobs turns red, although everything else is answered",
    { timeout: 240_000, concurrent: false },
    async () => {
      for (const line of place.lines) line.swallow("both", { which: waitsForJobs, andNew: true });
      await Promise.all(
        [...system.workers, ...system.runners].map(async (app) => {
          await vi.waitFor(async () => expect(await readyStatus(app)).toBe(503), {
            timeout: 60_000,
            interval: 50,
          });
        }),
      );
      for (const line of place.lines) line.restore();
      await vi.waitFor(
        async () => {
          for (const app of [...system.workers, ...system.runners]) {
            expect(await readyStatus(app)).toBe(200);
          }
        },
        { timeout: 60_000, interval: 50 },
      );
    },
  );
});

describe("a Redis that answers and takes nothing", () => {
  it("is full or read-only: nothing is ready until that is over", async () => {
    const redis = await startRedis();
    const system = await startProcesses({ redisUrl: redis.url });
    const admin = new Redis(redis.url);
    const apps = [...system.ingresses, ...system.workers, ...system.runners];
    const untilAll = async (status: number): Promise<void> => {
      await vi.waitFor(
        async () =>
          expect(await Promise.all(apps.map(readyStatus))).toEqual(apps.map(() => status)),
        {
          timeout: 60_000,
          interval: 50,
        },
      );
    };
    try {
      await untilAll(200);
      await admin.config("SET", "maxmemory", "1mb");
      await untilAll(503);
      await admin.config("SET", "maxmemory", "0");
      await untilAll(200);
      await admin.config("SET", "min-replicas-to-write", "1");
      await untilAll(503);
      await admin.config("SET", "min-replicas-to-write", "0");
      await untilAll(200);
      await admin.replicaof("127.0.0.1", String(await freePort()));
      await untilAll(503);
      await admin.replicaof("NO", "ONE");
      await untilAll(200);
    } finally {
      admin.disconnect();
      await system.close();
      await redis.stop();
    }
  });
});
