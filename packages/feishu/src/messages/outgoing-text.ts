/** How a text is shown: `auto` picks a post where the text holds Markdown that a text message shows raw. */
export type TextFormat = "auto" | "text" | "post";

/** One message as the platform takes it. */
interface OutgoingContent {
  messageType: "text" | "post";
  /** JSON text. */
  content: string;
}

/**
 * The messages that show a text, in order: usually one. Text that is too large becomes several messages, and so does a
 * post, cut between its blocks; one with a block that is too large, or of very many pieces, becomes text. Nothing is left out. A post renders
 * CommonMark and the tables of GitHub ("Message content", 2026-07-07).
 */
export function contentsOf(text: string, format: TextFormat = "auto"): OutgoingContent[] {
  const safe = withoutMentions(text);
  if (format === "post" || (format === "auto" && holdsMarkdown(text))) {
    const posts = splitPost(safe).map(postContent);
    if (posts.length <= maxPosts && posts.every((post) => bytesOf(post) <= maxPostBytes)) {
      return posts;
    }
  }
  return splitText(safe).map(textContent);
}

/**
 * Limits of the `content` JSON in bytes ("Send message": text 150 KB, post 30 KB), with room for
 * what the platform counts beside the text.
 */
const maxTextBytes = 145_000;
const maxPostBytes = 28_000;
const maxPosts = 8;

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
  // Below the head of a table whose rows have no bars at their ends.
  /^ {0,3}:?-+:?[ \t]*\|[-:| \t]*$/m,
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
  return text.replaceAll(
    /(?:<|&lt;?|&#0*60;?|&#x0*3c;?)(?=[\s\p{Cc}\p{Cf}/]*a[\p{Cc}\p{Cf}]*t)/giu,
    "$&\u200B",
  );
}

function textContent(text: string): OutgoingContent {
  return { messageType: "text", content: JSON.stringify({ text }) };
}

/** `md` has to be alone in its paragraph; the locale wrapper is required ("Message content"). */
function postContent(text: string): OutgoingContent {
  return {
    messageType: "post",
    content: JSON.stringify({ zh_cn: { title: "", content: [[{ tag: "md", text }]] } }),
  };
}

/** The text in few pieces that fit into a post, if every block does; a block ends at an empty line outside of code. */
function splitPost(text: string): string[] {
  const pieces: string[][] = [];
  let room = 0;
  for (const block of blocksOf(text)) {
    const bytes = Buffer.byteLength(JSON.stringify(["", block]));
    room -= bytes;
    if (room < 0) {
      pieces.push([]);
      room = maxPostBytes - bytesOf(postContent("")) - bytes;
    }
    pieces.at(-1)?.push(block);
  }
  return pieces.map((blocks) => blocks.join("\n\n"));
}

function blocksOf(text: string): string[] {
  if (text.length <= maxPostBytes / 6) return [text]; // no character has more bytes in JSON
  const blocks: string[] = [];
  let lines: string[] = [];
  let fence = "";
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence === "") fence = mark;
    else if (mark.startsWith(fence) && line.trim() === mark) fence = "";
    if (line.trim() !== "" || fence !== "") lines.push(line);
    else if (lines.length > 0) blocks.push(lines.splice(0).join("\n"));
  }
  if (lines.length > 0) blocks.push(lines.join("\n"));
  return blocks;
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
