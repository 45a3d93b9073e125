import { connectRedis, closeRedis, type RedisConnection } from "@larkline/store/redis";
import type { SessionStore } from "@larkline/store";
import { freePort, startRedis } from "@larkline/testkit";
import { expect, it, onTestFinished } from "vitest";
import { calling, redisWorld } from "./approval-world.fixture.ts";
import { checkEnds } from "./crash.fixture.ts";
import {
  append,
  inbound,
  outboxOf,
  runnerOf,
  runTools,
  session,
  type Parts,
  type World,
} from "./turn-world.fixture.ts";

const maxTries = 5;
/** More often than a message may fail. */
const outages = maxTries + 2;

interface Trouble {
  begins(redis: RedisConnection): Promise<unknown>;
  ends(redis: RedisConnection): Promise<unknown>;
}

const full: Trouble = {
  begins: async (redis) => await redis.call("CONFIG", "SET", "maxmemory", "1mb"),
  ends: async (redis) => await redis.call("CONFIG", "SET", "maxmemory", "0"),
};
const readOnly: Trouble = {
  begins: async (redis) => await redis.call("REPLICAOF", "127.0.0.1", String(await freePort())),
  ends: async (redis) => await redis.call("REPLICAOF", "NO", "ONE"),
};

/**
 * What a worker has whose Redis takes no writes from its first `method` of a run on, until it has refused what
 * comes after that, too. So often, then no more.
 */
function troubled(
  world: World,
  redis: RedisConnection,
  { trouble, method }: { trouble: Trouble; method: "save" | "commit" },
) {
  let begun = 0;
  const store = new Proxy(world.store, {
    get: (target, name) => {
      const real: unknown = Reflect.get(target, name);
      if (typeof real !== "function") return real;
      return async (...given: unknown[]): Promise<unknown> => {
        if (name === method && begun < outages) {
          begun += 1;
          await trouble.begins(redis);
        }
        try {
          return await Reflect.apply(real, target, given);
        } catch (error) {
          if (name === "claim" || name === "excuse") await trouble.ends(redis);
          throw error;
        }
      };
    },
  });
  const parts: Parts & { store: SessionStore } = { ...world, store };
  return { parts, begun: () => begun };
}

async function ownWorld(): Promise<{ world: World; redis: RedisConnection }> {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redis = connectRedis(server.url);
  onTestFinished(async () => await closeRedis(redis));
  return { world: redisWorld(server.url), redis };
}

/** As the queue does: a job that was put back or has failed comes again. */
async function runJobs(world: World, run: ReturnType<typeof runnerOf>): Promise<void> {
  for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
    for (let result = ""; result !== "done";) {
      result = await run({ v: 1, session, gen }, new AbortController().signal).catch(() => "failed");
    }
    await runTools(world);
  }
}

it.each([
  // A commit is taken by a full Redis: it begins with the message that leaves the inbox.
  ["is full", "its calls", { trouble: full, method: "save" }],
  ["is read-only", "its answer", { trouble: readOnly, method: "commit" }],
  ["is read-only", "its calls", { trouble: readOnly, method: "save" }],
] as const)(
  "a Redis that %s again and again when a turn stores %s ends in no message that is given up",
  { timeout: 60_000 },
  async (_how, _what, kind) => {
    const { world, redis } = await ownWorld();
    const { parts, begun } = troubled(world, redis, kind);
    const differences = { ...calling(["echo"]), maxTries };
    await append(world, inbound("om_1", "please"));
    await runJobs(world, runnerOf(world, differences, parts));
    expect(begun()).toBe(outages);
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual(["c1-0"]);
    expect([...world.ran]).toEqual([["c1-0", 1]]);
    await checkEnds(world, [1]);
  },
);
