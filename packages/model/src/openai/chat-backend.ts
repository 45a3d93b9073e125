import type { LlmBackend, ModelInfo, ModelRequest } from "../index.ts";
import type OpenAI from "openai";
import { chatMessages } from "./chat-messages.ts";
import { createChatReader } from "./chat-reader.ts";
import { createClient, streamed, type Interface, type OpenAiBackendOptions } from "./client.ts";

type Body = OpenAI.Chat.Completions.ChatCompletionCreateParamsStreaming;

/** Models that refuse the old name of the output limit. */
const newLimitName = /^(?:o\d|gpt-[5-9])/;

function limitOf(request: ModelRequest, own: boolean): Partial<Body> {
  if (request.maxTokens === undefined) return {};
  return own || newLimitName.test(request.model)
    ? { max_completion_tokens: request.maxTokens }
    : { max_tokens: request.maxTokens };
}

function effortOf(request: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (!info.supportsThinking) return {};
  if (request.effort !== undefined) return { reasoning_effort: request.effort };
  return request.needsThinking === true ? { reasoning_effort: "medium" } : {};
}

function formatOf({ responseFormat: format }: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (format?.type === "json_object") return { response_format: { type: "json_object" } };
  if (format?.jsonSchema === undefined || !info.supportsJsonSchema) return {};
  return {
    response_format: {
      type: "json_schema",
      json_schema: { name: format.name ?? "response", schema: format.jsonSchema, strict: true },
    },
  };
}

function samplingOf(request: ModelRequest): Partial<Body> {
  const { temperature, topP } = request;
  return {
    ...(temperature === undefined || temperature === null ? {} : { temperature }),
    ...(topP === undefined || topP === null ? {} : { top_p: topP }),
  };
}

function toolsOf(request: ModelRequest): Partial<Body> {
  const tools = (request.tools ?? []).map((tool) => ({
    type: "function" as const,
    function: { name: tool.name, description: tool.description, parameters: tool.inputSchema },
  }));
  return tools.length > 0 ? { tools } : {};
}

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>, own: boolean): Body {
  return {
    model: request.model,
    messages: chatMessages(request),
    stream: true,
    stream_options: { include_usage: true },
    ...toolsOf(request),
    ...limitOf(request, own),
    ...effortOf(request, info),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

/** OpenAI's Chat Completions, and every server compatible with them, through the official SDK. */
export function createOpenAiChatBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const own = options.baseUrl === undefined || new URL(options.baseUrl).hostname === "api.openai.com";
  const spoken: Interface<OpenAI.Chat.Completions.ChatCompletionChunk> = {
    open: async (request, info, signal) =>
      await client.chat.completions
        .create(bodyOf(request, info, own), signal === undefined ? {} : { signal })
        .asResponse(),
    createReader: createChatReader,
    secret: options.apiKey,
  };
  return { thinksSilently: true, stream: (request, signal) => streamed(spoken, request, signal) };
}
