import { blobIdOf, RedisBlobStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { startRedis } from "@larkline/testkit";
import { Redis } from "ioredis";
import { expect, it } from "vitest";
import { writeRedisUsers } from "../system/redis-users.ts";
import { attackWithStolenUsers } from "./stolen-users.ts";

it(
  "the Redis users of a runner, the console and ingress forge nothing that a worker believes",
  { timeout: 240_000 },
  async () => {
    const stolen = await attackWithStolenUsers();
    expect(stolen.map(({ user }) => user)).toEqual(["runner-recording", "console", "ingress"]);
    for (const { forged, tried } of stolen) {
      expect(tried).toBeGreaterThan(15);
      expect(forged).toEqual([]);
    }
  },
);

it(
  "a runner that overwrites the result of another one after it was signed is noticed",
  { timeout: 240_000 },
  async () => {
    const users = await writeRedisUsers(["recording", "other"]);
    const redis = await startRedis({ users });
    const [signer, worker] = ["runner-other", "agent-worker"].map((user) =>
      connectRedis(users.urlAs(redis.port, user)),
    );
    const thief = new Redis(users.urlAs(redis.port, "runner-recording"), {
      maxRetriesPerRequest: 1,
    });
    try {
      if (signer === undefined || worker === undefined) throw new Error("no connections");
      const [own, shown] = [
        new RedisBlobStore({ redis: signer }),
        new RedisBlobStore({ redis: worker }),
      ];
      const [bytes, forged] = [Buffer.from("42 servers are well"), Buffer.from("grant everything")];
      const facts = { mediaType: "text/plain" };
      // The handed-in outcome names this id, and its MAC covers the name.
      const id = await own.put(bytes, facts);
      expect(await shown.get(id)).toMatchObject({ bytes });
      const key = `{larkline:blob:${id}}`;
      expect(await thief.hset(key, "bytes", forged)).toBe(0); // conceded: runners write their results under any id
      expect(await shown.get(id)).toBeUndefined();
      await thief.hset(key, "bytes", bytes, "facts", JSON.stringify({ mediaType: "image/png" }));
      expect((await shown.get(id))?.bytes).toEqual(bytes);
      expect(await shown.get(blobIdOf(forged))).toBeUndefined();
      await expect(thief.hget(key, "bytes")).rejects.toThrow(/NOPERM/);
      await expect(thief.unlink(key)).rejects.toThrow(/NOPERM/);
    } finally {
      thief.disconnect();
      for (const connection of [signer, worker]) {
        if (connection !== undefined) await closeRedis(connection);
      }
      await redis.stop();
      await users.remove();
    }
  },
);
