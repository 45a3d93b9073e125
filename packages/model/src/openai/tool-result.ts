import type { ImagePart, ToolResultPart } from "@larkline/protocol";

/** These interfaces have no flag for a failed tool: the model has to read it. */
const failedPrefix = "Error: ";

export type ResultContent = string | { texts: string[]; images: ImagePart[] };

/** A tool result without its error flag, which is turned into text. A string stays a string. */
export function resultContent(part: ToolResultPart): ResultContent {
  const prefix = part.isError ? failedPrefix : "";
  if (typeof part.content === "string") return prefix + part.content;
  const texts = part.content.flatMap((item) => (item.type === "text" ? [item.text] : []));
  const images = part.content.filter((item) => item.type === "image");
  if (part.isError) texts[0] = prefix + (texts[0] ?? "");
  return { texts, images };
}

/** The address of an image as these interfaces take it. */
export function imageAddress(part: ImagePart): string {
  const { source } = part;
  if (source.sourceType === "url") return source.url;
  return source.sourceType === "base64" ? `data:${source.mediaType};base64,${source.data}` : "";
}

/** A file the model cannot see, named so that it knows of it. */
export function fileNote(file: { name: string; mediaType: string; bytes: number }): string {
  return `[file ${file.name}, ${file.mediaType}, ${file.bytes} bytes]`;
}
