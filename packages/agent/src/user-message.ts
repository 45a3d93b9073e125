import type { InboundMessage, Message } from "@larkline/protocol";
import { oneLine } from "./notice.ts";
import { isSendable } from "./sendable-part.ts";

type UserMessage = Extract<Message, { role: "user" }>;
type UserPart = UserMessage["content"][number];

const maxNameChars = 64;
const lineBreak = /\r\n|[\n\v\f\r\u0085\u2028\u2029]/g;

/** A speaker's name: one line without a colon, so that the first colon of the message ends it. Empty when nothing is left. */
export function speakerName(text: string): string {
  return oneLine(text.replaceAll(/[\s:：﹕︓]+/gu, " "), maxNameChars);
}

function speakerOf({ sender }: InboundMessage): string {
  return speakerName(sender.name ?? "") || speakerName(sender.id) || "unknown";
}

/** Lines after the first are indented: what stands at the beginning of a line is a speaker's name. */
export function underSpeaker(text: string): string {
  return text.replaceAll(lineBreak, "\n  ");
}

function attributed(parts: readonly UserPart[], speaker: string): UserPart[] {
  const [first, ...rest] = parts;
  const opening: UserPart[] =
    first?.type === "text"
      ? [{ type: "text", text: `${speaker}: ${underSpeaker(first.text)}` }]
      : [{ type: "text", text: `${speaker}:` }, ...(first === undefined ? [] : [first])];
  return [
    ...opening,
    ...rest.map((part) => (part.type === "text" ? { ...part, text: `\n  ${underSpeaker(part.text)}` } : part)),
  ];
}

/**
 * The user message as stored: in groups it begins with the sender's name. Vendors refuse blank text
 * and messages without parts.
 */
export function userMessageOf(message: InboundMessage): UserMessage {
  const sendable = message.parts.filter(isSendable);
  const parts: UserPart[] = sendable.length > 0 ? sendable : [{ type: "text", text: "[empty message]" }];
  if (message.chatType !== "group") return { role: "user", content: parts };
  return { role: "user", content: attributed(parts, speakerOf(message)), sender: message.sender.id };
}
