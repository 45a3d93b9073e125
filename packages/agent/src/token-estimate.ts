import type { Message, Usage } from "@larkline/protocol";

/** What vendors take for a large picture at most, roughly. */
const imageTokens = 1_600;
/** Most that a file can add: its text is cut to size before a model gets it. */
const maxFileTokens = 30_000;
/** Roles and separators around a message or a part. */
const frameTokens = 8;

/**
 * Tokens of a text without a tokenizer, rather too many than too few: four Latin letters to a token,
 * two digits or signs, and one character of any other script.
 */
export function textTokens(text: string): number {
  let quarters = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    const letter = (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || code === 32;
    if (letter) quarters += 1;
    else quarters += code < 128 ? 2 : 4;
  }
  return Math.ceil(quarters / 4);
}

/** About what a model has written in one step. */
export function writtenTokens({
  parts,
  toolCalls,
}: {
  parts: readonly { text: string }[];
  toolCalls: readonly { name: string; arguments: string }[];
}): number {
  const calls = toolCalls.map(({ name, arguments: given }) => textTokens(name) + textTokens(given));
  return [...parts.map(({ text }) => textTokens(text)), ...calls].reduce((sum, tokens) => sum + tokens, 0);
}

type Part = Message["content"][number];

function partTokens(part: Part): number {
  switch (part.type) {
    case "text":
    case "thinking":
      return textTokens(part.text);
    case "image":
      return imageTokens;
    case "file":
      return frameTokens * 8 + (part.state === "ready" ? Math.min(maxFileTokens, Math.ceil(part.bytes / 3)) : 0);
    case "tool_use":
      return textTokens(part.name) + textTokens(JSON.stringify(part.arguments));
    case "tool_result":
      return typeof part.content === "string" ? textTokens(part.content) : partsTokens(part.content);
  }
}

function partsTokens(parts: readonly Part[]): number {
  return parts.reduce((sum, part) => sum + frameTokens + partTokens(part), 0);
}

/** Tokens of one message, by {@link textTokens}; pictures and files count as they would be sent. */
export function messageTokens({ content }: Message): number {
  return frameTokens + partsTokens(content);
}

/** How large the request of a step was, as the vendor counted it: `inputTokens` leaves out what was cached. */
export function requestTokens(usage: Usage | null): number | undefined {
  if (usage === null) return undefined;
  return usage.inputTokens + usage.cacheReadTokens + usage.cacheCreationTokens;
}
