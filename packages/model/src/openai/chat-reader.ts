import {
  messageStop,
  toolCallDelta,
  type MessageStop,
  type ModelChunk,
  type StopReason,
  type Usage,
} from "@larkline/protocol";
import type OpenAI from "openai";
import { reasoningMetadata } from "./chat-messages.ts";
import type { Reader } from "./client.ts";

type Chunk = OpenAI.Chat.Completions.ChatCompletionChunk;
type Choice = Chunk["choices"][number];
type CallDelta = NonNullable<Choice["delta"]["tool_calls"]>[number];

const stopReasons: Record<string, StopReason> = {
  stop: "end_turn",
  tool_calls: "tool_use",
  function_call: "tool_use",
  length: "max_tokens",
  content_filter: "refusal",
};

/** The vendor counts cached tokens as part of the prompt; we count them apart. */
function usageOf(usage: NonNullable<Chunk["usage"]>): Usage {
  const details = usage.prompt_tokens_details;
  const cacheReadTokens = details?.cached_tokens ?? 0;
  const cacheCreationTokens = details?.cache_write_tokens ?? 0;
  return {
    inputTokens: Math.max(0, (usage.prompt_tokens ?? 0) - cacheReadTokens - cacheCreationTokens),
    outputTokens: usage.completion_tokens ?? 0,
    cacheReadTokens,
    cacheCreationTokens,
  };
}

/** Thinking of compatible servers, in fields the SDK's types do not know. */
function reasoningOf(delta: object): string {
  for (const name of ["reasoning_content", "reasoning"]) {
    const value: unknown = Reflect.get(delta, name);
    if (typeof value === "string" && value !== "") return value;
  }
  return "";
}

class ChatReader implements Reader<Chunk> {
  #finish: string | null = null;
  #usage: Usage | null = null;
  #responseId: unknown;
  #refused = false;
  #calls = new Set<number>();
  #lastIndex = -1;

  read(chunk: Chunk): ModelChunk[] {
    this.#responseId ??= chunk.id;
    if (chunk.usage) this.#usage = usageOf(chunk.usage);
    const choice = chunk.choices?.[0];
    if (choice === undefined) return [];
    if (choice.finish_reason) this.#finish = choice.finish_reason;
    return choice.delta ? this.#delta(choice.delta) : [];
  }

  stop(): MessageStop | null {
    if (this.#finish === null) return null;
    return messageStop(this.#reason(this.#finish), this.#usage, this.#responseId);
  }

  #reason(finish: string): StopReason {
    if (this.#refused) return "refusal";
    // Compatible servers end tool calls with a plain stop.
    if (finish === "stop" && this.#calls.size > 0) return "tool_use";
    return stopReasons[finish] ?? "other";
  }

  #delta(delta: Choice["delta"]): ModelChunk[] {
    const chunks: ModelChunk[] = [];
    const reasoning = reasoningOf(delta);
    if (reasoning !== "") {
      chunks.push({ type: "thinking_delta", index: 0, text: reasoning, providerMetadata: reasoningMetadata });
    }
    if (delta.content) chunks.push({ type: "text_delta", text: delta.content });
    if (delta.refusal) {
      this.#refused = true;
      chunks.push({ type: "text_delta", text: delta.refusal });
    }
    for (const call of delta.tool_calls ?? []) chunks.push(this.#call(call));
    if (delta.function_call) chunks.push(this.#call({ index: 0, function: delta.function_call }));
    return chunks;
  }

  /** Some servers leave out the index: a new id then begins a new call. */
  #indexOf(call: CallDelta): number {
    if (typeof call.index === "number") return call.index;
    return call.id || this.#lastIndex < 0 ? this.#calls.size : this.#lastIndex;
  }

  #call(call: CallDelta): ModelChunk {
    const index = this.#indexOf(call);
    this.#lastIndex = index;
    this.#calls.add(index);
    return toolCallDelta(index, {
      id: call.id || null,
      name: call.function?.name || null,
      arguments: call.function?.arguments ?? "",
    });
  }
}

/** A reader for one stream of Chat Completions. */
export function createChatReader(): Reader<Chunk> {
  return new ChatReader();
}
