import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll } from "vitest";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { startSystem, type System } from "../system/system.ts";

/** The one deployment of all suites on the console, with a user of Redis for each app. */
export let system: System;
export let users: RedisUsers;
/** The console. */
export let operators: AppProcess;

const fixture = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    users = await writeRedisUsers(["recording"]);
    system = await startSystem({
      redisUsers: users,
      config: {
        console: { changes: true, url: "https://console.example.com" },
        permissions: [{ tools: ["ask_once"], do: "ask", approvers: { operators: true } }],
      },
      env: {
        RUNNER_TOOLS: ["recording-tools.ts", "holding-tools.ts", "approval-tools.ts"].map(fixture).join(),
        HOLD_TIMEOUT_MS: "120000",
      },
    });
    operators = await startConsole();
  });
  afterAll(async () => {
    await operators?.kill();
    await system?.close();
    await users?.remove();
  });
}

/** Starts a console of the deployment; the caller ends it. */
export async function startConsole(env: Record<string, string> = {}): Promise<AppProcess> {
  return await startApp({
    program: { file: "apps/console/src/main.ts" },
    port: await freePort(),
    env: {
      REDIS_URL: users.urlAs(system.redis.port, "console"),
      FEISHU_APP_ID: system.appId,
      LARKLINE_CONFIG: system.env["LARKLINE_CONFIG"] ?? "",
      ...env,
    },
  });
}
