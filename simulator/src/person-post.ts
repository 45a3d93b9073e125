import type { JsonObject } from "./json-fields.ts";
import type { RenderedContent } from "./message-content.ts";
import type { SimMention } from "./message-store.ts";
import type { Writing } from "./person-content.ts";
import type { PersonPost, PersonPostElement } from "./person-message.ts";
import { mentionLookup } from "./platform.ts";

/** A post in its received form: without a locale around it, mentions as placeholders, pictures as keys. */
export function postContent(writing: Writing, post: PersonPost, mentionedIds: readonly string[]): RenderedContent {
  const mentions: SimMention[] = [];
  const lookup = mentionLookup(writing.platform, writing.chat);
  const mentioned = (id: string): JsonObject => {
    if (id === "all") return { tag: "at", user_id: "@_all", user_name: "所有人", style: [] };
    const found = lookup(id);
    if (found === undefined) throw new Error(`No person or bot ${id} to mention`);
    const key = `@_user_${mentions.length + 1}`;
    mentions.push({ key, openId: id, name: found.name, bot: found.bot });
    return { tag: "at", user_id: key, user_name: found.name, style: [] };
  };
  const received = (element: PersonPostElement): JsonObject =>
    element.tag === "at" ? mentioned(String(element.user_id)) : withKeys(writing, element);
  const front = mentionedIds.map(mentioned);
  const paragraphs = post.content.map((paragraph) => paragraph.map(received));
  const [first = [], ...rest] = paragraphs;
  const content = front.length === 0 ? paragraphs : [[...front, ...first], ...rest];
  const title = post.title ?? "";
  return { content: JSON.stringify({ title, content }), text: textOf(title, content), mentions };
}

function withKeys({ platform }: Writing, { image, file, ...element }: PersonPostElement): JsonObject {
  return {
    ...element,
    ...(image === undefined ? {} : { image_key: platform.media.add({ kind: "image", file: image }).key }),
    ...(file === undefined ? {} : { file_key: platform.media.add({ kind: "file", file }).key }),
  };
}

function textOf(title: string, paragraphs: readonly (readonly JsonObject[])[]): string {
  const lines = paragraphs.map((paragraph) => paragraph.map(elementText).join(""));
  return (title === "" ? lines : [title, ...lines]).join("\n");
}

function elementText(element: JsonObject): string {
  if (element.tag === "at") return `@${String(element.user_name)}`;
  if (element.tag === "hr") return "---";
  return typeof element.text === "string" ? element.text : `[${String(element.tag)}]`;
}
