/** How a text is shown: `auto` picks a post where the text holds Markdown that a text message shows raw. */
export type TextFormat = "auto" | "text" | "post";

/** One message as the platform takes it. */
interface OutgoingContent {
  messageType: "text" | "post";
  /** JSON text. */
  content: string;
}

/**
 * The messages that show a text, in order: usually one. A post that would be too large becomes
 * text, and text that is too large several messages; nothing is left out.
 */
export function contentsOf(text: string, format: TextFormat = "auto"): OutgoingContent[] {
  const safe = withoutMentions(text);
  if (format === "post" || (format === "auto" && holdsMarkdown(text))) {
    const post = postContent(safe);
    if (bytesOf(post) <= maxPostBytes) return [post];
  }
  return splitText(safe).map(textContent);
}

/**
 * Limits of the `content` JSON in bytes ("Send message": text 150 KB, post 30 KB), with room for
 * what the platform counts beside the text.
 */
const maxTextBytes = 145_000;
const maxPostBytes = 28_000;

const markdown = [
  /^ {0,3}(?:```|~~~)/m,
  /^ {0,3}#{1,6} \S/m,
  /\*\*\S[^*\n]*\*\*/,
  /`[^`\n]+`/,
  /~~\S[^~\n]*~~/,
  /\[[^[\]\n]*\]\(https?:/,
  /^ {0,6}[-*+] \S/m,
  /^ {0,6}\d{1,9}\. \S/m,
  /^ {0,3}> ?\S/m,
  /^ {0,3}\|.*\|[ \t]*$/m,
  /^ {0,3}(?:-{3,}|\*{3,})[ \t]*$/m,
];

/** Whether the text holds Markdown that a plain text message would show as raw characters. */
export function holdsMarkdown(text: string): boolean {
  return markdown.some((pattern) => pattern.test(text));
}

/**
 * Text and post messages both read `<at user_id="all">` as a mention. The platform documents no
 * escape, so an invisible character after the bracket (also of its HTML entities) breaks the tag:
 * the reader sees the same text, and no person is notified.
 */
export function withoutMentions(text: string): string {
  return text.replaceAll(/(?:<|&lt;?|&#0*60;?|&#x0*3c;?)(?=[\s\p{Cc}\p{Cf}/]*a[\p{Cc}\p{Cf}]*t)/giu, "$&\u200B");
}

function textContent(text: string): OutgoingContent {
  return { messageType: "text", content: JSON.stringify({ text }) };
}

/** `md` has to be alone in its paragraph; the locale wrapper is required ("Message content"). */
function postContent(text: string): OutgoingContent {
  return { messageType: "post", content: JSON.stringify({ zh_cn: { title: "", content: [[{ tag: "md", text }]] } }) };
}

function bytesOf(content: OutgoingContent): number {
  return Buffer.byteLength(content.content);
}

/** Where to cut so that the head stays within `maxLength`: after a paragraph, a line, a space, or anywhere. */
function cutAt(text: string, maxLength: number): number {
  for (const separator of ["\n\n", "\n", " "]) {
    const at = text.lastIndexOf(separator, maxLength - separator.length);
    if (at > maxLength / 2) return at + separator.length;
  }
  const code = text.charCodeAt(maxLength - 1);
  const splitsPair = code >= 0xd800 && code <= 0xdbff;
  return splitsPair && maxLength > 1 ? maxLength - 1 : maxLength;
}

/** Where to cut the text so that its head fits; found by proportion, as bytes per character vary. */
function headLength(text: string, maxBytes: number): number {
  let length = text.length;
  let bytes = bytesOf(textContent(text));
  if (bytes <= maxBytes) return length;
  while (bytes > maxBytes && length > 2) {
    length = Math.max(2, Math.floor((length * maxBytes) / bytes) - 1);
    bytes = bytesOf(textContent(text.slice(0, length)));
  }
  return cutAt(text, length);
}

/** Pieces of the text whose concatenation is the text, each fitting into one text message. */
export function splitText(text: string, maxBytes = maxTextBytes): string[] {
  const pieces: string[] = [];
  let rest = text;
  do {
    const length = headLength(rest, maxBytes);
    pieces.push(rest.slice(0, length));
    rest = rest.slice(length);
  } while (rest !== "");
  return pieces;
}
