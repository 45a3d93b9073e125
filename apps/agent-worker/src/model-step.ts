import {
  compactionRequest,
  callUses,
  createAccumulator,
  deltaEventOf,
  modelMessagesOf,
  stepUse,
  type CompactionPlan,
  type StepResult,
  type TurnModel,
  compactedTransition,
  compactionPlan,
  languageOfMessage,
  requestTokens,
  type Transition,
  attachmentText,
} from "@larkline/agent";
import type { ModelOptions } from "@larkline/process/config";
import type { ModelChain, StepPast } from "@larkline/model";
import {
  sharedNow,
  type EngineEvent,
  type Message,
  type ModelRetry,
  type ReplyLanguage,
  type ToolSpec,
  type TurnState,
  type FilePart,
  type ImagePart,
  type TextPart,
} from "@larkline/protocol";
import type { BlobStore } from "@larkline/store";
import type { ChargeStep } from "./budget.ts";
import type { TurnRunOptions } from "./turn-run.ts";
import type { TurnProgress } from "./turn-store.ts";

/** Puts stored content in place of references to it; what is gone is said to be gone. */
export type HistoryReader = (history: readonly Message[]) => Promise<readonly Message[]>;

interface ModelStep {
  chain: ModelChain;
  /** Knows what its calls cost. */
  model: Pick<TurnModel, "costUsd">;
  /** What became of the step before, if it was put off. */
  past?: StepPast | undefined;
  /** Number of the step in its turn, from 1. */
  turnNumber: number;
  system: string;
  history: readonly Message[];
  read: HistoryReader;
  tools: readonly ToolSpec[];
  /** What the agent asks of the vendor; absent: nothing. */
  options?: ModelOptions;
  signal: AbortSignal;
  /** Counts what it used. */
  charge: ChargeStep;
  /** Told what the model says while it says it. */
  onEvent: (event: EngineEvent) => void;
  /** Told of a call of a vendor that went wrong and is followed by another one. */
  onRetry: (retry: ModelRetry) => void;
}

/** Runs one model step to its end, or until the signal breaks it off, and counts what it used. */
export async function runModelStep(step: ModelStep): Promise<StepResult> {
  const accumulator = createAccumulator();
  const request = {
    ...step.options,
    messages: await step.read(modelMessagesOf(step.history)),
    tools: step.tools,
    system: step.system,
  };
  for await (const chunk of step.chain.stream(request, step.signal, step.past)) {
    accumulator.push(chunk);
    if (chunk.type === "retry") step.onRetry(chunk);
    const event = deltaEventOf(chunk, step.turnNumber);
    if (event !== undefined) step.onEvent(event);
  }
  const result = accumulator.result();
  const use = stepUse(result, step, step.model);
  await step.charge(use);
  return { ...result, use, uses: callUses(result, step), ...(step.signal.aborted ? { brokenOff: true } : {}) };
}

/** What a chain needs to know of a step that was put off. */
export function pastOf({ putOff }: TurnState): StepPast | undefined {
  if (putOff === undefined) return undefined;
  const { rounds, sinceMs, askedWaitMs } = putOff;
  return { rounds, askedWaitMs, elapsedMs: Math.max(0, sharedNow() - sinceMs) };
}

export interface Summary {
  chain: ModelChain;
  plan: CompactionPlan;
  language: ReplyLanguage;
  /** Puts what a summary is made from in place of references. */
  read: HistoryReader;
  signal: AbortSignal;
  charge: ChargeStep;
  model: ModelStep["model"];
  past?: StepPast | undefined;
  onRetry: ModelStep["onRetry"];
}

/** Asks a model for what is to stand for the older part of a conversation. */
export async function summarise(summary: Summary): Promise<StepResult> {
  const { chain, plan, language, read, ...rest } = summary;
  const { system, messages } = compactionRequest(await read(plan.older), language);
  return await runModelStep({
    chain,
    turnNumber: 0,
    system,
    history: messages,
    read: async (history) => history,
    tools: [],
    ...rest,
    onEvent: () => undefined,
  });
}

type TurnContextOptions = Pick<TurnRunOptions, "chain" | "controller" | "facts" | "readBriefly" | "watch"> & {
  charge: ChargeStep;
};

/** Keeps what the model of one turn gets to see within its window. */
export class TurnContext {
  readonly #options: TurnContextOptions;
  readonly #progress: TurnProgress;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;

  constructor(options: TurnContextOptions, progress: TurnProgress) {
    this.#options = options;
    this.#progress = progress;
  }

  /** A step has seen the context as it is. */
  used(usage: StepResult["usage"]): void {
    this.#usedTokens = requestTokens(usage);
  }

  /** The context is another one now. */
  changed(): void {
    this.#usedTokens = undefined;
  }

  /** What makes room before the next step; undefined when there is room, or nothing can be done. */
  async whenFull(): Promise<Transition | undefined> {
    const { turn } = this.#progress;
    const plan = turn.summaryFailed === true ? undefined : this.plan(false);
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    const text = summaryIn(summary);
    if (text !== undefined) return compactedTransition(turn, plan, text);
    return { turn: { ...turn, summaryFailed: true }, history: [], events: [], next: { do: "model" } };
  }

  /** The vendor counts more than we did: shortens what can be shortened, once. */
  async afterOverflow(): Promise<Transition | undefined> {
    const plan = this.#overflowed ? undefined : this.plan(true);
    this.#overflowed = true;
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    return this.compacted(plan, summary);
  }

  plan(force: boolean): CompactionPlan | undefined {
    const { contextWindow, maxOutputTokens } = this.#options.chain.primary;
    const usedTokens = this.#usedTokens;
    return compactionPlan(this.#progress.history, { contextWindow, maxOutputTokens, usedTokens, force });
  }

  /** Undefined when it was broken off. */
  async summarise(plan: CompactionPlan): Promise<StepResult | undefined> {
    const { chain, controller, facts, readBriefly: read, charge, watch } = this.#options;
    const { texts, model } = facts();
    const { turn } = this.#progress;
    const asked = {
      chain,
      plan,
      read,
      charge,
      model,
      language: languageOfMessage(turn.message, texts),
      signal: controller.signal,
      past: pastOf(turn),
      onRetry: watch.retried,
    };
    const summary = await watch.step(chain, "summary", async () => await summarise(asked));
    return summary.brokenOff === true ? undefined : summary;
  }

  compacted(plan: CompactionPlan, summary: StepResult): ReturnType<typeof compactedTransition> {
    return compactedTransition(this.#progress.turn, plan, summaryIn(summary));
  }
}

/** What stands for the older messages; undefined when the model gave no summary. */
function summaryIn({ failure, stopReason, text }: StepResult): string | undefined {
  return failure !== undefined || stopReason === "refusal" || text.trim() === "" ? undefined : text;
}

interface HistoryReaderDeps {
  blobs: Pick<BlobStore, "get">;
  /** Whether the model sees images. */
  vision: boolean;
  /** Text of one file that the model gets, in characters. */
  maxChars: number;
  /** Text of all files together; the latest come first. */
  maxTotalChars: number;
}

type Part = Message["content"][number];

/** An image of the history that is kept elsewhere. */
interface StoredImage {
  part: ImagePart;
  blobId: string;
  mediaType: string;
}

/**
 * The latest images that a model gets; earlier ones are only named, because each costs like a page of
 * text. Bytes as well: a request has 32 MB at most (Anthropic, "Overview"), and base64 takes a third more.
 */
const maxImages = 10;
const maxImageBytes = 15_000_000;

function storedImage(part: Part): StoredImage | undefined {
  return part.type === "image" && part.source.sourceType === "blob" ? { part, ...part.source } : undefined;
}

function storedImages(history: readonly Message[]): StoredImage[] {
  return history.flatMap(({ content }) => content.flatMap((part) => storedImage(part) ?? []));
}

function textPart(text: string): TextPart {
  return { type: "text", text };
}

function filesIn(history: readonly Message[]): FilePart[] {
  return history.flatMap(({ content }) => content.filter((part) => part.type === "file"));
}

type Texts = ReadonlyMap<Part, TextPart>;

/** What stands for each file. */
async function fileTexts(
  history: readonly Message[],
  { blobs, maxChars, maxTotalChars }: Omit<HistoryReaderDeps, "vision">,
): Promise<Texts> {
  const texts = new Map<Part, TextPart>();
  let charsLeft = maxTotalChars;
  for (const part of filesIn(history).toReversed()) {
    const stored = part.blobId === undefined ? undefined : await blobs.get(part.blobId);
    const content = stored === undefined ? undefined : Buffer.from(stored.bytes).toString("utf8");
    const allowed = Math.min(maxChars, charsLeft);
    charsLeft -= Math.min(allowed, content?.length ?? 0);
    texts.set(part, textPart(attachmentText(part, content, allowed)));
  }
  return texts;
}

/** What stands for each image that is shown. */
async function imagesOf(
  history: readonly Message[],
  blobs: Pick<BlobStore, "get">,
): Promise<ReadonlyMap<Part, ImagePart | TextPart>> {
  const shown = new Map<Part, ImagePart | TextPart>();
  let bytesLeft = maxImageBytes;
  for (const { part, blobId, mediaType } of storedImages(history).toReversed().slice(0, maxImages)) {
    const stored = await blobs.get(blobId);
    if (stored === undefined) {
      shown.set(part, textPart("[An image that is no longer stored. Say so, do not guess what it shows.]"));
      continue;
    }
    bytesLeft -= stored.bytes.byteLength;
    if (bytesLeft < 0) break;
    const data = Buffer.from(stored.bytes).toString("base64");
    shown.set(part, { type: "image", source: { sourceType: "base64", mediaType, data } });
  }
  return shown;
}

const hiddenImage =
  "[An image that is not shown, because a request has room for the latest ones only. Say so, do not guess.]";
const unseenImage = "[An image that you cannot see: this model takes text only. Say so, do not guess.]";

type UserMessage = Extract<Message, { role: "user" }>;

/** The history with other parts in the messages of people; the same message where none is another. */
function withParts(
  history: readonly Message[],
  replace: (part: UserMessage["content"][number]) => UserMessage["content"][number],
): Message[] {
  return history.map((message) => {
    if (message.role !== "user") return message;
    const content = message.content.map(replace);
    return content.every((part, index) => part === message.content[index]) ? message : { ...message, content };
  });
}

/**
 * Puts the content of stored images and files in place of their references, for one request: history
 * itself keeps the references. Without any it returns the same array.
 */
export function createHistoryReader(deps: HistoryReaderDeps): HistoryReader {
  return async (history) => {
    const files = await fileTexts(history, deps);
    const images = deps.vision ? await imagesOf(history, deps.blobs) : new Map<Part, ImagePart>();
    if (files.size === 0 && storedImages(history).length === 0) return history;
    const missing = textPart(deps.vision ? hiddenImage : unseenImage);
    return withParts(history, (part) => {
      if (part.type === "file") return files.get(part) ?? part;
      return storedImage(part) === undefined ? part : (images.get(part) ?? missing);
    });
  };
}

/** Puts the text of files in place of their references, and leaves images alone. */
export function createFileReader(deps: Omit<HistoryReaderDeps, "vision">): HistoryReader {
  return async (history) => {
    const files = await fileTexts(history, deps);
    return files.size === 0 ? history : withParts(history, (part) => files.get(part) ?? part);
  };
}
