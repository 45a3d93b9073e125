import { withoutImageMarks, type ReplyView } from "@larkline/protocol";
import { showAnswer, type ShownAnswer } from "./answer.ts";
import { contextAt } from "./cuts.ts";
import {
  countElements,
  inLanguages,
  jsonBytes,
  markdown,
  maxCardBytes,
  plainText,
  type CardElement,
} from "./element.ts";
import type { ImageKeys } from "./inline.ts";
import type { SliceEnd } from "./lines.ts";
import { footerLine, restLine, stopButton, thinkingPanel, toolsPanel } from "./panels.ts";
import { summaryOf } from "./reply-text.ts";
import { cardTexts } from "./texts.ts";

/** One card of a reply. Page 0 has thinking and tools; the last one has footer and stop button. */
export interface RenderedCard {
  /** The whole card, to create it or to update it fully. */
  card: CardElement;
  /**
   * Content of the element `answer`: what the content API gets. Never empty: "…" as long as nothing
   * can be shown while the card streams (the first text replaces it), how it ended afterwards.
   */
  answer: string;
  /** The other top-level elements by id, in the order of the body. */
  parts: Record<string, CardElement>;
  /** As the platform counts them. */
  bytes: number;
  elements: number;
  tables: number;
}

/** Which of the reply's cards; `cuts` as {@link extendCuts} told them. */
export interface CardPage {
  cuts: readonly number[];
  number: number;
  /** It is the last card although the answer goes on: the rest is a file. */
  restInFile?: boolean;
}

/**
 * How much of the form of a reply is kept: `formatted`; `imageless`: names in place of images,
 * because the platform does not know their keys; `plain`: the answer without its markdown,
 * because the platform refuses that; `bare`: the plain answer, and nothing around it.
 */
export type CardStyle = "formatted" | "imageless" | "plain" | "bare";

export interface RenderOptions {
  /** More frames of this card follow. */
  streaming: boolean;
  /** Default `formatted`. */
  style?: CardStyle;
  /** Image key by name; null: there is none. A name that is missing is still on its way while streaming. */
  images?: ImageKeys;
}

/** What an answer shows before it has any text. */
const placeholder = "…";

/**
 * The client types `print_step` characters each `print_frequency_ms`. Models write 50 to 300
 * characters a second, and frames come a few times a second at best: at 5 characters each 30 ms
 * (about 165 a second) a frame is typed when the next one comes, and `fast` shows at once what is
 * not, so that the card never falls behind ("Streaming updates": keep them constant during a stream).
 */
const streamingConfig = {
  print_frequency_ms: { default: 30 },
  print_step: { default: 5 },
  print_strategy: "fast",
};

/** Bytes for thinking and tools while the answer leaves them room, and when it does not. */
const widePanels = { upToAnswerBytes: 11_000, thinking: 5_000, tools: 6_500 };
const narrowPanels = { thinking: 1_000, tools: 1_900 };

/** The card of one page of the reply. */
export function renderCard(view: ReplyView, page: CardPage, options: RenderOptions): RenderedCard {
  const { style = "formatted", images, streaming } = options;
  const withImages = images !== undefined && style === "formatted";
  const rendered = formattedCard(view, page, { streaming, ...(withImages ? { images } : {}) });
  if (style === "formatted" || style === "imageless") return rendered;
  return withPlainAnswer(rendered, withoutImageMarks(sliceOf(view.answer, page)), style);
}

function formattedCard(view: ReplyView, page: CardPage, options: AnswerForm): RenderedCard {
  const shown = shownAnswer(view, page, options);
  const answer = shown.text === "" ? whenEmpty(view, options) : shown.text;
  const parts = partsOf(view, page, jsonBytes(answer));
  const { thinking, tools, ...below } = parts;
  const above = [thinking, tools].filter((part) => part !== undefined);
  const card = {
    schema: "2.0",
    config: {
      update_multi: true,
      streaming_mode: options.streaming,
      streaming_config: streamingConfig,
      ...(options.streaming
        ? {}
        : { summary: inLanguages(view, (language) => ({ content: summaryOf({ ...view, language }) })) }),
    },
    body: {
      direction: "vertical",
      elements: [...above, markdown(answer, { element_id: "answer" }), ...Object.values(below)],
    },
  };
  const bytes = jsonBytes(card);
  if (view.bilingual === true && bytes > maxCardBytes) {
    return formattedCard({ ...view, bilingual: false }, page, options);
  }
  return { card, answer, parts, bytes, elements: countElements(card), tables: shown.tables };
}

/** The same card with its answer as plain text, which the platform takes whatever the text holds. */
function withPlainAnswer(rendered: RenderedCard, text: string, style: "plain" | "bare"): RenderedCard {
  const body = rendered.card["body"] as { elements: CardElement[] }; // as formattedCard makes it
  const content = text.trim() === "" ? rendered.answer : text;
  const plain = { tag: "div", text: plainText(content) };
  const elements = body.elements.map((element) => (element["element_id"] === "answer" ? plain : element));
  const card = { ...rendered.card, body: { ...body, elements: style === "bare" ? [plain] : elements } };
  return { ...rendered, card, answer: content };
}

/** The part of the answer that a page shows. */
export function sliceOf(answer: string, { cuts, number }: CardPage): string {
  return answer.slice(cuts[number - 1] ?? 0, cuts[number]);
}

type AnswerForm = Omit<RenderOptions, "style">;

function sliceEnd(answer: string, to: number, isLast: boolean): SliceEnd {
  if (isLast) return "line";
  return answer[to - 1] === "\n" ? "line" : "within-line";
}

function shownAnswer(view: ReplyView, { cuts, number }: CardPage, { streaming, images }: AnswerForm): ShownAnswer {
  const isLast = number >= cuts.length;
  const to = isLast ? view.answer.length : (cuts[number] ?? view.answer.length);
  const slice = view.answer.slice(number === 0 ? 0 : (cuts[number - 1] ?? 0), to);
  const end = streaming && isLast ? "growing" : sliceEnd(view.answer, to, isLast);
  return showAnswer(slice, contextAt(view.answer, cuts, number), { end, streaming, images });
}

function partsOf(view: ReplyView, page: CardPage, answerBytes: number): Record<string, CardElement> {
  const room = answerBytes <= widePanels.upToAnswerBytes ? widePanels : narrowPanels;
  const isLast = page.number >= page.cuts.length || page.restInFile === true;
  const parts = {
    thinking: page.number === 0 ? thinkingPanel(view, room.thinking) : undefined,
    tools: page.number === 0 ? toolsPanel(view, room.tools) : undefined,
    rest: page.restInFile === true ? inLanguages(view, (language) => restLine({ ...view, language })) : undefined,
    stop: isLast ? inLanguages(view, (language) => stopButton({ ...view, language })) : undefined,
    footer: isLast ? inLanguages(view, (language) => footerLine({ ...view, language })) : undefined,
  };
  const present: Record<string, CardElement> = {};
  for (const [id, part] of Object.entries(parts)) if (part !== undefined) present[id] = part;
  return present;
}

function whenEmpty(view: ReplyView, { streaming }: AnswerForm): string {
  if (streaming || view.state === "running") return placeholder;
  const texts = cardTexts[view.language];
  return view.state === "answered" ? texts.noAnswer : texts.states[view.state];
}
