import { addressesIn, type Heard } from "./permissions/index.ts";
import type { InboundMessage, Message } from "@larkline/protocol";
import { isSummary } from "./compaction-summary.ts";
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
  const named = namedIn(message);
  const facts = {
    ...(named.length === 0 ? {} : { addresses: [...named] }),
    ...(message.foreign === true ? { foreign: true } : {}),
  };
  if (message.chatType !== "group") return { role: "user", content: parts, ...facts };
  return { role: "user", content: attributed(parts, speakerOf(message)), sender: message.sender.id, ...facts };
}

/** Addresses that the person named. */
function namedIn({ addresses, foreign, parts }: InboundMessage): readonly string[] {
  if (addresses !== undefined) return addresses;
  return foreign === true ? [] : parts.flatMap((part) => (part.type === "text" ? addressesIn(part.text) : []));
}

/** What the conversation says about addresses: what a call may reach unasked depends on it. */
export function heardIn(history: readonly Message[], message: InboundMessage): Heard {
  const named = new Set(namedIn(message));
  let foreign = message.foreign === true;
  for (const said of history) {
    foreign ||= said.role === "tool" || isSummary(said) || (said.role === "user" && said.foreign === true);
    if (said.role === "user") for (const address of said.addresses ?? []) named.add(address);
  }
  return { foreign, named };
}
