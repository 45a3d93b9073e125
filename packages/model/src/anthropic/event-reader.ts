import type Anthropic from "@anthropic-ai/sdk";
import {
  messageStop,
  toolCallDelta,
  type MessageStop,
  type ModelChunk,
  type StopReason,
  type Usage,
  type UsageSoFar,
} from "@larkline/protocol";
import { thinkingMetadata } from "./message-blocks.ts";

type Event = Anthropic.Messages.RawMessageStreamEvent;
/** What comes in a stream: events of the answer, or the report of an error. */
export type StreamEvent = Event | { type: "error"; error?: unknown };
type BlockStart = Anthropic.Messages.RawContentBlockStartEvent;
type BlockDelta = Anthropic.Messages.RawContentBlockDeltaEvent;

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

/** Counts are cumulative: what an event names replaces what came before. */
function addCounts(usage: Usage, counts: Counts | null | undefined): Usage {
  return {
    inputTokens: counts?.input_tokens ?? usage.inputTokens,
    outputTokens: counts?.output_tokens ?? usage.outputTokens,
    cacheReadTokens: counts?.cache_read_input_tokens ?? usage.cacheReadTokens,
    cacheCreationTokens: counts?.cache_creation_input_tokens ?? usage.cacheCreationTokens,
  };
}

/** Reads one vendor stream. */
export interface EventReader {
  /** The chunk of an event, if it has one. */
  read(event: Event): ModelChunk | null;
  /** The end of the answer; null when the vendor never said that it was complete. */
  stop(): MessageStop | null;
}

class Reader implements EventReader {
  readonly #model: string;
  #usage: Usage | null = null;
  #stopReason: StopReason = "other";
  #responseId: unknown;
  #complete = false;
  #signatures = new Map<number, string>();
  /** Inputs that compatible servers send whole, at the start of a call. */
  #wholeInputs = new Map<number, string>();

  constructor(model: string) {
    this.#model = model;
  }

  read(event: Event): ModelChunk | null {
    switch (event.type) {
      case "message_start":
        this.#responseId = event.message.id;
        return this.#count(event.message.usage);
      case "content_block_start":
        return this.#start(event);
      case "content_block_delta":
        return this.#delta(event);
      case "content_block_stop":
        return this.#end(event.index);
      case "message_delta":
        this.#count(event.usage);
        this.#stopReason = stopReasons[event.delta.stop_reason ?? ""] ?? "other";
        return null;
      case "message_stop":
        this.#complete = true;
        return null;
      default:
        return null; // later kinds of events must not break a stream
    }
  }

  stop(): MessageStop | null {
    return this.#complete ? messageStop(this.#stopReason, this.#usage, this.#responseId) : null;
  }

  #count(counts: Counts | null | undefined): UsageSoFar {
    const nothing = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheCreationTokens: 0 };
    this.#usage = addCounts(this.#usage ?? nothing, counts);
    return { type: "usage_so_far", usage: this.#usage };
  }

  #start({ index, content_block: block }: BlockStart): ModelChunk | null {
    switch (block.type) {
      case "text":
        return block.text === "" ? null : { type: "text_delta", text: block.text };
      case "thinking":
        if (block.signature) this.#signatures.set(index, block.signature);
        return { type: "thinking_delta", index, text: block.thinking };
      case "redacted_thinking":
        return {
          type: "thinking_delta",
          index,
          text: "",
          providerMetadata: thinkingMetadata(this.#model, { redacted: block.data }),
        };
      case "tool_use": {
        const input = JSON.stringify(block.input ?? {});
        if (input !== "{}") this.#wholeInputs.set(index, input);
        return toolCallDelta(index, { id: block.id, name: block.name });
      }
      default:
        return null;
    }
  }

  #delta({ index, delta }: BlockDelta): ModelChunk | null {
    switch (delta.type) {
      case "text_delta":
        return delta.text === "" ? null : { type: "text_delta", text: delta.text };
      case "thinking_delta":
        return delta.thinking === "" ? null : { type: "thinking_delta", index, text: delta.thinking };
      case "signature_delta":
        this.#signatures.set(index, (this.#signatures.get(index) ?? "") + delta.signature);
        return null;
      case "input_json_delta":
        if (delta.partial_json === "") return null;
        this.#wholeInputs.delete(index);
        return toolCallDelta(index, { arguments: delta.partial_json });
      default:
        return null;
    }
  }

  #end(index: number): ModelChunk | null {
    const signature = this.#signatures.get(index);
    if (signature !== undefined) {
      const providerMetadata = thinkingMetadata(this.#model, { signature });
      return { type: "thinking_delta", index, text: "", providerMetadata };
    }
    const input = this.#wholeInputs.get(index);
    return input === undefined ? null : toolCallDelta(index, { arguments: input });
  }
}

/** A reader for the stream of one request to `model`. */
export function createEventReader(model: string): EventReader {
  return new Reader(model);
}
