import { describe, expect, it } from "vitest";
import { loadRunnerConfig } from "./runner-config.ts";

const RUNNER_KEY = "0f".repeat(32);

describe("the environment of a runner", () => {
  it("needs a key and has a useful default for everything else", () => {
    expect(loadRunnerConfig({ RUNNER_KEY })).toEqual({
      ok: true,
      value: {
        redisUrl: "redis://127.0.0.1:6379",
        namespace: "larkline",
        host: "0.0.0.0",
        port: 8_002,
        logLevel: "info",
        runner: "default",
        runnerKey: RUNNER_KEY,
        concurrency: 32,
        childMb: 80,
        drainMs: 8_000,
      },
    });
    expect(loadRunnerConfig({})).toEqual({ ok: false, error: "RUNNER_KEY is not set." });
  });

  it("takes what a program says where it says nothing itself", () => {
    const defaults = { runner: "weather", concurrency: 4 };
    expect(loadRunnerConfig({ RUNNER_KEY }, defaults)).toMatchObject({ value: defaults });
    expect(
      loadRunnerConfig({ RUNNER_KEY, RUNNER_NAME: "rain", RUNNER_CONCURRENCY: "5" }, defaults),
    ).toMatchObject({
      value: { runner: "rain", concurrency: 5 },
    });
  });

  it("reads which sandboxes are accepted", () => {
    expect(loadRunnerConfig({ RUNNER_KEY, SANDBOX_TIERS: "sbx,bwrap" })).toMatchObject({
      value: { sandboxTiers: ["bwrap", "sbx"] },
    });
  });

  it("reports every problem at once, naming the variable, without a password, key or token", () => {
    const loaded = loadRunnerConfig({
      REDIS_URL: "http://user:geheim@host",
      RUNNER_NAME: "a:b",
      RUNNER_KEY: "geheim",
      RUNNER_CONCURRENCY: "0",
      RUNNER_DRAIN_MS: "a minute",
      PORT: "70000",
      LOG_LEVEL: "loud",
      SANDBOX_TIERS: "docker",
    });
    const problems = loaded.ok ? [] : loaded.error.split("\n");
    const runner = "RUNNER_NAME RUNNER_KEY RUNNER_CONCURRENCY RUNNER_DRAIN_MS SANDBOX_TIERS";
    for (const name of `REDIS_URL PORT LOG_LEVEL ${runner}`.split(" ")) {
      expect(problems.join("\n")).toContain(name);
    }
    expect(problems).toHaveLength(8);
    expect(problems.join("\n")).not.toContain("geheim");
  });
});
