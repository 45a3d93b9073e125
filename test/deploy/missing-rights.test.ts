import { startRedis, type TestRedis } from "@larkline/testkit";
import { Redis } from "ioredis";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { AppName } from "../system/app-process.ts";
import { startAppHere } from "../system/app-here.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { keysFor } from "../system/system.ts";

// Every single right is taken away in infra/redis/src/missing-rights.test.ts: here, what an app makes of a missing one.

let users: RedisUsers;
let server: TestRedis;
let admin: Redis;

beforeAll(async () => {
  users = await writeRedisUsers(["recording"]);
  server = await startRedis({ users });
  admin = new Redis(users.urlAs(server.port, "observer"));
});
afterAll(async () => {
  admin.disconnect();
  await server.stop();
  await users.remove();
});

it.each<[AppName, string]>([
  ["ingress", "xadd"],
  ["agent-worker", "xdel"],
  ["tool-runner", "bzpopmin"],
  ["console", "zrevrangebyscore"],
])("%s without the right to %s does not start, and says which one it is", async (app, command) => {
  const url = users.urlFor(server.url, app, "recording");
  const { username, password } = new URL(url);
  await admin.call(
    "ACL",
    "SETUSER",
    username,
    "reset",
    "on",
    `>${password}`,
    "~*",
    "&*",
    "+@all",
    `-${command}`,
  );
  const env = {
    REDIS_URL: url,
    FEISHU_APP_ID: "cli_0123456789abcdef",
    FEISHU_APP_SECRET: "secret",
    FEISHU_ENCRYPT_KEY: "key",
    FEISHU_DOMAIN: "http://127.0.0.1:9",
    FEISHU_TRANSPORT: "webhook",
    MODEL: "anthropic/claude-sonnet-4-6",
    ANTHROPIC_API_KEY: "scripted",
    RUNNER_NAME: "recording",
    RUNNER_TOOLS: fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url)),
    ...keysFor(app, "recording"),
  };
  await expect(startAppHere(app, env, [])).rejects.toThrow(
    new RegExp(
      `does not start: Redis does not let the user of ${app} run '${command}'( on \\S+)?: see npm run redis-users$`,
    ),
  );
});
