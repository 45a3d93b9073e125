import { describe, expect, it } from "vitest";
import { createEnvReader } from "./environment.ts";

describe("createEnvReader", () => {
  it("reads typed values", () => {
    const reader = createEnvReader({
      HOST: " 127.0.0.1 ",
      PORT: "8000",
      COUNT: "-3",
      FAST: "Yes",
      LEVEL: "warn",
      BASE: "https://example.com/v1",
      KEY: "k",
      TOOLS: "a, b,,c ",
    });
    const value = {
      host: reader.text("HOST", { required: true }),
      port: reader.port("PORT", { default: 1 }),
      count: reader.integer("COUNT"),
      fast: reader.flag("FAST", { default: false }),
      level: reader.choice("LEVEL", ["info", "warn"], { default: "info" }),
      base: reader.url("BASE"),
      key: reader.secret("KEY"),
      tools: reader.list("TOOLS"),
    };
    expect(reader.finish(value)).toEqual({
      ok: true,
      value: {
        host: "127.0.0.1",
        port: 8000,
        count: -3,
        fast: true,
        level: "warn",
        base: "https://example.com/v1",
        key: "k",
        tools: ["a", "b", "c"],
      },
    });
  });

  it("takes the default for a variable that is missing or empty, and undefined without one", () => {
    const reader = createEnvReader({ EMPTY: "" });
    expect(reader.port("EMPTY", { default: 8001 })).toBe(8001);
    expect(reader.text("MISSING")).toBeUndefined();
    expect(reader.list("MISSING")).toEqual([]);
    expect(reader.finish({}).ok).toBe(true);
  });

  it("reports every problem at once, naming the variable", () => {
    const reader = createEnvReader({
      PORT: "80a",
      SLOTS: "0",
      LEVEL: "loud",
      FAST: "maybe",
      BASE: "example.com",
    });
    reader.port("PORT");
    reader.integer("SLOTS", { min: 1, max: 512, default: 32 });
    reader.choice("LEVEL", ["info", "warn"]);
    reader.flag("FAST");
    reader.url("BASE");
    reader.secret("FEISHU_APP_SECRET", { required: true });
    reader.problem("A needs B.");
    expect(reader.finish({})).toEqual({
      ok: false,
      error: [
        'PORT must be a whole number from 0 to 65535, but is "80a".',
        'SLOTS must be a whole number from 1 to 512, but is "0".',
        'LEVEL must be one of info, warn, but is "loud".',
        'FAST must be true or false, but is "maybe".',
        "BASE must be a URL that starts with http:// or https://.",
        "FEISHU_APP_SECRET is not set.",
        "A needs B.",
      ].join("\n"),
    });
  });

  it("does not repeat the credentials of a URL", () => {
    const reader = createEnvReader({ REDIS_URL: "http://user:s3cret@host" });
    reader.url("REDIS_URL", { protocols: ["redis:"] });
    expect(JSON.stringify(reader.finish({}))).not.toContain("s3cret");
  });

  it.each([
    ["redis+cluster://user:pw@a:6379,b:6379", true],
    ["redis+cluster://a:6379,b:63790000", false],
    ["redis+cluster://", false],
    ["redis://a:6379", false],
  ])("says of the address %s with several hosts allowed: %s", (text, good) => {
    const reader = createEnvReader({ REDIS_URL: text });
    reader.url("REDIS_URL", { protocols: ["redis+cluster:"] });
    expect(reader.finish({}).ok).toBe(good);
  });

  it.each(["1.5", "1e3", "0x10", "--1", "99999999999999999999"])(
    "refuses %s as a whole number",
    (text) => {
      const reader = createEnvReader({ COUNT: text });
      reader.integer("COUNT");
      expect(reader.finish({}).ok).toBe(false);
    },
  );
});
