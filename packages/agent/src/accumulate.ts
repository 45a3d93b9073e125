import { writtenTokens } from "./token-estimate.ts";
import type {
  ModelChunk,
  ModelFailure,
  ModelWarning,
  ProviderMetadata,
  StopReason,
  TextPart,
  ThinkingDelta,
  ThinkingPart,
  StepUse,
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
  /** The id under which the vendor knows the answer, when it is whole and has one. */
  responseId?: string;
  /** Most output tokens that the last request allowed. */
  maxTokens?: number;
  /** Present when the stream failed: the rest is what had arrived before. */
  failure?: ModelFailure;
  /** Every call of a vendor, the last one included; absent where the stream does not tell of them. */
  vendorCalls?: readonly VendorCall[];
  /** What all of them have used, once it is reckoned. */
  use?: StepUse;
  /** The same for each call. */
  uses?: readonly { model: string | undefined; usage: Usage }[];
  /** The caller has broken it off. */
  brokenOff?: true;
  warnings: ModelWarning[];
}

/** What one call of a vendor has left, whether its answer counts or not. */
export interface VendorCall {
  model: string;
  /** What the vendor has reported: all of it at the end, less before. */
  usage: Usage | null;
  /** Whether it said so at the end of a whole answer. */
  complete: boolean;
  /** About what it has written, in tokens. */
  writtenTokens: number;
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
  responseId?: string;
  maxTokens?: number;
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

function resultOf(
  blocks: Blocks,
  ending: Ending,
  { warnings, calls }: { warnings: readonly ModelWarning[]; calls: readonly VendorCall[] },
): StepResult {
  return {
    ...(calls.length === 0 ? {} : { vendorCalls: calls }),
    text: textOfParts(blocks.parts),
    toolCalls: sortedCalls(blocks),
    parts: blocks.parts.map((part) => ({ ...part })),
    ...ending,
    warnings: [...warnings],
  };
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
  const ended: VendorCall[] = [];
  let current: VendorCall | undefined;

  /** The call as it stands. */
  function call(): VendorCall[] {
    if (current === undefined) return [];
    const { parts, callsByIndex } = blocks;
    return [{ ...current, writtenTokens: writtenTokens({ parts, toolCalls: [...callsByIndex.values()] }) }];
  }

  function endCall(): void {
    ended.push(...call());
    current = undefined;
  }

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
      case "attempt":
        endCall();
        current = { model: chunk.model, usage: null, complete: false, writtenTokens: 0 };
        ending = { ...ending, model: chunk.model, maxTokens: chunk.maxTokens };
        return;
      case "usage_so_far":
        if (current !== undefined) current.usage = chunk.usage;
        return;
      case "restart":
        endCall();
        blocks = emptyBlocks();
        ending = { stopReason: "other", usage: null, model: chunk.model };
        return;
      case "message_stop":
        ending = { ...ending, stopReason: chunk.stopReason, usage: chunk.usage };
        if (chunk.model !== undefined) ending.model = chunk.model;
        if (chunk.responseId !== undefined) ending.responseId = chunk.responseId;
        if (current !== undefined && chunk.usage !== null) {
          Object.assign(current, { usage: chunk.usage, complete: true });
        }
        return;
      case "error":
        ending.failure = chunk;
    }
  }

  return { push, result: () => resultOf(blocks, ending, { warnings, calls: [...ended, ...call()] }) };
}

/** Reads a stream to its end. An exception of the iterator propagates. */
export async function accumulateStream(chunks: AsyncIterable<ModelChunk>): Promise<StepResult> {
  const accumulator = createAccumulator();
  for await (const chunk of chunks) accumulator.push(chunk);
  return accumulator.result();
}
