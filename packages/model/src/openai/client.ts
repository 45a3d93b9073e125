import type { Clock } from "@larkline/protocol/clock";
import type { ImagePart, ToolResultPart } from "@larkline/protocol/content";
import type { MessageStop, ModelChunk, ModelFailure } from "@larkline/protocol/model-stream";
import type { OpenAI } from "@larkline/openai-sdk";
import {
  failureOfCall,
  failureOfRefusal,
  findModelInfo,
  headersWith,
  httpFetch,
  modelFailure,
  refusalIn,
  requestIdOf,
  requestProblem,
  serverEvents,
  type ModelInfo,
  type ModelRequest,
  type ProfileInput,
  type ServerEvent,
  type VendorProfile,
  type VendorRefusal,
} from "../index.ts";
import { jsonBody } from "../http.ts";

export interface OpenAiBackendOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works, with a path too (`.../v1`). */
  baseUrl?: string;
  /** How long the vendor may take until it begins to answer. 10 minutes by default. */
  timeoutMs?: number;
  /** `httpFetch` of the model package by default. */
  fetch?: typeof fetch;
  /** What is particular about the server; by default what is known of its address and of each model. */
  profile?: ProfileInput;
  /** The machine's if absent. */
  clock?: Clock;
}

/**
 * The SDK without its own retries (the chain repeats) and without its console output. Only processes that have such a
 * model load it: it takes a sixth of a worker's start.
 */
export async function createClient(options: OpenAiBackendOptions): Promise<OpenAI> {
  const { OpenAI: Client } = await import("@larkline/openai-sdk");
  const client = new Client({
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
  return options.fetch === undefined ? Object.assign(client, bodies) : client;
}

const jsonHeaders = { "content-type": "application/json" };

/** The SDK's own method where it makes the text of a body, with one that keeps the bytes of tools. */
const bodies = {
  buildBody: ({ options: { body } }: { options: { body?: object } }) => ({
    bodyHeaders: jsonHeaders,
    body: jsonBody(body ?? {}),
    isStreamingBody: false,
  }),
};

/** What a call of the SDK is given beside its body. */
export function callOptions({ extra }: ModelRequest, signal: AbortSignal | undefined) {
  return {
    ...(extra?.headers === undefined ? {} : { headers: headersWith({}, extra.headers) }),
    ...(signal === undefined ? {} : { signal }),
  };
}

/** One of the vendor's interfaces. */
export interface VendorApi {
  open(
    request: ModelRequest,
    info: Readonly<ModelInfo>,
    signal: AbortSignal | undefined,
  ): Promise<Response>;
  createReader(model: string): Reader;
  profileOf(model: string): VendorProfile;
  /** Whether it has tools that it runs itself. */
  hostsTools: boolean;
  /** The key. */
  secret: string;
  clock: Clock;
}

/** Reads one vendor stream. */
export interface Reader {
  /** The chunks of one event, which may be any JSON value: what the reader does not know it skips. */
  read(event: unknown): ModelChunk[];
  /** What it has held back, when no more events come. */
  rest?(): ModelChunk[];
  /** The end of the answer; null when the vendor never said that it was complete. */
  stop(): MessageStop | ModelFailure | null;
  /** The server has said that nothing follows. */
  close?(): void;
}

/** Runs one request: local rules, vendor stream, and whatever goes wrong as last chunk. Never throws. */
export async function* streamed(
  api: VendorApi,
  request: ModelRequest,
  signal: AbortSignal | undefined,
): AsyncGenerator<ModelChunk> {
  const info = request.capabilities ?? findModelInfo("openai", request.model);
  const isUnhosted = !api.hostsTools && (request.hostedTools ?? []).length > 0;
  const problem = isUnhosted
    ? "This interface has no hosted tools."
    : requestProblem(request, info);
  if (problem !== null) return void (yield modelFailure("api_bad_request", problem));
  const { alive = () => undefined } = request;
  const { secret, clock } = api;
  const profile = api.profileOf(request.model);
  const reader = api.createReader(request.model);
  let began = false;
  let partial = false;
  try {
    const response = await api.open(request, info, signal);
    began = true;
    const requestId = requestIdOf(response.headers);
    alive();
    const about = { requestId, secret, profile };
    for await (const chunk of chunksOf(serverEvents(response, alive), reader, about)) {
      yield chunk.type === "error" ? { ...chunk, partial } : chunk;
      if (chunk.type === "error") return;
      partial = true;
    }
  } catch (error) {
    const { OpenAI: sdk } = await import("@larkline/openai-sdk");
    const call = { began, secret, profile, nowMs: clock.now() };
    if (signal?.aborted !== true) yield { ...failureOfCall(error, sdk, call), partial };
    return;
  }
  if (signal?.aborted === true) return;
  for (const chunk of reader.rest?.() ?? []) {
    yield chunk;
    partial = true;
  }
  const end = reader.stop() ?? modelFailure("stream_truncated", "The model's stream broke off.");
  yield end.type === "error" ? { ...end, partial } : end;
}

/** The last event of a stream of Chat Completions. */
const done = "[DONE]";

/** The chunks of a stream; a failure that it reports is the last one. */
async function* chunksOf(
  events: AsyncIterable<ServerEvent>,
  reader: Reader,
  about: Pick<VendorRefusal, "requestId" | "secret" | "profile">,
): AsyncGenerator<ModelChunk> {
  for await (const { data } of events) {
    if (data.startsWith(done)) return reader.close?.();
    const event: unknown = JSON.parse(data);
    if (errorIn(event)) return void (yield failureOfRefusal({ ...refusalIn(event), ...about }));
    for (const chunk of reader.read(event)) {
      if (chunk.type !== "error") {
        yield chunk;
        continue;
      }
      const id = about.requestId === undefined ? {} : { requestId: about.requestId };
      return void (yield { ...chunk, vendor: { message: chunk.message, ...chunk.vendor, ...id } });
    }
  }
}

/** An error that is reported inside a stream, in the form of Chat Completions; Responses has an event of its own. */
function errorIn(body: unknown): boolean {
  if (typeof body !== "object" || body === null) return false;
  if ("base_resp" in body && isRefusing(body.base_resp)) return true;
  return "error" in body && body.error !== null && !("type" in body && body.type !== "error");
}

/** MiniMax reports in each chunk how it fares: code 0 is well. */
function isRefusing(state: unknown): boolean {
  return (
    typeof state === "object" && state !== null && "status_code" in state && state.status_code !== 0
  );
}

/** These interfaces have no flag for a failed tool: the model has to read it. */
const failedPrefix = "Error: ";

type ResultContent = string | { texts: string[]; images: ImagePart[] };

/** A tool result without its error flag, which is turned into text. A string stays a string. */
export function resultContent(part: ToolResultPart): ResultContent {
  const prefix = part.isError ? failedPrefix : "";
  if (typeof part.content === "string") return prefix + part.content;
  const texts = part.content.flatMap((item) => (item.type === "text" ? [item.text] : []));
  const images = part.content.filter((item) => item.type === "image");
  if (part.isError) texts[0] = prefix + (texts[0] ?? "");
  return { texts, images };
}

/** The address of an image as these interfaces take it. */
export function imageAddress(part: ImagePart): string {
  const { source } = part;
  if (source.sourceType === "url") return source.url;
  return source.sourceType === "base64" ? `data:${source.mediaType};base64,${source.data}` : "";
}

/** A file the model cannot see, named so that it knows of it. */
export function fileNote(file: { name: string; mediaType: string; bytes: number }): string {
  return `[file ${file.name}, ${file.mediaType}, ${file.bytes} bytes]`;
}
