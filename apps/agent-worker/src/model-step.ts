import {
  askWithoutRefused,
  attachmentText,
  callUses,
  compactedTransition,
  compactionPlan,
  compactionRequest,
  continuedFrom,
  conversationFor,
  isOfTeam,
  readStep,
  isRefused,
  languageOfMessage,
  modelMessagesOf,
  noUse,
  readChoice,
  requestTokens,
  selectionRequest,
  speakerChosen,
  stepUse,
  summaryIn,
  teamNote,
  withoutRefused,
  withOtherUse,
  type Asking,
  type Choice,
  type CompactionPlan,
  type CompactionRequest,
  type DecidingFacts,
  type StepResult,
  type Transition,
} from "@larkline/agent";
import {
  costOf,
  type ModelChain,
  type ModelInfo,
  type ModelRequest,
  type PictureScaling,
  type StepPast,
} from "@larkline/model";
import { scrubText, type Tags, type Telemetry } from "@larkline/process/telemetry";
import {
  teamOfTurn,
  withDeadline,
  type EngineEvent,
  type FilePart,
  type ImagePart,
  type LeftOut,
  type Message,
  type ModelFailure,
  type ModelWarning,
  type TextPart,
  type ToolSpec,
  type Usage,
  type ModelRetry,
} from "@larkline/protocol";
import type { BlobStore } from "@larkline/store";
import { isRedisTrouble } from "@larkline/store/redis";
import type { TurnOptions } from "./agent.ts";
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

/** Share of the window from which on a refusal may be one because of the size: our count of tokens is rough. */
const nearWindow = 0.75;

/** Tools that are left out are logged once by each process. */
const loggedTools = new Set<string>();
const maxLoggedTools = 1_000;

/** Files that are read from their store at once. */
const filesAtOnce = 8;

/** Stored files of a turn cannot be read now. It waits, and its worker looks again later. */
export class FilesUnreadableError extends Error {}

/** One request to a model, before references in its history are replaced. */
interface Asked {
  /** Number of the step in its turn, from 1; 0: a summary. */
  turnNumber: number;
  system: string;
  /** Appended after the cached part. */
  notes?: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
  options?: TurnOptions["request"] & { maxPauses?: number };
  /** Called with the model's output as it streams. */
  onEvent?: (event: EngineEvent) => void;
  /** Called when a call has failed and is followed by another one. */
  onRetry?: (retry: ModelRetry) => void;
}

/** The model steps of one turn. What the model gets to see stays within its window: older messages are summarised. */
export class ModelSteps {
  readonly #services: Services;
  readonly #run: RunningTurn;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;
  /** The last refusal for what was in the request. */
  #refusal: ModelFailure | undefined;

  constructor(services: Services, run: RunningTurn) {
    this.#services = services;
    this.#run = run;
  }

  /** The next step of the answer. `brokenOff` is set where the run's signal has ended it. */
  async answer(
    { tools, maxPauses }: { tools: readonly ToolSpec[]; maxPauses: number },
    following: Required<Pick<Asked, "onEvent" | "onRetry">>,
  ): Promise<StepResult> {
    const { agent, memories, model, stored, zone } = this.#run;
    const { instructions } = agent.config;
    const { turn, history } = stored;
    const together = teamOfTurn(turn)?.name;
    const team =
      together === undefined ? undefined : this.#services.agents.get(together)?.config.team;
    const system =
      team == null ? instructions : `${instructions}\n\n${teamNote(team.members, agent.name)}`;
    const seen = conversationFor(agent.name, history, together);
    const from = continuedFrom(seen, turn.message, this.#run.options.request.storeResponses);
    const { previousResponseId } = turn.message;
    const continued =
      from === undefined || previousResponseId === undefined ? {} : { previousResponseId };
    const options = { ...this.#run.options.request, maxPauses, ...continued };
    const time = zone === undefined ? [] : [timeNote(zone, turn.startedAtMs)];
    const notes = [...time, (await memories?.notes()) ?? ""]
      .filter((note) => note !== "")
      .join("\n\n");
    const asked = {
      turnNumber: turn.steps + 1,
      system,
      notes,
      options,
      history: seen,
      tools,
      ...following,
    };
    const asking = async ({ messages, plain, leftOut }: Asking): Promise<StepResult> => {
      if (leftOut !== undefined) this.#logRefusal(leftOut);
      const unread = modelMessagesOf(messages.slice(from));
      const reading = readHistory(this.#services.blobs, unread, {
        vision: model.chain.primary.supportsVision,
        maxChars: this.#services.settings.limits.attachmentChars,
        // A character of Chinese is a token: half of the window at most.
        maxTotalChars: Math.floor(model.chain.primary.contextWindow / 2),
      });
      const given = plain ? { ...asked, options: { ...options, plain } } : asked;
      const result = await this.#ask(given, await this.#readInTime(reading, unread));
      if (isRefused(result)) this.#refusal = result.failure;
      // Near the window any refusal may be one because of the size: that is tried first, and once.
      return isRefused(result) && this.#mayOverflow() ? asOverflow(result) : result;
    };
    return await this.#watchStep("answer", async () => await askWithoutRefused(seen, asking));
  }

  #logRefusal(leftOut: readonly LeftOut[]): void {
    const { message = "", requestId } = this.#refusal?.vendor ?? {};
    const facts = {
      turnId: this.#run.stored.turn.turnId,
      leftOut,
      problem: scrubText(message),
      requestId,
    };
    this.#services.log.warn(
      facts,
      "the vendor of the model refused the request: it is asked again without a part",
    );
  }

  /** Whether the request is so large that it may be too large, and something can be shortened. */
  #mayOverflow(): boolean {
    if (this.#overflowed) return false;
    const size = this.plan(true)?.tokensBefore ?? 0;
    return size > this.#run.model.chain.primary.contextWindow * nearWindow;
  }

  /**
   * Asks the model of a team who speaks next, up to three times; the next in order where that leads to no member. What
   * becomes of the answer is decided by the turn machine. Undefined when it was broken off.
   */
  async chooseSpeaker(
    facts: DecidingFacts,
    overBudget: () => Promise<Transition | undefined>,
  ): Promise<Transition | undefined> {
    const { stored } = this.#run;
    const wrong: Choice[] = [];
    for (;;) {
      const refused = await overBudget();
      if (refused !== undefined) return refused;
      const { turn } = stored;
      const answer = await this.#choose(selectionRequest(turn, facts, wrong));
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
  async #choose({
    system,
    messages: history,
  }: CompactionRequest): Promise<StepResult & { late: boolean }> {
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
      const result = await this.#watchStep(
        "choice",
        async () => await this.#ask(asked, history, limit.signal),
      );
      return { ...result, late: limit.signal.aborted };
    } finally {
      stopTimer();
    }
  }

  /** A summary of the older part of the conversation; undefined when it was broken off. */
  async summarise(plan: CompactionPlan): Promise<StepResult | undefined> {
    const { agent, stored } = this.#run;
    const language = languageOfMessage(stored.turn.message, agent.speech.texts);
    const summary = await this.#watchStep("summary", async () => {
      const sent = withoutRefused(this.#run.stored.history);
      const cleaned = new Map(
        this.#run.stored.history.map((message, at) => [message, sent[at] ?? message]),
      );
      const shown = plan.older.map((message) => cleaned.get(message) ?? message);
      const reading = readFiles(this.#services.blobs, shown, {
        maxChars: summarisedChars,
        maxTotalChars: 10 * summarisedChars,
      });
      const older = await this.#readInTime(reading, shown);
      const { system, messages: history } = compactionRequest(older, language);
      return await this.#ask(
        { turnNumber: 0, system, history, tools: [] },
        modelMessagesOf(history),
      );
    });
    return summary.brokenOff === true ? undefined : summary;
  }

  /** Reports a request to a model to observers. */
  async #watchStep(
    purpose: "answer" | "choice" | "summary",
    run: () => Promise<StepResult>,
  ): Promise<StepResult> {
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

  /** Asks the model to its end, or until the signal breaks it off, and counts what that used. */
  async #ask(asked: Asked, messages: readonly Message[], limit?: AbortSignal): Promise<StepResult> {
    const { model, controller, budget, watch, stored } = this.#run;
    const { signal } = controller;
    const ends = limit === undefined ? signal : AbortSignal.any([signal, limit]);
    const conversation = stored.turn.message.session;
    const scalePicture = scalingBy(this.#services.extractor);
    const request = {
      ...asked.options,
      messages,
      tools: asked.tools,
      ...systemOf(asked),
      conversation,
      scalePicture,
    };
    const { turnNumber, onEvent } = asked;
    const onRetry = (retry: ModelRetry): void => {
      watch.retried(retry);
      asked.onRetry?.(retry);
    };
    const chunks = model.chain.stream(request, ends, this.#past());
    const read = await readStep(chunks, { turnNumber, onEvent, onRetry });
    const result = {
      ...read,
      warnings: read.warnings.filter((warning) => this.#isNews(warning, turnNumber)),
    };
    const use = stepUse(result, asked, model.model);
    await budget.charge(use);
    const uses = callUses(result, asked);
    return { ...result, use, uses, ...(signal.aborted ? { brokenOff: true } : {}) };
  }

  /** Whether a warning of the model stream is for the events: each step leaves the same tools out, the first one says so. */
  #isNews({ code, message }: ModelWarning, turnNumber: number): boolean {
    if (code !== "tool_left_out") return true;
    if (!loggedTools.has(message) && loggedTools.size < maxLoggedTools) {
      loggedTools.add(message);
      this.#services.log.warn({ tool: message }, "a tool is not offered to the model");
    }
    return turnNumber <= 1;
  }

  /** What the chain needs to know of a step that was put off. */
  #past(): StepPast | undefined {
    const { putOff } = this.#run.stored.turn;
    if (putOff === undefined) return undefined;
    const { rounds, sinceMs, askedWaitMs } = putOff;
    return { rounds, askedWaitMs, elapsedMs: Math.max(0, this.#services.clock.now() - sinceMs) };
  }

  /** A step was made with the present context. */
  used(usage: StepResult["usage"]): void {
    this.#usedTokens = requestTokens(usage);
  }

  /** The context is another one now. */
  contextChanged(): void {
    this.#usedTokens = undefined;
  }

  /** The action that makes room before the next step; undefined when there is room, or nothing can be shortened. */
  async whenFull(): Promise<Transition | undefined> {
    const { turn } = this.#run.stored;
    const plan = turn.summaryFailed === true ? undefined : this.plan(false);
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    const text = summaryIn(summary);
    if (text !== undefined) return compactedTransition(turn, plan, text);
    return {
      turn: { ...turn, summaryFailed: true },
      history: [],
      events: [],
      next: { do: "model" },
    };
  }

  /** The vendor counts more than we did: shortens what can be shortened, once. */
  async afterOverflow(): Promise<Transition | undefined> {
    const plan = this.#overflowed ? undefined : this.plan(true);
    this.#overflowed = true;
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    return this.compacted(plan, summary);
  }

  /**
   * The messages that a summary would replace; undefined when there is nothing to shorten or, without `force`, no need
   * to. What the vendor has kept cannot be shortened.
   */
  plan(force: boolean): CompactionPlan | undefined {
    const { contextWindow, maxOutputTokens } = this.#run.model.chain.primary;
    const usedTokens = this.#usedTokens;
    const { agent, options, stored } = this.#run;
    const { message } = stored.turn;
    if (continuedFrom(stored.history, message, options.request.storeResponses) !== undefined) {
      return undefined;
    }
    const { absorbed = [] } = stored.turn;
    // What a member of a team sees has other messages than what is stored, and a cut counts those.
    const seen = stored.history.some(isOfTeam)
      ? stored.history
      : conversationFor(agent.name, stored.history);
    return compactionPlan(seen, {
      contextWindow,
      maxOutputTokens,
      usedTokens,
      force,
      joined: teamOfTurn(stored.turn) === undefined ? 0 : absorbed.length,
    });
  }

  compacted(plan: CompactionPlan, summary: StepResult): ReturnType<typeof compactedTransition> {
    return compactedTransition(this.#run.stored.turn, plan, summaryIn(summary));
  }
}

/** A refusal taken as one because of the size. */
function asOverflow({ failure, ...result }: StepResult & { failure: ModelFailure }): StepResult {
  const { blames: _blames, ...rest } = failure;
  return { ...result, failure: { ...rest, code: "context_overflow" } };
}

function systemOf({ system, notes = "" }: Asked): Pick<ModelRequest, "system" | "systemBlocks"> {
  if (notes === "") return { system };
  return {
    systemBlocks: [
      { text: system, cacheScope: "global" },
      { text: notes, cacheScope: "" },
    ],
  };
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
