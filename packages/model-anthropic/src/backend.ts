import Anthropic from "@anthropic-ai/sdk";
import {
  findModelInfo,
  httpFetch,
  modelFailure,
  requestProblem,
  type LlmBackend,
  type ModelRequest,
} from "@larkline/model";
import type { ModelChunk } from "@larkline/protocol";
import { createEventReader } from "./event-reader.ts";
import { requestBody, type RequestBody } from "./request-body.ts";
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

type Events = AsyncIterable<Anthropic.Messages.RawMessageStreamEvent>;

/** `messages.create` does the same, but prints to the console for every call of a model that is about to retire. */
function open(client: Anthropic, call: Omit<RequestBody, "warnings"> & { signal: AbortSignal | undefined }) {
  const { body, headers, signal } = call;
  return client.post<Events>("/v1/messages", {
    body,
    headers,
    stream: true,
    ...(signal === undefined ? {} : { signal }),
  });
}

async function* streamed(
  client: Anthropic,
  request: ModelRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  const info = request.capabilities ?? findModelInfo("anthropic", request.model);
  const problem = requestProblem(request, info);
  if (problem !== null) return void (yield modelFailure("api_bad_request", problem));
  const { body, headers, warnings } = requestBody(request, info);
  yield* warnings;
  const reader = createEventReader(request.model);
  let began = false;
  let partial = false;
  try {
    const events = await open(client, { body, headers, signal });
    began = true;
    for await (const event of events) {
      const chunk = reader.read(event);
      if (chunk === null) continue;
      partial = true;
      yield chunk;
    }
  } catch (error) {
    if (signal?.aborted !== true) yield { ...vendorFailure(error, began), partial };
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
  return { stream: (request, signal) => streamed(client, request, signal) };
}
