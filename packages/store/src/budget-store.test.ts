import { randomUUID } from "node:crypto";
import { expect, inject, it, onTestFinished } from "vitest";
import { BudgetStore } from "./budget-store.ts";
import { closeRedis, connectRedis } from "./connection.ts";

it("every key expires by itself, a day after its period or ten minutes after the charge", async () => {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(() => closeRedis(redis));
  const namespace = `test-${randomUUID()}`;
  const store = new BudgetStore({ redis, namespace });
  const account = {
    per: "person",
    id: "ou_1",
    bucket: "2026-11-22",
    endsAtMs: Date.now() + 3_600_000,
  };
  await store.spent([account]);
  expect(await redis.keys(`{${namespace}:*`)).toEqual([]);
  await store.charge([account], { id: "turn-1", tokens: 5, usd: 0.1 });
  await store.warnOnce(account);
  const base = `{${namespace}:budget}`;
  expect((await redis.keys(`{${namespace}:*`)).sort()).toEqual([
    `${base}:charge:turn-1`,
    `${base}:tokens:person:2026-11-22`,
    `${base}:told:person:2026-11-22`,
    `${base}:usd:person:2026-11-22`,
  ]);
  for (const name of ["told", "tokens", "usd"]) {
    const livesMs = await redis.pttl(`${base}:${name}:person:2026-11-22`);
    expect(livesMs).toBeGreaterThan(24 * 3_600_000);
    expect(livesMs).toBeLessThanOrEqual(25 * 3_600_000);
  }
  const knownMs = await redis.pttl(`${base}:charge:turn-1`);
  expect(knownMs > 0 && knownMs <= 600_000).toBe(true);
});

it("of more spenders than are counted those who spent least are forgotten", async () => {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(() => closeRedis(redis));
  const store = new BudgetStore({ redis, namespace: `test-${randomUUID()}`, maxSpenders: 2 });
  const account = (id: string) => ({
    per: "chat",
    id,
    bucket: "2026-11",
    endsAtMs: Date.now() + 3_600_000,
  });
  for (const [index, id] of ["a", "b", "c"].entries()) {
    await store.charge([account(id)], { id, tokens: [5, 3, 9][index] ?? 0, usd: 0 });
  }
  expect(await store.biggest(account("a"), "tokens", 5)).toMatchObject([{ id: "c" }, { id: "a" }]);
});
