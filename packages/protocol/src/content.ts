import { Type, type Static } from "typebox";

/**
 * Opaque vendor data of a part (signatures, encrypted reasoning). Never interpreted outside the
 * adapter that made it, returned to the same vendor unchanged.
 */
export const ProviderMetadata = Type.Record(Type.String(), Type.String());
export type ProviderMetadata = Static<typeof ProviderMetadata>;

export const TextPart = Type.Object({
  type: Type.Literal("text"),
  text: Type.String(),
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

/** `ready`: its content is there; everything else tells the model why it is not. */
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

/** One entry of the conversation. There is no system role: the system prompt travels beside it. */
export const Message = Type.Union([
  Type.Object({
    role: Type.Literal("user"),
    content: Type.Array(UserPart),
    /** Who wrote it, by id: in groups, where a conversation is not one person's. No model sees it. */
    sender: Type.Optional(Type.String()),
    /** Addresses that the person named. No model sees this list. */
    addresses: Type.Optional(Type.Array(Type.String())),
    /** It holds what others wrote: quotes, forwarded messages, files. */
    foreign: Type.Optional(Type.Boolean()),
  }),
  Type.Object({ role: Type.Literal("assistant"), content: Type.Array(AssistantPart) }),
  Type.Object({ role: Type.Literal("tool"), content: Type.Array(ToolResultPart) }),
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
