import { Type, type Static } from "./type.ts";

/**
 * Opaque vendor data of a part (signatures, encrypted reasoning). Never interpreted outside the
 * adapter that made it, returned to the same vendor unchanged.
 */
export const ProviderMetadata = Type.Record(Type.String(), Type.String());
export type ProviderMetadata = Static<typeof ProviderMetadata>;

export const TextPart = Type.Object({
  type: Type.Literal("text"),
  text: Type.String(),
  /** Of what a model has said. */
  providerMetadata: Type.Optional(ProviderMetadata),
});
export type TextPart = Static<typeof TextPart>;

/** Where the bytes of an image are. `data` is base64 without a data-URL prefix; `url` is HTTPS. */
export const ImageSource = Type.Union([
  Type.Object({
    sourceType: Type.Literal("base64"),
    mediaType: Type.String({ minLength: 1 }),
    data: Type.String({ pattern: "^(?!data:)[A-Za-z0-9+/=]+$" }),
  }),
  Type.Object({ sourceType: Type.Literal("url"), url: Type.String({ pattern: "^https://" }) }),
  Type.Object({
    sourceType: Type.Literal("blob"),
    blobId: Type.String(),
    mediaType: Type.String({ minLength: 1 }),
  }),
]);
export type ImageSource = Static<typeof ImageSource>;

export const ImagePart = Type.Object({
  type: Type.Literal("image"),
  source: ImageSource,
});
export type ImagePart = Static<typeof ImagePart>;

/** `ready`: its content is there; every other state is the reason, for the model, why it is not. */
export const attachmentStates = ["ready", "too_large", "unsupported", "failed"] as const;
export type AttachmentState = (typeof attachmentStates)[number];

/** A file that a person sent; its text lives in the blob store, never in history. */
export const FilePart = Type.Object({
  type: Type.Literal("file"),
  name: Type.String(),
  mediaType: Type.String(),
  bytes: Type.Integer({ minimum: 0 }),
  state: Type.Enum([...attachmentStates]),
  /** Where the extracted text is; only when `ready`. */
  blobId: Type.Optional(Type.String()),
  /** One sentence for the model: why it is not ready, or what is missing. */
  detail: Type.Optional(Type.String()),
});
export type FilePart = Static<typeof FilePart>;

/** What the next agent sees of a conversation: all of it, or the person's last message and the reason. */
export const HandoffContext = Type.Enum(["all", "last"]);

export const ThinkingPart = Type.Object({
  type: Type.Literal("thinking"),
  text: Type.String(),
  providerMetadata: Type.Optional(ProviderMetadata),
});
export type ThinkingPart = Static<typeof ThinkingPart>;

/** A call as stored in history: arguments are parsed. */
export const ToolUsePart = Type.Object({
  type: Type.Literal("tool_use"),
  id: Type.String({ minLength: 1 }),
  name: Type.String(),
  arguments: Type.Record(Type.String(), Type.Unknown()),
  providerMetadata: Type.Optional(ProviderMetadata),
});
export type ToolUsePart = Static<typeof ToolUsePart>;

/** The one answer to the call named by `toolCallId`. Parts are for mixed text and images. */
export const ToolResultPart = Type.Object({
  type: Type.Literal("tool_result"),
  toolCallId: Type.String({ minLength: 1 }),
  content: Type.Union([Type.String(), Type.Array(Type.Union([TextPart, ImagePart]))]),
  isError: Type.Boolean(),
});
export type ToolResultPart = Static<typeof ToolResultPart>;

export const UserPart = Type.Union([TextPart, ImagePart, FilePart]);
export type UserPart = Static<typeof UserPart>;

export const AssistantPart = Type.Union([TextPart, ThinkingPart, ToolUsePart]);
export type AssistantPart = Static<typeof AssistantPart>;

export type ContentPart = UserPart | AssistantPart | ToolResultPart;

/** What of a conversation a vendor may refuse. `plain`: all that a request can do without besides its messages. */
export const pieceKinds = ["image", "file", "thinking", "result", "message", "plain"] as const;
export type PieceKind = (typeof pieceKinds)[number];

/**
 * Pieces of these kinds are not sent any more, of so many messages before an answer. People's messages among the last
 * `but` ones keep their words.
 */
export const LeftOut = Type.Object({
  kinds: Type.Array(Type.Enum([...pieceKinds])),
  messages: Type.Integer({ minimum: 0 }),
  but: Type.Optional(Type.Integer({ minimum: 0 })),
});
export type LeftOut = Static<typeof LeftOut>;

const writtenBy = {
  /** Name of the agent that it comes from; absent: `default`. No model sees it. */
  agent: Type.Optional(Type.String()),
  /** The team that the agent spoke in: other agents read what it said as a quote, and not how it came to that. */
  team: Type.Optional(Type.String()),
};

/** One entry of the conversation. There is no system role: the system prompt travels beside it. */
export const Message = Type.Union([
  Type.Object({
    role: Type.Literal("user"),
    content: Type.Array(UserPart),
    /** Who wrote it, by id: in groups, where a conversation is not one person's. No model sees it. */
    sender: Type.Optional(Type.String()),
    /** Addresses that the person named. No model sees this list. */
    addresses: Type.Optional(Type.Array(Type.String())),
    /** It holds what others wrote, or continues it: quotes, forwarded messages, files, an answer that a vendor keeps. */
    foreign: Type.Optional(Type.Boolean()),
    /** Id of the answer that its turn continues: the vendor has what was said before it. No model sees it. */
    continues: Type.Optional(Type.String()),
    /** Number of the message, where its answer is shown in a chat: so an answer that is rated or quoted is found. No model sees it. */
    seq: Type.Optional(Type.Integer()),
    /** Epoch ms of writing, where the next message counts from it what was said in between. No model sees it. */
    atMs: Type.Optional(Type.Integer()),
  }),
  Type.Object({
    role: Type.Literal("assistant"),
    content: Type.Array(AssistantPart),
    /** What a vendor has refused of the messages before this one. */
    leftOut: Type.Optional(Type.Array(LeftOut)),
    ...writtenBy,
  }),
  Type.Object({
    role: Type.Literal("tool"),
    content: Type.Array(ToolResultPart),
    /** One of these calls has handed over to another agent. */
    handoff: Type.Optional(
      Type.Object({
        callId: Type.String(),
        from: Type.String(),
        to: Type.String(),
        context: HandoffContext,
      }),
    ),
    ...writtenBy,
  }),
]);
export type Message = Static<typeof Message>;

/** A tool result part; `isError` defaults to false. */
export function toolResultPart(
  toolCallId: string,
  content: ToolResultPart["content"],
  isError = false,
): ToolResultPart {
  return { type: "tool_result", toolCallId, content, isError };
}

/** The text parts of a message joined without separator. */
export function textOf(message: Message): string {
  let text = "";
  for (const part of message.content) if (part.type === "text") text += part.text;
  return text;
}

/** Why a model stopped. Vendor reasons are mapped onto these five. */
export const stopReasons = ["end_turn", "tool_use", "max_tokens", "refusal", "other"] as const;
export type StopReason = (typeof stopReasons)[number];

/** Raw token counts of one model answer. `inputTokens` excludes both cache counters. */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheCreationTokens: number;
}

/**
 * A piece of text. Pieces with another `index` belong to another message of the same answer; `providerMetadata` may
 * come with any piece of a message and is merged.
 */
export interface TextDelta {
  type: "text_delta";
  text: string;
  index?: number;
  providerMetadata?: ProviderMetadata;
}

/**
 * A piece of thinking. Pieces with the same `index` belong to one block; `providerMetadata`
 * (for instance a signature) may come with any piece and is merged. With `opaque` in it, the piece is a whole block
 * that only the vendor understands, such as a call of one of its own tools.
 */
export interface ThinkingDelta {
  type: "thinking_delta";
  index: number;
  text: string;
  providerMetadata?: ProviderMetadata;
}

/** A piece of a tool call. Pieces with the same `index` belong to one call; `arguments` concatenate to JSON text. */
export interface ToolCallDelta {
  type: "tool_call_delta";
  index: number;
  id: string | null;
  name: string | null;
  arguments: string;
  providerMetadata?: ProviderMetadata;
}

/** The stream ended well. `model` is the id of the model that answered. */
export interface MessageStop {
  type: "message_stop";
  stopReason: StopReason;
  usage: Usage | null;
  model?: string;
  /** The id under which the vendor knows the answer. */
  responseId?: string;
  /** The answer has only paused, and may not be continued: as many requests as were allowed have been made. */
  paused?: true;
}

/** A value of the request was changed for this vendor, or something else non-fatal happened. */
export interface ModelWarning {
  type: "warning";
  code: string;
  message: string;
}

/** A vendor is called (again). Everything that follows, up to the next one, is of this call. */
export interface ModelAttempt {
  type: "attempt";
  model: string;
  /** Most output tokens that the request allows. */
  maxTokens: number;
  /** The answer before it was complete and has only paused: this call continues it. */
  continues?: true;
}

/**
 * The answer begins anew (a retry or a fallback model after a broken stream): what came before
 * is void.
 */
export interface ModelRestart {
  type: "restart";
  model: string;
  reason: string;
}

/** The stream failed; nothing follows. `partial` is true when deltas had already been delivered. */
export interface ModelFailure {
  type: "error";
  code: string;
  message: string;
  suggestion: string;
  retryable: boolean;
  partial: boolean;
  /** What the vendor asked us to wait, in ms. */
  retryAfterMs?: number;
  /** The vendor has said nothing for too long, or was not asked at all: another one is worth more than a repeat. */
  silent?: boolean;
  /** For operators alone: what the vendor said, and the id under which it finds the request. */
  vendor?: { message: string; requestId?: string };
  /** The vendor will refuse this request again, for what is in it: its `content`, by a filter, or anything else. */
  blames?: "content" | "request";
  /** The step is worth asking again after this time, in ms; the wait should hold no slot. */
  retryInMs?: number;
  /** With `retryInMs`: how long the vendor has been waited for by then because it asked for that, in ms. */
  askedWaitMs?: number;
}

/** A call of a vendor went wrong and another one follows: at once, or after `waitMs`. */
export interface ModelRetry {
  type: "retry";
  model: string;
  code: string;
  waitMs: number;
  /** Calls of this model in a row so far. */
  attempt: number;
  /** What people call the model that is asked next, where it is another one. */
  next?: string;
  /** For operators alone: what the vendor said, or what we found wrong. */
  problem: string;
  /** The id under which the vendor finds the request. */
  requestId?: string;
}

/** What the vendor has counted so far, before its answer is complete. */
export interface UsageSoFar {
  type: "usage_so_far";
  usage: Usage;
}

/**
 * One element of a model stream: any number of deltas, warnings and notes on its calls, then exactly one
 * `message_stop` or `error`. Model streams never throw.
 */
export type ModelChunk =
  | TextDelta
  | ThinkingDelta
  | ToolCallDelta
  | ModelWarning
  | ModelAttempt
  | ModelRetry
  | UsageSoFar
  | ModelRestart
  | MessageStop
  | ModelFailure;
