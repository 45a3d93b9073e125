import { systemBlocksOf, type ModelRequest } from "../index.ts";
import type { AssistantPart, ImagePart, Message, ToolResultPart, UserPart } from "@larkline/protocol";
import type OpenAI from "openai";
import { fileNote, imageAddress, resultContent } from "./tool-result.ts";

type Param = OpenAI.Chat.Completions.ChatCompletionMessageParam;
type UserContent = OpenAI.Chat.Completions.ChatCompletionContentPart;
type AssistantParam = OpenAI.Chat.Completions.ChatCompletionAssistantMessageParam;

/** What marks thinking that a compatible server wants to see again in a tool loop. */
export const reasoningMetadata = { vendor: "openai-chat", field: "reasoning_content" };

function imageContent(part: ImagePart): UserContent {
  return { type: "image_url", image_url: { url: imageAddress(part) } };
}

function userContent(part: UserPart): UserContent {
  if (part.type === "image") return imageContent(part);
  return { type: "text", text: part.type === "file" ? fileNote(part) : part.text };
}

function userParams(parts: readonly UserPart[]): Param[] {
  const content = parts.filter((part) => part.type !== "text" || part.text !== "").map(userContent);
  if (content.length === 0) return [];
  const texts = content.flatMap((part) => (part.type === "text" ? [part.text] : []));
  return [{ role: "user", content: texts.length === content.length ? texts.join("") : content }];
}

function assistantParams(parts: readonly AssistantPart[]): Param[] {
  let text = "";
  let reasoning = "";
  const calls: NonNullable<AssistantParam["tool_calls"]> = [];
  for (const part of parts) {
    if (part.type === "text") text += part.text;
    else if (part.type === "tool_use") {
      const called = { name: part.name, arguments: JSON.stringify(part.arguments) };
      calls.push({ id: part.id, type: "function", function: called });
    } else if (part.providerMetadata?.["vendor"] === reasoningMetadata.vendor) reasoning += part.text;
  }
  if (text === "" && calls.length === 0) return [];
  const message: AssistantParam = { role: "assistant", content: text === "" ? null : text };
  if (calls.length > 0) message.tool_calls = calls;
  // A field of compatible servers (DeepSeek, Kimi), unknown to the SDK's types.
  return [reasoning === "" ? message : Object.assign(message, { reasoning_content: reasoning })];
}

function toolParams(parts: readonly ToolResultPart[]): Param[] {
  const results: Param[] = [];
  const images: UserContent[] = [];
  for (const part of parts) {
    const content = resultContent(part);
    if (typeof content === "string") {
      results.push({ role: "tool", tool_call_id: part.toolCallId, content });
      continue;
    }
    const texts = content.images.length > 0 ? [...content.texts, "[images follow]"] : content.texts;
    const shown = texts.map((text) => ({ type: "text" as const, text }));
    results.push({ role: "tool", tool_call_id: part.toolCallId, content: shown });
    images.push(...content.images.map(imageContent));
  }
  // Tool messages take no images: they follow in a user message.
  return images.length === 0 ? results : [...results, { role: "user", content: images }];
}

function paramsOf(message: Message): Param[] {
  if (message.role === "user") return userParams(message.content);
  return message.role === "assistant" ? assistantParams(message.content) : toolParams(message.content);
}

/** The system prompt and history as Chat Completions messages. */
export function chatMessages(request: ModelRequest): Param[] {
  const system = systemBlocksOf(request).map((block) => block.text);
  const params = request.messages.flatMap(paramsOf);
  return system.length === 0 ? params : [{ role: "system", content: system.join("\n\n") }, ...params];
}
