import { maskedArguments } from "@larkline/agent/permissions";
import type { Approval, ReplyLanguage } from "@larkline/protocol";
import { approvalTexts } from "./approval-texts.ts";
import { foldedPanel, headWithin, markdown, type CardElement, type TextRoom } from "./element.ts";
import { visibleJson } from "./escape.ts";

/** Up to here arguments stand on the card as they are; of longer ones the beginning does. */
const openRoom: TextRoom = { characters: 600, bytes: 1_500 };
const openLines = 16;
/** What a person is expected to unfold and read at most. */
const foldedRoom: TextRoom = { characters: 6_000, bytes: 8_000 };
/** Longer ones are not indented: deep nesting would multiply their length. */
const maxIndented = 12_000;
/** From here on the masking leaves out what goes beyond its own bounds. */
const maybeLeftOut = 3_900;

/** The arguments of a call, as a person gets to see them. */
export interface ShownArguments {
  /** A code block that nothing in the arguments can leave: all of them, or their beginning. */
  block: string;
  /** Where `block` is only the beginning: a folded panel with more, and how much is not shown at all. */
  more: CardElement[];
}

interface ArgumentsText {
  /** As much as may ever be shown. */
  json: string;
  /** Characters that were given. */
  given: number;
  /** Of these, what is not in `json`. */
  leftOut: number;
}

function textOf({ arguments: given, secrets }: Approval): ArgumentsText {
  const masked = maskedArguments(given, secrets);
  const compact = JSON.stringify(masked);
  const whole = compact.length > maxIndented ? compact : JSON.stringify(masked, null, 2);
  const { length } = JSON.stringify(given);
  const unmasked = length < maybeLeftOut ? 0 : Math.max(0, length - compact.length);
  // Making it visible only makes it longer.
  const head = headWithin(whole, { ...foldedRoom, bytes: Number.POSITIVE_INFINITY });
  const left = whole.length - head.length;
  return { json: `${visibleJson(head)}${left === 0 ? "" : "…"}`, given: length, leftOut: unmasked + left };
}

/** The text holds no run of three backticks: see `visibleJson`. */
function jsonBlock(json: string): string {
  return `\`\`\`json\n${json}\n\`\`\``;
}

function cutTo(json: string, room: TextRoom, lines = Number.POSITIVE_INFINITY): string {
  const head = headWithin(json, room);
  const cut = head.split("\n").slice(0, lines).join("\n");
  return cut.length < json.length ? `${cut}…` : cut;
}

function panelOf({ json, given }: ArgumentsText, language: ReplyLanguage): { panel: CardElement; cut: number } {
  const folded = cutTo(json, foldedRoom);
  const panel = foldedPanel(approvalTexts[language].allArguments(given), [
    markdown(jsonBlock(folded), { text_size: "notation" }),
  ]);
  return { panel, cut: folded === json ? 0 : json.length - (folded.length - 1) };
}

/** The arguments as indented JSON, with secrets masked. What is not shown is said. */
export function shownArguments(approval: Approval, language: ReplyLanguage): ShownArguments {
  const text = textOf(approval);
  const open = cutTo(text.json, openRoom, openLines);
  const block = jsonBlock(open);
  if (open === text.json && text.leftOut === 0) return { block, more: [] };
  const { panel, cut } = panelOf(text, language);
  const left = cut + text.leftOut;
  return { block, more: left === 0 ? [panel] : [panel, markdown(approvalTexts[language].notShown(left))] };
}

/** The arguments in a folded panel, for the record. */
export function argumentsPanel(approval: Approval, language: ReplyLanguage): CardElement {
  return panelOf(textOf(approval), language).panel;
}
