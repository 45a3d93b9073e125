import type Anthropic from "@anthropic-ai/sdk";
import { systemBlocksOf, worthCaching, type ModelInfo, type ModelRequest } from "../index.ts";
import type { VendorTurn } from "./message-blocks.ts";

type TextBlock = Anthropic.Messages.TextBlockParam;
type Tool = Anthropic.Messages.Tool;

const mark = { type: "ephemeral" } as const;

/** The vendor takes four marks: two for the system prompt, two for the growing history. */
const maxSystemMarks = 2;

/**
 * The system prompt as blocks, its end marked for caching when it is long enough for this model, and
 * with it the ends of blocks that ask for it. The tools stand before it and are cached along.
 */
export function systemWithMarks(request: ModelRequest, info: Readonly<ModelInfo>): TextBlock[] {
  const blocks = systemBlocksOf(request);
  const texts = blocks.map((block) => block.text);
  if (!worthCaching(texts, info)) return texts.map((text) => ({ type: "text", text }));
  const wanted = blocks.flatMap((block, at) => (block.cacheScope !== "" || at === blocks.length - 1 ? [at] : []));
  const marked = new Set(wanted.slice(-maxSystemMarks));
  return texts.map((text, at) => ({ type: "text", text, ...(marked.has(at) ? { cache_control: mark } : {}) }));
}

function textsOf(turn: VendorTurn): string[] {
  return turn.content.map((block) => {
    if (block.type === "text") return block.text;
    if (block.type === "tool_result") return typeof block.content === "string" ? block.content : "";
    return block.type === "thinking" ? block.thinking : "";
  });
}

/** The prompt in sending order, lazily: counting stops as soon as it is long enough. */
function promptTexts(prompt: { system: TextBlock[]; tools: Tool[]; turns: VendorTurn[] }): string[] {
  return [
    ...prompt.tools.map((tool) => `${tool.name}${tool.description ?? ""}${JSON.stringify(tool.input_schema)}`),
    ...prompt.system.map((block) => block.text),
    ...prompt.turns.flatMap(textsOf),
  ];
}

function markLast(turn: VendorTurn | undefined): void {
  const block = turn?.content.at(-1);
  // Thinking cannot carry a mark; it is cached with what follows.
  if (block !== undefined && block.type !== "thinking" && block.type !== "redacted_thinking") {
    Object.assign(block, { cache_control: mark });
  }
}

/**
 * Marks the end of the history, so that the next step reads it from the cache, and the end of the
 * user turn before, where the last request left its mark. Changes the turns in place.
 */
export function markHistory(
  prompt: { system: TextBlock[]; tools: Tool[]; turns: VendorTurn[] },
  info: Readonly<ModelInfo>,
): void {
  if (!info.supportsCaching || !worthCaching(promptTexts(prompt), info)) return;
  const userTurns = prompt.turns.filter((turn) => turn.role === "user");
  for (const turn of userTurns.slice(-2)) markLast(turn);
}
