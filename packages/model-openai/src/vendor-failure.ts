import { failureOfRefusal, modelFailure, retryAfterOf } from "@larkline/model";
import type { ModelFailure } from "@larkline/protocol";
import { APIConnectionError, APIConnectionTimeoutError, APIError } from "openai";

/** What an error of the SDK means to us. `began`: the vendor's stream had started. */
export function vendorFailure(error: unknown, began: boolean): ModelFailure {
  if (error instanceof APIConnectionTimeoutError) {
    return modelFailure("api_overloaded", "The model vendor did not answer in time.");
  }
  if (error instanceof APIConnectionError) {
    return modelFailure("api_overloaded", "The model vendor could not be reached.");
  }
  if (error instanceof APIError) {
    return failureOfRefusal({
      status: error.status,
      kind: error.code ?? error.type,
      message: error.message,
      retryAfterMs: retryAfterOf(error.headers, Date.now()),
    });
  }
  if (began) return modelFailure("stream_truncated", "The model's stream broke off.");
  return modelFailure("internal_error", error instanceof Error ? error.message : "The model call failed.");
}
