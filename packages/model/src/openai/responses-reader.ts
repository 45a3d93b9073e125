import { failureOfRefusal } from "../index.ts";
import { messageStop, toolCallDelta, type MessageStop, type ModelChunk, type Usage } from "@larkline/protocol";
import type OpenAI from "openai";
import type { Reader } from "./client.ts";
import { reasoningMetadata } from "./responses-input.ts";

type Event = OpenAI.Responses.ResponseStreamEvent;
type Response = OpenAI.Responses.Response;
type Item = OpenAI.Responses.ResponseOutputItem;

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: Response["usage"]): Usage | null {
  if (!usage) return null;
  const cacheReadTokens = usage.input_tokens_details?.cached_tokens ?? 0;
  const cacheCreationTokens = usage.input_tokens_details?.cache_write_tokens ?? 0;
  return {
    inputTokens: Math.max(0, usage.input_tokens - cacheReadTokens - cacheCreationTokens),
    outputTokens: usage.output_tokens,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

class ResponsesReader implements Reader<Event> {
  #stop: MessageStop | null = null;
  #calls = 0;
  #refused = false;
  /** Calls whose arguments came in pieces. */
  #pieced = new Set<number>();

  read(event: Event): ModelChunk[] {
    switch (event.type) {
      case "response.output_text.delta":
        return event.delta === "" ? [] : [{ type: "text_delta", text: event.delta }];
      case "response.refusal.delta":
        this.#refused = true;
        return event.delta === "" ? [] : [{ type: "text_delta", text: event.delta }];
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        return event.delta === "" ? [] : [{ type: "thinking_delta", index: event.output_index, text: event.delta }];
      case "response.output_item.added":
        return this.#added(event.item, event.output_index);
      case "response.function_call_arguments.delta":
        if (event.delta === "") return [];
        this.#pieced.add(event.output_index);
        return [toolCallDelta(event.output_index, { arguments: event.delta })];
      case "response.output_item.done":
        return this.#done(event.item, event.output_index);
      default:
        return this.#end(event);
    }
  }

  stop(): MessageStop | null {
    return this.#stop;
  }

  #added(item: Item, index: number): ModelChunk[] {
    if (item.type !== "function_call") return [];
    this.#calls += 1;
    return [toolCallDelta(index, { id: item.call_id, name: item.name })];
  }

  #done(item: Item, index: number): ModelChunk[] {
    if (item.type === "function_call" && !this.#pieced.has(index) && item.arguments !== "") {
      return [toolCallDelta(index, { arguments: item.arguments })];
    }
    if (item.type !== "reasoning") return [];
    return [{ type: "thinking_delta", index, text: "", providerMetadata: reasoningMetadata(item) }];
  }

  #end(event: Event): ModelChunk[] {
    switch (event.type) {
      case "response.completed": {
        const reason = this.#refused ? "refusal" : this.#calls > 0 ? "tool_use" : "end_turn";
        this.#stop = messageStop(reason, usageOf(event.response.usage), event.response.id);
        return [];
      }
      case "response.incomplete": {
        const { reason } = event.response.incomplete_details ?? {};
        const stopReasons: Record<string, MessageStop["stopReason"]> = {
          max_output_tokens: "max_tokens",
          content_filter: "refusal",
        };
        const stopReason = stopReasons[reason ?? ""] ?? "other";
        this.#stop = messageStop(stopReason, usageOf(event.response.usage), event.response.id);
        return [];
      }
      case "response.failed": {
        const { code, message } = event.response.error ?? { code: "server_error", message: "The response failed." };
        return [failureOfRefusal({ kind: code, message })];
      }
      case "error":
        return [failureOfRefusal({ kind: event.code ?? undefined, message: event.message })];
      default:
        return []; // many kinds of events say nothing we need
    }
  }
}

/** A reader for one stream of the Responses interface. */
export function createResponsesReader(): Reader<Event> {
  return new ResponsesReader();
}
