import { cardNodes, type CardNode } from "./card-tree.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";

/** A card as bots receive it: title and rows of texts, pictures and buttons, not its JSON (message content guide). */
export function receivedCard(card: JsonObject): JsonObject {
  const header = isJsonObject(card.header) ? card.header : {};
  const rows = cardNodes({ elements: card.elements, body: card.body }).flatMap((found) => row(found) ?? []);
  return { title: textOf(header.title), elements: rows.map((element) => [element]) };
}

function row({ node, tag, parents }: CardNode): JsonObject | undefined {
  if (tag === "button") return { tag, text: textOf(node.text), type: String(node.type ?? "default") };
  if (tag === "img") return { tag, image_key: String(node.img_key ?? "") };
  if (tag === "hr") return { tag };
  const isText = tag === "markdown" || tag === "plain_text" || tag === "lark_md";
  return isText && !parents.includes("button") ? { tag: "text", text: textOf(node) } : undefined;
}

function textOf(text: unknown): string {
  return isJsonObject(text) && typeof text.content === "string" ? text.content : "";
}
