import { describe, expect, it } from "vitest";
import { redactFields, scrubText } from "./logger.ts";

describe("redactFields", () => {
  it("hides secrets by key at any depth and in any spelling", () => {
    const redacted = redactFields({
      app_secret: "s3cret",
      request: { headers: { Authorization: "Bearer s3cret", "x-api-key": "s3cret" } },
      list: [{ encryptKey: "s3cret", tenant_access_token: "s3cret", PASSWORD: 12 }],
    });
    expect(JSON.stringify(redacted)).not.toContain("s3cret");
    expect(redacted["list"]).toEqual([
      { encryptKey: "[secret]", tenant_access_token: "[secret]", PASSWORD: "[secret]" },
    ]);
  });

  it("hides what people, models and tools wrote, and keeps its size", () => {
    const redacted = redactFields({
      text: "hello",
      call: { name: "pay", arguments: { to: "Ann" }, result: ["a", "b"] },
    });
    expect(redacted).toEqual({
      text: "[hidden, 5 characters]",
      call: { name: "pay", arguments: "[hidden]", result: "[hidden, 2 items]" },
    });
  });

  it("keeps counters, flags and ids", () => {
    const fields = { inputTokens: 12, hasToken: true, session: "app.chat", seq: 3n, none: null };
    expect(redactFields(fields)).toEqual({ ...fields, seq: "3" });
  });

  it("reduces an error to what says why, without its request", () => {
    const error = Object.assign(new TypeError("refused", { cause: new Error("no route") }), {
      code: "ECONNREFUSED",
      config: { headers: { authorization: "Bearer s3cret" } },
      response: { data: "s3cret body" },
    });
    const redacted = redactFields({ error });
    expect(redacted).toMatchObject({
      error: {
        type: "TypeError",
        message: "refused",
        code: "ECONNREFUSED",
        cause: { message: "no route" },
      },
    });
    expect(JSON.stringify(redacted)).not.toContain("s3cret");
  });

  it("survives cycles, buffers, maps and deep nesting", () => {
    const cycle: Record<string, unknown> = { name: "a" };
    cycle["self"] = cycle;
    const fields = {
      cycle,
      bytes: Buffer.from("abc"),
      map: new Map([["token", "s3cret"]]),
      none: undefined,
    };
    const text = JSON.stringify(redactFields(fields));
    expect(text).toContain("[deep]");
    expect(text).toContain("[3 bytes]");
    expect(text).not.toContain("s3cret");
  });

  it("does not change its input", () => {
    const fields = { nested: { password: "s3cret" } };
    redactFields(fields);
    expect(fields.nested.password).toBe("s3cret");
  });
});

describe("scrubText", () => {
  it("hides a secret of which the cut would leave a beginning that looks like none", () => {
    const text = `${"x ".repeat(995)}sk-ant-api03-abcdefghijkl refused`;
    expect(scrubText(text)).not.toContain("sk-a");
  });

  it.each([
    ["connect redis://user:s3cret@host:6379 failed", "connect redis://[secret]@host:6379 failed"],
    ["header Bearer abcdef.123456", "header Bearer [secret]"],
    ["key sk-ant-REDACTED refused", "key [secret] refused"],
    ['{"app_secret":"s3cret"}', '{"app_secret":"[secret]"}'],
    ["GET https://open.feishu.cn/open-apis/im 403", "GET https://open.feishu.cn/open-apis/im 403"],
  ])("turns %j into %j", (text, expected) => {
    expect(scrubText(text)).toBe(expected);
  });

  it("cuts long text", () => {
    expect(scrubText("x".repeat(5_000)).length).toBeLessThan(2_100);
  });
});
