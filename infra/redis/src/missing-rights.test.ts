import { connectRedis, closeRedis, type RedisConnection } from "@larkline/store/redis";
import { appUsers, missingRights, rightsProblem, type RedisUser } from "@larkline/store/rights";
import { RunnerLocks } from "@larkline/store/runners";
import { startRedis } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { rulesOf } from "./acl-file.ts";

const namespace = "larkline";
const users = appUsers(namespace, ["a"]).filter(({ name }) => name !== "admin");
let server: Awaited<ReturnType<typeof startRedis>>;
let admin: RedisConnection;

beforeAll(async () => {
  server = await startRedis();
  admin = connectRedis(server.url);
});
afterAll(async () => {
  await closeRedis(admin);
  await server.stop();
});

async function setUser(user: RedisUser): Promise<void> {
  const rules = rulesOf(user, ["secret"]).match(/\([^)]*\)|\S+/g) ?? [];
  await admin.call("ACL", "SETUSER", user.name, "reset", ...rules);
}

async function connectedAs(user: RedisUser): Promise<RedisConnection> {
  await setUser(user);
  const connection = connectRedis(`redis://${user.name}:secret@127.0.0.1:${server.port}`);
  await connection.ping();
  return connection;
}

function commandsOf({ commands, grants }: RedisUser): string[] {
  return [
    ...new Set(
      [commands, ...grants.map((grant) => grant.commands)].flatMap((names) => names.split(" ")),
    ),
  ];
}

function without(user: RedisUser, command: string): RedisUser {
  const left = (names: string): string =>
    names
      .split(" ")
      .filter((name) => name !== command)
      .join(" ");
  const grants = user.grants.map((grant) => ({ ...grant, commands: left(grant.commands) }));
  return {
    ...user,
    commands: left(user.commands),
    grants: grants.filter(({ commands }) => commands !== ""),
  };
}

describe.each(users.map((user) => [user.name, user] as const))("the user of %s", (_name, user) => {
  let connection: RedisConnection;
  beforeAll(async () => {
    connection = await connectedAs(user);
  });
  afterAll(async () => await closeRedis(connection));

  it("has all rights that its app needs", async () => {
    await setUser(user);
    expect(await missingRights(connection, user)).toEqual([]);
  });

  it("misses each command that is taken away, and no other", { timeout: 60_000 }, async () => {
    for (const command of commandsOf(user)) {
      await setUser(without(user, command));
      expect(await missingRights(connection, user)).toEqual([
        expect.stringMatching(new RegExp(`^'${command}'( on |$)`)),
      ]);
    }
  });

  it("misses its scripts", async () => {
    await setUser({ ...user, runsScripts: false });
    expect(await missingRights(connection, user)).toEqual(["'eval'"]);
  });
});

it("an app is refused in one sentence, however much is missing", async () => {
  const [ingress] = users;
  if (ingress === undefined) throw new Error("there is no user");
  const connection = await connectedAs(ingress);
  expect(await rightsProblem(connection, "ingress", { namespace })).toBeUndefined();
  await setUser({ ...ingress, grants: [] });
  const named = "'zadd' on {larkline:0}:dirty";
  expect(await rightsProblem(connection, "ingress", { namespace })).toMatch(
    new RegExp(
      `^Redis does not let the user of ingress run ${named}, .* and \\d+ more: see npm run redis-users$`,
    ),
  );
  await closeRedis(connection);
});

it("a runner's user shares locks with its own processes, and reaches those of no other runner", async () => {
  const user = users.find(({ name }) => name === "runner-a");
  if (user === undefined) throw new Error("there is no user of the runner");
  const redis = await connectedAs(user);
  const options = { person: "ann", signal: new AbortController().signal };
  const own = new RunnerLocks({ redis, namespace, runner: "a" });
  const done = await own.run("table 1", options, async () => {
    const next = own.run("table 1", options, () => Promise.resolve("next"));
    await own.run("documents", { ...options, everyMs: 1 }, () => Promise.resolve());
    return { next };
  });
  expect(await done.next).toBe("next");
  const other = new RunnerLocks({ redis, namespace, runner: "b" });
  await expect(other.run("table 1", options, () => Promise.resolve())).rejects.toThrow(
    /can't access at least one of the keys/,
  );
  await closeRedis(redis);
});
