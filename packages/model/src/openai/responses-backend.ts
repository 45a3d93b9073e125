import { systemBlocksOf, type LlmBackend, type ModelInfo, type ModelRequest } from "../index.ts";
import type OpenAI from "openai";
import { createClient, streamed, type Interface, type OpenAiBackendOptions } from "./client.ts";
import { responsesInput } from "./responses-input.ts";
import { createResponsesReader } from "./responses-reader.ts";

type Body = OpenAI.Responses.ResponseCreateParamsStreaming;

function reasoningOf(request: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (!info.supportsThinking) return {};
  const effort = request.effort ?? (request.needsThinking === true ? ("medium" as const) : undefined);
  const summary = request.needsThinking === true ? { summary: "auto" as const } : {};
  const reasoning = { ...(effort === undefined ? {} : { effort }), ...summary };
  const asks = Object.keys(reasoning).length > 0;
  // Nothing is stored at the vendor, so its reasoning travels with us, encrypted.
  return { include: ["reasoning.encrypted_content"], ...(asks ? { reasoning } : {}) };
}

function formatOf({ responseFormat: format }: ModelRequest, info: Readonly<ModelInfo>): Partial<Body> {
  if (format?.type === "json_object") return { text: { format: { type: "json_object" } } };
  if (format?.jsonSchema === undefined || !info.supportsJsonSchema) return {};
  const { name = "response", jsonSchema: schema } = format;
  return { text: { format: { type: "json_schema", name, schema, strict: true } } };
}

function samplingOf({ temperature, topP, maxTokens }: ModelRequest): Partial<Body> {
  return {
    ...(temperature === undefined || temperature === null ? {} : { temperature }),
    ...(topP === undefined || topP === null ? {} : { top_p: topP }),
    ...(maxTokens === undefined ? {} : { max_output_tokens: maxTokens }),
  };
}

function toolsOf(request: ModelRequest): Partial<Body> {
  const tools = (request.tools ?? []).map((tool) => ({
    type: "function" as const,
    name: tool.name,
    description: tool.description,
    parameters: tool.inputSchema,
    strict: false,
  }));
  return tools.length > 0 ? { tools } : {};
}

function bodyOf(request: ModelRequest, info: Readonly<ModelInfo>): Body {
  const system = systemBlocksOf(request).map((block) => block.text);
  return {
    model: request.model,
    input: responsesInput(request.messages),
    stream: true,
    store: false,
    ...(system.length > 0 ? { instructions: system.join("\n\n") } : {}),
    ...toolsOf(request),
    ...reasoningOf(request, info),
    ...samplingOf(request),
    ...formatOf(request, info),
  };
}

/** OpenAI's Responses interface through the official SDK; nothing is stored at the vendor. */
export function createOpenAiResponsesBackend(options: OpenAiBackendOptions): LlmBackend {
  const client = createClient(options);
  const spoken: Interface<OpenAI.Responses.ResponseStreamEvent> = {
    open: async (request, info, signal) =>
      await client.responses.create(bodyOf(request, info), signal === undefined ? {} : { signal }).asResponse(),
    createReader: createResponsesReader,
    secret: options.apiKey,
  };
  return { stream: (request, signal) => streamed(spoken, request, signal) };
}
