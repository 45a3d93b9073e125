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
const ImageSource = Type.Union([
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
type ImageSource = Static<typeof ImageSource>;

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
const pieceKinds = ["image", "file", "thinking", "result", "message", "plain"] as const;
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
