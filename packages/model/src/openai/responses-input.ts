import type { AssistantPart, Message, ThinkingPart, ToolResultPart, UserPart } from "@larkline/protocol";
import type OpenAI from "openai";
import { fileNote, imageAddress, resultContent } from "./tool-result.ts";

type Item = OpenAI.Responses.ResponseInputItem;
type Content = OpenAI.Responses.ResponseInputText | OpenAI.Responses.ResponseInputImage;

/** What marks a thinking part as a reasoning item of this interface: the item, word for word. */
export function reasoningMetadata(item: object): Record<string, string> {
  return { vendor: "openai-responses", item: JSON.stringify(item) };
}

function imageContent(address: string): Content {
  return { type: "input_image", image_url: address, detail: "auto" };
}

function userItems(parts: readonly UserPart[]): Item[] {
  const content = parts.flatMap((part): Content[] => {
    if (part.type === "image") return [imageContent(imageAddress(part))];
    if (part.type === "file") return [{ type: "input_text", text: fileNote(part) }];
    return part.text === "" ? [] : [{ type: "input_text", text: part.text }];
  });
  return content.length === 0 ? [] : [{ type: "message", role: "user", content }];
}

function thinkingItems(part: ThinkingPart): Item[] {
  const { vendor, item } = part.providerMetadata ?? {};
  // The item is the vendor's own, returned as it came; its shape is not ours to check.
  return vendor === "openai-responses" && item !== undefined ? [JSON.parse(item) as Item] : [];
}

function assistantItem(part: AssistantPart): Item[] {
  if (part.type === "thinking") return thinkingItems(part);
  if (part.type === "text") return part.text === "" ? [] : [{ role: "assistant", content: part.text }];
  const text = JSON.stringify(part.arguments);
  return [{ type: "function_call", call_id: part.id, name: part.name, arguments: text }];
}

function resultItem(part: ToolResultPart): Item {
  const content = resultContent(part);
  const base = { type: "function_call_output", call_id: part.toolCallId } as const;
  if (typeof content === "string") return { ...base, output: content };
  const texts = content.texts.map((text): Content => ({ type: "input_text", text }));
  return { ...base, output: [...texts, ...content.images.map((image) => imageContent(imageAddress(image)))] };
}

function itemsOf(message: Message): Item[] {
  if (message.role === "user") return userItems(message.content);
  return message.role === "tool" ? message.content.map(resultItem) : message.content.flatMap(assistantItem);
}

/** History as input items of the Responses interface. */
export function responsesInput(messages: readonly Message[]): Item[] {
  return messages.flatMap(itemsOf);
}
