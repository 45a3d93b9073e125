/**
 * How a tool's result, and then an answer, name an image that is stored: `![name](blob:blob_...)`.
 * A client that shows an answer puts the image in its place, or the name where no image can be shown.
 *
 * Any session may show any stored image whose id it knows. An id is the SHA-256 of the content, so
 * an id cannot be guessed: a person who knows it has the content already, or was given the id by a tool's result
 * in a conversation that they could read. Nothing but stored content can be named: a reference never
 * makes a process fetch anything.
 */

/** Formats that Feishu shows ("Upload an image") and whose first bytes are unmistakable. */
const signatures = [
  ["image/png", { 0: "\x89PNG\r\n\x1a\n" }],
  ["image/jpeg", { 0: "\xff\xd8\xff" }],
  ["image/gif", { 0: "GIF87a" }],
  ["image/gif", { 0: "GIF89a" }],
  ["image/webp", { 0: "RIFF", 8: "WEBP" }],
] as const;

const headBytes = 12;
const blobReference = /^(?:blob:)?(blob_[\w-]{43})$/;
const maxNameLength = 80;
/** What stands for an image without a name where it cannot be shown. */
const nameless = "🖼️";

/** Names of images hold no bracket and stay within their line; broken ids are marks too, or people would see them. */
const imageMark = /!\[([^[\]\n]{0,1000})\]\([ \t]*<?(?:blob:|blob_)[^()\n]{0,200}\)/g;
/** The beginning of what may become such a mark. */
const openMark = /!(?:\[[^[\]\n]{0,1000}(?:\](?:\(([^()\n]{0,200}))?)?)?$/;

/** The largest image that Feishu takes ("Upload an image"), bytes. */
export const maxImageBytes = 10 * 1024 * 1024;

/** Media type of an image that can be shown, by its first bytes; undefined: it is none. */
export function imageTypeOf(bytes: Uint8Array): string | undefined {
  const head = String.fromCharCode(...bytes.subarray(0, headBytes));
  const found = signatures.find(([, texts]) =>
    Object.entries(texts).every(([at, text]) => head.startsWith(text, Number(at))),
  );
  return found?.[0];
}

/** The Markdown that shows a stored image; characters that would break it are left out of the name. */
export function imageMarkOf(blobId: string, name: string): string {
  const plain = name.toWellFormed().replaceAll(/[[\]()<>!\\`\p{Cc}]+/gu, " ");
  const words = plain.replaceAll(/\s+/g, " ").trim();
  return `![${words.slice(0, maxNameLength).toWellFormed() || "image"}](blob:${blobId})`;
}

/** The blob that the destination of an image names; undefined when it names anything else. */
export function imageBlobIdOf(destination: string): string | undefined {
  return blobReference.exec(destination)?.[1];
}

/** What is shown in place of an image that cannot be. */
export function imageNameOf(alt: string): string {
  return alt.trim() === "" ? nameless : alt.trim();
}

/** A text for places without images: names in place of stored images. */
export function withoutImageMarks(text: string): string {
  if (!text.includes("![")) return text; // the expression looks at every character, and few texts have a mark
  return text.replaceAll(imageMark, (_mark, alt: string) => imageNameOf(alt));
}

/** For a text that grows: what can be shown of it in places without images, and the end that has to wait for more. */
export function splitAtOpenMark(text: string): { shown: string; open: string } {
  const found = openMark.exec(text);
  const at = found === null || !mayNameBlob(found[1] ?? "") ? text.length : found.index;
  return { shown: withoutImageMarks(text.slice(0, at)), open: text.slice(at) };
}

function mayNameBlob(destination: string): boolean {
  const start = destination.trimStart().replace(/^</, "").slice(0, 5);
  return "blob:".startsWith(start) || "blob_".startsWith(start);
}
