import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { startRedis, startRedisCluster } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterEach, describe, expect, inject, it, onTestFinished, vi } from "vitest";
import { closeRedis, connectRedis, type RedisConnection } from "./connection.ts";
import { heartbeatMs, OwnPresence, Presence } from "./presence.ts";

const wait = { timeout: 60_000, interval: 10 };
const group = "workers";

interface World {
  redisUrl: string;
  namespace: string;
  redis: RedisConnection;
  errors: string[];
  own: OwnPresence;
}

async function begin(
  redisUrl: string,
  namespace: string,
  id: string,
  { errors = [], clock = systemClock }: { errors?: string[]; clock?: Clock } = {},
): Promise<OwnPresence> {
  const onError = (error: Error): void => void errors.push(error.message);
  const presence = await OwnPresence.start({ redisUrl, namespace, id, group, onError, clock });
  onTestFinished(async () => await presence.close());
  return presence;
}

async function newWorld(redisUrl = inject("redisUrl"), clock = systemClock): Promise<World> {
  const namespace = `test-${randomUUID()}`;
  const redis = connectRedis(redisUrl);
  onTestFinished(async () => await closeRedis(redis));
  const errors: string[] = [];
  return {
    redisUrl,
    namespace,
    redis,
    errors,
    own: await begin(redisUrl, namespace, "one", { errors, clock }),
  };
}

/** A real process that is present as `id`; its presence is in `program`. */
async function otherProcess({ redisUrl, namespace }: World, id: string) {
  const options = JSON.stringify({ redisUrl, namespace, id, group });
  const program = `
    const { OwnPresence } = await import(${JSON.stringify(import.meta.resolve("./presence.ts"))});
    await OwnPresence.start({ ...${options}, onError: () => {} });
    console.log("present");
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child;
}

/** The last beat of a process, moved into the past. */
async function age({ redis, namespace }: World, id: string, byMs: number): Promise<void> {
  const key = `{${namespace}}:alive:${id}`;
  const [ms = "", server = ""] = ((await redis.get(key)) ?? "").split(" ");
  await redis.set(key, `${Number(ms) - byMs} ${server}`);
}

/** Ends the connections by which processes are present, of all that the server has: it has to be the test's own. */
async function cutLines(redis: RedisConnection): Promise<void> {
  const clients = String(await redis.call("CLIENT", "LIST", "TYPE", "pubsub"));
  for (const line of clients.split("\n")) {
    const [, id = ""] = /^id=(\d+) .* ssub=1 /.exec(line) ?? [];
    if (id !== "") await redis.call("CLIENT", "KILL", "ID", id);
  }
}

afterEach(() => vi.useRealTimers());

describe("the presence of a process", () => {
  it("is there while its connection stands: a kill is known as a death, and is reported once", async () => {
    const world = await newWorld();
    const { own } = world;
    let reports = 0;
    own.onEnded(() => (reports += 1));
    const other = await otherProcess(world, "other");
    expect(await own.fateOf("other")).toBe("alive");
    other.kill("SIGKILL");
    await once(other, "exit");
    // The kernel has closed its sockets: nothing has to run out.
    await expect.poll(async () => await own.fateOf("other"), wait).toBe("died");
    await vi.waitUntil(() => reports > 0, wait);
    expect(await own.members()).toEqual(["one"]);
    expect(reports).toBe(1);
  });

  it("is known to others no sooner than its connection stands: a start does not look like a death", async () => {
    const server = await startRedis();
    onTestFinished(async () => await server.stop());
    const { redis, namespace, redisUrl } = await newWorld(server.url);
    const client = new Redis(redisUrl);
    const monitor = await client.monitor();
    onTestFinished(() => [client, monitor].forEach((each) => each.disconnect()));
    const said: string[] = [];
    const isOver = Promise.withResolvers<void>();
    monitor.on("monitor", (_time: string, command: string[]) => {
      said.push(command.join(" "));
      if (command.join(" ") === "echo over") isOver.resolve();
    });
    await begin(redisUrl, namespace, "other");
    await redis.call("echo", "over");
    await isOver.promise;
    const opened = said.findIndex((command) => /^ssubscribe .*:presence:other$/i.test(command));
    const known = said.findIndex((command) => /^zadd .* other$/i.test(command));
    expect(opened).toBeGreaterThanOrEqual(0);
    expect(known).toBeGreaterThan(opened);
  });

  it("stays while the process is stopped, and is silent once its last beat is too old", async () => {
    const world = await newWorld();
    const other = await otherProcess(world, "other");
    other.kill("SIGSTOP");
    expect(await world.own.fateOf("other")).toBe("alive");
    await age(world, "other", heartbeatMs);
    expect(await world.own.fateOf("other")).toBe("silent");
    other.kill("SIGCONT");
    await expect.poll(async () => await world.own.fateOf("other"), wait).toBe("alive");
  });

  it("that ends in an orderly way has left, and one that never began is unknown", async () => {
    const { own, redisUrl, namespace } = await newWorld();
    const other = await begin(redisUrl, namespace, "other");
    expect((await own.members()).toSorted()).toEqual(["one", "other"]);
    await other.close();
    await other.close();
    expect(await own.fatesOf(["other", "never"])).toEqual(
      new Map([
        ["other", "left"],
        ["never", "unknown"],
      ]),
    );
    expect(await own.members()).toEqual(["one"]);
  });

  it("comes back by another connection when its own is cut, and is not taken for dead meanwhile", async () => {
    const server = await startRedis();
    onTestFinished(async () => await server.stop());
    const { own, redis, redisUrl, namespace } = await newWorld(server.url);
    const other = await begin(redisUrl, namespace, "other");
    const reader = new Presence({ redis, namespace });
    const channel = `{${namespace}}:presence:other`;
    let returns = 0;
    other.onReturned(() => (returns += 1));
    const listeners = async (): Promise<unknown> =>
      await redis.call("PUBSUB", "SHARDNUMSUB", channel);
    for (let times = 0; times < 5; times += 1) {
      await cutLines(redis);
      expect(await reader.fateOf("other")).toBe("alive");
      await expect.poll(listeners, wait).toEqual([channel, 1]);
    }
    await expect.poll(() => returns, wait).toBe(5);
    expect(await own.fateOf(other.id)).toBe("alive");
  });

  it("finds no other one dead while Redis does not see its own connection", async () => {
    // No line is opened again.
    const clock: Clock = { ...systemClock, after: () => () => undefined };
    const server = await startRedis();
    onTestFinished(async () => await server.stop());
    const { own, redis, namespace, errors } = await newWorld(server.url, clock);
    await begin(server.url, namespace, "other", { errors, clock });
    let reports = 0;
    own.onEnded(() => (reports += 1));
    const channels = ["one", "other"].map((id) => `{${namespace}}:presence:${id}`);
    await cutLines(redis);
    expect(await redis.call("PUBSUB", "SHARDNUMSUB", ...channels)).toEqual([
      channels[0],
      0,
      channels[1],
      0,
    ]);
    const beat = async () => await redis.get(`{${namespace}}:alive:one`);
    // Written by a beat that saw no connection; its report comes before the next beat.
    await expect.poll(beat, wait).toMatch(/ $/);
    const blind = await beat();
    await expect.poll(beat, wait).not.toBe(blind);
    expect(reports).toBe(0);
  });

  it("decides by beats alone where Redis does not tell which connections stand", async () => {
    const server = await startRedis();
    onTestFinished(async () => await server.stop());
    const admin = connectRedis(server.url);
    onTestFinished(async () => await closeRedis(admin));
    await admin.call(
      "ACL",
      "SETUSER",
      "app",
      "on",
      ">secret",
      "~*",
      "&*",
      "+@all",
      "-ssubscribe",
      "-pubsub",
    );
    const world = await newWorld(server.url.replace("redis://", "redis://app:secret@"));
    expect(world.errors).toEqual([
      expect.stringContaining("deaths are noticed by missing beats alone"),
    ]);
    const other = await otherProcess(world, "other");
    other.kill("SIGKILL");
    await once(other, "exit");
    expect(await world.own.fateOf("other")).toBe("alive");
    await age(world, "other", heartbeatMs);
    expect(await world.own.fateOf("other")).toBe("died");
  });

  it("does not count as dead after Redis has restarted, until its beat has run out", async () => {
    const directory = await mkdtemp(join(tmpdir(), "larkline-presence-"));
    onTestFinished(async () => await rm(directory, { recursive: true }));
    const server = await startRedis({ directory });
    const world = await newWorld(server.url);
    const { own, redisUrl, namespace } = world;
    const other = await otherProcess(world, "other");
    other.kill("SIGSTOP"); // it does not come back
    await server.stop();
    const again = await startRedis({ port: server.port, directory });
    onTestFinished(async () => await again.stop());
    const late = await begin(redisUrl, namespace, "late");
    expect(await late.fateOf("other")).toBe("alive");
    await expect.poll(async () => await late.fateOf("one"), wait).toBe("alive");
    await age(world, "other", heartbeatMs);
    expect(await own.fateOf("other")).toBe("alive"); // it has had no time to come back
  });

  it("does not start where Redis takes no beat", async () => {
    const onError = (): void => undefined;
    const options = { redisUrl: "redis://127.0.0.1:1", namespace: "n", id: "one", group, onError };
    await expect(OwnPresence.start(options)).rejects.toThrow();
  });
});

it("in a Cluster, a process is present on the node that has the slot, and its death is seen there", async () => {
  const nodes = await startRedisCluster();
  onTestFinished(async () => await nodes.stop());
  const world = await newWorld(nodes.url);
  const other = await otherProcess(world, "other");
  expect(world.errors).toEqual([]);
  expect(await world.own.fateOf("other")).toBe("alive");
  other.kill("SIGKILL");
  await once(other, "exit");
  await expect.poll(async () => await world.own.fateOf("other"), wait).toBe("died");
});

describe("locks of jobs", () => {
  /** A job as a worker has taken it. */
  async function takeJob(
    { redis, own, namespace }: World,
    id: string,
    token: string,
  ): Promise<() => void> {
    const queue = `{${namespace}}:turns:`;
    await redis.lpush(`${queue}active`, id);
    await redis.sadd(`${queue}stalled`, id);
    await redis.set(`${queue}${id}:lock`, token, "PX", own.lockMs);
    return own.hold({ queue, id, token });
  }

  const lockOf = async ({ redis, namespace }: World, id: string): Promise<string | null> =>
    await redis.get(`{${namespace}}:turns:${id}:lock`);

  it("are taken again when they have run out, where the job is still active, and left to others that have them", async () => {
    const world = await newWorld();
    const { redis, namespace } = world;
    const queue = `{${namespace}}:turns:`;
    await takeJob(world, "expired", "mine");
    await takeJob(world, "given", "mine");
    await takeJob(world, "others", "mine");
    const release = await takeJob(world, "released", "mine");
    release();
    await (redis as Redis)
      .multi()
      .del(`${queue}expired:lock`, `${queue}given:lock`, `${queue}released:lock`)
      .lrem(`${queue}active`, 1, "given")
      .set(`${queue}others:lock`, "another")
      .exec();
    await expect.poll(async () => await lockOf(world, "expired"), wait).toBe("mine");
    expect(await lockOf(world, "given")).toBeNull();
    expect(await lockOf(world, "others")).toBe("another");
    expect(await lockOf(world, "released")).toBeNull();
    expect((await redis.smembers(`${queue}stalled`)).toSorted()).toEqual([
      "given",
      "others",
      "released",
    ]);
  });
});
