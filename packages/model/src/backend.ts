import type { Message, ModelChunk, ToolSpec } from "@larkline/protocol";
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
