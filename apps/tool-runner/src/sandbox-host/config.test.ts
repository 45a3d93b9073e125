import { describe, expect, it } from "vitest";
import { loadConfig } from "./config.ts";

const SANDBOX_TOKEN = "sixteen characters or more";

describe("loadConfig", () => {
  it("needs a token and has a useful default for everything else", () => {
    expect(loadConfig({ SANDBOX_TOKEN })).toEqual({
      ok: true,
      value: {
        token: SANDBOX_TOKEN,
        host: "127.0.0.1",
        port: 8_005,
        opsPort: 8_006,
        logLevel: "info",
        slots: undefined,
        waiting: 64,
        warm: 2,
        tiers: ["bwrap", "sbx"],
        allowUnboundedMemory: false,
      },
    });
    expect(loadConfig({})).toEqual({ ok: false, error: "SANDBOX_TOKEN is not set." });
  });

  it("reads the accepted tiers, the strongest first", () => {
    const loaded = loadConfig({ SANDBOX_TOKEN, SANDBOX_TIERS: "sbx, bwrap", SANDBOX_SLOTS: "4" });
    expect(loaded).toMatchObject({ ok: true, value: { tiers: ["bwrap", "sbx"], slots: 4 } });
  });

  it("reports every problem at once, naming the variable, without the token", () => {
    const loaded = loadConfig({
      SANDBOX_TOKEN: "geheim",
      SANDBOX_TIERS: "bwrap,docker",
      SANDBOX_SLOTS: "0",
      SANDBOX_WAITING: "-1",
      SANDBOX_WARM: "many",
      PORT: "70000",
      SANDBOX_OPS_PORT: "x",
      LOG_LEVEL: "loud",
    });
    const problems = loaded.ok ? [] : loaded.error.split("\n");
    const names = [
      "SANDBOX_TOKEN",
      "SANDBOX_TIERS",
      "PORT",
      "SANDBOX_OPS_PORT",
      "LOG_LEVEL",
      "SANDBOX_SLOTS",
      "SANDBOX_WAITING",
      "SANDBOX_WARM",
    ];
    expect(problems.map((problem) => problem.split(" ")[0])).toEqual(names);
    expect(problems.join()).not.toContain("geheim");
  });
});
