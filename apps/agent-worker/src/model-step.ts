import {
  noUse,
  withOtherUse,
  type CompactionRequest,
  type StepResult,
  type Transition,
} from "@larkline/agent";
import type { ModelSteps, Speaker, StepHost, StepPurpose } from "@larkline/agent/drive";
import { attachmentText } from "@larkline/agent/messages";
import {
  readChoice,
  selectionRequest,
  speakerChosen,
  teamNote,
  type Choice,
  type DecidingFacts,
} from "@larkline/agent/team";
import { costOf, type ModelChain, type ModelInfo, type PictureScaling } from "@larkline/model";
import { scrubText, type Tags, type Telemetry } from "@larkline/process/telemetry";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import type { FilePart, ImagePart, LeftOut, Message, TextPart } from "@larkline/protocol/content";
import type {
  ModelFailure,
  ModelWarning,
  Usage,
  ModelRetry,
} from "@larkline/protocol/model-stream";
import { teamOfTurn, type StepUse } from "@larkline/protocol/turn";
import type { BlobStore } from "@larkline/store";
import { isRedisTrouble } from "@larkline/store/redis";
import type { TextExtractor } from "./attachments/text-extractor.ts";
import type { RunningTurn } from "./running-turn.ts";
import { timeNote } from "./schedules.ts";
import type { Services } from "./services.ts";

/** Text of one file that a summary is made from: it gets a sentence or two there. */
const summarisedChars = 2_000;

/** How long a model may take to choose a speaker, ms, and what it may write: it is to write one name. */
const choiceMs = 60_000;
const choiceTokens = 1_024;

/** How long all stored files of one request may take to be read, ms. */
const readMs = 30_000;

/**
 * How long after its beginning a turn waits for stored files that cannot be read, ms; then it goes without them, and so do
 * the next turns of its session at once, until the files can be read.
 */
const filesPatienceMs = 10 * 60_000;

/** Tools that are left out are logged once by each process. */
const loggedTools = new Set<string>();
const maxLoggedTools = 1_000;

/** Files that are read from their store at once. */
const filesAtOnce = 8;

/** Stored files of a turn cannot be read now. It waits, and its worker looks again later. */
export class FilesUnreadableError extends Error {}

/** What the model steps of a turn need of a worker: files and notes, budgets and telemetry. */
export class WorkerSteps implements StepHost {
  readonly #services: Services;
  readonly #run: RunningTurn;
  readonly clock: Clock;
  readonly scalePicture: PictureScaling;

  constructor(services: Services, run: RunningTurn) {
    this.#services = services;
    this.#run = run;
    this.clock = services.clock;
    this.scalePicture = scalingBy(services.extractor);
  }

  get signal(): AbortSignal {
    return this.#run.controller.signal;
  }

  get speaker(): Speaker {
    const { agent, model, options, stored } = this.#run;
    const { instructions } = agent.config;
    const team = this.#services.agents.get(teamOfTurn(stored.turn)?.name ?? "")?.config.team;
    return {
      name: agent.name,
      instructions:
        team == null ? instructions : `${instructions}\n\n${teamNote(team.members, agent.name)}`,
      speech: agent.speech,
      chain: model.chain,
      model: model.model,
      request: options.request,
    };
  }

  async notes(): Promise<string> {
    const { memories, stored, zone } = this.#run;
    const time = zone === undefined ? [] : [timeNote(zone, stored.turn.startedAtMs)];
    const notes = [...time, (await memories?.notes()) ?? ""];
    return notes.filter((note) => note !== "").join("\n\n");
  }

  async withFiles(messages: readonly Message[], purpose: StepPurpose): Promise<readonly Message[]> {
    if (!messages.some(hasReference)) return messages;
    const { blobs, settings } = this.#services;
    const { supportsVision: vision, contextWindow } = this.#run.model.chain.primary;
    const reading =
      purpose === "summary"
        ? readFiles(blobs, messages, {
            maxChars: summarisedChars,
            maxTotalChars: 10 * summarisedChars,
          })
        : readHistory(blobs, messages, {
            vision,
            maxChars: settings.limits.attachmentChars,
            // A character of Chinese is a token: half of the window at most.
            maxTotalChars: Math.floor(contextWindow / 2),
          });
    return await this.#readInTime(reading, messages);
  }

  async charge(use: StepUse): Promise<void> {
    await this.#run.budget?.charge(use);
  }

  retried(retry: ModelRetry): void {
    this.#run.watch.retried(retry);
  }

  leftOut(leftOut: readonly LeftOut[], refusal: ModelFailure | undefined): void {
    const { message = "", requestId } = refusal?.vendor ?? {};
    const { turnId } = this.#run.stored.turn;
    this.#services.log.warn(
      { turnId, leftOut, problem: scrubText(message), requestId },
      "the vendor of the model refused the request: it is asked again without a part",
    );
  }

  toolLeftOut({ message }: ModelWarning): void {
    if (loggedTools.has(message) || loggedTools.size >= maxLoggedTools) return;
    loggedTools.add(message);
    this.#services.log.warn({ tool: message }, "a tool is not offered to the model");
  }

  /**
   * Asks the model of a team who speaks next, up to three times; the next in order where that leads to no member. What
   * becomes of the answer is decided by the turn machine. Undefined when it was broken off.
   */
  async chooseSpeaker(
    steps: ModelSteps,
    facts: DecidingFacts,
    overBudget: () => Promise<Transition | undefined>,
  ): Promise<Transition | undefined> {
    const { stored } = this.#run;
    const wrong: Choice[] = [];
    for (;;) {
      const refused = await overBudget();
      if (refused !== undefined) return refused;
      const { turn } = stored;
      const answer = await this.#choose(steps, selectionRequest(turn, facts, wrong));
      stored.take({
        turn: withOtherUse(turn, answer.use ?? noUse),
        history: [],
        events: [],
        next: { do: "choose" },
      });
      if (answer.brokenOff === true) return undefined;
      const failed = answer.late
        ? "the answer of the model took too long."
        : answer.failure?.message;
      const read = readChoice(turn, answer.text, { team: facts.team, tries: wrong.length + 1 });
      if (failed !== undefined) return speakerChosen(stored.turn, { why: failed }, facts);
      if (read.isFinal) {
        return speakerChosen(stored.turn, { speaker: read.speaker, why: read.problem }, facts);
      }
      wrong.push(read);
    }
  }

  /** What the model of a team says about the next speaker; `late`: it had not said all of it in time. */
  async #choose(
    steps: ModelSteps,
    { system, messages: history }: CompactionRequest,
  ): Promise<StepResult & { late: boolean }> {
    const limit = new AbortController();
    const stopTimer = this.#services.clock.after(choiceMs, () => limit.abort());
    try {
      const asked = {
        turnNumber: 0,
        system,
        history,
        tools: [],
        options: { maxTokens: choiceTokens },
      };
      const result = await this.watch(
        "choice",
        async () => await steps.ask(asked, history, limit.signal),
      );
      return { ...result, late: limit.signal.aborted };
    } finally {
      stopTimer();
    }
  }

  async watch(purpose: StepPurpose, run: () => Promise<StepResult>): Promise<StepResult> {
    const { clock } = this.#services;
    const { stored, watch } = this.#run;
    const { telemetry, tags } = watch;
    const { chain } = this.#run.model;
    const { tracer, samples } = telemetry;
    const startedMs = clock.monotonic();
    const { agent } = stored.turn;
    const who = agent === undefined ? {} : { agent };
    const step = tracer.startSpan("model.step", {
      attributes: { ...tags, model: chain.primary.id, ...who, purpose },
    });
    let result: StepResult | undefined;
    let outcome = "failed";
    try {
      result = await run();
      outcome = result.brokenOff === true ? "broken_off" : (result.failure?.code ?? "ok");
      return result;
    } finally {
      const { id: model } = infoOf(chain, result?.model);
      samples["model.step_seconds"].record((clock.monotonic() - startedMs) / 1_000, {
        model,
        outcome,
      });
      const facts =
        result === undefined
          ? {}
          : { ...tellUse(telemetry, chain, result), ...refusalTags(result) };
      if (outcome !== "ok") step.recordException(outcome);
      step.setAttributes({ model, profile: chain.profileOf(model), outcome, ...facts }).end();
    }
  }

  /**
   * A history with its stored files, from a store that may hang or fail. Rejects with a {@link FilesUnreadableError} when
   * it does; at the end of the patience the history says which files could not be read. Where the run is broken off it is
   * given back `unread`: no model is asked then.
   */
  async #readInTime(
    reading: Promise<readonly Message[]>,
    unread: readonly Message[],
  ): Promise<readonly Message[]> {
    const { clock, filesGivenUp } = this.#services;
    const { message, turnId, startedAtMs } = this.#run.stored.turn;
    const { session } = message;
    const { signal } = this.#run.controller;
    const broken = Promise.withResolvers<readonly Message[]>();
    const stop = (): void => broken.resolve(unread);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      const read = await withDeadline(clock, Promise.race([reading, broken.promise]), readMs);
      if (read !== unread) filesGivenUp.delete(session);
      return read;
    } catch (error) {
      if (isRedisTrouble(error)) throw error;
      if (!filesGivenUp.has(session) && clock.now() <= startedAtMs + filesPatienceMs) {
        throw new FilesUnreadableError("stored files cannot be read now", { cause: error });
      }
      filesGivenUp.set(session, true);
      this.#services.log.error(
        { turnId, error },
        "stored files cannot be read: the turn goes without them",
      );
      return withoutFiles(unread);
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }
}

function infoOf({ models, primary }: ModelChain, asked: string | undefined): ModelInfo {
  return models.find(({ id }) => id === asked) ?? primary;
}

/** Counts what each call of a vendor has used, as budgets count it; returns what the step's span says of it. */
function tellUse({ samples }: Telemetry, chain: ModelChain, step: StepResult): Tags {
  for (const { model: asked, usage } of step.uses ?? []) {
    const info = infoOf(chain, asked);
    const { id: model } = info;
    for (const [kind, count] of Object.entries(tokensOf(usage))) {
      if (count > 0) samples["model.tokens"].add(count, { model, kind });
    }
    const cost = costOf(usage, info);
    if (cost > 0) samples["model.cost_usd"].add(cost, { model });
  }
  const { inputTokens: input = 0, outputTokens: output = 0 } = step.use ?? {};
  return { input, output, calls: step.toolCalls.length };
}

function tokensOf(usage: Usage): Record<string, number> {
  const { inputTokens, outputTokens, cacheReadTokens = 0, cacheCreationTokens = 0 } = usage;
  return {
    input: inputTokens,
    output: outputTokens,
    cache_read: cacheReadTokens,
    cache_write: cacheCreationTokens,
  };
}

/** What a vendor said when it refused, for operators: its text is cut and redacted already by those who log it. */
function refusalTags({ failure }: StepResult): Tags {
  const { message, requestId = "" } = failure?.vendor ?? { message: failure?.message ?? "" };
  return failure === undefined ? {} : { problem: scrubText(message), requestId };
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
  if (!history.some(hasReference)) return history;
  const files = await fileTexts(blobs, history, bounds);
  const images = vision ? await imagesOf(blobs, history) : new Map<Part, ImagePart>();
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
  return part.type === "image" && part.source.sourceType === "blob"
    ? { part, ...part.source }
    : undefined;
}

function hasReference({ content }: Message): boolean {
  return content.some((part) => part.type === "file" || storedImage(part) !== undefined);
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

/** The text that each file is replaced by. */
async function fileTexts(
  blobs: BlobStore,
  history: readonly Message[],
  { maxChars, maxTotalChars }: HistoryBounds,
): Promise<ReadonlyMap<Part, TextPart>> {
  const texts = new Map<Part, TextPart>();
  let charsLeft = maxTotalChars;
  const newestFirst = filesIn(history).toReversed();
  for (let at = 0; at < newestFirst.length; at += filesAtOnce) {
    const parts = newestFirst.slice(at, at + filesAtOnce);
    const read =
      charsLeft > 0
        ? await Promise.all(parts.map(async (part) => await fileText(blobs, part)))
        : [];
    for (const [index, part] of parts.entries()) {
      const content = read[index];
      const allowed = Math.min(maxChars, charsLeft);
      charsLeft -= Math.min(allowed, content?.length ?? 0);
      texts.set(part, textPart(attachmentText(part, content, allowed)));
    }
  }
  return texts;
}

async function fileText(blobs: BlobStore, { blobId }: FilePart): Promise<string | undefined> {
  const stored = blobId === undefined ? undefined : await blobs.get(blobId);
  return stored === undefined ? undefined : Buffer.from(stored.bytes).toString("utf8");
}

/** The replacement of each image that is shown. */
async function imagesOf(
  blobs: BlobStore,
  history: readonly Message[],
): Promise<ReadonlyMap<Part, ImagePart | TextPart>> {
  const shown = new Map<Part, ImagePart | TextPart>();
  let bytesLeft = maxImageBytes;
  for (const { part, blobId, mediaType } of storedImages(history)
    .toReversed()
    .slice(0, maxImages)) {
    const stored = await blobs.get(blobId);
    if (stored === undefined) {
      shown.set(
        part,
        textPart("[An image that is no longer stored. Say so, do not guess what it shows.]"),
      );
      continue;
    }
    bytesLeft -= stored.bytes.byteLength;
    if (bytesLeft < 0) break;
    const data = Buffer.from(stored.bytes).toString("base64");
    shown.set(part, { type: "image", source: { sourceType: "base64", mediaType, data } });
  }
  return shown;
}

function scalingBy(extractor: TextExtractor): PictureScaling {
  return async ({ source }, limits, signal) => {
    if (source.sourceType !== "base64") return undefined;
    const scaled = await extractor.scale(Buffer.from(source.data, "base64"), limits, signal);
    if (scaled === undefined) return undefined;
    const { mediaType, data } = scaled;
    return { type: "image", source: { sourceType: "base64", mediaType, data } };
  };
}

const hiddenImage =
  "[An image that is not shown, because a request has room for the latest ones only. Say so, do not guess.]";
const unreadImage = "[An image that could not be read. Say so, do not guess.]";
const unseenImage =
  "[An image that you cannot see: this model takes text only. Say so, do not guess.]";

type UserMessage = Extract<Message, { role: "user" }>;

/** The history with other parts in the messages of people; the same message where none is another. */
function withParts(
  history: readonly Message[],
  replace: (part: UserMessage["content"][number]) => UserMessage["content"][number],
): Message[] {
  return history.map((message) => {
    if (message.role !== "user") return message;
    const content = message.content.map(replace);
    return content.every((part, index) => part === message.content[index])
      ? message
      : { ...message, content };
  });
}

function withoutFiles(history: readonly Message[]): readonly Message[] {
  return withParts(history, (part) => {
    if (part.type === "file") {
      return textPart(attachmentText({ ...part, state: "failed" }, undefined));
    }
    return storedImage(part) === undefined ? part : textPart(unreadImage);
  });
}
