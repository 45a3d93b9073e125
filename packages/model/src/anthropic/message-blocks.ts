import type Anthropic from "@anthropic-ai/sdk";
import type {
  AssistantPart,
  ImagePart,
  Message,
  ProviderMetadata,
  ThinkingPart,
  ToolResultPart,
  UserPart,
} from "@larkline/protocol";

type Block = Anthropic.Messages.ContentBlockParam;
type ImageBlock = Anthropic.Messages.ImageBlockParam;
type MediaType = Anthropic.Messages.Base64ImageSource["media_type"];

/** What marks a thinking part as ours: only the model that made it takes it back. */
export function thinkingMetadata(
  model: string,
  secret: { signature: string } | { redacted: string },
): ProviderMetadata {
  return { vendor: "anthropic", model, ...secret };
}

function imageBlock(part: ImagePart): ImageBlock {
  const { source } = part;
  if (source.sourceType === "url") return { type: "image", source: { type: "url", url: source.url } };
  const data = source.sourceType === "base64" ? source.data : "";
  // The vendor judges the media type; its own list is narrower than ours.
  return { type: "image", source: { type: "base64", media_type: source.mediaType as MediaType, data } };
}

function userBlock(part: UserPart): Block | null {
  if (part.type === "image") return imageBlock(part);
  if (part.type === "file") {
    return { type: "text", text: `[file ${part.name}, ${part.mediaType}, ${part.bytes} bytes]` };
  }
  return part.text.trim() === "" ? null : { type: "text", text: part.text };
}

function thinkingBlock(part: ThinkingPart, model: string): Block | null {
  const { vendor, model: maker, signature, redacted } = part.providerMetadata ?? {};
  if ((vendor ?? "anthropic") !== "anthropic" || (maker ?? model) !== model) return null;
  if (redacted !== undefined) return { type: "redacted_thinking", data: redacted };
  return signature === undefined ? null : { type: "thinking", thinking: part.text, signature };
}

function assistantBlock(part: AssistantPart, model: string): Block | null {
  if (part.type === "thinking") return thinkingBlock(part, model);
  if (part.type === "tool_use") return { type: "tool_use", id: part.id, name: part.name, input: part.arguments };
  return part.text.trim() === "" ? null : { type: "text", text: part.text };
}

function resultBlock(part: ToolResultPart): Block {
  const { content } = part;
  const base = { type: "tool_result", tool_use_id: part.toolCallId } as const;
  const error = part.isError ? { is_error: true } : {};
  if (typeof content === "string") return { ...base, content, ...error };
  const inner = content
    .filter((item) => item.type === "image" || item.text.trim() !== "")
    .map((item) => (item.type === "image" ? imageBlock(item) : { type: "text" as const, text: item.text }));
  return { ...base, content: inner, ...error };
}

function blocksOf(message: Message, model: string): (Block | null)[] {
  if (message.role === "user") return message.content.map(userBlock);
  if (message.role === "tool") return message.content.map(resultBlock);
  return message.content.map((part) => assistantBlock(part, model));
}

function resultsFirst(blocks: readonly Block[]): Block[] {
  const isResult = (block: Block) => block.type === "tool_result";
  return [...blocks.filter(isResult), ...blocks.filter((block) => !isResult(block))];
}

export interface VendorTurn {
  role: "user" | "assistant";
  content: Block[];
}

/**
 * History as the vendor wants it: neighbours of one role merged (tool results are user messages and
 * stand first in theirs), blocks without text left out, thinking only for the model that made it.
 */
export function vendorTurns(messages: readonly Message[], model: string): VendorTurn[] {
  const turns: VendorTurn[] = [];
  for (const message of messages) {
    const role = message.role === "assistant" ? "assistant" : "user";
    const blocks = blocksOf(message, model).filter((block) => block !== null);
    if (blocks.length === 0) continue;
    const last = turns.at(-1);
    if (last?.role !== role) turns.push({ role, content: blocks });
    else if (role === "assistant") last.content.push(...blocks);
    else last.content = resultsFirst([...last.content, ...blocks]);
  }
  return turns;
}
