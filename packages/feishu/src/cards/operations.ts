import { createHash } from "node:crypto";
import type { CardElement } from "./element.ts";
import type { RenderedCard } from "./reply-card.ts";

/** One change of a batch update, as the platform takes it. */
interface CardAction {
  action: string;
  params: Record<string, unknown>;
}

/** One call that changes what a card shows. */
export type CardOperation =
  | { kind: "content"; elementId: string; content: string }
  /** Actions of one batch update, which counts as one operation. */
  | { kind: "batch"; actions: CardAction[] };

/** What a card shows, as hashes: small enough for the ledger, enough to find what changed. */
export interface ShownCard {
  answer: string;
  /** Hash by element id; `thinking_text` has its own, apart from the panel around it. */
  parts: Record<string, string>;
}

/**
 * The cheapest operations that turn what is shown into what is wanted: everything but the answer in
 * one batch (first what frees room), then the text of the answer. Empty when nothing changed.
 */
export function operationsBetween(shown: ShownCard, wanted: RenderedCard): CardOperation[] {
  const ids = Object.keys(shown.parts).filter((id) => order.includes(id));
  const gone = ids.filter((id) => wanted.parts[id] === undefined);
  const present = new Set(ids.filter((id) => wanted.parts[id] !== undefined));
  const actions: CardAction[] = [];
  if (gone.length > 0) actions.push({ action: "delete_elements", params: { element_ids: gone } });
  actions.push(...changesOf(shown.parts, wanted.parts));
  for (const [id, element] of Object.entries(wanted.parts)) {
    if (present.has(id)) continue;
    actions.push(addition(id, element, present));
    present.add(id);
  }
  const operations: CardOperation[] = actions.length === 0 ? [] : [{ kind: "batch", actions }];
  if (shown.answer !== wanted.answer) operations.push({ kind: "content", elementId: "answer", content: wanted.answer });
  return operations;
}

/** What the card shows once it is on the platform as rendered. */
export function shownOf(rendered: RenderedCard): ShownCard {
  return { answer: rendered.answer, parts: hashesOf(rendered.parts) };
}

const order = ["thinking", "tools", "answer", "rest", "stop", "footer"];

/** A short hash of a value, to tell whether it changed. */
export function hashOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 16);
}

function thinkingContent(parts: RenderedCard["parts"]): string | undefined {
  const elements = parts["thinking"]?.["elements"];
  const [text]: unknown[] = Array.isArray(elements) ? elements : [];
  if (typeof text !== "object" || text === null || !("content" in text)) return undefined;
  return typeof text.content === "string" ? text.content : undefined;
}

function hashesOf(parts: RenderedCard["parts"]): Record<string, string> {
  const hashes: Record<string, string> = {};
  for (const [id, part] of Object.entries(parts)) {
    const { elements, ...frame } = part;
    hashes[id] = hashOf(id === "thinking" ? frame : part);
    if (id === "thinking") hashes["thinking_text"] = hashOf(thinkingContent(parts) ?? elements);
  }
  return hashes;
}

function addition(id: string, element: CardElement, present: ReadonlySet<string>): CardAction {
  const at = order.indexOf(id);
  const above = at < order.indexOf("answer");
  const neighbours = above ? order.slice(at + 1) : order.slice(0, at).toReversed();
  const target = neighbours.find((other) => other === "answer" || present.has(other)) ?? "answer";
  const type = above ? "insert_before" : "insert_after";
  return { action: "add_elements", params: { type, target_element_id: target, elements: [element] } };
}

function change(id: string, element: CardElement): CardAction {
  return { action: "update_element", params: { element_id: id, element } };
}

function changesOf(shown: ShownCard["parts"], wanted: RenderedCard["parts"]): CardAction[] {
  const hashes = hashesOf(wanted);
  const changes: CardAction[] = [];
  for (const [id, element] of Object.entries(wanted)) {
    if (shown[id] === undefined) continue;
    if (shown[id] !== hashes[id]) changes.push(change(id, element));
    else if (id === "thinking" && shown["thinking_text"] !== hashes["thinking_text"]) {
      const partial = { content: thinkingContent(wanted) ?? "" };
      const params = { element_id: "thinking_text", partial_element: partial };
      changes.push({ action: "partial_update_element", params });
    }
  }
  return changes;
}
