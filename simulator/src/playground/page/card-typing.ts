import type { SimCardView } from "../routes.ts";
import { eachTagged, partOf, textOf, type CardPart } from "./view-node.ts";

const defaultFrequencyMs = 70;
const shortestTickMs = 16;

/** How much of the texts of a streaming card has been typed ("Streaming updates"). */
export interface CardTyping {
  /** Takes the next state of the card. */
  show(card: SimCardView): void;
  /** What has been typed of an element's text. */
  typed(elementId: string, text: string): string;
  /** The element that grew last, while the card streams. */
  readonly growing: string | undefined;
  stop(): void;
}

export interface CardTypingParts {
  /** More was typed. */
  onType: () => void;
  /** How many times faster than usual. */
  speed: () => number;
  /** Whether texts appear at once: the page is hidden, or motion is not wanted. */
  instant: () => boolean;
}

interface TypedText {
  text: string;
  shown: number;
}

export function createCardTyping({ onType, speed, instant }: CardTypingParts): CardTyping {
  const texts = new Map<string, TypedText>();
  let pace = paceOf({});
  let growing: string | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let lastAt = 0;
  const pending = (): TypedText[] => [...texts.values()].filter(({ text, shown }) => shown < text.length);
  const schedule = (): void => {
    if (timer !== undefined || pending().length === 0) return;
    lastAt = performance.now();
    timer = setTimeout(tick, Math.max(shortestTickMs, pace.frequencyMs / speed()));
  };
  const tick = (): void => {
    timer = undefined;
    const steps = ((performance.now() - lastAt) * speed()) / pace.frequencyMs;
    const more = Math.max(1, Math.round(steps * pace.step));
    for (const typed of pending()) typed.shown = characterEnd(typed.text, typed.shown + more);
    onType();
    schedule();
  };
  return {
    show({ json, streaming }) {
      pace = paceOf(partOf(partOf(json.config).streaming_config));
      const current = streamedTexts(json);
      for (const id of texts.keys()) if (!current.has(id)) texts.delete(id);
      for (const [id, text] of current) {
        const before = texts.get(id);
        if (before?.text === text && streaming) continue;
        if (before !== undefined && before.text !== text) growing = id;
        texts.set(id, { text, shown: streaming && !instant() ? startOf(before, text, pace.delays) : text.length });
      }
      if (!streaming) growing = undefined;
      schedule();
    },
    typed(elementId, text) {
      const typed = texts.get(elementId);
      return typed === undefined || typed.text !== text ? text : text.slice(0, typed.shown);
    },
    get growing() {
      return growing;
    },
    stop() {
      clearTimeout(timer);
      texts.clear();
    },
  };
}

/** Where typing continues: behind the old text, at once (`fast`) or where it was; another text is there at once. */
function startOf(before: TypedText | undefined, text: string, delays: boolean): number {
  if (before === undefined || !text.startsWith(before.text)) return text.length;
  return delays ? before.shown : before.text.length;
}

function characterEnd(text: string, at: number): number {
  const last = text.charCodeAt(at - 1);
  return Math.min(text.length, last >= 0xd800 && last <= 0xdbff ? at + 1 : at);
}

interface Pace {
  frequencyMs: number;
  step: number;
  delays: boolean;
}

function paceOf(config: CardPart): Pace {
  return {
    frequencyMs: positive(config.print_frequency_ms, defaultFrequencyMs),
    step: positive(config.print_step, 1),
    delays: config.print_strategy === "delay",
  };
}

/** A number for this kind of device. */
function positive(value: unknown, fallback: number): number {
  const { pc, default: usual } = partOf(value);
  const chosen = pc ?? usual;
  return typeof chosen === "number" && chosen > 0 ? chosen : fallback;
}

/** The texts that can be streamed, by element. */
function streamedTexts(card: CardPart): Map<string, string> {
  const found = new Map<string, string>();
  eachTagged(card, (part) => {
    if (part.tag !== "markdown" && part.tag !== "plain_text") return;
    if (typeof part.element_id === "string") found.set(part.element_id, textOf(part.content));
  });
  return found;
}
