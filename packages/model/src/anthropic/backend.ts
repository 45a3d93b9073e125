import Anthropic from "@anthropic-ai/sdk";
import {
  failureOfRefusal,
  findModelInfo,
  httpFetch,
  modelFailure,
  refusalIn,
  requestIdOf,
  requestProblem,
  serverEvents,
  type LlmBackend,
  type ModelRequest,
} from "../index.ts";
import type { ModelChunk } from "@larkline/protocol";
import { createEventReader, type StreamEvent } from "./event-reader.ts";
import { requestBody } from "./request-body.ts";
import { vendorFailure } from "./vendor-failure.ts";

export interface AnthropicBackendOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works, with a path too. */
  baseUrl?: string;
  /** How long the vendor may take until it begins to answer. 10 minutes by default. */
  timeoutMs?: number;
  /** `httpFetch` of the model package by default. */
  fetch?: typeof fetch;
}

async function* streamed(
  { client, secret }: { client: Anthropic; secret: string },
  request: ModelRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  const info = request.capabilities ?? findModelInfo("anthropic", request.model);
  const problem = requestProblem(request, info);
  if (problem !== null) return void (yield modelFailure("api_bad_request", problem));
  const { alive = () => undefined } = request;
  const { body, headers, warnings } = requestBody(request, info);
  yield* warnings;
  const reader = createEventReader(request.model);
  let requestId: string | undefined;
  let began = false;
  let partial = false;
  try {
    const options = { body, headers, stream: true, ...(signal === undefined ? {} : { signal }) };
    const response = await client.post("/v1/messages", options).asResponse();
    began = true;
    requestId = requestIdOf(response.headers);
    alive();
    for await (const { data } of serverEvents(response, alive)) {
      const event = JSON.parse(data) as StreamEvent; // the reader skips what it does not know
      if (event.type === "error") {
        return void (yield { ...failureOfRefusal({ ...refusalIn(event), requestId, secret }), partial });
      }
      const chunk = reader.read(event);
      if (chunk === null) continue;
      partial ||= chunk.type !== "usage_so_far";
      yield chunk;
    }
  } catch (error) {
    if (signal?.aborted !== true) yield { ...vendorFailure(error, { began, secret }), partial };
    return;
  }
  if (signal?.aborted === true) return;
  const truncated = () => modelFailure("stream_truncated", "The model's stream broke off.", { partial });
  yield reader.stop() ?? truncated();
}

/**
 * Anthropic's Messages API through the official SDK, whose own retries are off: the chain repeats.
 * Marks the prompt for caching by itself.
 */
export function createAnthropicBackend(options: AnthropicBackendOptions): LlmBackend {
  const client = new Anthropic({
    apiKey: options.apiKey,
    ...(options.baseUrl === undefined ? {} : { baseURL: options.baseUrl }),
    ...(options.timeoutMs === undefined ? {} : { timeout: options.timeoutMs }),
    fetch: options.fetch ?? httpFetch,
    // The SDK sends a bearer token; compatible servers know only this header, and the vendor takes both.
    defaultHeaders: { "x-api-key": options.apiKey },
    maxRetries: 0,
    logLevel: "off",
  });
  const called = { client, secret: options.apiKey };
  return { stream: (request, signal) => streamed(called, request, signal) };
}
