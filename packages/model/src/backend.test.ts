import { describe, expect, it } from "vitest";
import {
  estimateTokens,
  failureOfRefusal,
  refusalIn,
  findModelInfo,
  imageProblem,
  retryAfterOf,
  systemBlocksOf,
  toolLimitProblem,
  worthCaching,
} from "./index.ts";

const info = findModelInfo("anthropic", "claude-sonnet-4-5");
const tools = Array.from({ length: 21 }, (_, n) => ({
  name: `t${n}`,
  description: "",
  inputSchema: {},
}));

describe("request rules", () => {
  it("EE-30: 21 tools against a proven limit of 20 are refused, against a lower bound not", () => {
    expect(toolLimitProblem(tools, { ...info, maxTools: 20, maxToolsExhaustive: true })).toContain(
      "21",
    );
    expect(
      toolLimitProblem(tools, { ...info, maxTools: 20, maxToolsExhaustive: false }),
    ).toBeNull();
    expect(
      toolLimitProblem(tools.slice(1), { ...info, maxTools: 20, maxToolsExhaustive: true }),
    ).toBeNull();
  });

  it("EE-31: a limit of 0 never refuses", () => {
    expect(toolLimitProblem(tools, { ...info, maxTools: 0, maxToolsExhaustive: true })).toBeNull();
  });

  it("EE-32: caching takes support, a threshold above 0 and a size above it", () => {
    const text = "x".repeat(1_024 * 4);
    expect(worthCaching([text], info)).toBe(false);
    expect(worthCaching([`${text}x`], info)).toBe(true);
    expect(worthCaching(["x".repeat(2_100), "x".repeat(2_100)], info)).toBe(true);
    expect(worthCaching([`${text}x`], { ...info, supportsCaching: false })).toBe(false);
    expect(worthCaching([`${text}x`], { ...info, cachingMinTokens: 0 })).toBe(false);
  });

  it("counts a Chinese character as a token and four ASCII characters as one, up to what is enough", () => {
    expect(estimateTokens("你好")).toBe(2);
    expect(estimateTokens("hello world!")).toBe(3);
    expect(estimateTokens("x".repeat(1_000_000), 10)).toBe(11);
  });

  it("EE-35: image data needs a media type and no data-URL prefix", () => {
    const image = (mediaType: string, data: string) =>
      imageProblem({ type: "image", source: { sourceType: "base64", mediaType, data } });
    expect(image("image/png", "data:image/png;base64,AAAA")).toContain("data-URL");
    expect(image("", "AAAA")).toContain("media type");
    expect(image("image/png", "AAAA")).toBeNull();
  });

  it("leaves out system blocks without text", () => {
    expect(systemBlocksOf({ system: " " })).toEqual([]);
    expect(systemBlocksOf({ system: "a" })).toEqual([{ text: "a", cacheScope: "" }]);
  });
});

describe("vendor refusals", () => {
  it("tells an exhausted quota from a passing rate limit", () => {
    const refusal = { status: 429, message: "no", retryAfterMs: 10 };
    expect(failureOfRefusal(refusal)).toMatchObject({
      code: "api_rate_limit",
      retryable: true,
      retryAfterMs: 10,
    });
    expect(failureOfRefusal({ ...refusal, kind: "insufficient_quota" })).toMatchObject({
      retryable: false,
    });
  });

  it("knows a context that is too long by kind, status and words", () => {
    const codes = [
      failureOfRefusal({ status: 400, kind: "context_length_exceeded", message: "" }),
      failureOfRefusal({ status: 413, message: "too large" }),
      failureOfRefusal({
        status: 400,
        message: "This model's maximum context length is 128000 tokens",
      }),
      failureOfRefusal({ message: "prompt is too long" }),
    ].map((failure) => failure.code);
    expect(new Set(codes)).toEqual(new Set(["context_overflow"]));
  });

  it("blames no part of a conversation for a kept answer that the vendor does not have", () => {
    const error = {
      type: "invalid_request_error",
      code: "previous_response_not_found",
      message: "not found",
    };
    const refused = (param: string | null) =>
      failureOfRefusal({ status: 400, ...refusalIn({ error: { ...error, param } }) });
    expect(refused(null)).toMatchObject({ code: "api_bad_request", blames: "request" });
    expect(refused("previous_response_id")).toMatchObject({
      code: "api_bad_request",
      retryable: false,
    });
    expect(refused("previous_response_id")).not.toHaveProperty("blames");
  });

  it("reads the wait a vendor asks for", () => {
    const wait = (headers: Record<string, string>) =>
      retryAfterOf(new Headers(headers), Date.parse("2026-11-20T12:00:00Z"));
    expect(wait({ "retry-after": "2" })).toBe(2_000);
    expect(wait({ "retry-after-ms": "150", "retry-after": "2" })).toBe(150);
    expect(wait({ "retry-after": "Fri, 20 Nov 2026 12:00:05 GMT" })).toBe(5_000);
    expect(wait({ "retry-after": "Fri, 20 Nov 2026 11:00:00 GMT" })).toBe(0);
    expect(wait({ "retry-after": "soon" })).toBeUndefined();
    expect(wait({})).toBeUndefined();
  });
});
