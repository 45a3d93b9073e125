import type { CallToolResult, ReadResourceResult } from "@modelcontextprotocol/client";
import type { ToolContext } from "@larkline/tool-kit";

type Content = CallToolResult["content"][number];
type Resource = ReadResourceResult["contents"][number];

function sizeOf(base64: string): number {
  return Math.floor((base64.length * 3) / 4);
}

/** An image as Markdown that the answer can show; what cannot be kept is named. */
async function imageText(data: string, mediaType: string, context: ToolContext): Promise<string> {
  try {
    return await context.saveFile(Buffer.from(data, "base64"), { name: "image", mediaType });
  } catch (error) {
    return `[an image (${mediaType}, ${sizeOf(data)} bytes) that cannot be shown: ${error instanceof Error ? error.message : String(error)}]`;
  }
}

async function resourceText(resource: Resource, context: ToolContext): Promise<string> {
  const { uri, mimeType = "text/plain" } = resource;
  if ("text" in resource) return `[resource ${uri}]\n${resource.text}`;
  if (/^text\/|[/+]json$/.test(mimeType)) {
    return `[resource ${uri}]\n${Buffer.from(resource.blob, "base64").toString("utf8")}`;
  }
  if (mimeType.startsWith("image/")) return `[resource ${uri}] ${await imageText(resource.blob, mimeType, context)}`;
  return `[resource ${uri}: ${mimeType}, ${sizeOf(resource.blob)} bytes, not text]`;
}

async function partText(part: Content, context: ToolContext): Promise<string> {
  switch (part.type) {
    case "text":
      return part.text;
    case "image":
      return await imageText(part.data, part.mimeType, context);
    case "audio":
      return `[audio: ${part.mimeType}, ${sizeOf(part.data)} bytes]`;
    case "resource":
      return await resourceText(part.resource, context);
    case "resource_link":
      return `[resource ${part.uri}: ${part.name}${part.description === undefined ? "" : `, ${part.description}`}]`;
  }
}

/** What the model reads: the parts of the result in order, or its structured form when there are none. */
export async function textOfResult(result: CallToolResult, context: ToolContext): Promise<string> {
  const parts: string[] = [];
  for (const part of result.content) parts.push(await partText(part, context));
  if (parts.length > 0) return parts.join("\n");
  return result.structuredContent === undefined ? "" : JSON.stringify(result.structuredContent);
}

/** The contents of a resource, as the model reads them. */
export async function textOfResource({ contents }: ReadResourceResult, context: ToolContext): Promise<string> {
  const parts: string[] = [];
  for (const resource of contents) parts.push(await resourceText(resource, context));
  return parts.join("\n");
}
