import { parserOf } from "@larkline/protocol";
import { ProviderMetadata } from "@larkline/protocol/content";
import { errorCodes, type ErrorCode } from "@larkline/protocol/error";
import { stopReasons, type ModelChunk } from "@larkline/protocol/model-stream";
import { Type, type Static } from "@larkline/protocol/type";
import { messageStop, toolCallDelta, type LlmBackend } from "./backend.ts";
import { modelFailure } from "./failure.ts";

// A model backend that a deployment brings itself: a module of the configuration. What it yields comes from outside, so
// each chunk is checked, and what may be left out is filled in.

const index = Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000 }));
const orNull = Type.Optional(Type.Union([Type.String(), Type.Null()]));
const metadata = Type.Optional(ProviderMetadata);
const tokens = Type.Optional(Type.Number({ minimum: 0 }));

const Counts = Type.Object({
  inputTokens: tokens,
  outputTokens: tokens,
  cacheReadTokens: tokens,
  cacheCreationTokens: tokens,
});

/** A chunk that a backend may yield. */
const parseChunk = parserOf(
  Type.Union([
    Type.Object({
      type: Type.Literal("text_delta"),
      text: Type.String(),
      index,
      providerMetadata: metadata,
    }),
    Type.Object({
      type: Type.Literal("thinking_delta"),
      text: Type.String(),
      index,
      providerMetadata: metadata,
    }),
    Type.Object({
      type: Type.Literal("tool_call_delta"),
      index,
      id: orNull,
      name: orNull,
      arguments: Type.Optional(Type.String()),
      providerMetadata: metadata,
    }),
    Type.Object({ type: Type.Literal("usage_so_far"), usage: Counts }),
    Type.Object({ type: Type.Literal("warning"), code: Type.String(), message: Type.String() }),
    Type.Object({
      type: Type.Literal("message_stop"),
      stopReason: Type.Enum([...stopReasons]),
      usage: Type.Optional(Type.Union([Counts, Type.Null()])),
      responseId: Type.Optional(Type.Unknown()),
    }),
    Type.Object({
      type: Type.Literal("error"),
      code: Type.String(),
      message: Type.String(),
      retryable: Type.Optional(Type.Boolean()),
      retryAfterMs: Type.Optional(Type.Number({ minimum: 0 })),
    }),
  ]),
);

/** A backend of a module as the others are: an unknown chunk ends the answer in an error that names the provider. */
export function checkedBackend(backend: LlmBackend, provider: string): LlmBackend {
  return {
    thinksSilently: backend.thinksSilently === true,
    storesResponses: backend.storesResponses === true,
    stream: async function* (request, signal) {
      for await (const given of backend.stream(request, signal) as AsyncIterable<unknown>) {
        const chunk = chunkOf(given, provider);
        yield chunk;
        if (chunk.type === "message_stop" || chunk.type === "error") return;
      }
    },
  };
}

function chunkOf(given: unknown, provider: string): ModelChunk {
  const read = parseChunk(given);
  if (!read.ok) {
    const kind: unknown =
      typeof given === "object" && given !== null && "type" in given ? given.type : typeof given;
    const what = `The module of providers.${provider} gave a chunk ${JSON.stringify(kind)} of an unknown form`;
    return modelFailure("internal_error", `${what}: ${read.error}.`);
  }
  const chunk = read.value;
  switch (chunk.type) {
    case "thinking_delta":
      return { ...chunk, index: chunk.index ?? 0 };
    case "tool_call_delta": {
      const { index: at = 0, id = null, name = null, ...rest } = chunk;
      return toolCallDelta(at, { id, name, ...rest });
    }
    case "usage_so_far":
      return { type: chunk.type, usage: usageOf(chunk.usage) };
    case "message_stop": {
      const { stopReason, usage = null, responseId } = chunk;
      return messageStop(stopReason, usage === null ? null : usageOf(usage), responseId);
    }
    case "error": {
      const { type: _type, code, message, ...details } = chunk;
      return modelFailure(isErrorCode(code) ? code : "internal_error", message, details);
    }
    default:
      return chunk;
  }
}

function usageOf(counts: Static<typeof Counts>) {
  return { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0, ...counts };
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}
