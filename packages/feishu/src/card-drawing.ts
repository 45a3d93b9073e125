import { createHash } from "node:crypto";
import {
  noticeCard,
  renderCard,
  shownOf,
  type CardPage,
  type RenderedCard,
  type RenderOptions,
} from "./cards/index.ts";
import { withoutImageMarks, type ReplyLanguage, type ReplyView } from "@larkline/protocol";
import type { CardEntry } from "@larkline/store";

/**
 * How much of the form of a reply is kept: `formatted`; `imageless`: names in place of images,
 * because the platform does not know their keys; `plain`: the answer without its markdown,
 * because the platform refuses that; `bare`: that, and nothing around it.
 */
export type CardStyle = "formatted" | "imageless" | "plain" | "bare";

export function hashOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 16);
}

/** The part of the answer that a page shows. */
export function sliceOf(answer: string, { cuts, number }: CardPage): string {
  return answer.slice(cuts[number - 1] ?? 0, cuts[number]);
}

export function drawnCard(
  view: ReplyView,
  page: CardPage,
  { style, images, ...options }: RenderOptions & { style: CardStyle },
): RenderedCard {
  const withImages = images !== undefined && style === "formatted";
  const rendered = renderCard(view, page, { ...options, ...(withImages ? { images } : {}) });
  if (style === "formatted" || style === "imageless") return rendered;
  return withPlainAnswer(rendered, withoutImageMarks(sliceOf(view.answer, page)), style);
}

/** The same card with its answer as plain text, which the platform takes whatever it holds. */
function withPlainAnswer(rendered: RenderedCard, text: string, style: "plain" | "bare"): RenderedCard {
  const body = rendered.card["body"] as { elements: Record<string, unknown>[] }; // as renderCard makes it
  const content = text.trim() === "" ? rendered.answer : text;
  const plain = { tag: "div", text: { tag: "plain_text", content } };
  const elements = body.elements.map((element) => (element["element_id"] === "answer" ? plain : element));
  const card = { ...rendered.card, body: { ...body, elements: style === "bare" ? [plain] : elements } };
  return { ...rendered, card, answer: content };
}

const replacedTexts = {
  zh: { title: "已重新生成", text: "这部分回答已重新生成，请看前面的卡片。" },
  en: { title: "Written anew", text: "This part of the answer was written anew: see the card above." },
};

const textFollowsTexts = {
  zh: { title: "改为文本回复", text: "这张卡片无法继续显示，完整回答请看下面的消息。" },
  en: {
    title: "Answered as text",
    text: "This card cannot be shown any further: the whole answer is in the message below.",
  },
};

/** In place of a card of an earlier run of the step that the answer no longer needs. */
export function replacedCard(language: ReplyLanguage): Record<string, unknown> {
  return noticeCard(replacedTexts[language]);
}

/** In place of a card whose answer goes out as text. */
export function textFollowsCard(language: ReplyLanguage): Record<string, unknown> {
  return noticeCard(textFollowsTexts[language]);
}

/** What the ledger keeps of a card. */
export function measuresOf(rendered: RenderedCard): Pick<CardEntry, "bytes" | "elements" | "tables" | "parts"> {
  const { bytes, elements, tables } = rendered;
  return { bytes, elements, tables, parts: shownOf(rendered).parts };
}
