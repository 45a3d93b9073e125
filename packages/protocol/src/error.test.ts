import { describe, expect, it } from "vitest";
import {
  errorCodes,
  formatErrorForDisplay,
  isRetryable,
  newEngineError,
  wrapError,
} from "./error.ts";

describe("engine errors", () => {
  it("EE-12: all 16 codes exist", () => {
    expect(Object.keys(errorCodes).sort()).toEqual(
      [
        "api_auth_error",
        "api_rate_limit",
        "api_overloaded",
        "api_bad_request",
        "tool_not_found",
        "tool_execution_error",
        "permission_denied",
        "context_overflow",
        "budget_exceeded",
        "max_turns_reached",
        "session_not_found",
        "session_closed",
        "mcp_connection_error",
        "plugin_load_error",
        "internal_error",
        "stream_truncated",
      ].sort(),
    );
  });

  it("EE-13: suggestion and retryable come from the table; explicit values win", () => {
    const fromTable = newEngineError("api_rate_limit", "slow down");
    expect(fromTable.retryable).toBe(true);
    expect(fromTable.suggestion).toBe(errorCodes.api_rate_limit.suggestion);
    const explicit = newEngineError("api_rate_limit", "slow down", {
      retryable: false,
      suggestion: "give up",
    });
    expect(explicit.retryable).toBe(false);
    expect(explicit.suggestion).toBe("give up");
  });

  it("EE-14: a wrapped cause stays reachable and keeps its retryable", () => {
    const cause = newEngineError("api_overloaded", "busy");
    const wrapped = wrapError(cause, "internal_error", "turn failed");
    expect(wrapped.cause).toBe(cause);
    expect(wrapped.retryable).toBe(true);
  });

  it("EE-15: rate limit, overload and truncated stream are retryable, also when wrapped; plain errors and null are not", () => {
    for (const code of ["api_rate_limit", "api_overloaded", "stream_truncated"] as const) {
      const error = newEngineError(code, "x");
      expect(isRetryable(error)).toBe(true);
      expect(isRetryable(new Error("outer", { cause: error }))).toBe(true);
    }
    expect(isRetryable(new Error("plain"))).toBe(false);
    expect(isRetryable(null)).toBe(false);
  });

  it("EE-16: the short form has no code and no cause, the verbose one has both, neither has a stack", () => {
    const error = newEngineError("api_auth_error", "refused", {
      detail: "401",
      cause: new Error("bad key"),
    });
    expect(formatErrorForDisplay(error)).toBe(`refused\n${errorCodes.api_auth_error.suggestion}`);
    const verbose = formatErrorForDisplay(error, true);
    expect(verbose).toContain("api_auth_error");
    expect(verbose).toContain("bad key");
    expect(verbose).toContain("401");
    expect(verbose).not.toContain("at ");
    expect(formatErrorForDisplay(null)).toBe("");
    expect(formatErrorForDisplay(new Error("plain"))).toBe("plain");
  });
});
