import type { AddedProvider } from "./operator-orders.ts";
import type { Redis } from "ioredis";
import { expect, test } from "vitest";
import { AddedProviders, sealProviderKey } from "./added-providers.ts";
import { AuditLog } from "./audit-log.ts";
import { openElsewhere, openTestStores } from "./testing.ts";

const stateKey = "0".repeat(64);
const [grantKey, newKey] = ["a".repeat(64), "b".repeat(64)];
const server: AddedProvider = {
  name: "deepseek",
  type: "openai",
  baseUrl: "https://api.deepseek.com/v1",
  models: ["deepseek-chat"],
};
const secret = "sk-secret-of-the-vendor";

function scene() {
  const here = openTestStores();
  const { redis, namespace } = here;
  const there = { ...openElsewhere(here), namespace };
  const worker = new AddedProviders({ redis, namespace, stateKey, grantKeys: [grantKey] });
  const elsewhere = new AddedProviders({ ...there, stateKey, grantKeys: [grantKey] });
  /** As the console has it: without any key. */
  const shown = new AddedProviders({ redis, namespace });
  const at = (provider: AddedProvider, sealedKey?: string) => ({
    provider,
    sealedKey,
    by: "console:Ann",
    atMs: 5,
  });
  const sealed = async (provider = server): Promise<string> =>
    sealProviderKey((await shown.list()).sealTo ?? expect.fail(), provider, secret);
  const audit = new AuditLog({ redis, namespace });
  const key = `{${namespace}}:added-providers`;
  return { redis: redis as Redis, there, key, worker, elsewhere, shown, at, sealed, audit };
}

test("the console seals a key that every worker opens, and that is nowhere in Redis", async () => {
  const { redis, key, worker, elsewhere, shown, at, sealed, audit } = scene();
  expect(await shown.list()).toEqual({ providers: [], sealTo: undefined });
  await worker.refresh();
  expect(await worker.set(at(server, await sealed()))).toBe("done");
  expect(await elsewhere.refresh()).toEqual({ isNew: true, refused: [] });
  expect([...elsewhere.known().values()]).toEqual([{ provider: server, apiKey: secret }]);
  expect(await elsewhere.refresh()).toEqual({ isNew: false, refused: [] });
  const { providers } = await shown.list();
  const row = { provider: server, key: "sealed", by: "console:Ann", atMs: 5, isRefused: false };
  expect(providers).toEqual([row]);
  const records = [];
  for await (const record of audit.export(0, Number.MAX_SAFE_INTEGER)) records.push(record);
  expect(records).toMatchObject([
    { kind: "provider_changed", provider: "deepseek", userId: "console:Ann" },
  ]);
  const stored = JSON.stringify([await redis.hgetall(key), records]);
  const begun = Buffer.from(secret).toString("base64url").slice(0, 12);
  for (const text of [secret, begun, grantKey]) expect(stored).not.toContain(text);
});

test("a key opens for the address that it was given for alone, and stays there when the rest changes", async () => {
  const { worker, at, sealed } = scene();
  await worker.refresh();
  const box = await sealed();
  const elsewhere = { ...server, baseUrl: "https://evil.example/v1" };
  for (const other of [elsewhere, { ...server, type: "anthropic" as const }]) {
    expect(await worker.set(at(other, box))).toBe("not_possible");
  }
  expect(await worker.set(at({ ...server, name: "other" }, box))).toBe("not_possible");
  expect(await worker.set(at(server, "x.y.z"))).toBe("not_possible");
  expect(await worker.set(at(server, box))).toBe("done");
  const wider = { ...server, models: ["deepseek-chat", "deepseek-reasoner"] };
  expect(await worker.set(at(wider))).toBe("done");
  await worker.refresh();
  expect(worker.known().get("deepseek")).toEqual({ provider: wider, apiKey: secret });
  expect(await worker.set(at(elsewhere))).toBe("done");
  await worker.refresh();
  expect(worker.known().get("deepseek")).toEqual({ provider: elsewhere });
});

test("a row that was edited, moved or written by others is not used, and the console sees it", async () => {
  const { redis, key, worker, elsewhere, shown, at, there } = scene();
  const foreign = new AddedProviders({ ...there, stateKey: "1".repeat(64) });
  await worker.set(at(server));
  await foreign.set(at({ ...server, name: "forged" }));
  const row = (await redis.hget(key, "provider:deepseek")) ?? "";
  await redis.hset(key, "provider:edited", row.replace('"deepseek"', '"edited"'));
  await redis.hset(key, "provider:moved", row);
  expect((await elsewhere.refresh()).refused.toSorted()).toEqual(["edited", "forged", "moved"]);
  expect([...elsewhere.known().keys()]).toEqual(["deepseek"]);
  const { providers } = await shown.list();
  expect(providers.map(({ provider: { name }, isRefused }) => [name, isRefused])).toEqual([
    ["deepseek", false],
    ["edited", true],
    ["forged", true],
  ]);
});

test("with another GRANT_KEY a key stays shut, with the old one behind it is still good, and is said to be old", async () => {
  const { there, worker, shown, at, sealed } = scene();
  await worker.refresh();
  await worker.set(at(server, await sealed()));
  const without = new AddedProviders({ ...there, stateKey, grantKeys: [newKey] });
  expect((await without.refresh()).refused).toEqual(["deepseek"]);
  expect((await shown.list()).providers).toMatchObject([{ isRefused: true }]);
  const after = new AddedProviders({ ...there, stateKey, grantKeys: [newKey, grantKey] });
  await after.refresh();
  expect(after.known().get("deepseek")).toEqual({ provider: server, apiKey: secret });
  expect((await shown.list()).providers).toMatchObject([{ key: "old", isRefused: false }]);
  await after.set(at(server, await sealed()));
  expect((await shown.list()).providers).toMatchObject([{ key: "sealed" }]);
});

test("changes at the same time are all stored, there are at most a hundred, and one that is removed is gone", async () => {
  const { worker, elsewhere, shown, at } = scene();
  const names = Array.from({ length: 100 }, (_none, index) => `s${index}`);
  const results: string[] = [];
  for (let first = 0; first < names.length; first += 10) {
    const some = names.slice(first, first + 10).map(async (name, index) => {
      const by = index % 2 === 0 ? worker : elsewhere;
      return await by.set(at({ ...server, name }));
    });
    results.push(...(await Promise.all(some)));
  }
  expect(new Set(results)).toEqual(new Set(["done"]));
  expect((await shown.list()).providers).toHaveLength(100);
  expect(await worker.set(at({ ...server, name: "more" }))).toBe("full");
  expect(await worker.set(at({ ...server, name: "s1", models: ["m"] }))).toBe("done");
  expect(await worker.remove("s1", "console:Ann")).toBe("done");
  expect(await worker.remove("s1", "console:Ann")).toBe("nothing");
  await worker.refresh();
  expect(worker.known().has("s1")).toBe(false);
});
