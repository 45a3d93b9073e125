import {
  findModelInfo,
  httpFetch,
  modelFailure,
  requestProblem,
  type ModelInfo,
  type ModelRequest,
} from "@larkline/model";
import type { MessageStop, ModelChunk } from "@larkline/protocol";
import OpenAI from "openai";
import { vendorFailure } from "./vendor-failure.ts";

export interface OpenAiBackendOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works, with a path too (`.../v1`). */
  baseUrl?: string;
  /** How long the vendor may take until it begins to answer. 10 minutes by default. */
  timeoutMs?: number;
  /** `httpFetch` of the model package by default. */
  fetch?: typeof fetch;
}

/** The SDK without its own retries (the chain repeats) and without its console output. */
export function createClient(options: OpenAiBackendOptions): OpenAI {
  return new OpenAI({
    apiKey: options.apiKey,
    // Left out, the SDK would take these from the environment.
    baseURL: options.baseUrl ?? "https://api.openai.com/v1",
    organization: null,
    project: null,
    ...(options.timeoutMs === undefined ? {} : { timeout: options.timeoutMs }),
    fetch: options.fetch ?? httpFetch,
    maxRetries: 0,
    logLevel: "off",
  });
}

/** How one of the vendor's interfaces is spoken. */
export interface Interface<Event> {
  open(
    request: ModelRequest,
    info: Readonly<ModelInfo>,
    signal: AbortSignal | undefined,
  ): Promise<AsyncIterable<Event>>;
  createReader(): Reader<Event>;
}

/** Reads one vendor stream. */
export interface Reader<Event> {
  /** The chunks of one event. */
  read(event: Event): ModelChunk[];
  /** The end of the answer; null when the vendor never said that it was complete. */
  stop(): MessageStop | null;
}

/** Runs one request: local rules, vendor stream, and whatever goes wrong as last chunk. Never throws. */
export async function* streamed<Event>(
  spoken: Interface<Event>,
  request: ModelRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  const info = request.capabilities ?? findModelInfo("openai", request.model);
  const problem = requestProblem(request, info);
  if (problem !== null) return void (yield modelFailure("api_bad_request", problem));
  const reader = spoken.createReader();
  let began = false;
  let partial = false;
  try {
    const events = await spoken.open(request, info, signal);
    began = true;
    for await (const event of events) {
      for (const chunk of reader.read(event)) {
        if (chunk.type === "error") return void (yield { ...chunk, partial });
        partial = true;
        yield chunk;
      }
    }
  } catch (error) {
    if (signal?.aborted !== true) yield { ...vendorFailure(error, began), partial };
    return;
  }
  if (signal?.aborted === true) return;
  yield reader.stop() ?? modelFailure("stream_truncated", "The model's stream broke off.", { partial });
}
