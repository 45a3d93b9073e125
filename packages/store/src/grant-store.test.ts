import { startRedis } from "@larkline/testkit";
import { Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { forgetGrant, GrantBook, type GrantOwner } from "./grant-book.ts";
import { GrantStore, type GrantFacts } from "./grant-store.ts";
import { appUsers } from "./rights/app-users.ts";
import { openElsewhere, openTestStores } from "./testing.ts";

const [key, newKey] = ["a".repeat(64), "b".repeat(64)];
const ann: GrantOwner = { app: "cli_a", tenant: "t1", openId: "ou_ann" };

function factsWith(accessToken: string, more: Partial<GrantFacts> = {}): GrantFacts {
  return {
    tokens: { accessToken, refreshToken: `ur-of-${accessToken}` },
    accessEndsAtMs: 2,
    refreshEndsAtMs: 3,
    grantedAtMs: 1,
    asked: ["task:a", "task:b"],
    granted: ["task:a"],
    issuer: "https://open.example/token",
    unionId: "on_ann",
    ...more,
  };
}

function scene() {
  const here = openTestStores();
  const { redis, namespace, advance } = here;
  const store = new GrantStore({ redis, namespace, grantKeys: [key] });
  const elsewhere = new GrantStore({ ...openElsewhere(here), namespace, grantKeys: [key] });
  const rowKeys = async (): Promise<string[]> => await (redis as Redis).keys(`*${namespace}*`);
  return { redis: redis as Redis, namespace, advance, store, elsewhere, rowKeys };
}

test("a grant is one row for each app and person, for every process", async () => {
  const { store, elsewhere } = scene();
  expect(await store.read(ann)).toBeUndefined();
  expect(await store.write(ann, factsWith("u-1"), 0)).toBe(true);
  expect(await elsewhere.read(ann)).toEqual({
    ...factsWith("u-1"),
    generation: 1,
    state: "active",
  });
  for (const other of [{ openId: "ou_ben" }, { app: "cli_b" }]) {
    expect(await store.read({ ...ann, ...other })).toBeUndefined();
  }
  // An open_id is a person of one tenant: the row is no other's, and opens for no other.
  expect(await store.read({ ...ann, tenant: "t2" })).not.toHaveProperty("tokens");
});

test("Redis holds no token, and no key names the person", async () => {
  const { redis, store, rowKeys } = scene();
  await store.write(ann, factsWith("u-secret"), 0);
  const keys = await rowKeys();
  const [row = "", tokens = "", index = ""] = ["grant:", "grant-tokens:", "grants"].map((part) =>
    keys.find((one) => one.includes(`}:${part}`)),
  );
  expect(keys.toSorted()).toEqual([row, tokens, index].toSorted());
  expect(JSON.stringify(keys)).not.toContain("ou_ann");
  const stored = JSON.stringify([await redis.hgetall(row), await redis.get(tokens)]);
  const begun = Buffer.from("u-secret").toString("base64url").slice(0, 8);
  for (const secret of ["u-secret", begun, "ou_ann", key]) expect(stored).not.toContain(secret);
});

test("without a key it is known what was granted, what has used it, and how it has ended", async () => {
  const { redis, namespace, store } = scene();
  const book = new GrantBook({ redis, namespace });
  expect(await book.read(ann)).toBeUndefined();
  await store.noteUse(ann, { tool: "early", atMs: 1 }); // of no grant: nothing is kept
  await store.write(ann, factsWith("u-1"), 0);
  await store.noteUse(ann, { tool: "find", title: { zh: "查找", en: "Find" }, atMs: 5 });
  await store.noteUse(ann, { tool: "add", atMs: 6 });
  await store.noteUse(ann, { tool: "find", title: "Find", atMs: 7 });
  await store.noteRefreshError(ann, "unknown 20050", 8);
  const known = {
    ...ann,
    state: "active",
    grantedAtMs: 1,
    consentEndsAtMs: 1 + 365 * 86_400_000,
    granted: ["task:a"],
    accessEndsAtMs: 2,
    refreshEndsAtMs: 3,
    used: [
      { tool: "find", title: "Find", atMs: 7 },
      { tool: "add", atMs: 6 },
    ],
  };
  expect(await book.read(ann)).toEqual({
    ...known,
    refreshError: { reason: "unknown 20050", atMs: 8 },
  });
  await store.write(ann, factsWith("u-2"), 1);
  expect(await book.list(10)).toEqual({ grants: [known], count: 1 });
  await store.revoke(ann, "person");
  expect(await book.read(ann)).toEqual({
    ...known,
    state: "revoked",
    ended: { reason: "person", atMs: expect.any(Number) },
  });
  await store.write(ann, factsWith("u-3"), 3);
  expect(await book.read(ann)).toEqual(known);
});

test("a grant is looked after before its refresh token ends, and before its consent does", async () => {
  const { redis, namespace, store } = scene();
  const [hourMs, dayMs] = [3_600_000, 86_400_000];
  const book = new GrantBook({ redis, namespace });
  await store.write(ann, factsWith("u-1", { refreshEndsAtMs: 7 * dayMs }), 0);
  expect(await store.due(5 * dayMs - 1, 10)).toEqual([]);
  expect(await store.due(5 * dayMs, 10)).toEqual([await book.read(ann)]);
  await store.lookAgain(ann, 5 * dayMs + hourMs);
  expect(await store.due(5 * dayMs, 10)).toEqual([]);
  await store.write(ann, factsWith("u-2", { refreshEndsAtMs: 355 * dayMs }), 1);
  expect(await store.due(351 * dayMs, 10)).toEqual([]);
  expect(await store.due(351 * dayMs + 1, 10)).toHaveLength(1);
  await forgetGrant({ redis, namespace }, ann);
  expect(await book.list(10)).toEqual({ grants: [], count: 0 });
  await store.lookAgain(ann, 0);
  expect(await store.due(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
});

test("tokens that the platform has to end are kept, sealed, until it has; no longer than a week", async () => {
  const { redis, namespace, store, elsewhere, rowKeys, advance } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  await store.revoke(ann, "person", { atPlatform: true });
  expect(
    JSON.stringify(await redis.zrange(`{${namespace}}:grant-tokens-ending`, "0", "-1")),
  ).not.toContain("u-1");
  const [first, ...more] = await elsewhere.endings(Number.MAX_SAFE_INTEGER, 10);
  expect(more).toEqual([]);
  expect(first).toMatchObject({ owner: ann, tokens: factsWith("u-1").tokens });
  if (first === undefined) throw new Error("nothing is to be ended");
  await store.endLater(first, first.endedAtMs + 5);
  expect(await store.endings(first.endedAtMs + 4, 10)).toEqual([]);
  await store.ended(first);
  await store.endLater(first, 0);
  expect(await store.endings(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
  await store.write(ann, factsWith("u-2"), 2);
  await forgetGrant({ redis, namespace }, ann);
  expect(await store.read(ann)).toBeUndefined();
  const [second] = await elsewhere.endings(Number.MAX_SAFE_INTEGER, 10);
  expect(second).toMatchObject({ owner: ann, tokens: factsWith("u-2").tokens });
  await advance(7 * 86_400_000 + 1);
  const [late] = await elsewhere.endings(Number.MAX_SAFE_INTEGER, 10);
  if (late === undefined) throw new Error("nothing is to be ended");
  await store.ended(late);
  expect((await rowKeys()).filter((name) => name.includes("grant"))).toEqual([]);
});

test("what a person grants after their data was deleted is not erased with it", async () => {
  const { redis, namespace, store } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  await forgetGrant({ redis, namespace }, ann);
  await store.write(ann, factsWith("u-2"), 0);
  const [ending] = await store.endings(Number.MAX_SAFE_INTEGER, 10);
  if (ending === undefined) throw new Error("nothing is to be ended");
  await store.ended(ending);
  expect(await store.read(ann)).toMatchObject({ tokens: { accessToken: "u-2" } });
});

test("a generation is written once, and none after the grant was revoked meanwhile", async () => {
  const { store, elsewhere } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  expect(await store.write(ann, factsWith("u-2"), 1)).toBe(true);
  expect(await elsewhere.write(ann, factsWith("u-late"), 1)).toBe(false);
  expect(await store.read(ann)).toMatchObject({ generation: 2, tokens: { accessToken: "u-2" } });
  expect(await elsewhere.revoke(ann, "user")).toBe(true);
  expect(await store.write(ann, factsWith("u-3"), 2)).toBe(false);
  const ended = await store.read(ann);
  expect(ended).toMatchObject({ generation: 3, state: "revoked", granted: ["task:a"] });
  expect(ended).not.toHaveProperty("tokens");
  expect(await store.write(ann, factsWith("u-4"), 3)).toBe(true);
  expect(await store.read(ann)).toMatchObject({ generation: 4, state: "active" });
});

test("one process refreshes a generation at a time; the lease of a dead one is taken over", async () => {
  const { store, elsewhere, advance } = scene();
  expect(await store.lease(ann, 0, "w1", 10_000)).toBe(false);
  await store.write(ann, factsWith("u-1"), 0);
  const leases = await Promise.all(
    ["w1", "w2", "w3"].map(async (one) => await store.lease(ann, 1, one, 10_000)),
  );
  expect(leases.filter(Boolean)).toHaveLength(1);
  await advance(10_001);
  expect(await elsewhere.lease(ann, 1, "w4", 10_000)).toBe(true);
  expect(await store.lease(ann, 1, "w1", 10_000)).toBe(false);
  expect(await elsewhere.write(ann, factsWith("u-2"), 1)).toBe(true);
  expect(await store.lease(ann, 1, "w1", 10_000)).toBe(false);
  expect(await store.lease(ann, 2, "w1", 10_000)).toBe(true);
});

test("a grant that cannot be refreshed keeps its access token, and is refreshed no more", async () => {
  const { redis, namespace, store } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  expect(await store.needsConsent(ann, 2)).toBe(false);
  expect(await store.needsConsent(ann, 1)).toBe(true);
  expect(await store.read(ann)).toMatchObject({
    state: "needs_consent",
    tokens: { accessToken: "u-1" },
  });
  expect(await store.lease(ann, 1, "w1", 10_000)).toBe(false);
  expect(await store.write(ann, factsWith("u-2"), 1)).toBe(true);
  expect(await store.read(ann)).toMatchObject({ state: "active" });
  await forgetGrant({ redis, namespace }, ann);
  expect(await store.read(ann)).toBeUndefined();
});

test("tokens open at their own place alone: not for another person, another generation, or after a change", async () => {
  const { redis, store, rowKeys } = scene();
  const ben = { ...ann, openId: "ou_ben" };
  await store.write(ann, factsWith("u-ann"), 0);
  const tokensOf = async (): Promise<string[]> =>
    (await rowKeys()).filter((one) => one.includes("}:grant-tokens:"));
  const [annKey = ""] = await tokensOf();
  await store.write(ben, factsWith("u-ben"), 0);
  const benKey = (await tokensOf()).find((one) => one !== annKey) ?? "";
  const sealed = (await redis.get(annKey)) ?? "";
  await redis.set(benKey, sealed);
  expect(await store.read(ben)).not.toHaveProperty("tokens");
  const rowKey = annKey.replace("grant-tokens", "grant");
  await redis.hset(rowKey, "generation", 7);
  expect(await store.read(ann)).not.toHaveProperty("tokens");
  await redis.hset(rowKey, "generation", 1);
  await redis.set(annKey, `${sealed.slice(0, -2)}AA`);
  expect(await store.read(ann)).not.toHaveProperty("tokens");
  await redis.set(annKey, sealed);
  expect(await store.read(ann)).toMatchObject({ tokens: { accessToken: "u-ann" } });
});

test("a new key opens what an old one has sealed, and seals it anew; without the old one nothing opens", async () => {
  const { redis, namespace, store } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  const only = new GrantStore({ redis, namespace, grantKeys: [newKey] });
  expect(await only.read(ann)).not.toHaveProperty("tokens");
  const both = new GrantStore({ redis, namespace, grantKeys: [newKey, key] });
  expect(await both.read(ann)).toMatchObject({ tokens: { accessToken: "u-1" } });
  expect(await only.read(ann)).toMatchObject({
    generation: 2,
    state: "active",
    tokens: { accessToken: "u-1" },
  });
  expect(() => new GrantStore({ redis, namespace, grantKeys: ["short"] })).toThrow(
    "64 hexadecimal digits",
  );
});

test("a grant that is being refreshed is not sealed anew, so that the refresh is stored", async () => {
  const { redis, namespace, store, advance } = scene();
  await store.write(ann, factsWith("u-1"), 0);
  const both = new GrantStore({ redis, namespace, grantKeys: [newKey, key] });
  expect(await store.lease(ann, 1, "w1", 10_000)).toBe(true);
  expect(await both.read(ann)).toMatchObject({ generation: 1, tokens: { accessToken: "u-1" } });
  await advance(10_001);
  expect(await store.write(ann, factsWith("u-2"), 1)).toBe(true);
  expect(await both.read(ann)).toMatchObject({ generation: 2, tokens: { accessToken: "u-2" } });
  expect(await both.read(ann)).toMatchObject({ generation: 3, tokens: { accessToken: "u-2" } });
  expect(await both.lease(ann, 3, "w2", 10_000)).toBe(true);
});

test("no user of Redis but the workers' reads tokens of a grant", async () => {
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const admin = new Redis(server.port);
  const namespace = "larkline";
  const store = new GrantStore({ redis: admin, namespace, grantKeys: [key] });
  await store.write(ann, factsWith("u-1"), 0);
  const [tokens = ""] = await admin.keys("*grant-tokens*");
  const answers: Record<string, boolean> = {};
  for (const user of appUsers(namespace, ["notes"])) {
    const rules = user.grants
      .filter(({ on }) => on === "keys")
      .map(({ patterns, commands }) => {
        const allowed = commands.split(" ").map((command) => `+${command}`);
        return `(${[...patterns.map((pattern) => `~${pattern}`), ...allowed].join(" ")})`;
      });
    await admin.call("ACL", "SETUSER", user.name, "reset", "on", ">secret", ...rules);
    const answer = await admin.call("ACL", "DRYRUN", user.name, "GET", tokens);
    answers[user.name] = answer === "OK";
  }
  admin.disconnect();
  const allowed = Object.entries(answers).filter(([, may]) => may);
  expect(allowed.map(([name]) => name)).toEqual(["agent-worker"]);
  expect(Object.keys(answers)).toContain("runner-notes");
});
