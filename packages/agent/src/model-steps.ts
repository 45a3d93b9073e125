import { costOf, type ChainRequest, type ModelChain, type StepPast } from "@larkline/model";
import type { ReplyLanguage } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import type { LeftOut, Message, PieceKind, TextPart } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelFailure, ModelRetry, ModelWarning } from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import { teamOfTurn, type StepUse, type TurnState } from "@larkline/protocol/turn";
import {
  callUses,
  compactedTransition,
  compactionPlan,
  compactionRequest,
  conversationFor,
  isOfTeam,
  requestTokens,
  stepUse,
  summaryIn,
  type CompactionPlan,
} from "./turn/context.ts";
import type { StepResult, Transition, TurnModel } from "./turn/facts.ts";
import { continuedFrom, languageOfMessage, modelMessagesOf } from "./turn/messages.ts";
import { stepRestart } from "./turn/step.ts";
import { readStep } from "./turn/stream.ts";

// The requests of a turn to models: a step of the answer, and a summary where the context has grown too long.

/** A value that is known at once in the same process. */
export type Awaitable<T> = T | Promise<T>;

type ModelOptions = Omit<ChainRequest, "messages" | "tools" | "system" | "systemBlocks">;

/** A model that answers, with its fallbacks. */
export interface ChosenModel {
  /** Its name for people and in the configuration. */
  name: string;
  chain: ModelChain;
  /** What a turn needs to know about it: facts of the first, prices of whichever answered. */
  model: TurnModel;
}

export function chosenModel(name: string, chain: ModelChain): ChosenModel {
  const byId = new Map(chain.models.map((info) => [info.id, info]));
  const costUsd: TurnModel["costUsd"] = (usage, model) =>
    costOf(usage, byId.get(model ?? "") ?? chain.primary);
  return { name, chain, model: { info: chain.primary, costUsd } };
}

/** The agent that answers in a turn. */
export interface Speaker extends Pick<ChosenModel, "chain" | "model"> {
  name: string;
  instructions: string;
  speech: { texts?: ReplyLanguage };
  /** What the requests of its steps carry besides messages and tools. */
  request: ModelOptions;
}

/** What a request to a model is for. */
export type StepPurpose = "answer" | "choice" | "summary";

/** What model steps need of the process that makes them. */
export interface StepHost {
  readonly clock: Clock;
  /** Ends the request that is under way. */
  readonly signal: AbortSignal;
  /** Another one after a hand-over. */
  readonly speaker: Speaker;
  /** Runs all requests of one step, and reports them. */
  watch(purpose: StepPurpose, run: () => Promise<StepResult>): Promise<StepResult>;
  /** Counts in budgets what one request has used, however it ended. Rejects when it cannot be counted. */
  charge(use: StepUse): Awaitable<void>;
  /** A call of a vendor has failed and is followed by another one. */
  retried(retry: ModelRetry): void;
  /** What the model reads behind its instructions, outside the cached part. */
  notes?(): Promise<string>;
  /** The messages of a request with the content of stored files in them. */
  withFiles?(messages: readonly Message[], purpose: StepPurpose): Promise<readonly Message[]>;
  readonly scalePicture?: ChainRequest["scalePicture"];
  /** A vendor has refused a request, which is made again without this. */
  leftOut?(parts: readonly LeftOut[], refusal: ModelFailure | undefined): void;
  /** A tool was not offered to the model. */
  toolLeftOut?(warning: ModelWarning): void;
}

/** What of a turn its model steps read. */
export interface StepContext {
  readonly turn: TurnState;
  readonly history: readonly Message[];
}

/** One request to a model. */
interface AskedStep {
  /** Number of the step in its turn, from 1; 0: no step of the answer. */
  turnNumber: number;
  system: string;
  /** Appended after the cached part. */
  notes?: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
  options?: ModelOptions;
  /** Called with the model's output as it streams. The step waits for what it returns. */
  onEvent?: (event: EngineEvent) => Awaitable<void>;
  /** Called when a call has failed and is followed by another one. */
  onRetry?: (retry: ModelRetry) => void;
}

/** The share of the window from which on a refusal may be one because of the size: our count of tokens is rough. */
const nearWindow = 0.75;

/** The model steps of one turn. What the model gets to see stays within its window: older messages are summarised. */
export class ModelSteps {
  readonly #context: StepContext;
  readonly #host: StepHost;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;
  /** The last refusal for what was in the request. */
  #refusal: ModelFailure | undefined;

  constructor(context: StepContext, host: StepHost) {
    this.#context = context;
    this.#host = host;
  }

  /** The next step of the answer. `brokenOff` is set where the host's signal has ended it. */
  async answer(
    { tools, maxPauses }: { tools: readonly ToolSpec[]; maxPauses: number },
    following: Required<Pick<AskedStep, "onEvent" | "onRetry">>,
  ): Promise<StepResult> {
    const { speaker } = this.#host;
    const { turn, history: all } = this.#context;
    const history = conversationFor(speaker.name, all, teamOfTurn(turn)?.name);
    const from = this.#continuedFrom(history);
    const { previousResponseId } = turn.message;
    const options = {
      ...speaker.request,
      maxPauses,
      ...(from === undefined || previousResponseId === undefined ? {} : { previousResponseId }),
    };
    const request = {
      turnNumber: turn.steps + 1,
      system: speaker.instructions,
      notes: (await this.#host.notes?.()) ?? "",
      history,
      tools,
      ...following,
    };
    const ask = async ({ messages, plain, leftOut }: Asking): Promise<StepResult> => {
      if (leftOut !== undefined) this.#host.leftOut?.(leftOut, this.#refusal);
      const sent = modelMessagesOf(messages.slice(from));
      const result = await this.ask(
        { ...request, options: plain ? { ...options, plain } : options },
        (await this.#host.withFiles?.(sent, "answer")) ?? sent,
      );
      if (isRefused(result)) this.#refusal = result.failure;
      // Near the window any refusal may be one because of the size: that is tried first, and once.
      return isRefused(result) && this.#mayOverflow() ? asOverflow(result) : result;
    };
    return await this.#host.watch("answer", async () => await askWithoutRefused(history, ask));
  }

  /** Whether the request is so large that it may be too large, and something can be shortened. */
  #mayOverflow(): boolean {
    if (this.#overflowed) return false;
    const size = this.plan(true)?.tokensBefore ?? 0;
    return size > this.#host.speaker.chain.primary.contextWindow * nearWindow;
  }

  /** Asks the model to its end, or until a signal breaks it off, and counts what that used. `limit`: of this request. */
  async ask(
    request: AskedStep,
    messages: readonly Message[],
    limit?: AbortSignal,
  ): Promise<StepResult> {
    const { signal, speaker, scalePicture } = this.#host;
    const { turnNumber, tools, onEvent } = request;
    const chunks = speaker.chain.stream(
      {
        ...request.options,
        messages,
        tools,
        ...systemOf(request),
        conversation: this.#context.turn.message.session,
        ...(scalePicture === undefined ? {} : { scalePicture }),
      },
      limit === undefined ? signal : AbortSignal.any([signal, limit]),
      this.#past(),
    );
    const onRetry = (retry: ModelRetry): void => {
      this.#host.retried(retry);
      request.onRetry?.(retry);
    };
    const read = await readStep(chunks, { turnNumber, onEvent, onRetry });
    const warnings = read.warnings.filter((warning) => this.#isNews(warning, turnNumber));
    const result = { ...read, warnings };
    const use = stepUse(result, request, speaker.model);
    await this.#host.charge(use);
    const uses = callUses(result, request);
    return { ...result, use, uses, ...(signal.aborted ? { brokenOff: true } : {}) };
  }

  /** Each step leaves the same tools out: the first one says so. */
  #isNews(warning: ModelWarning, turnNumber: number): boolean {
    if (warning.code !== "tool_left_out") return true;
    this.#host.toolLeftOut?.(warning);
    return turnNumber <= 1;
  }

  /** What the chain needs to know of a step that was put off. */
  #past(): StepPast | undefined {
    const { putOff } = this.#context.turn.requests;
    if (putOff === undefined) return undefined;
    const { rounds, sinceMs, askedWaitMs } = putOff;
    return { rounds, askedWaitMs, elapsedMs: Math.max(0, this.#host.clock.now() - sinceMs) };
  }

  #continuedFrom(history: readonly Message[]): number | undefined {
    const { request } = this.#host.speaker;
    return continuedFrom(history, this.#context.turn.message, request.storeResponses);
  }

  /** A step was made with the present context. */
  used(usage: StepResult["usage"]): void {
    this.#usedTokens = requestTokens(usage);
  }

  /** The context is another one now. */
  contextChanged(): void {
    this.#usedTokens = undefined;
  }

  /** Returns the transition that shortens the context before the next step; undefined: there is room, or nothing to shorten. */
  async whenFull(): Promise<Transition | undefined> {
    const { turn } = this.#context;
    const plan = turn.requests.summaryFailed ? undefined : this.plan(false);
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    const text = summaryIn(summary);
    if (text !== undefined) return compactedTransition(turn, plan, text);
    return {
      turn: { ...turn, requests: { ...turn.requests, summaryFailed: true } },
      history: [],
      events: [],
      next: { do: "model" },
    };
  }

  /** The vendor counts more than we did: shortens what can be shortened, once. */
  async afterOverflow({ code, partial }: ModelFailure): Promise<Transition | undefined> {
    const plan = this.#overflowed ? undefined : this.plan(true);
    this.#overflowed = true;
    const summary = plan === undefined ? undefined : await this.summarise(plan);
    if (plan === undefined || summary === undefined) return undefined;
    const { turn } = this.#context;
    const shortened = compactedTransition(turn, plan, summaryIn(summary));
    const restart = stepRestart(turn.steps, this.#host.speaker.model, code);
    return partial ? { ...shortened, events: [restart, ...shortened.events] } : shortened;
  }

  /**
   * The messages that a summary would replace; undefined when there is nothing to shorten or, without `force`, no need
   * to. What the vendor has kept cannot be shortened.
   */
  plan(force: boolean): CompactionPlan | undefined {
    const { speaker } = this.#host;
    const { turn, history } = this.#context;
    if (this.#continuedFrom(history) !== undefined) return undefined;
    const { contextWindow, maxOutputTokens } = speaker.chain.primary;
    const usedTokens = this.#usedTokens;
    // A member of a team sees other messages than the store has, and a cut counts the stored ones.
    const seen = history.some(isOfTeam) ? history : conversationFor(speaker.name, history);
    const joined = teamOfTurn(turn) === undefined ? 0 : turn.absorbed.length;
    return compactionPlan(seen, { contextWindow, maxOutputTokens, usedTokens, force, joined });
  }

  /** A summary of the older part of the conversation; undefined when it was broken off. */
  async summarise({ older }: CompactionPlan): Promise<StepResult | undefined> {
    const { speaker } = this.#host;
    const { turn, history } = this.#context;
    const language = languageOfMessage(turn.message, speaker.speech.texts);
    const summary = await this.#host.watch("summary", async () => {
      const sent = withoutRefused(history);
      const cleaned = new Map(history.map((message, at) => [message, sent[at] ?? message]));
      const shown = older.map((message) => cleaned.get(message) ?? message);
      const read = (await this.#host.withFiles?.(shown, "summary")) ?? shown;
      const { system, messages } = compactionRequest(read, language);
      const request = { turnNumber: 0, system, history: messages, tools: [] };
      return await this.ask(request, modelMessagesOf(messages));
    });
    return summary.brokenOff === true ? undefined : summary;
  }
}

/** A refusal taken as one because of the size. */
function asOverflow({ failure, ...result }: StepResult & { failure: ModelFailure }): StepResult {
  const { blames: _blames, ...rest } = failure;
  return { ...result, failure: { ...rest, code: "context_overflow" } };
}

function systemOf({
  system,
  notes = "",
}: AskedStep): Pick<ChainRequest, "system" | "systemBlocks"> {
  if (notes === "") return { system };
  return {
    systemBlocks: [
      { text: system, cacheScope: "global" },
      { text: notes, cacheScope: "" },
    ],
  };
}

/*
 * No conversation dies of its history. A vendor that refuses a request for what is in it would refuse every later one
 * as well. So it is asked again without what it may mean, at most twice, and what was left out then is noted at the
 * answer: from there on it is not sent any more. What is stored stays as it was, and people read what was left out.
 */

/** Pieces that come from outside, in the order in which they are suspected. */
const foreignKinds: readonly PieceKind[] = ["image", "file", "thinking", "result"];

/** All but words of people and the assistant. */
const removable: readonly PieceKind[] = [...foreignKinds, "plain"];

const everything: readonly PieceKind[] = [...removable, "message"];

/** Words of a vendor's refusal, and the kind of piece that they point at. The first match counts. */
const hints: readonly (readonly [words: RegExp, kind: PieceKind])[] = [
  [/image|picture|photo|图片|图像/i, "image"],
  [/thinking|reasoning|signature/i, "thinking"],
  [
    /schema|parameter|tool_call_id|tool_use_id|call id|extra (?:inputs|fields)|unrecognized|unsupported|not permitted/i,
    "plain",
  ],
  [/document|attachment|\bfile\b/i, "file"],
];

/** How a vendor is asked: with which messages, and whether with the plainest request. */
interface Asking {
  messages: readonly Message[];
  plain: boolean;
  leftOut?: readonly LeftOut[];
}

/**
 * Asks a vendor, and asks again without what it may refuse, at most twice. `ask` gets the messages of the history, one
 * for one. What was left out is in the result, also of a step that failed all the same: then the message of this turn
 * is left out from the next one on.
 */
export async function askWithoutRefused(
  history: readonly Message[],
  ask: (asking: Asking) => Promise<StepResult>,
): Promise<StepResult> {
  let result = await ask(askingOf(history));
  if (!isRefused(result)) return result;
  for (const leftOut of attemptsFor(history, result.failure)) {
    const next = await ask(askingOf(history, leftOut));
    if (next.failure === undefined || !isRefused(next)) {
      return next.failure === undefined ? { ...next, leftOut } : next;
    }
    result = next;
  }
  // The whole turn, so that the next one can be answered.
  return {
    ...result,
    leftOut: [{ kinds: [...everything], messages: history.length - turnStart(history) }],
  };
}

/** Whether a vendor refuses for what is in the request, before it has said anything. */
function isRefused(result: StepResult): result is StepResult & { failure: ModelFailure } {
  const { failure, brokenOff } = result;
  return (
    failure?.blames !== undefined &&
    failure.retryInMs === undefined &&
    !failure.partial &&
    brokenOff !== true
  );
}

function askingOf(history: readonly Message[], leftOut: LeftOut[] = []): Asking {
  const marks = marksOf(history, leftOut);
  return {
    messages: withoutMarked(history, marks),
    plain: marks.some(({ mark }) => mark.kinds.includes("plain")),
    ...(leftOut.length === 0 ? {} : { leftOut }),
  };
}

/** Lists what each further attempt leaves out of the request, in order. */
function attemptsFor(history: readonly Message[], failure: ModelFailure): LeftOut[][] {
  const messages = history.length;
  const recent = messages - acceptedUntil(history);
  const ofTurn = messages - turnStart(history);
  const sent = withoutRefused(history);
  const all: LeftOut = {
    kinds: removable.filter((kind) => kind === "plain" || has(sent, kind)),
    messages,
  };
  const wordsBefore = (last: number): LeftOut => ({
    kinds: ["message"],
    messages: last,
    but: ofTurn,
  });
  // The turn before was refused altogether: what came earlier is not sent any more.
  if (hasJustFailed(history)) return [[all, wordsBefore(messages)]];
  const hinted = hints.find(([words]) => words.test(failure.vendor?.message ?? ""))?.[1];
  const newest = foreignKinds.find((kind) => has(sent.slice(-recent), kind));
  const suspected =
    hinted !== undefined && (hinted === "plain" || has(sent, hinted)) ? hinted : newest;
  const last = [all, wordsBefore(Math.max(recent, ofTurn))];
  if (suspected === undefined) return [last, [all, wordsBefore(messages)]];
  const isRecent = suspected !== "plain" && has(sent.slice(-recent), suspected);
  return [[{ kinds: [suspected], messages: isRecent ? recent : messages }], last];
}

/**
 * The index of the first message that no vendor has answered yet: the last answer itself was in no request.
 */
function acceptedUntil(history: readonly Message[]): number {
  return Math.max(
    0,
    history.findLastIndex(({ role }) => role === "assistant"),
  );
}

/** The index at which the latest turn begins: with a message of a person that follows an answer. */
function turnStart(history: readonly Message[]): number {
  return Math.max(
    0,
    history.findLastIndex(
      ({ role }, at) =>
        role === "user" && history[at - 1]?.role !== "user" && history[at - 1]?.role !== "tool",
    ),
  );
}

/** Whether the turn before the latest one was refused however it was sent. */
function hasJustFailed(history: readonly Message[]): boolean {
  const before = history[turnStart(history) - 1];
  const marks = before?.role === "assistant" ? (before.leftOut ?? []) : [];
  return marks.some(({ kinds, but }) => kinds.includes("message") && but === undefined);
}

function has(messages: readonly Message[], kind: PieceKind): boolean {
  return messages.some(({ content }) =>
    content.some((part) => {
      if (part.type === "tool_result") {
        if (kind === "result") return part.content !== goneResult;
        return (
          kind === "image" &&
          typeof part.content !== "string" &&
          part.content.some(({ type }) => type === "image")
        );
      }
      return part.type === kind;
    }),
  );
}

/** The history as it is sent: message for message, with a sentence in place of what vendors have refused. */
function withoutRefused(history: readonly Message[]): readonly Message[] {
  return withoutMarked(history, marksOf(history, []));
}

function withoutMarked(history: readonly Message[], marks: readonly Mark[]): readonly Message[] {
  if (marks.length === 0) return history;
  return history.map((message, at) => {
    const of = marks.filter(({ mark, end }) => at >= end - mark.messages && at < end);
    // The last messages of a person keep their words.
    const counts = (kind: PieceKind, { mark, end }: Mark) =>
      kind !== "message" || message.role !== "user" || at < end - (mark.but ?? 0);
    const kinds = new Set(of.flatMap((one) => one.mark.kinds.filter((kind) => counts(kind, one))));
    return kinds.size === 0 ? message : messageWithout(message, kinds);
  });
}

/** What is left out of the messages before `end`. */
interface Mark {
  mark: LeftOut;
  end: number;
}

function marksOf(history: readonly Message[], more: readonly LeftOut[]): Mark[] {
  const marks: Mark[] = [];
  for (const [end, message] of history.entries()) {
    if (message.role !== "assistant" || message.leftOut === undefined) continue;
    for (const mark of message.leftOut) marks.push({ mark, end });
  }
  for (const mark of more) marks.push({ mark, end: history.length });
  return marks;
}

const gone = (what: string): TextPart => ({
  type: "text",
  text: `[${what} that is left out: the vendor of the model refuses it. Say so if it matters, do not guess.]`,
});

const goneResult =
  "[The result is left out: the vendor of the model refuses it. The call was made: do not make it again, and do not guess what came of it.]";

function messageWithout(message: Message, kinds: ReadonlySet<PieceKind>): Message {
  switch (message.role) {
    case "user":
      if (kinds.has("message")) return { ...message, content: [gone("A message")] };
      return {
        ...message,
        content: message.content.map((part) => {
          if (part.type === "image" && kinds.has("image")) return gone("A picture");
          return part.type === "file" && kinds.has("file") ? gone("A file") : part;
        }),
      };
    case "assistant": {
      const kept = message.content.filter(
        (part) => part.type !== "thinking" || !kinds.has("thinking"),
      );
      const content = kept.map((part) => {
        if (part.type === "text" && kinds.has("message")) return gone("An answer");
        return part.type === "tool_use" && kinds.has("message") ? { ...part, arguments: {} } : part;
      });
      return { ...message, content: content.length === 0 ? [gone("An answer")] : content };
    }
    case "tool":
      return {
        ...message,
        content: message.content.map((part) => {
          if (kinds.has("result")) return { ...part, content: goneResult };
          if (!kinds.has("image") || typeof part.content === "string") return part;
          return {
            ...part,
            content: part.content.map((one) => (one.type === "image" ? gone("A picture") : one)),
          };
        }),
      };
  }
}
