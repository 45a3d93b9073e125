import { describe, expect, it } from "vitest";
import { loadConfig } from "./config.ts";

describe("loadConfig", () => {
  it("has a useful default for everything", () => {
    expect(loadConfig({})).toEqual({
      ok: true,
      value: {
        redisUrl: "redis://127.0.0.1:6379",
        namespace: "larkline",
        host: "0.0.0.0",
        port: 8_002,
        logLevel: "info",
        runner: "default",
        toolModules: ["@larkline/example-tools"],
        concurrency: 32,
      },
    });
  });

  it("reads a list of modules", () => {
    const loaded = loadConfig({ RUNNER_TOOLS: " ./a.ts, some-package ,,", RUNNER_NAME: "gpu_1" });
    expect(loaded).toMatchObject({ ok: true, value: { toolModules: ["./a.ts", "some-package"], runner: "gpu_1" } });
  });

  it("reports every problem at once, naming the variable, without the password of REDIS_URL", () => {
    const loaded = loadConfig({
      REDIS_URL: "http://user:geheim@host",
      RUNNER_NAME: "a:b",
      RUNNER_CONCURRENCY: "0",
      PORT: "70000",
      LOG_LEVEL: "loud",
    });
    expect(loaded.ok).toBe(false);
    const problems = loaded.ok ? "" : loaded.error;
    for (const name of ["REDIS_URL", "RUNNER_NAME", "RUNNER_CONCURRENCY", "PORT", "LOG_LEVEL"])
      expect(problems).toContain(name);
    expect(problems.split("\n")).toHaveLength(5);
    expect(problems).not.toContain("geheim");
  });
});
