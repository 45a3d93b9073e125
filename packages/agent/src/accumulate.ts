import type {
  ModelChunk,
  ModelFailure,
  ModelWarning,
  ProviderMetadata,
  StopReason,
  TextPart,
  ThinkingDelta,
  ThinkingPart,
  ToolCall,
  ToolCallDelta,
  Usage,
} from "@larkline/protocol";

/** One model step, complete. */
export interface StepResult {
  /** All text of the step, joined without separator. */
  text: string;
  /** In ascending index order, gaps closed; ids and names may be empty when the model sent none. */
  toolCalls: ToolCall[];
  /** Text and thinking in the order their blocks began, adjacent text joined. */
  parts: (TextPart | ThinkingPart)[];
  /** `other` when the stream never said. */
  stopReason: StopReason;
  usage: Usage | null;
  /** The model that answered, when the vendor or a fallback told. */
  model?: string;
  /** Present when the stream failed: the rest is what had arrived before. */
  failure?: ModelFailure;
  warnings: ModelWarning[];
}

/** Takes the chunks of one model stream, in order. */
export interface Accumulator {
  push(chunk: ModelChunk): void;
  /** The step as received so far. */
  result(): StepResult;
}

interface Blocks {
  parts: (TextPart | ThinkingPart)[];
  thinkingByIndex: Map<number, ThinkingPart>;
  callsByIndex: Map<number, ToolCall>;
}

interface Ending {
  stopReason: StopReason;
  usage: Usage | null;
  model?: string;
  failure?: ModelFailure;
}

function emptyBlocks(): Blocks {
  return { parts: [], thinkingByIndex: new Map(), callsByIndex: new Map() };
}

function merged(known: ProviderMetadata | undefined, more: ProviderMetadata | undefined): ProviderMetadata | undefined {
  return known === undefined ? more : { ...known, ...more };
}

function addText({ parts }: Blocks, text: string): void {
  if (text === "") return;
  const last = parts.at(-1);
  if (last?.type === "text") last.text += text;
  else parts.push({ type: "text", text });
}

function addThinking({ parts, thinkingByIndex }: Blocks, delta: ThinkingDelta): void {
  let part = thinkingByIndex.get(delta.index);
  if (part === undefined) {
    part = { type: "thinking", text: "" };
    thinkingByIndex.set(delta.index, part);
    parts.push(part);
  }
  part.text += delta.text;
  const metadata = merged(part.providerMetadata, delta.providerMetadata);
  if (metadata !== undefined) part.providerMetadata = metadata;
}

function addCall({ callsByIndex }: Blocks, delta: ToolCallDelta): void {
  let call = callsByIndex.get(delta.index);
  if (call === undefined) {
    call = { id: "", name: "", arguments: "" };
    callsByIndex.set(delta.index, call);
  }
  if (call.id === "") call.id = delta.id ?? "";
  if (call.name === "") call.name = delta.name ?? "";
  call.arguments += delta.arguments;
  const metadata = merged(call.providerMetadata, delta.providerMetadata);
  if (metadata !== undefined) call.providerMetadata = metadata;
}

function textOfParts(parts: readonly (TextPart | ThinkingPart)[]): string {
  let text = "";
  for (const part of parts) if (part.type === "text") text += part.text;
  return text;
}

function sortedCalls({ callsByIndex }: Blocks): ToolCall[] {
  return [...callsByIndex].sort(([left], [right]) => left - right).map(([, call]) => ({ ...call }));
}

/**
 * Collects a model stream into one step. Calls and thinking are grouped by `index`; of several ids
 * or names of one call the first non-empty one wins; a later stop replaces an earlier one; chunks
 * after a stop still count; a `restart` voids everything but the warnings; unknown chunks are skipped.
 */
export function createAccumulator(): Accumulator {
  const warnings: ModelWarning[] = [];
  let blocks = emptyBlocks();
  let ending: Ending = { stopReason: "other", usage: null };

  function push(chunk: ModelChunk): void {
    switch (chunk.type) {
      case "text_delta":
        return addText(blocks, chunk.text);
      case "thinking_delta":
        return addThinking(blocks, chunk);
      case "tool_call_delta":
        return addCall(blocks, chunk);
      case "warning":
        return void warnings.push(chunk);
      case "restart":
        blocks = emptyBlocks();
        ending = { stopReason: "other", usage: null, model: chunk.model };
        return;
      case "message_stop":
        ending = { ...ending, stopReason: chunk.stopReason, usage: chunk.usage };
        if (chunk.model !== undefined) ending.model = chunk.model;
        return;
      case "error":
        ending.failure = chunk;
    }
  }

  function result(): StepResult {
    return {
      text: textOfParts(blocks.parts),
      toolCalls: sortedCalls(blocks),
      parts: blocks.parts.map((part) => ({ ...part })),
      ...ending,
      warnings: [...warnings],
    };
  }

  return { push, result };
}

/** Reads a stream to its end. An exception of the iterator propagates. */
export async function accumulateStream(chunks: AsyncIterable<ModelChunk>): Promise<StepResult> {
  const accumulator = createAccumulator();
  for await (const chunk of chunks) accumulator.push(chunk);
  return accumulator.result();
}
