import type { Message } from "@larkline/protocol";

/** Parts an assistant message may hold. */
export type AssistantPart = Extract<Message, { role: "assistant" }>["content"][number];

/** Whether vendors take a part: no blank text, no thinking that says nothing. */
export function isSendable(part: Message["content"][number]): boolean {
  if (part.type === "text") return /\S/.test(part.text);
  return part.type !== "thinking" || part.text !== "" || part.providerMetadata !== undefined;
}

/** Thinking may not be the last thing an assistant says. The same array when it is not. */
export function withoutTrailingThinking(parts: AssistantPart[]): AssistantPart[] {
  const end = parts.findLastIndex(({ type }) => type !== "thinking") + 1;
  return end === parts.length ? parts : parts.slice(0, end);
}
