import type { ImagePart, Message, ModelChunk, ToolSpec } from "@larkline/protocol";
import type { ModelInfo } from "./model-catalog.ts";

/** A piece of the system prompt; a non-empty scope asks for caching up to its end. */
export interface SystemBlock {
  text: string;
  cacheScope: "" | "session" | "global";
}

export type ResponseFormat =
  | { type: "json_object" }
  /** The schema goes to models that take one. `name`: letters, digits, `_` and `-`; default `response`. */
  | { type: "json_schema"; name?: string; jsonSchema?: Record<string, unknown> };

/** One model step. Values left out are not transmitted; sampling values are passed on unchecked. */
export interface ModelRequest {
  /** The vendor's model id, without provider prefix. */
  model: string;
  messages: readonly Message[];
  tools?: readonly ToolSpec[];
  system?: string;
  /** Beats `system` when not empty. */
  systemBlocks?: readonly SystemBlock[];
  maxTokens?: number;
  temperature?: number | null;
  topP?: number | null;
  needsThinking?: boolean;
  fastMode?: boolean;
  effort?: "low" | "medium" | "high";
  responseFormat?: ResponseFormat;
  /** Snapshot of the model's facts; null makes the adapter use its built-in ones. Never changed. */
  capabilities?: Readonly<ModelInfo> | null;
  /** Called for the vendor's headers and each piece of its body, whatever is in it. Must not throw. */
  alive?: () => void;
}

/**
 * A model vendor. `stream` never throws: failures are the last chunk. Ending the iteration early
 * or aborting `signal` stops the vendor call; an aborted stream ends without a terminal chunk.
 */
export interface LlmBackend {
  /** Whether its interface sends nothing, not even pings, while a model thinks. Default: it does not. */
  readonly thinksSilently?: boolean;
  stream(request: ModelRequest, signal?: AbortSignal): AsyncIterable<ModelChunk>;
}

/**
 * About how many tokens a text has: four ASCII characters, or one other character, count as one.
 * Counting stops once the result is above `enough`, so that long prompts cost no time.
 */
export function estimateTokens(text: string, enough = Number.POSITIVE_INFINITY): number {
  let quarters = 0;
  const limit = enough * 4;
  for (let at = 0; at < text.length && quarters <= limit; at += 1) quarters += text.charCodeAt(at) < 128 ? 1 : 4;
  return Math.ceil(quarters / 4);
}

/** Whether text of this prompt is worth a cache mark: the model caches, and the text is above its threshold. */
export function worthCaching(texts: Iterable<string>, info: Readonly<ModelInfo>): boolean {
  if (!info.supportsCaching || info.cachingMinTokens <= 0) return false;
  let tokens = 0;
  for (const text of texts) {
    tokens += estimateTokens(text, info.cachingMinTokens - tokens);
    if (tokens > info.cachingMinTokens) return true;
  }
  return false;
}

/** The system prompt as blocks: `systemBlocks` when not empty, else `system`. Blocks without text are left out. */
export function systemBlocksOf(request: Pick<ModelRequest, "system" | "systemBlocks">): SystemBlock[] {
  const blocks = request.systemBlocks ?? [];
  const chosen: readonly SystemBlock[] =
    blocks.length > 0 ? blocks : [{ text: request.system ?? "", cacheScope: "" as const }];
  return chosen.filter((block) => block.text.trim() !== "");
}

/** Why the number of tools is refused locally, or null: only a proven limit is enforced here. */
export function toolLimitProblem(tools: readonly ToolSpec[], info: Readonly<ModelInfo>): string | null {
  if (info.maxTools === 0 || !info.maxToolsExhaustive || tools.length <= info.maxTools) return null;
  return `${tools.length} tools are offered, ${info.id} takes ${info.maxTools}.`;
}

/** Why the response format is refused locally, or null. */
export function responseFormatProblem(format: ModelRequest["responseFormat"]): string | null {
  if (format?.type !== "json_schema" || format.jsonSchema !== undefined) return null;
  return "responseFormat json_schema needs a jsonSchema.";
}

/** Asks a model for JSON in words where its interface cannot bind the answer to the schema. */
export function withSchemaInWords(request: ModelRequest, info: Readonly<ModelInfo>): ModelRequest {
  const { responseFormat: format, system = "", systemBlocks = [] } = request;
  if (format?.type !== "json_schema" || format.jsonSchema === undefined || info.supportsJsonSchema) return request;
  const schema = JSON.stringify(format.jsonSchema);
  const text = `Your final answer is one JSON value and nothing else. It fits this JSON Schema:\n${schema}`;
  if (systemBlocks.length > 0) return { ...request, systemBlocks: [...systemBlocks, { text, cacheScope: "" }] };
  return { ...request, system: system.trim() === "" ? text : `${system}\n\n${text}` };
}

/** Why an image cannot be sent, or null. Blob references have to be resolved to bytes before. */
export function imageProblem(image: ImagePart): string | null {
  const { source } = image;
  if (source.sourceType === "url") return source.url.startsWith("https://") ? null : "An image URL must be HTTPS.";
  if (source.mediaType === "") return "An image needs a media type.";
  if (source.sourceType === "blob") return "An image must be resolved to its bytes before it is sent to a model.";
  if (source.data.startsWith("data:")) return "Image data must be plain base64, without a data-URL prefix.";
  return source.data === "" ? "An image has no data." : null;
}

function* imagesOf(request: ModelRequest): Generator<ImagePart> {
  for (const message of request.messages) {
    for (const part of message.content) {
      if (part.type === "image") yield part;
      if (part.type !== "tool_result" || typeof part.content === "string") continue;
      for (const inner of part.content) if (inner.type === "image") yield inner;
    }
  }
}

function imagesProblem(request: ModelRequest, info: Readonly<ModelInfo>): string | null {
  for (const image of imagesOf(request)) {
    if (!info.supportsVision) return `${info.id} does not take images.`;
    const problem = imageProblem(image);
    if (problem !== null) return problem;
  }
  return null;
}

const usualOutput = 32_000;
const fastOutput = 4_096;

/** Most output tokens of a request: as it says, else what the model can write, up to a bound that an answer never needs. */
export function outputLimit(request: Pick<ModelRequest, "maxTokens" | "fastMode">, info: Readonly<ModelInfo>): number {
  return request.maxTokens ?? Math.min(info.maxOutputTokens, request.fastMode === true ? fastOutput : usualOutput);
}

/** The first reason to refuse a request before it is sent, or null. Sampling values are the vendor's to judge. */
export function requestProblem(request: ModelRequest, info: Readonly<ModelInfo>): string | null {
  if (request.messages.length === 0) return "The request has no messages.";
  return (
    toolLimitProblem(request.tools ?? [], info) ??
    responseFormatProblem(request.responseFormat) ??
    imagesProblem(request, info)
  );
}
