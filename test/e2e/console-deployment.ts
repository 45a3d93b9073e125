import { afterAll, beforeAll } from "vitest";
import type { App } from "../system/app-process.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { startSystem, type System } from "../system/system.ts";

/** The one deployment of all suites on the console, with a user of Redis for each app. */
export let system: System;
export let users: RedisUsers;
/** The console. */
export let operators: App;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    users = await writeRedisUsers(["recording"]);
    system = await startSystem({
      redisUsers: users,
      config: {
        console: {
          changes: true,
          models: { hosts: ["127.0.0.1"] },
          url: "https://console.example.com",
        },
        permissions: [{ tools: ["ask_once"], do: "ask", approvers: { operators: true } }],
      },
      tools: ["recording", "holding", "approval"],
      env: { GRANT_KEY: "a1".repeat(32) },
      lines: true,
    });
    operators = await startConsole();
  });
  afterAll(async () => {
    await operators?.stop();
    await system?.close();
    await users?.remove();
  });
}

/** Starts a console of the deployment; the caller ends it. */
export async function startConsole(env: Record<string, string> = {}): Promise<App> {
  return await system.start("console", env);
}
