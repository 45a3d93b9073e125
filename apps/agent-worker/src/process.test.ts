import { execFile } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { codeCache } from "@larkline/testkit";
import { expect, inject, it } from "vitest";
import { startWorkerApp } from "./app.ts";

const given = { LOG_LEVEL: "silent", HOST: "127.0.0.1", ANTHROPIC_API_KEY: "s3cret" };
const signing = { ...given, CALL_SIGNING_KEY: "0123456789abcdef".repeat(2) };

it("the process ends with every wrong variable, a line each, without the key", async () => {
  const main = fileURLToPath(new URL("main.ts", import.meta.url));
  const env = { ...given, NODE_COMPILE_CACHE: codeCache, PORT: "many", CALL_SIGNING_KEY: "s3cret" };
  const { code, said } = await new Promise<{ code: number | null; said: string[] }>((resolve) => {
    const child = execFile(
      process.execPath,
      [main],
      { env, timeout: 100_000 },
      (_error, _stdout, stderr) =>
        resolve({ code: child.exitCode, said: stderr.trim().split("\n") }),
    );
  });
  expect(code).toBe(1);
  expect(said).toHaveLength(2);
  expect(said.join("\n")).toContain("PORT");
  expect(said.join("\n")).toContain(
    "CALL_SIGNING_KEY must have at least 32 characters. npm start makes one",
  );
  expect(said.join("\n")).not.toContain("s3cret");
});

it("names every model that it cannot use, in one line", async () => {
  const starting = startWorkerApp({
    ...signing,
    MODEL: "openai/gpt-5,nobody/x,anthropic/claude-sonet",
  });
  await expect(starting).rejects.toThrow(
    /^MODEL: openai\/gpt-5 needs OPENAI_API_KEY.*'nobody\/x' names.*'anthropic\/claude-sonet' is.*$/,
  );
});

it("says in one line that Redis does not answer", async () => {
  const starting = startWorkerApp({ ...signing, REDIS_URL: "redis://127.0.0.1:1", PORT: "0" });
  await expect(starting).rejects.toThrow(/^Redis \(REDIS_URL\) does not answer.*$/);
});

it("says in one line that its port is taken", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  const starting = startWorkerApp({
    ...signing,
    REDIS_URL: inject("redisUrl"),
    PORT: String(port),
  });
  await expect(starting).rejects.toThrow(
    new RegExp(`^Cannot listen on 127\\.0\\.0\\.1:${port}.*$`),
  );
  server.close();
});
