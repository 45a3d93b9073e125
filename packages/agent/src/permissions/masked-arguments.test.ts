import { describe, expect, it } from "vitest";
import { maskedArguments } from "./masked-arguments.ts";

describe("maskedArguments", () => {
  it("AL-63: hides the values of declared fields at any depth, whatever their type and letter case", () => {
    const input = { PIN: 1234, a: [{ pin: ["12", "34"] }, { b: { Pin: { code: "1234" } } }], other: "1" };
    expect(maskedArguments(input, ["pin"])).toEqual({
      PIN: "***",
      a: [{ pin: "***" }, { b: { Pin: "***" } }],
      other: "1",
    });
  });

  it.each([
    "password",
    "Password",
    "user_password",
    "dbPassword",
    "passwd",
    "token",
    "accessToken",
    "ACCESS_TOKEN",
    "secret",
    "client-secret",
    "api_key",
    "apiKey",
    "x-api-key",
    "apikey",
    "Authorization",
    "privateKey",
    "credentials",
    "cookie",
  ])("AL-63: hides what a field named %j holds, also inside", (name) => {
    const shown = JSON.stringify(maskedArguments({ [name]: "hunter2", inner: { [name]: { a: ["hunter2"] } } }, []));
    expect(shown).not.toContain("hunter2");
    expect(shown).toContain(name);
  });

  it("shows fields that are only named similarly", () => {
    const input = { tokens: 5, max_tokens: 100, secretary: "Li", keyboard: "us", passenger: "Wang", key: "a" };
    expect(maskedArguments(input, [])).toEqual(input);
  });

  it.each([
    ["curl -H 'Authorization: Bearer abcdef123456' https://x", "abcdef123456"],
    ["git clone https://me:hunter22@host/repo", "hunter22"],
    ["login --password hunter22 --user me", "hunter22"],
    ["login --password=hunter22", "hunter22"],
    ["API_KEY=hunter22 ./run", "hunter22"],
    ['{"token": "hunter22"}', "hunter22"],
    ["use sk-abcdefghijklmnop", "abcdefghijklmnop"],
  ])("hides the credential inside %j and keeps the rest", (command, secret) => {
    const { command: shown } = maskedArguments({ command }, []);
    expect(shown).not.toContain(secret);
    expect(String(shown).slice(0, 4)).toBe(command.slice(0, 4));
  });

  it("keeps values, non-ASCII text and order of everything else, and changes nothing itself", () => {
    const input = { 城市: "上海", list: [1, true, null, "🎉"], empty: {}, none: "" };
    const before = structuredClone(input);
    expect(Object.entries(maskedArguments(input, []))).toEqual(Object.entries(input));
    expect(input).toEqual(before);
  });

  it("is bounded in size and depth, whatever the input", () => {
    let deep: unknown = "x";
    for (let depth = 0; depth < 10_000; depth++) deep = { deep };
    const wide = Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => [`k${index}`, index]));
    const started = process.threadCpuUsage();
    for (const input of [{ deep }, wide, { text: "a:".repeat(1_000_000) }, { list: Array(1_000_000).fill("://") }]) {
      expect(JSON.stringify(maskedArguments(input, [])).length).toBeLessThan(200_000);
    }
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
    expect(maskedArguments({ text: "x".repeat(5_000) }, [])["text"]).toBe(`${"x".repeat(4_000)}…`);
  });
});
