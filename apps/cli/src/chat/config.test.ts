import { describe, expect, it } from "vitest";
import { loadConfig } from "./chat.ts";

describe("loadConfig", () => {
  it("has defaults and keeps one new session for the process", () => {
    const loaded = loadConfig([], {});
    expect(loaded).toMatchObject({
      ok: true,
      value: { url: "http://127.0.0.1:8000", language: "en" },
    });
    expect(loaded.ok && loaded.value.sessionId).toMatch(/^[\w-]{36}$/);
  });

  it("speaks the language of the terminal", () => {
    expect(loadConfig([], { LANG: "zh_CN.UTF-8" })).toMatchObject({ value: { language: "zh" } });
    expect(loadConfig(["--lang", "en"], { LANG: "zh_CN.UTF-8" })).toMatchObject({
      value: { language: "en" },
    });
  });

  it("takes flags and the token of the environment", () => {
    const args = ["--url", "https://bot.example.com", "--lang=en", "--session", "abc"];
    expect(loadConfig(args, { API_TOKEN: "t" })).toEqual({
      ok: true,
      value: { url: "https://bot.example.com", language: "en", sessionId: "abc", token: "t" },
    });
  });

  it("speaks to the port where this machine's ingress listens, unless it gets an address", () => {
    const env = { INGRESS_PORT: "8123" };
    expect(loadConfig([], env)).toMatchObject({ value: { url: "http://127.0.0.1:8123" } });
    expect(loadConfig(["--url", "http://bot"], env)).toMatchObject({
      value: { url: "http://bot" },
    });
  });

  it("lists every problem", () => {
    const loaded = loadConfig(["--url", "bot", "--lang", "fr", "--session", "a b"], {});
    expect(loaded.ok ? "" : loaded.error.split("\n")).toHaveLength(3);
    expect(loadConfig(["--what"], {}).ok).toBe(false);
  });
});
