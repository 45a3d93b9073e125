import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { codeCache, freePort, startRedis } from "@larkline/testkit";
import { afterEach, expect, inject, it, vi } from "vitest";
import { startConsoleApp } from "./app.ts";

const main = fileURLToPath(new URL("main.ts", import.meta.url));
const children: ChildProcess[] = [];

afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode === null && child.kill("SIGKILL")) await once(child, "exit");
  }
});

function launch(env: Record<string, string>): { child: ChildProcess; output: () => string } {
  const child = spawn(process.execPath, [main], {
    env: { PATH: process.env["PATH"] ?? "", NODE_COMPILE_CACHE: codeCache, ...env },
  });
  children.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (data: Buffer) => (output += data.toString()));
  }
  return { child, output: () => output };
}

async function untilReady(url: string, status = 200): Promise<void> {
  await vi.waitFor(async () => expect((await fetch(`${url}/ready`)).status).toBe(status), {
    timeout: 60_000,
    interval: 50,
  });
}

/** When all that it has said was read, too. */
async function exitCodeOf(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null) await once(child, "exit");
  for (const stream of [child.stdout, child.stderr]) {
    if (stream?.closed === false) await once(stream, "close");
  }
  return child.exitCode;
}

it("without a password it says that only this machine is served, and ends at SIGTERM", async () => {
  const port = await freePort();
  const env = {
    REDIS_URL: inject("redisUrl"),
    REDIS_NAMESPACE: `test-${randomUUID()}`,
    PORT: String(port),
  };
  const { child, output } = launch(env);
  const url = `http://127.0.0.1:${port}`;
  await untilReady(url);
  await vi.waitFor(() => expect(output()).toContain("CONSOLE_PASSWORD is not set"), {
    timeout: 60_000,
  });
  expect(await (await fetch(`${url}/metrics`)).text()).toContain("larkline_console_actions_total");
  child.kill("SIGTERM");
  expect(await exitCodeOf(child)).toBe(0);
});

it("does not start where others could reach it without a password", async () => {
  const starting = startConsoleApp({ HOST: "0.0.0.0", REDIS_URL: inject("redisUrl") });
  await expect(starting).rejects.toThrow(
    /^HOST is 0\.0\.0\.0, which others can reach: set CONSOLE_PASSWORD, or HOST=127\.0\.0\.1\.$/,
  );
});

it("while Redis is away it says so, and shows pages again when it is back", async () => {
  const redis = await startRedis();
  const running = await startConsoleApp({ REDIS_URL: redis.url, PORT: "0", LOG_LEVEL: "silent" });
  const url = `http://127.0.0.1:${running.port}`;
  await untilReady(url);
  await redis.stop();
  await untilReady(url, 503);
  const away = await fetch(url);
  expect([away.status, (await away.text()).includes("Redis does not answer in time")]).toEqual([
    503,
    true,
  ]);
  expect((await fetch(`${url}/health`)).status).toBe(200);
  const again = await startRedis({ port: redis.port });
  await untilReady(url);
  expect((await fetch(url)).status).toBe(200);
  await running.close();
  await again.stop();
});
