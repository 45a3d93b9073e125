import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { appUsers } from "@larkline/redis-users";
import { startPostgres, type TestPostgres } from "@larkline/testkit";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { runApp } from "../system/app-process.ts";
import { write } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { observer, writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { answerTo } from "../system/sending.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";

const fixture = (name: string): string =>
  fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
/** For an answer, on a machine that is busy with other tests. */
const patienceMs = 60_000;
let users: RedisUsers;
let system: ProcessSystem;
const clients: Redis[] = [];
let python: ChildProcess | undefined;
let postgres: TestPostgres;

beforeAll(async () => {
  users = await writeRedisUsers(["recording", "python", "other"]);
  postgres = await startPostgres();
  system = await startProcesses({
    redisUsers: users,
    workers: 2,
    config: { agents: { default: { memory: { person: "everywhere", chat: true } } } },
    env: {
      RUNNER_TOOLS: `${fixture("recording-tools.ts")},${fixture("approval-tools.ts")}`,
      ARCHIVE_URL: postgres.url,
      API_REQUESTS_PER_MINUTE: "2",
    },
  });
}, 240_000);
afterAll(async () => {
  for (const client of clients) client.disconnect();
  if (python !== undefined && python.exitCode === null && python.kill("SIGKILL")) {
    await once(python, "exit");
  }
  await system.close();
  await users.remove();
  await postgres.close();
});

function connect(url: string): Redis {
  // Not opened again: a wrong password would be tried, and refused, for as long as the tests last.
  const client = new Redis(url, {
    maxRetriesPerRequest: 1,
    enableReadyCheck: false,
    retryStrategy: () => null,
  });
  client.on("error", () => undefined); // the caller that awaits an answer gets the error
  clients.push(client);
  return client;
}

function as(user: string): Redis {
  return connect(users.urlAs(system.redis.port, user));
}

/** What Redis has refused since the last question. */
async function refusals(): Promise<string[]> {
  const client = as(observer);
  const entries = (await client.call("ACL", "LOG", "100")) as string[][]; // pairs of name and value
  await client.call("ACL", "LOG", "RESET");
  return entries.map((entry) => {
    const valueOf = (name: string): string => entry[entry.indexOf(name) + 1] ?? "";
    return `${valueOf("username")}: ${valueOf("reason")} ${valueOf("object")} (${valueOf("context")})`;
  });
}

/** Each command as its words in one line; of the answers those that are no refusals. */
async function allowedOf(user: string, commands: readonly string[]): Promise<string[]> {
  const client = as(user);
  const answers = await Promise.all(
    commands.map(async (line) => {
      const [command = "", ...words] = line.split(" ");
      const refusal: unknown = await client.call(command, ...words).then(
        () => undefined,
        (error: unknown) => error,
      );
      return refusal instanceof Error && refusal.message.includes("NOPERM") ? [] : [line];
    }),
  );
  return answers.flat();
}

/** Commands that no app may use. */
const administration = [
  "KEYS *",
  "SCAN 0",
  "RANDOMKEY",
  "DBSIZE",
  "FLUSHALL",
  "CONFIG SET maxmemory 1",
  "ACL LIST",
  "CLIENT LIST",
  "CLIENT KILL TYPE normal",
  "SCRIPT FLUSH",
  "MONITOR",
  "SHUTDOWN NOSAVE",
  "SAVE",
  "PSUBSCRIBE *",
  "SUBSCRIBE {larkline:3}:elsewhere",
  "GET anything",
  "SET anything 1",
];

it("lets workers write notes, and ingress list them and take them away, but not write them", async () => {
  const ann = system.person("Ann");
  const note = (text: string, about: string): string =>
    `call remember ${JSON.stringify({ text, about })}`;
  await refusals();
  await system.ask(
    ann,
    `keep\n${note("likes tea", "me")}\n${note("meets on Mondays", "chat")}`,
    patienceMs,
  );
  await system.ask(ann, 'look\ncall recall {"query":"tea"}', patienceMs);
  for (const order of ["/memory", "/memory forget 1", "/memory off", "/memory on"]) {
    await answerTo(system, await write(system, ann, order), patienceMs);
  }
  expect(await refusals()).toEqual([]);
  const [key = ""] = await as(observer).keys("{larkline:memory:*}:of:*");
  expect(
    await allowedOf("ingress", [`HSET ${key} text other`, `HSET ${key}x text made-up`]),
  ).toEqual([]);
  await refusals(); // the two just asked for
});

describe("a Redis with a user for each app", () => {
  it(
    "refuses the apps nothing that they need: calls, an approval, a command, a stop, hand-offs, limits of callers",
    { timeout: 240_000 },
    async () => {
      const ann = system.person("Ann");
      expect(
        await system.ask(
          ann,
          'tools\ncall note_pure {"key":"a"}\ncall note_once {"key":"b"}',
          patienceMs,
        ),
      ).toContain("ok:");
      const written = await write(system, ann, 'ask\ncall ask_once {"key":"c"}');
      const card = await theQuestion(system, ann.chatId);
      await decide(system, card, {
        openId: ann.openId,
        wanted: { decision: "approve", remember: true },
      });
      expect(await answerTo(system, written, patienceMs)).toContain('ok:{"key":"c"}');
      const stopped = await write(system, ann, 'long\ncall note_idempotent {"key":"d","ms":15000}');
      await vi.waitUntil(async () => (await system.recorded()).includes("idempotent d"), {
        timeout: 60_000,
        interval: 20,
      });
      await write(system, ann, "/stop");
      expect(await answerTo(system, stopped, patienceMs)).not.toContain("ok:");
      await write(system, ann, "/new");
      expect(await system.ask(ann, "again", patienceMs)).toContain("[again]");
      expect(await system.workers[0]?.stop()).toBe(0);
      expect(await system.ask(ann, 'after\ncall note_pure {"key":"e"}', patienceMs)).toContain(
        "ok:",
      );
      const statuses = [];
      for (let at = 0; at < 3; at += 1) {
        statuses.push((await fetch(`${system.ingresses[0]?.url}/v1/sessions/none`)).status);
      }
      expect(statuses).toEqual([404, 404, 429]);
      expect(await refusals()).toEqual([]);
    },
  );

  it(
    "refuses nothing to a runner in another language, which works its queue by plain commands",
    { timeout: 240_000 },
    async () => {
      const runner = "python";
      const child = spawn("python3", ["-u", fixture("python_tools.py")], {
        env: {
          ...system.env,
          ...keysFor("tool-runner", runner),
          PATH: process.env["PATH"] ?? "",
          PYTHONPATH: fileURLToPath(new URL("../../infra/python-runner", import.meta.url)),
          PYTHONDONTWRITEBYTECODE: "1",
          RUNNER_NAME: runner,
          REDIS_URL: users.urlFor(system.redis.url, "tool-runner", runner),
        },
        stdio: ["ignore", "pipe", "inherit"],
      });
      python = child;
      await once(child.stdout, "data");
      const eve = system.person("Eve");
      const asked = 'both\ncall py_pure {"key":"p1"}\ncall py_once {"key":"p2"}';
      // Workers offer its tools a moment after it has announced them.
      await vi.waitUntil(
        async () => (await system.ask(eve, asked, patienceMs)).includes('{"python":"p2"}'),
        {
          timeout: patienceMs,
          interval: 50,
        },
      );
      expect(await refusals()).toEqual([]);
    },
  );

  it("lets a runner read no conversation, no other runner's queue and no secret, and change no rule", async () => {
    const [cell, whole] = ["{larkline:3}", "{larkline}"];
    const refused = [
      `LRANGE ${cell}:h:x 0 -1`,
      `RPUSH ${cell}:h:x forged`,
      `LRANGE ${cell}:in:x 0 -1`,
      `RPUSH ${cell}:in:x forged`,
      `LRANGE ${cell}:ctl:x 0 -1`,
      `XRANGE ${cell}:ev:x - +`,
      `LRANGE ${cell}:ob:x 0 -1`,
      `HGETALL ${cell}:cards:x`,
      `HGETALL ${cell}:state:x`,
      `HSET ${cell}:state:x turn {}`,
      `RPUSH ${cell}:req:x {}`,
      `HSET ${cell}:said:x:1 state approved`,
      `HMGET ${cell}:approval:x:1 a`,
      `HSET ${cell}:approval:x:1 state approved`,
      `GET ${cell}:parked:x:om_1`,
      `DEL ${cell}:s:x`,
      `HGETALL ${cell}:s:x`,
      `HGETALL ${cell}:calls:x`,
      `ZRANGE ${cell}:dirty 0 -1`,
      `ZRANGE ${cell}:deadlines 0 -1`,
      `XRANGE ${cell}:audit - +`,
      `DEL ${cell}:audit`,
      `XTRIM ${whole}:audit MAXLEN 0`,
      `GET ${whole}:token:cli_x`,
      `HGETALL ${whole}:rules:cli_x`,
      `HSET ${whole}:rules:cli_x id {}`,
      "GET larkline:approval:1",
      "GET larkline:look:ingress:name:cli_x:ou_x",
      "SET larkline:look:ingress:lang:cli_x:ou_x zh",
      "SET larkline:look:worker:name:cli_x:ou_x forged",
      "GET larkline:look:result:x",
      "HMGET {larkline:blob:x} bytes",
      `LRANGE ${whole}:turns:wait 0 -1`,
      `DEL ${whole}:turns:wait`,
      `LRANGE ${whole}:tools-other:wait 0 -1`,
      `LPUSH ${whole}:tools-other:wait 1`,
      `LPUSH ${whole}:tools-other.limited:wait 1`,
      `HGETALL ${whole}:tools-recordings:1`,
      "RPUSH {larkline:trace:3}:names forged",
      "LRANGE {larkline:trace:3}:names 0 -1",
      "LRANGE {larkline:trace:3}:records 0 -1",
      "LTRIM {larkline:trace:3}:records 1 0",
      "GET {larkline:trace:3}:record:x",
      `HMGET ${cell}:letters x`,
      `HSET ${cell}:letters x {}`,
      `ZRANGEBYLEX ${cell}:people - +`,
      `HGETALL ${cell}:who:x`,
      `HMGET ${cell}:floor seq`,
      "ZSCORE {larkline:budget}:tokens:person:2026-11 ou_x",
      "ZINCRBY {larkline:budget}:tokens:person:2026-11 -1 ou_x",
      `HGETALL ${whole}:instances`,
      `SET ${whole}:duty:sweep x`,
      `PUBLISH ${whole}:cancel {}`,
      `SUBSCRIBE ${cell}:ch:x`,
      `SUBSCRIBE ${whole}:cancel`,
      `SUBSCRIBE ${whole}:cancel:other`,
      `PSUBSCRIBE ${whole}:cancel:*`,
      `PSUBSCRIBE *`,
      `PUBLISH ${whole}:cancel:recording {}`,
      `PUBLISH ${whole}:cancel:other {}`,
      "PUBSUB CHANNELS *",
    ];
    expect(await allowedOf("runner-recording", [...administration, ...refused])).toEqual([]);
  });

  it("lets no script do more than its caller, with keys that it names and with others", async () => {
    const runner = as("runner-recording");
    const history = "{larkline:3}:h:x";
    const refused = /can't (?:access at least one of the keys|run this command)/;
    const read = "return redis.call('LRANGE', KEYS[1] or ARGV[1], 0, -1)";
    await expect(runner.eval(read, 1, history)).rejects.toThrow(refused);
    await expect(runner.eval(read, 0, history)).rejects.toThrow(refused);
    await expect(runner.eval("return redis.call('KEYS', '*')", 0)).rejects.toThrow(refused);
  });

  it("leaves a runner what docs/deploy.md says, because a script runs with the rights of its caller", async () => {
    const [cell, whole] = ["{larkline:3}", "{larkline}"];
    const reachable = [
      `XADD ${cell}:handoff:recording * e x`,
      `GET ${cell}:begun:recording:x`,
      `HSET ${whole}:runners:recording x {}`,
      `HGETALL ${whole}:runners:other`,
      `HSET {larkline:blob:x} bytes x`,
      "SET {larkline:trace:3}:record:x x",
      "RPUSH {larkline:trace:3}:records x",
    ];
    expect(await allowedOf("runner-recording", reachable)).toEqual(reachable);
    const beyond = [
      `HSET ${whole}:runners:other x {}`,
      `HMGET ${cell}:s:x st gen`,
      `HSET ${cell}:s:x state queued`,
      `HGET ${cell}:calls:x c1`,
      `HSET ${cell}:calls:x c1 done`,
      `RPUSH ${cell}:ctl:x {}`,
      `XADD ${cell}:ev:x * d []`,
      `XADD ${cell}:audit * k x`,
      `ZADD ${cell}:dirty 1 x`,
      `ZREM ${cell}:deadlines x`,
      `HGET ${whole}:turns:x data`,
      `LPUSH ${whole}:turns:wait 1`,
      `XADD ${cell}:handoff:other * e x`,
      `XDEL ${cell}:handoff:recording 1-1`,
      `XRANGE ${cell}:handoff:recording - +`,
      `GET ${cell}:begun:other:x`,
      `SET ${cell}:begun:recording:x run`,
      `SADD ${whole}:handoff-runners x`,
      "SET larkline:look:result:x y",
      `PUBLISH ${whole}:begun:recording x`,
      `PUBLISH ${cell}:ch:x 1:[]`,
    ];
    expect(await allowedOf("runner-recording", beyond)).toEqual([]);
    await as(observer).del("{larkline:trace:3}:record:x", "{larkline:trace:3}:records");
    await as(observer).del(
      `${whole}:runners:recording`,
      `${cell}:handoff:recording`,
      "{larkline:blob:x}",
    );
  });

  it("gives no token that a person has granted to anyone but the workers", async () => {
    const [grant, tokens, consent, answer] = [
      "{larkline}:grant:cli_x:x",
      "{larkline}:grant-tokens:cli_x:x",
      "{larkline}:consent:cli_x:x",
      "{larkline:3}:begun",
    ];
    const attempts = [
      `GET ${tokens}`,
      `SET ${tokens} forged`,
      `ZADD {larkline}:grants 0 x`,
      `HSET ${grant} issuer https://forged.example`,
      `GET ${consent}`,
      `SET ${consent} {}`,
      `GET ${answer}:other:x`,
      `MGET ${answer}:other:x`,
      `SUBSCRIBE {larkline}:begun:other`,
    ];
    for (const user of ["ingress", "console", "runner-recording", "admin"]) {
      expect(await allowedOf(user, attempts), user).toEqual([]);
    }
  });

  it("lets ingress hand out no calls, and read or shorten the audit log only those who look after its age", async () => {
    const audit = "{larkline:3}:audit";
    const keeping = [`XRANGE ${audit} - +`, `XTRIM ${audit} MINID 1`];
    const reading = [`DEL ${audit}`, `XDEL ${audit} 1-1`, `XREAD STREAMS ${audit} 0`];
    const elsewhere = [
      "LRANGE {larkline:3}:h:x 0 -1",
      "LPUSH {larkline}:tools-recording:wait 1",
      "HSET {larkline}:tools-recording:1 data {}",
      "HSET {larkline}:runners:recording x {}",
      "HSET {larkline:3}:calls:x c1 done",
      "HMGET {larkline:blob:x} bytes",
      "HMGET {larkline:3}:letters x",
      "LRANGE {larkline:trace:3}:names 0 -1",
      "GET {larkline:trace:3}:record:x",
      "ZINCRBY {larkline:budget}:tokens:person:2026-11 -1 ou_x",
      "SET {larkline}:duty:sweep x",
    ];
    expect(
      await allowedOf("ingress", [...administration, ...keeping, ...reading, ...elsewhere]),
    ).toEqual([]);
    const overHttp = ["LRANGE {larkline:3}:h:api.s1 0 -1", "HKEYS {larkline:3}:who:api.s1"];
    const inChats = [
      "LRANGE {larkline:3}:h:cli_api.oc_1 0 -1",
      "HKEYS {larkline:3}:who:cli_1.oc_1",
    ];
    expect(await allowedOf("ingress", [...overHttp, ...inChats])).toEqual(overHttp);
    const worker = await allowedOf("agent-worker", [...administration, ...keeping, ...reading]);
    expect(worker).toEqual(["SCAN 0", ...keeping]);
  });

  it("lets the console take no duty of workers, and read or forge no token, no looked-up fact and no file", async () => {
    const elsewhere = [
      "GET {larkline}:token:cli_x",
      "SET {larkline}:token:cli_x forged",
      "GET larkline:look:ingress:name:cli_x:ou_x",
      "SET larkline:look:ingress:lang:cli_x:ou_x zh",
      "SET larkline:look:worker:groups:cli_x:ou_x forged",
      "GET larkline:look:result:x",
      "HMGET {larkline:blob:x} bytes",
      "SET {larkline}:duty:sweep x",
      "SET {larkline}:duty:keep x",
      "RPUSH {larkline:3}:h:x forged",
      "HSET {larkline}:runners:recording x {}",
      "ZINCRBY {larkline:budget}:tokens:person:2026-11 -1 ou_x",
      "RPUSH {larkline:trace:3}:names forged",
      "SET {larkline:trace:3}:record:x forged",
      "XRANGE {larkline}:audit - +",
      "XTRIM {larkline}:audit MAXLEN 0",
    ];
    expect(await allowedOf("console", [...administration, ...elsewhere])).toEqual(["SCAN 0"]);
    const signIn = "larkline:look:console:console-sign-in:x";
    const own = [`GET ${signIn}`, `SET ${signIn} {} PX 1`, `DEL ${signIn}`];
    expect(await allowedOf("console", own)).toEqual(own);
  });

  it("lets people of operations read what they ask for, take a person's data away, and change nothing else", async () => {
    const reads = [
      "LRANGE {larkline:3}:h:x 0 -1",
      "XRANGE {larkline}:audit - +",
      "HGETALL {larkline}:runners:recording",
      "CONFIG GET appendfsync",
      "INFO server",
    ];
    expect(await allowedOf("admin", reads)).toEqual(reads);
    const others = [
      "RPUSH {larkline:3}:h:x {}",
      "RPUSH {larkline:3}:in:x 1:{}",
      "DEL {larkline}:audit",
      "XTRIM {larkline}:audit MAXLEN 0",
      "HSET {larkline:3}:approval:x:y state approved",
      "LPUSH {larkline}:turns:wait 1",
      "HSET {larkline}:runners:recording x {}",
      "GET {larkline}:token:x",
      "CONFIG SET save x",
    ];
    expect(await allowedOf("admin", others)).toEqual([]);
  });

  it(
    "lets people of operations take a person's data away, and find nothing after that",
    { timeout: 240_000 },
    async () => {
      await refusals(); // those of the tests before
      const cara = system.person("Cara");
      await system.ask(cara, "something private", patienceMs);
      const archive = createPostgresArchive({ url: postgres.url, schema: "larkline" });
      const archived = async (): Promise<string[]> =>
        await archive.sessionsOf(system.appId, cara.openId);
      await vi.waitUntil(async () => (await archived()).length === 1, { timeout: patienceMs });
      const env = { REDIS_URL: users.urlAs(system.redis.port, "admin"), ARCHIVE_URL: postgres.url };
      const people = async (...words: string[]): Promise<{ code: number | null; output: string }> =>
        await runApp({ file: "apps/cli/src/main.ts", args: ["people", ...words] }, env, patienceMs);
      const about = [cara.openId, "--app", system.appId, "--lang", "en"];
      expect(await people("export", ...about)).toMatchObject({
        output: expect.stringContaining("something private"),
      });
      expect(await people("delete", ...about, "--yes")).toMatchObject({
        output: expect.stringContaining("Deleted: 1 "),
      });
      expect(await people("export", ...about)).toMatchObject({
        output: expect.not.stringContaining('"message"'),
      });
      expect(await archived()).toEqual([]);
      await archive.close();
      expect(await refusals()).toEqual([]);
      expect(await system.ask(cara, "again", patienceMs)).toContain("[again]");
    },
  );

  it("answers only a ping without a password", async () => {
    const { port } = system.redis;
    await expect(connect(`redis://127.0.0.1:${port}`).ping()).rejects.toThrow("NOAUTH");
    await expect(connect(`redis://default:none@127.0.0.1:${port}`).ping()).rejects.toThrow();
    await expect(connect(`redis://admin:wrong@127.0.0.1:${port}`).ping()).rejects.toThrow();
    const health = connect(`redis://health:none@127.0.0.1:${port}`);
    expect(await health.ping()).toBe("PONG");
    await expect(health.info()).rejects.toThrow("NOPERM");
  });

  it("has everything again when it is started anew", { timeout: 60_000 }, async () => {
    await refusals(); // those of the tests before
    const ben = system.person("Ben");
    expect(await system.ask(ben, "before", patienceMs)).toContain("[before]");
    const keysOf = async (): Promise<string[]> => (await as(observer).keys("*:h:*")).toSorted();
    const before = await keysOf();
    expect(before).not.toEqual([]);
    await system.withoutRedis(() => Promise.resolve());
    expect(await keysOf()).toEqual(before);
    expect(await system.ask(ben, "after", patienceMs)).toContain("[after]");
    expect(system.model.requests.at(-1)?.messages.map(({ text }) => text)).toContain("before");
    expect(await refusals()).toEqual([]);
  });
});

describe("the commands of queues", () => {
  const folder = join(dirname(createRequire(import.meta.url).resolve("bullmq")), "scripts");
  const granted = appUsers("larkline", ["a"])
    .find(({ name }) => name === "runner-a")
    ?.grants.filter(({ patterns }) => patterns.includes("{larkline}:tools-a:*"))
    .flatMap(({ commands }) => commands.split(" "));

  it.each([
    "addStandardJob-9",
    "addPrioritizedJob-9",
    "moveToActive-11",
    "moveToFinished-14",
    "extendLocks-1",
    "moveStalledJobsToWait-9",
    "retryJob-11",
    "moveToDelayed-11",
    "moveJobFromActiveToWait-9",
    "getStateV2-8",
    "removeJob-2",
    "saveStacktrace-1",
    "releaseLock-1",
  ])("are all that the script %s of this version of BullMQ calls", (script) => {
    const source = readFileSync(join(folder, `${script}.js`), "utf8");
    const called = [...source.matchAll(/\b(?:rcall|redis\.call)\(["'](\w+)/g)].map(
      ([, name = ""]) => name.toLowerCase(),
    );
    expect(called.length).toBeGreaterThan(0);
    // PERSIST is for jobs that have a key of their own, which no app adds.
    expect(granted).toEqual(expect.arrayContaining(called.filter((name) => name !== "persist")));
  });
});
