import { failureOfSdkError, modelFailure } from "../index.ts";
import type { ModelFailure } from "@larkline/protocol";
import { APIConnectionError, APIConnectionTimeoutError, APIError } from "openai";

/** What an error of the SDK means to us. `began`: the vendor's stream had started; `secret`: the key. */
export function vendorFailure(error: unknown, { began, secret }: { began: boolean; secret: string }): ModelFailure {
  if (error instanceof APIConnectionTimeoutError) {
    return modelFailure("api_overloaded", "The model vendor did not answer in time.");
  }
  if (error instanceof APIConnectionError) {
    return modelFailure("api_overloaded", "The model vendor could not be reached.");
  }
  if (error instanceof APIError) {
    const { status, error: body, headers, message } = error;
    return failureOfSdkError({ status, error: body, headers, message }, secret);
  }
  if (began) return modelFailure("stream_truncated", "The model's stream broke off.");
  return modelFailure("internal_error", error instanceof Error ? error.message : "The model call failed.");
}
