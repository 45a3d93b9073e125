import { describe, expect, it } from "vitest";
import { loadConfig } from "./config.ts";

const credentials = { FEISHU_APP_ID: "cli_0123456789abcdef", FEISHU_APP_SECRET: "sssh" };

describe("configuration", () => {
  it("is useful when nothing is set", () => {
    const loaded = loadConfig({ PORT: "", FEISHU_APP_ID: " " });
    expect(loaded).toEqual({
      ok: true,
      value: {
        redisUrl: "redis://127.0.0.1:6379",
        namespace: "larkline",
        host: "0.0.0.0",
        port: 8000,
        logLevel: "info",
        feishu: undefined,
        api: {
          callers: { token: undefined, keys: [], jwtSecret: undefined, jwks: undefined },
          corsOrigins: "*",
          onDisconnect: "continue",
          heartbeatMs: 15_000,
          maxStreams: 1_000,
          maxStreamsPerCaller: 1_000,
          requestsPerMinute: 0,
        },
        configFile: undefined,
      },
    });
  });

  it("reports every problem at once, by variable, without secrets", () => {
    const loaded = loadConfig({
      REDIS_URL: "http://x",
      PORT: "70000",
      LOG_LEVEL: "loud",
      FEISHU_APP_ID: "a.b",
      FEISHU_TRANSPORT: "webhook",
      FEISHU_DOMAIN: "ftp://x",
      API_CORS_ORIGINS: "https://ok.example,https://path.example/x",
      API_ON_DISCONNECT: "explode",
      REDIS_NAMESPACE: "a b",
    });
    expect(loaded.ok).toBe(false);
    const error = loaded.ok ? "" : loaded.error;
    for (const name of [
      "REDIS_URL",
      "PORT",
      "LOG_LEVEL",
      "FEISHU_APP_ID must",
      "FEISHU_APP_SECRET",
      "FEISHU_VERIFICATION_TOKEN",
      "FEISHU_DOMAIN",
      "path.example",
      "API_ON_DISCONNECT",
      "REDIS_NAMESPACE",
    ]) {
      expect(error).toContain(name);
    }
    const secret = loadConfig({ FEISHU_APP_SECRET: "hunter2" });
    expect(secret).toMatchObject({ ok: false });
    expect(JSON.stringify(secret)).not.toContain("hunter2");
  });

  it("takes no API token that is shorter than sixteen characters, and does not repeat it", () => {
    const loaded = loadConfig({ API_TOKEN: "fifteen-chars.." });
    expect(loaded).toEqual({ ok: false, error: "API_TOKEN must be at least 16 characters long." });
    expect(loadConfig({ API_TOKEN: "sixteen-chars..." }).ok).toBe(true);
    expect(loadConfig({ API_TOKEN: "sixteen chars..." })).toEqual({
      ok: false,
      error: expect.stringContaining("blanks"),
    });
  });

  it("takes either key for webhooks, and none for the long connection", () => {
    expect(loadConfig(credentials)).toMatchObject({
      ok: true,
      value: { feishu: { websocket: true, webhook: false } },
    });
    expect(loadConfig({ ...credentials, FEISHU_TRANSPORT: "both" }).ok).toBe(false);
    for (const key of ["FEISHU_ENCRYPT_KEY", "FEISHU_VERIFICATION_TOKEN"]) {
      const loaded = loadConfig({ ...credentials, FEISHU_TRANSPORT: "both", [key]: "k" });
      expect(loaded).toMatchObject({
        ok: true,
        value: { feishu: { websocket: true, webhook: true } },
      });
    }
  });
});
