import type { ProviderMetadata, TextPart, ThinkingPart } from "@larkline/protocol/content";
import type { EngineEvent, EventOf } from "@larkline/protocol/event";
import type {
  ModelChunk,
  MessageStop,
  ModelFailure,
  ModelRetry,
  ModelWarning,
  StopReason,
  TextDelta,
  ThinkingDelta,
  ToolCallDelta,
  Usage,
} from "@larkline/protocol/model-stream";
import type { ToolCall } from "@larkline/protocol/tool";
import { itemOfPart } from "@larkline/protocol/vendor-item";
import { writtenTokens } from "./context.ts";
import type { CallPlace, StepResult, VendorCall } from "./facts.ts";
import { isOpaque } from "./messages.ts";

// The stream of a model becomes a step, and events while it runs.

type JsonObject = Record<string, unknown>;

/** The event of a block that is complete. */
export type BlockEvent = EventOf<"text" | "thinking">;

/** Takes the chunks of one model stream, in order. */
export interface Accumulator {
  /** Returns the complete events of the blocks that have ended by now; a delta of this chunk comes after them. */
  push(chunk: ModelChunk): BlockEvent[];
  /** The step as received so far. */
  result(): StepResult;
}

interface Ending {
  stopReason: StopReason;
  usage: Usage | null;
  model?: string;
  responseId?: string;
  maxTokens?: number;
  paused?: true;
  failure?: ModelFailure;
}

/**
 * Collects a model stream into one step. Calls and thinking are grouped by `index`, and a block ends where another one
 * or a call begins; of several ids or names of one call the first non-empty one wins; a later stop replaces an earlier
 * one; chunks after a stop still count; a `restart` voids everything but the warnings; unknown chunks are skipped.
 */
export function createAccumulator(): Accumulator {
  const warnings: ModelWarning[] = [];
  let blocks = emptyBlocks();
  let ending: Ending = { stopReason: "other", usage: null };
  const ended: VendorCall[] = [];
  let current: VendorCall | undefined;
  /** The tokens written by the calls that the current one continues. */
  let writtenBefore = 0;
  let pauses = 0;

  function written(): number {
    const { parts, callsByIndex } = blocks;
    return writtenTokens({ parts, toolCalls: [...callsByIndex.values()] });
  }

  /** The call as it stands. */
  function call(): VendorCall[] {
    return current === undefined
      ? []
      : [{ ...current, writtenTokens: Math.max(0, written() - writtenBefore) }];
  }

  function endCall(): void {
    ended.push(...call());
    current = undefined;
  }

  function push(chunk: ModelChunk): BlockEvent[] {
    switch (chunk.type) {
      case "text_delta":
        return addText(blocks, chunk);
      case "thinking_delta":
        return addThinking(blocks, chunk);
      case "tool_call_delta":
        return addCall(blocks, chunk);
      case "warning":
        warnings.push(chunk);
        return [];
      case "attempt":
        if (chunk.continues === true && current?.usage != null) current.complete = true;
        endCall();
        current = { model: chunk.model, usage: null, complete: false, writtenTokens: 0 };
        writtenBefore = chunk.continues === true ? written() : 0;
        pauses += chunk.continues === true ? 1 : 0;
        ending = { ...ending, model: chunk.model, maxTokens: chunk.maxTokens };
        return [];
      case "usage_so_far":
        if (current !== undefined) current.usage = completeUsage(chunk.usage);
        return [];
      case "restart":
        endCall();
        blocks = emptyBlocks();
        ending = { stopReason: "other", usage: null, model: chunk.model };
        return [];
      case "message_stop":
        ending = { ...ending, ...endingOf(chunk) };
        if (current !== undefined && ending.usage !== null) {
          Object.assign(current, { usage: ending.usage, complete: true });
        }
        return endBlock(blocks);
      case "error":
        ending.failure = chunk;
        return [];
      default:
        return [];
    }
  }

  return {
    push,
    result: () => resultOf(blocks, ending, { warnings, pauses, calls: [...ended, ...call()] }),
  };
}

function count(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}

function endingOf({ stopReason, usage, model, responseId, paused }: MessageStop): Ending {
  return {
    stopReason,
    usage: completeUsage(usage),
    ...(model === undefined ? {} : { model }),
    ...(responseId === undefined ? {} : { responseId }),
    ...(paused === undefined ? {} : { paused }),
  };
}

/** Every count, also of a backend that leaves some out. */
function completeUsage(usage: Partial<Usage> | null): Usage | null {
  if (usage === null) return null;
  return {
    inputTokens: count(usage.inputTokens),
    outputTokens: count(usage.outputTokens),
    cacheReadTokens: count(usage.cacheReadTokens),
    cacheCreationTokens: count(usage.cacheCreationTokens),
  };
}

interface Blocks {
  parts: (TextPart | ThinkingPart)[];
  /** The one that grows: those before it have ended. */
  open: TextPart | ThinkingPart | undefined;
  /** The blocks of vendors that number them. */
  textByIndex: Map<number, TextPart>;
  thinkingByIndex: Map<number, ThinkingPart>;
  callsByIndex: Map<number, ToolCall>;
  placesByIndex: Map<number, CallPlace>;
  /** Complete events so far. */
  told: number;
  /** Items of the vendor's own tools that no event carries yet. */
  vendorItems: JsonObject[];
}

function emptyBlocks(): Blocks {
  return {
    parts: [],
    open: undefined,
    textByIndex: new Map(),
    thinkingByIndex: new Map(),
    callsByIndex: new Map(),
    placesByIndex: new Map(),
    told: 0,
    vendorItems: [],
  };
}

function addText(blocks: Blocks, { index, text, providerMetadata: more }: TextDelta): BlockEvent[] {
  const { open, textByIndex } = blocks;
  const known = index === undefined ? open : textByIndex.get(index);
  if (known?.type === "text" && (known === open || text === "")) {
    known.text += text;
    const metadata = merged(known.providerMetadata, more);
    if (metadata !== undefined) known.providerMetadata = metadata;
    return [];
  }
  if (text === "") return [];
  const part: TextPart = {
    type: "text",
    text,
    ...(more === undefined ? {} : { providerMetadata: more }),
  };
  if (index !== undefined) textByIndex.set(index, part);
  return beginBlock(blocks, part);
}

function addThinking(
  blocks: Blocks,
  { index, text, providerMetadata: more }: ThinkingDelta,
): BlockEvent[] {
  const known = blocks.thinkingByIndex.get(index);
  // A delta without text that comes late, such as a signature, still belongs to the block.
  if (known !== undefined && (known === blocks.open || text === "")) {
    known.text += text;
    const metadata = merged(known.providerMetadata, more);
    if (metadata !== undefined) known.providerMetadata = metadata;
    return [];
  }
  const part: ThinkingPart = {
    type: "thinking",
    text,
    ...(more === undefined ? {} : { providerMetadata: more }),
  };
  blocks.thinkingByIndex.set(index, part);
  const ended = beginBlock(blocks, part);
  if (!isOpaque(part)) return ended;
  const item = itemOfPart(part);
  if (item !== undefined) blocks.vendorItems.push(item);
  blocks.open = undefined;
  return ended;
}

function beginBlock(blocks: Blocks, part: TextPart | ThinkingPart): BlockEvent[] {
  const ended = endBlock(blocks);
  blocks.parts.push(part);
  blocks.open = part;
  return ended;
}

function endBlock(blocks: Blocks): BlockEvent[] {
  const { open } = blocks;
  blocks.open = undefined;
  const event = open === undefined ? undefined : blockEventOf(open, blocks.vendorItems);
  if (event === undefined) return [];
  blocks.vendorItems = [];
  blocks.told += 1;
  return [event];
}

/** The event of a block; undefined for one that says nothing. `before`: items of the vendor that come before it. */
export function blockEventOf(
  part: TextPart | ThinkingPart,
  before: readonly JsonObject[],
): BlockEvent | undefined {
  const { type, text } = part;
  const item = itemOfPart(part);
  if (isOpaque(part) || (text === "" && (type === "text" || item === undefined))) return undefined;
  const vendorItem = item === undefined ? {} : { vendorItem: item };
  return {
    type,
    text,
    ...vendorItem,
    ...(before.length === 0 ? {} : { vendorItems: [...before] }),
  };
}

function merged(
  known: ProviderMetadata | undefined,
  more: ProviderMetadata | undefined,
): ProviderMetadata | undefined {
  return known === undefined ? more : { ...known, ...more };
}

function addCall(blocks: Blocks, delta: ToolCallDelta): BlockEvent[] {
  const { callsByIndex } = blocks;
  const ended = endBlock(blocks);
  let call = callsByIndex.get(delta.index);
  if (call === undefined) {
    call = { id: "", name: "", arguments: "" };
    callsByIndex.set(delta.index, call);
    const { parts, told, vendorItems } = blocks;
    blocks.placesByIndex.set(delta.index, { parts: parts.length, blocks: told, vendorItems });
    blocks.vendorItems = [];
  }
  if (call.id === "") call.id = delta.id ?? "";
  if (call.name === "") call.name = delta.name ?? "";
  call.arguments += delta.arguments;
  const metadata = merged(call.providerMetadata, delta.providerMetadata);
  if (metadata !== undefined) call.providerMetadata = metadata;
  return ended;
}

function resultOf(
  blocks: Blocks,
  ending: Ending,
  {
    warnings,
    pauses,
    calls,
  }: { warnings: readonly ModelWarning[]; pauses: number; calls: readonly VendorCall[] },
): StepResult {
  const places = inOrder(blocks.placesByIndex);
  const isMixed = places.some((place) =>
    blocks.parts.slice(place.parts).some((part) => itemOfPart(part) !== undefined),
  );
  const before = isMixed ? [] : places.flatMap(({ vendorItems }) => vendorItems);
  const vendorItems = [...before, ...blocks.vendorItems];
  return {
    ...(pauses === 0 ? {} : { pauses }),
    ...(calls.length === 0 ? {} : { vendorCalls: calls }),
    text: textOfParts(blocks.parts),
    toolCalls: inOrder(blocks.callsByIndex).map((call) => ({ ...call })),
    parts: blocks.parts.map((part) => ({ ...part })),
    ...(isMixed ? { callPlaces: places } : {}),
    ...(vendorItems.length === 0 ? {} : { vendorItems }),
    ...ending,
    warnings: [...warnings],
  };
}

function textOfParts(parts: readonly (TextPart | ThinkingPart)[]): string {
  let text = "";
  for (const part of parts) if (part.type === "text") text += part.text;
  return text;
}

function inOrder<T>(byIndex: ReadonlyMap<number, T>): T[] {
  return [...byIndex].sort(([left], [right]) => left - right).map(([, value]) => value);
}

/** Follows a step while it is read. */
export interface StepFollower {
  /** The number of the step in its turn. */
  turnNumber: number;
  /** Called with its events, a complete block before the first delta of the next one. The step waits for what it returns. */
  onEvent?: ((event: EngineEvent) => void | Promise<void>) | undefined;
  /** Called with calls that the chain repeats. */
  onRetry?: (retry: ModelRetry) => void;
}

/** Reads a stream to its end. An exception of the iterator propagates. */
export async function readStep(
  chunks: AsyncIterable<ModelChunk>,
  { turnNumber, onEvent, onRetry }: StepFollower = { turnNumber: 0 },
): Promise<StepResult> {
  const accumulator = createAccumulator();
  for await (const chunk of chunks) {
    for (const event of accumulator.push(chunk)) await onEvent?.(event);
    if (chunk.type === "retry") onRetry?.(chunk);
    const delta = deltaEventOf(chunk, turnNumber);
    if (delta !== undefined) await onEvent?.(delta);
  }
  return { ...accumulator.result(), blocksTold: true };
}

/**
 * The event of a chunk that is shown while model step `turnNumber` generates; undefined for everything
 * else and for empty deltas.
 */
export function deltaEventOf(chunk: ModelChunk, turnNumber: number): EngineEvent | undefined {
  switch (chunk.type) {
    case "text_delta":
    case "thinking_delta":
      return chunk.text === "" ? undefined : { type: chunk.type, text: chunk.text };
    case "restart":
      return { type: "step_restarted", turnNumber, model: chunk.model, reason: chunk.reason };
    default:
      return undefined;
  }
}
