import { imageTypeOf } from "../stored-image.ts";
import type {
  AnyMessage,
  ChatMessage,
  Image,
  StructuredMessage,
  UserMessage,
} from "./chat-messages.ts";
import { MessageError } from "./message-error.ts";

// Messages as text for people and for models. It imports only the detection of image types, so that it runs anywhere.

type Conversational = ChatMessage | StructuredMessage;

/** The text of a message for consoles and people. `iterm`: images are shown by the escape sequence of iTerm2. */
export function toText(message: AnyMessage, { iterm = false }: { iterm?: boolean } = {}): string {
  if (isStructured(message)) return structuredText(message);
  switch (message.type) {
    case "MultiModalMessage":
      return message.content
        .map((part) => (typeof part === "string" ? part : shownImage(part, iterm)))
        .join("\n");
    case "CodeExecutionEvent":
      return message.result.output;
    case "UserInputRequestedEvent":
      return "";
    case "ToolCallRequestEvent":
    case "ToolCallExecutionEvent":
    case "MemoryQueryEvent":
    case "SelectSpeakerEvent":
      return JSON.stringify(message.content);
    default:
      return message.content;
  }
}

function shownImage({ data }: Image, iterm: boolean): string {
  return iterm ? `\u001B]1337;File=inline=1:${data}\u0007\n` : "<image>";
}

/** The text of a message as part of a message to a model. `imagePlaceholder` null: images as base64. */
export function toModelText(
  message: Conversational,
  { imagePlaceholder = "[image]" }: { imagePlaceholder?: string | null } = {},
): string {
  if (isStructured(message)) return structuredText(message);
  if (message.type !== "MultiModalMessage") return message.content;
  return message.content
    .map((part) => (typeof part === "string" ? part : ` ${imagePlaceholder ?? part.data}`))
    .join("");
}

/** The message as a whole message to a model: always of a user, also when an agent sent it. */
export function toModelMessage(message: Conversational): UserMessage {
  const { source } = message;
  if (isStructured(message)) {
    return { content: JSON.stringify(message.content), source, type: "UserMessage" };
  }
  return { content: structuredClone(message.content), source, type: "UserMessage" };
}

function isStructured(message: AnyMessage): message is StructuredMessage {
  return message.type.startsWith("StructuredMessage[");
}

function structuredText({ content, format_string: format }: StructuredMessage): string {
  return format === null ? JSON.stringify(content) : filled(format, content);
}

/** `{field}` is the field's value, `{{` and `}}` are braces. Throws a {@link MessageError} for an unknown field and a lone brace. */
function filled(format: string, content: Readonly<Record<string, unknown>>): string {
  return format.replaceAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (found, field: string | undefined) => {
    if (found === "{{" || found === "}}") return found.slice(1);
    if (field === undefined) throw new MessageError(`a lone ${found} in the format of a message`);
    if (!Object.hasOwn(content, field)) {
      throw new MessageError(`a format names an unknown field: ${field}`);
    }
    const value = content[field];
    return typeof value === "string" ? value : JSON.stringify(value);
  });
}

/** Enough for the first bytes of every known type. */
const headCharacters = 24;

/** The media type of an image, by its first bytes. */
export function imageMediaType({ data }: Image): string {
  const head = atob(data.slice(0, headCharacters));
  return imageTypeOf(Uint8Array.from(head, (character) => character.charCodeAt(0))) ?? "image/jpeg";
}
