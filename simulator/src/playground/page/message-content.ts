import type { SimMessage } from "../routes.ts";
import { partOf, textOf, type CardPart, inLocale } from "./card-json.ts";
import { cardView, type CardContext } from "./card-view.ts";
import { imageView, linkedText, markdownView } from "./markdown-view.ts";
import { node, type ViewElement, type ViewNode } from "./view-node.ts";

type Show = (content: CardPart, context: CardContext, message: SimMessage) => ViewNode[];

/** What a message says, by its kind; kinds without a form of their own are named. */
export function contentView(message: SimMessage, context: CardContext): ViewNode[] {
  if (message.card !== undefined) return [cardView(inLocale(message.card.json, context.words.locale), context)];
  const show = Object.hasOwn(shows, message.messageType) ? shows[message.messageType] : undefined;
  return (show ?? otherKind)(contentOf(message), context, message);
}

function contentOf(message: SimMessage): CardPart {
  try {
    return partOf(JSON.parse(message.content));
  } catch {
    return {};
  }
}

function box(icon: string, title: string, detail: string): ViewElement {
  return node("div", { class: "attachment" }, [
    node("span", { class: `attachment-icon icon icon-${icon}`, "aria-hidden": "true" }),
    node("div", {}, [
      node("strong", {}, [title]),
      detail === "" ? undefined : node("div", { class: "faint" }, [detail]),
    ]),
  ]);
}

const shows: Readonly<Record<string, Show>> = {
  text: (_content, _context, { text }) => [node("p", { class: "plain" }, linkedText(text))],
  post: (_content, context, { text }) => markdownView(text, context),
  image: ({ image_key }, context) => [imageView({ key: textOf(image_key), alt: context.words.image }, context)],
  file: ({ file_name }, { words }) => [box("file", textOf(file_name), words.file)],
  folder: ({ file_name }, { words }) => [box("folder", textOf(file_name), words.folder)],
  audio: ({ duration }, { words }) => [box("audio", words.audio, seconds(duration))],
  media: ({ file_name, duration }) => [box("video", textOf(file_name), seconds(duration))],
  sticker: (_content, { words }) => [box("sticker", words.sticker, "")],
  location: ({ name }, { words }) => [box("location", textOf(name), words.location)],
  share_user: ({ user_id }, context) => [box("contact", context.nameOf(textOf(user_id)), context.words.contact)],
  share_chat: (_content, { words }) => [box("chat", words.sharedChat, "")],
  merge_forward: (_content, { words }) => [box("forward", words.forwarded, "")],
  todo: ({ summary }, { words }) => [box("todo", words.todo, textOf(partOf(summary).title))],
  vote: ({ topic }, { words }) => [box("todo", textOf(topic), words.vote)],
};

function otherKind(_content: CardPart, _context: CardContext, { messageType, text }: SimMessage): ViewNode[] {
  return [box("file", text, messageType)];
}

function seconds(durationMs: unknown): string {
  return typeof durationMs === "number" ? `${Math.round(durationMs / 1000)} s` : "";
}
