import type Anthropic from "@anthropic-ai/sdk";
import { messageStop, toolCallDelta } from "../index.ts";
import {
  type MessageStop,
  type ModelChunk,
  type ProviderMetadata,
  type StopReason,
  type Usage,
  type UsageSoFar,
} from "@larkline/protocol";

// From the vendor's stream to chunks. Blocks of its own tools, which are none of ours to run, are kept whole.

/** What comes in a stream: events of the answer, or the report of an error. */
export type StreamEvent = Event | { type: "error"; error?: unknown };

type Event = Anthropic.Messages.RawMessageStreamEvent;

const stopReasons: Record<string, StopReason> = {
  end_turn: "end_turn",
  stop_sequence: "end_turn",
  tool_use: "tool_use",
  max_tokens: "max_tokens",
  model_context_window_exceeded: "max_tokens",
  refusal: "refusal",
};

interface Counts {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cache_creation_input_tokens?: number | null;
}

type BlockStart = Anthropic.Messages.RawContentBlockStartEvent;

type BlockDelta = Anthropic.Messages.RawContentBlockDeltaEvent;

/** A block as the vendor sends it. */
type RawBlock = Record<string, unknown> & { type: string };

/** Reads one stream of an answer. `first`: blocks of the same answer that came in streams before. */
export class Reader {
  readonly #model: string;
  readonly #first: number;
  /** By index, with what their deltas have added. */
  readonly #blocks = new Map<number, RawBlock>();
  /** JSON text of inputs under way. */
  readonly #inputs = new Map<number, string>();
  /** The answer is not complete: the same model continues it. */
  hasPaused = false;
  #usage: Usage | null = null;
  #stopReason: StopReason = "other";
  #responseId: unknown;
  #complete = false;

  constructor(model: string, first = 0) {
    this.#model = model;
    this.#first = first;
  }

  /** The chunks of an event. */
  read(event: Event): ModelChunk[] {
    switch (event.type) {
      case "message_start":
        this.#responseId = event.message.id;
        return [this.#count(event.message.usage)];
      case "content_block_start":
        return this.#start(event);
      case "content_block_delta":
        return this.#delta(event);
      case "content_block_stop":
        return this.#end(event.index);
      case "message_delta": {
        const { stop_reason: reason } = event.delta;
        this.#count(event.usage);
        this.hasPaused = reason === "pause_turn";
        this.#stopReason = stopReasons[reason ?? ""] ?? "other";
        return [];
      }
      case "message_stop":
        this.#complete = true;
        return [];
      default:
        return []; // later kinds of events must not break a stream
    }
  }

  /** The blocks of the stream, to be sent back. */
  blocks(): Anthropic.Messages.ContentBlockParam[] {
    const inOrder = [...this.#blocks].sort(([left], [right]) => left - right).map(([, block]) => block);
    // The vendor's own, as it sent them; an empty text is refused when it comes back.
    return inOrder.filter(
      ({ type, text }) => type !== "text" || text !== "",
    ) as unknown as Anthropic.Messages.ContentBlockParam[];
  }

  /** The end of the answer; null when the vendor never said that it was complete. */
  stop(): MessageStop | null {
    return this.#complete ? messageStop(this.#stopReason, this.#usage, this.#responseId) : null;
  }

  #count(counts: Counts | null | undefined): UsageSoFar {
    const nothing = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };
    this.#usage = addCounts(this.#usage ?? nothing, counts);
    return { type: "usage_so_far", usage: this.#usage };
  }

  #start({ index: at, content_block: block }: BlockStart): ModelChunk[] {
    const index = this.#first + at;
    this.#blocks.set(at, { ...block });
    switch (block.type) {
      case "text":
        return block.text === "" ? [] : [{ type: "text_delta", text: block.text }];
      case "thinking":
        return [{ type: "thinking_delta", index, text: block.thinking }];
      case "redacted_thinking": {
        const providerMetadata = thinkingMetadata(this.#model, { redacted: block.data });
        return [{ type: "thinking_delta", index, text: "", providerMetadata }];
      }
      case "tool_use":
        return [toolCallDelta(index, { id: block.id, name: block.name })];
      default:
        return []; // told as a whole when it ends
    }
  }

  #delta({ index: at, delta }: BlockDelta): ModelChunk[] {
    const index = this.#first + at;
    const block = this.#blocks.get(at);
    switch (delta.type) {
      case "text_delta":
        grow(block, "text", delta.text);
        return delta.text === "" ? [] : [{ type: "text_delta", text: delta.text }];
      case "thinking_delta":
        grow(block, "thinking", delta.thinking);
        return delta.thinking === "" ? [] : [{ type: "thinking_delta", index, text: delta.thinking }];
      case "signature_delta":
        grow(block, "signature", delta.signature);
        return [];
      case "citations_delta":
        if (block !== undefined) block["citations"] = [...listIn(block["citations"]), delta.citation];
        return [];
      case "input_json_delta":
        if (delta.partial_json === "") return [];
        this.#inputs.set(at, (this.#inputs.get(at) ?? "") + delta.partial_json);
        // Calls of the vendor's own tools are not for us to run.
        return block?.type === "tool_use" ? [toolCallDelta(index, { arguments: delta.partial_json })] : [];
      default:
        return [];
    }
  }

  #end(at: number): ModelChunk[] {
    const index = this.#first + at;
    const block = this.#blocks.get(at);
    const input = this.#inputs.get(at);
    if (block === undefined) return [];
    if (input !== undefined) block["input"] = parsedInput(input);
    switch (block.type) {
      case "text":
        return listIn(block["citations"]).length === 0 ? [] : [this.#opaque(index, citationsOf(block))];
      case "thinking": {
        const { signature } = block;
        if (typeof signature !== "string" || signature === "") return [];
        return [
          { type: "thinking_delta", index, text: "", providerMetadata: thinkingMetadata(this.#model, { signature }) },
        ];
      }
      case "redacted_thinking":
        return [];
      case "tool_use": {
        // Compatible servers send an input whole, at the start of a call.
        const whole = input === undefined ? JSON.stringify(block["input"] ?? {}) : "{}";
        return whole === "{}" ? [] : [toolCallDelta(index, { arguments: whole })];
      }
      default:
        return [this.#opaque(index, block)];
    }
  }

  #opaque(index: number, block: RawBlock): ModelChunk {
    const providerMetadata = { vendor: "anthropic", model: this.#model, opaque: JSON.stringify(block) };
    return { type: "thinking_delta", index, text: "", providerMetadata };
  }
}

/** Adds a piece to a text of a block. */
function grow(block: RawBlock | undefined, key: string, piece: string): void {
  if (block !== undefined) block[key] = (typeof block[key] === "string" ? block[key] : "") + piece;
}

function listIn(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** What a text cites: kept apart from the text, which other models read, too. */
function citationsOf({ citations }: RawBlock): RawBlock {
  return { type: citationsType, citations };
}

/** What a text cites, as it is kept. No type of the vendor's. */
export const citationsType = "citations_of_text";

/** An input that was cut off stays as it is: the vendor judges it. */
function parsedInput(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** Counts are cumulative: what an event names replaces what came before. */
function addCounts(usage: Usage, counts: Counts | null | undefined): Usage {
  return {
    inputTokens: counts?.input_tokens ?? usage.inputTokens,
    outputTokens: counts?.output_tokens ?? usage.outputTokens,
    cacheReadTokens: counts?.cache_read_input_tokens ?? usage.cacheReadTokens,
    cacheCreationTokens: counts?.cache_creation_input_tokens ?? usage.cacheCreationTokens,
  };
}

/** What marks a thinking part as ours: only the model that made it takes it back. */
function thinkingMetadata(model: string, secret: { signature: string } | { redacted: string }): ProviderMetadata {
  return { vendor: "anthropic", model, ...secret };
}
