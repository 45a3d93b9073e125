import Anthropic, { APIConnectionError, APIConnectionTimeoutError, APIError } from "@anthropic-ai/sdk";
import {
  type ModelChunk,
  messageStop,
  toolCallDelta,
  type MessageStop,
  type StopReason,
  type Usage,
  type UsageSoFar,
  type ModelFailure,
} from "@larkline/protocol";
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
  failureOfSdkError,
} from "../index.ts";
import { requestBody, thinkingMetadata } from "./request.ts";

export interface AnthropicBackendOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works, with a path too. */
  baseUrl?: string;
  /** How long the vendor may take until it begins to answer. 10 minutes by default. */
  timeoutMs?: number;
  /** `httpFetch` of the model package by default. */
  fetch?: typeof fetch;
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

/** What comes in a stream: events of the answer, or the report of an error. */
type StreamEvent = Event | { type: "error"; error?: unknown };

type Event = Anthropic.Messages.RawMessageStreamEvent;

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

/** Reads one vendor stream. */
interface EventReader {
  /** The chunk of an event, if it has one. */
  read(event: Event): ModelChunk | null;
  /** The end of the answer; null when the vendor never said that it was complete. */
  stop(): MessageStop | null;
}

const stopReasons: Record<string, StopReason> = {
  end_turn: "end_turn",
  stop_sequence: "end_turn",
  tool_use: "tool_use",
  max_tokens: "max_tokens",
  model_context_window_exceeded: "max_tokens",
  refusal: "refusal",
};

interface Counts {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cache_creation_input_tokens?: number | null;
}

type BlockStart = Anthropic.Messages.RawContentBlockStartEvent;

type BlockDelta = Anthropic.Messages.RawContentBlockDeltaEvent;

class Reader implements EventReader {
  readonly #model: string;
  #usage: Usage | null = null;
  #stopReason: StopReason = "other";
  #responseId: unknown;
  #complete = false;
  #signatures = new Map<number, string>();
  /** Inputs that compatible servers send whole, at the start of a call. */
  #wholeInputs = new Map<number, string>();

  constructor(model: string) {
    this.#model = model;
  }

  read(event: Event): ModelChunk | null {
    switch (event.type) {
      case "message_start":
        this.#responseId = event.message.id;
        return this.#count(event.message.usage);
      case "content_block_start":
        return this.#start(event);
      case "content_block_delta":
        return this.#delta(event);
      case "content_block_stop":
        return this.#end(event.index);
      case "message_delta":
        this.#count(event.usage);
        this.#stopReason = stopReasons[event.delta.stop_reason ?? ""] ?? "other";
        return null;
      case "message_stop":
        this.#complete = true;
        return null;
      default:
        return null; // later kinds of events must not break a stream
    }
  }

  stop(): MessageStop | null {
    return this.#complete ? messageStop(this.#stopReason, this.#usage, this.#responseId) : null;
  }

  #count(counts: Counts | null | undefined): UsageSoFar {
    const nothing = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };
    this.#usage = addCounts(this.#usage ?? nothing, counts);
    return { type: "usage_so_far", usage: this.#usage };
  }

  #start({ index, content_block: block }: BlockStart): ModelChunk | null {
    switch (block.type) {
      case "text":
        return block.text === "" ? null : { type: "text_delta", text: block.text };
      case "thinking":
        if (block.signature) this.#signatures.set(index, block.signature);
        return { type: "thinking_delta", index, text: block.thinking };
      case "redacted_thinking":
        return {
          type: "thinking_delta",
          index,
          text: "",
          providerMetadata: thinkingMetadata(this.#model, { redacted: block.data }),
        };
      case "tool_use": {
        const input = JSON.stringify(block.input ?? {});
        if (input !== "{}") this.#wholeInputs.set(index, input);
        return toolCallDelta(index, { id: block.id, name: block.name });
      }
      default:
        return null;
    }
  }

  #delta({ index, delta }: BlockDelta): ModelChunk | null {
    switch (delta.type) {
      case "text_delta":
        return delta.text === "" ? null : { type: "text_delta", text: delta.text };
      case "thinking_delta":
        return delta.thinking === "" ? null : { type: "thinking_delta", index, text: delta.thinking };
      case "signature_delta":
        this.#signatures.set(index, (this.#signatures.get(index) ?? "") + delta.signature);
        return null;
      case "input_json_delta":
        if (delta.partial_json === "") return null;
        this.#wholeInputs.delete(index);
        return toolCallDelta(index, { arguments: delta.partial_json });
      default:
        return null;
    }
  }

  #end(index: number): ModelChunk | null {
    const signature = this.#signatures.get(index);
    if (signature !== undefined) {
      const providerMetadata = thinkingMetadata(this.#model, { signature });
      return { type: "thinking_delta", index, text: "", providerMetadata };
    }
    const input = this.#wholeInputs.get(index);
    return input === undefined ? null : toolCallDelta(index, { arguments: input });
  }
}

/** A reader for the stream of one request to `model`. */
function createEventReader(model: string): EventReader {
  return new Reader(model);
}

/** Counts are cumulative: what an event names replaces what came before. */
function addCounts(usage: Usage, counts: Counts | null | undefined): Usage {
  return {
    inputTokens: counts?.input_tokens ?? usage.inputTokens,
    outputTokens: counts?.output_tokens ?? usage.outputTokens,
    cacheReadTokens: counts?.cache_read_input_tokens ?? usage.cacheReadTokens,
    cacheCreationTokens: counts?.cache_creation_input_tokens ?? usage.cacheCreationTokens,
  };
}

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
