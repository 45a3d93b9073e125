import {
  attachmentText,
  callUses,
  compactedTransition,
  compactionPlan,
  compactionRequest,
  createAccumulator,
  deltaEventOf,
  languageOfMessage,
  modelMessagesOf,
  requestTokens,
  stepUse,
  type CompactionPlan,
  type StepResult,
  type Transition,
} from "@larkline/agent";
import type { StepPast } from "@larkline/model";
import type { ModelOptions } from "@larkline/process/config";
import type { EngineEvent, FilePart, ImagePart, Message, TextPart, ToolSpec } from "@larkline/protocol";
import type { BlobStore } from "@larkline/store";
import type { Services } from "./services.ts";
import type { RunningTurn } from "./turn-run.ts";

/** Text of one file that a summary is made from: it gets a sentence or two there. */
const summarisedChars = 2_000;

/** One request to a model, before references in its history are replaced. */
interface Asked {
  /** Number of the step in its turn, from 1; 0: a summary. */
  turnNumber: number;
  system: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
  options?: ModelOptions;
  /** Told what the model says while it says it. */
  onEvent?: (event: EngineEvent) => void;
}

/** The model steps of one turn. What the model gets to see stays within its window: older messages are summarised. */
export class ModelSteps {
  readonly #services: Services;
  readonly #run: RunningTurn;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;

  constructor(services: Services, run: RunningTurn) {
    this.#services = services;
    this.#run = run;
  }

  /** The next step of the answer. `brokenOff` is set where the run's signal has ended it. */
  async answer(tools: readonly ToolSpec[], onEvent: (event: EngineEvent) => void): Promise<StepResult> {
    const { agent, model, stored, watch } = this.#run;
    const { instructions: system, request: options } = agent.config;
    const { turn, history } = stored;
    const asked = { turnNumber: turn.steps + 1, system, options, history, tools, onEvent };
    return await watch.step(model.chain, "answer", async () => {
      const messages = await readHistory(this.#services.blobs, modelMessagesOf(history), {
        vision: model.chain.primary.supportsVision,
        maxChars: this.#services.settings.limits.attachmentChars,
        // A character of Chinese is a token: half of the window at most.
        maxTotalChars: Math.floor(model.chain.primary.contextWindow / 2),
      });
      return await this.#ask(asked, messages);
    });
  }

  /** A summary of the older part of the conversation; undefined when it was broken off. */
  async summarise(plan: CompactionPlan): Promise<StepResult | undefined> {
    const { agent, model, stored, watch } = this.#run;
    const language = languageOfMessage(stored.turn.message, agent.speech.texts);
    const summary = await watch.step(model.chain, "summary", async () => {
      const older = await readFiles(this.#services.blobs, plan.older, {
        maxChars: summarisedChars,
        maxTotalChars: 10 * summarisedChars,
      });
      const { system, messages: history } = compactionRequest(older, language);
      return await this.#ask({ turnNumber: 0, system, history, tools: [] }, modelMessagesOf(history));
    });
    return summary.brokenOff === true ? undefined : summary;
  }

  /** Asks the model to its end, or until the signal breaks it off, and counts what that used. */
  async #ask(asked: Asked, messages: readonly Message[]): Promise<StepResult> {
    const { model, controller, budget, watch } = this.#run;
    const { signal } = controller;
    const accumulator = createAccumulator();
    const request = { ...asked.options, messages, tools: asked.tools, system: asked.system };
    for await (const chunk of model.chain.stream(request, signal, this.#past())) {
      accumulator.push(chunk);
      if (chunk.type === "retry") watch.retried(chunk);
      const event = deltaEventOf(chunk, asked.turnNumber);
      if (event !== undefined) asked.onEvent?.(event);
    }
    const result = accumulator.result();
    const use = stepUse(result, asked, model.model);
    await budget.charge(use);
    return { ...result, use, uses: callUses(result, asked), ...(signal.aborted ? { brokenOff: true } : {}) };
  }

  /** What the chain needs to know of a step that was put off. */
  #past(): StepPast | undefined {
    const { putOff } = this.#run.stored.turn;
    if (putOff === undefined) return undefined;
    const { rounds, sinceMs, askedWaitMs } = putOff;
    return { rounds, askedWaitMs, elapsedMs: Math.max(0, this.#services.clock.now() - sinceMs) };
  }

  /** A step has seen the context as it is. */
  used(usage: StepResult["usage"]): void {
    this.#usedTokens = requestTokens(usage);
  }

  /** The context is another one now. */
  contextChanged(): void {
    this.#usedTokens = undefined;
  }

  /** What makes room before the next step; undefined when there is room, or nothing can be done. */
  async whenFull(): Promise<Transition | undefined> {
    const { turn } = this.#run.stored;
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

  /** What a summary would take the place of; undefined when there is nothing to shorten, or no need unless `force`. */
  plan(force: boolean): CompactionPlan | undefined {
    const { contextWindow, maxOutputTokens } = this.#run.model.chain.primary;
    const usedTokens = this.#usedTokens;
    return compactionPlan(this.#run.stored.history, { contextWindow, maxOutputTokens, usedTokens, force });
  }

  compacted(plan: CompactionPlan, summary: StepResult): ReturnType<typeof compactedTransition> {
    return compactedTransition(this.#run.stored.turn, plan, summaryIn(summary));
  }
}

/** What stands for the older messages; undefined when the model gave no summary. */
function summaryIn({ failure, stopReason, text }: StepResult): string | undefined {
  return failure !== undefined || stopReason === "refusal" || text.trim() === "" ? undefined : text;
}

export interface HistoryBounds {
  /** Text of one file that the model gets, in characters. */
  maxChars: number;
  /** Text of all files together; the latest come first. */
  maxTotalChars: number;
}

/**
 * The history with the content of stored images and files in place of their references, for one request: what is
 * stored keeps the references. Content that is gone is said to be gone. Without any reference it is the same array.
 * `vision`: whether the model sees images.
 */
export async function readHistory(
  blobs: BlobStore,
  history: readonly Message[],
  { vision, ...bounds }: HistoryBounds & { vision: boolean },
): Promise<readonly Message[]> {
  const files = await fileTexts(blobs, history, bounds);
  const images = vision ? await imagesOf(blobs, history) : new Map<Part, ImagePart>();
  if (files.size === 0 && storedImages(history).length === 0) return history;
  const missing = textPart(vision ? hiddenImage : unseenImage);
  return withParts(history, (part) => {
    if (part.type === "file") return files.get(part) ?? part;
    return storedImage(part) === undefined ? part : (images.get(part) ?? missing);
  });
}

/** The same for a summary: the text of files, and no images. */
export async function readFiles(
  blobs: BlobStore,
  history: readonly Message[],
  bounds: HistoryBounds,
): Promise<readonly Message[]> {
  const files = await fileTexts(blobs, history, bounds);
  return files.size === 0 ? history : withParts(history, (part) => files.get(part) ?? part);
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

/** What stands for each file. */
async function fileTexts(
  blobs: BlobStore,
  history: readonly Message[],
  { maxChars, maxTotalChars }: HistoryBounds,
): Promise<ReadonlyMap<Part, TextPart>> {
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
  blobs: BlobStore,
  history: readonly Message[],
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
