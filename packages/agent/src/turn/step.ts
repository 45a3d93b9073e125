import { type ReplyLanguage, knownFeatures } from "@larkline/protocol";
import type {
  TextPart,
  ThinkingPart,
  Message,
  LeftOut,
  PieceKind,
} from "@larkline/protocol/content";
import { newEngineError, errorCodes, type ErrorCode } from "@larkline/protocol/error";
import type { EngineEvent, EventOf, EndTexts } from "@larkline/protocol/event";
import type { ModelFailure, ModelWarning } from "@larkline/protocol/model-stream";
import {
  type StepUse,
  type OpenStep,
  type TurnState,
  iterationsOf,
  type PutOffStep,
} from "@larkline/protocol/turn";
import { exhaustedText, noticeText, oneLine, textsOf, type NoticeName } from "../texts/index.ts";
import {
  afterAnswer,
  beforeModel,
  readFinal,
  shownTextOf,
  withState,
  type TurnEnvironment,
} from "./ability.ts";
import { addUse, allTokens, noUse, stepUse, requestTokens } from "./context.ts";
import type {
  DoneEnding,
  TurnModel,
  Transition,
  StepResult,
  Records,
  TurnLimits,
} from "./facts.ts";
import {
  correctionMessage,
  isSendable,
  withoutTrailingThinking,
  languageOfMessage,
} from "./messages.ts";
import { blockEventOf } from "./stream.ts";
import { withText, withoutText, withThinking } from "./view.ts";

/**
 * Ends the turn with the text of its last step, and with a notice where the text is not a complete answer. An answer
 * that an ability does not take is asked for again.
 */
export function finalAnswer(
  turn: TurnState,
  step: StepResult,
  { env, numbers }: { env: TurnEnvironment; numbers: OpenStep },
): Transition {
  const language = languageOfMessage(turn.message, env.texts);
  const name = noticeOf(step);
  const notice =
    step.paused === true ? exhaustedText : name === undefined ? "" : noticeText(name, language);
  const { text } = step;
  const stopped = stopOf(step);
  const { schemas, known = {}, abilities, limits } = env;
  const hasStepsLeft = iterationsOf(turn) < limits.maxIterations;
  const facts = { turn, known, schemas, language, isCut: stopped !== "", hasStepsLeft };
  const read = readFinal(text, facts, abilities);
  const warning = read?.warning;
  const warned = warning === undefined ? [] : [warningEvent({ type: "warning", ...warning })];
  const said = [...blockEvents(step), ...droppedCallsEvents(step), ...warned];
  if (read !== undefined && "again" in read) {
    const { again: why, state, by } = read;
    const asked = { stored: storedAnswer(step, notice), why };
    return askedAgain(withState(turn, by, state), asked, { env, said, numbers });
  }
  const output = read?.output;
  const stored = storedAnswer(step, notice);
  const ending: DoneEnding = {
    ...(output === undefined ? {} : { output }),
    history: [stored],
    events: [...said, stepEnd(turn.steps, numbers, step)],
    reply: [read?.shown ?? text, read === undefined ? sourcesLine(step, language) : "", notice]
      .filter((line) => line.trim() !== "")
      .join("\n\n"),
    reason: read?.reason ?? stopped,
    final: text,
    ...(name === undefined ? {} : { notice: name }),
    ...(stored.content.some((part) => part.type === "text" && part.text === notice)
      ? { historyNote: notice }
      : {}),
  };
  return afterAnswer(turn, ending, env) ?? endDone(turn, ending);
}

/** The reason of an end that is not the model's own; empty for a plain one. */
function stopOf({ stopReason, paused }: StepResult): string {
  if (paused === true) return "max_turns_reached";
  return stopReason === "max_tokens" || stopReason === "refusal" ? stopReason : "";
}

/** Asks the model again, with the reason why its answer is not taken. */
function askedAgain(
  turn: TurnState,
  { stored, why }: { stored: Message; why: string },
  { env, said, numbers }: { env: TurnEnvironment; said: EngineEvent[]; numbers: OpenStep },
): Transition {
  return {
    turn,
    history: [stored, correctionMessage(why, turn.message)],
    events: [...said, stepEnd(turn.steps, numbers), stepStart(turn.steps, env.model)],
    next: { do: "model" },
  };
}

/** The notice that the person gets beside the text of an answer. */
function noticeOf(step: StepResult): NoticeName | undefined {
  if (step.paused === true) return undefined; // the reply says that it has taken too many steps
  const dropped = step.toolCalls.length > 0;
  if (step.stopReason === "max_tokens") return dropped ? "callCutOff" : "truncated";
  if (step.stopReason === "refusal") return "refusal";
  if (dropped) return "callsDropped";
  if (step.text.trim() === "") return "empty";
  return step.stopReason === "other" ? "oddEnd" : undefined;
}

/** The answer as stored. When calls were dropped, the notice is stored with it, so that the model reads it later. */
function storedAnswer(step: StepResult, notice: string): Message {
  const parts = step.parts.filter(isSendable);
  const silent = !parts.some(({ type }) => type === "text");
  const hasNotice = notice !== "" && (silent || step.toolCalls.length > 0);
  return {
    role: "assistant",
    content: hasNotice
      ? [...parts, { type: "text", text: notice }]
      : withoutTrailingThinking(parts),
    ...leftOutOf(step),
  };
}

/** The mark of what was left out, for the message that a step is stored as. */
export function leftOutOf({
  leftOut,
}: StepResult): Pick<Extract<Message, { role: "assistant" }>, "leftOut"> {
  return leftOut === undefined ? {} : { leftOut };
}

/** The model failed and will not be asked again: the person gets a notice, which also answers the message in history. */
export function stepFailure(
  turn: TurnState,
  step: StepResult & { failure: ModelFailure },
  env: TurnEnvironment,
): Transition {
  const { failure, warnings, text } = step;
  const { code, message, suggestion, retryable } = failure;
  const reply = noticeFor(turn, failureNotice(failure), env.texts);
  const isCommand = turn.message.command !== undefined; // its step wrote a summary, not an answer
  const used = isCommand
    ? { turn, events: [] }
    : withUnanswered(turn, { text, use: step.use, step }, env);
  return endError(
    isCommand ? turn : withText(used.turn, shownTextOf(text, env.abilities, env.known)),
    {
      history: answering(turn, [{ ...assistantText(reply), ...leftOutOf(step) }]),
      events: [...warnings.map(warningEvent), ...used.events],
      reply,
      error: { code, message, suggestion, retryable },
    },
  );
}

function failureNotice({ code, retryable, blames }: ModelFailure): NoticeName {
  if (blames !== undefined) return "refused";
  if (code === "context_overflow") return "tooLong";
  if (code === "api_auth_error") return "failedForAccess";
  if (code === "api_bad_request") return "failedForRequest";
  return retryable ? "failedForNow" : "failed";
}

/**
 * No model has answered, but a later try may succeed: the turn waits without a slot. The checkpoint holds the time of
 * the next try, so that any worker can continue the turn.
 */
export function putOffStep(
  turn: TurnState,
  { warnings, use = noUse, model = "" }: StepResult,
  { failure, waitMs, nowMs }: { failure: ModelFailure; waitMs: number; nowMs: number },
): Transition {
  const { needs: _needs, ...rest } = turn;
  const before = turn.requests.putOff;
  const putOff: PutOffStep = {
    atMs: nowMs + Math.round(waitMs),
    sinceMs: before?.sinceMs ?? nowMs,
    rounds: (before?.rounds ?? 0) + 1,
    askedWaitMs: Math.round(failure.askedWaitMs ?? 0),
    model,
    code: failure.code,
    used: addUse(before?.used ?? noUse, use),
  };
  return {
    turn: {
      needs: needsOf(turn, "put-off-step"),
      ...rest,
      requests: { ...turn.requests, putOff },
    },
    history: [],
    events: warnings.map(warningEvent),
    next: { do: "wait" },
  };
}

/** The turn after a step that has ended well, with what the step has used and what it has brought to light. */
export function withStep(
  turn: TurnState,
  step: StepResult,
  env: TurnEnvironment,
): { turn: TurnState; numbers: OpenStep; events: EngineEvent[] } {
  const numbers = measured(step, turn, env);
  const noted = withLeftOutNote(turn, step, env);
  const finished = counted(noted.turn, numbers);
  const pauses = finished.requests.pauses + (step.pauses ?? 0);
  const made = { ...finished, requests: { ...finished.requests, pauses } };
  const warned = warnFullWindow(withThinking(made, step), step, env);
  return { turn: warned.turn, numbers, events: [...noted.events, ...warned.events] };
}

/** Notes for the person, once, what a vendor has refused and the step was made without. */
function withLeftOutNote(
  turn: TurnState,
  { leftOut }: StepResult,
  { texts }: TurnEnvironment,
): { turn: TurnState; events: EngineEvent[] } {
  if (leftOut === undefined) return { turn, events: [] };
  const note = leftOutNote(leftOut, languageOfMessage(turn.message, texts));
  const message = `The vendor refused the request; it was made without: ${kindsOf(leftOut).join(", ")}.`;
  const events: EngineEvent[] = [
    { type: "warning", code: "left_out", message, detail: kindsOf(leftOut).join(",") },
  ];
  const notes = [...new Set([...turn.shown.notes, note])];
  return { turn: { ...turn, shown: { ...turn.shown, notes } }, events };
}

/** Kinds of the pieces that were left out, each once. */
function kindsOf(leftOut: readonly LeftOut[]): PieceKind[] {
  return [...new Set(leftOut.flatMap(({ kinds }) => kinds))];
}

/** What people read about pieces that were left out. */
function leftOutNote(leftOut: readonly LeftOut[], language: ReplyLanguage): string {
  const { pieces, comma } = textsOf(language);
  const names = kindsOf(leftOut).map((kind) => pieces[kind]);
  return noticeText("leftOut", language, { pieces: names.join(comma) });
}

/** A request that takes this share of the model's window is warned of. */
const highShare = 0.8;

/** Warns, once in a turn, of a window that is nearly full. */
function warnFullWindow(
  turn: TurnState,
  { usage }: StepResult,
  { model: { info } }: TurnEnvironment,
): { turn: TurnState; events: EngineEvent[] } {
  const tokens = requestTokens(usage) ?? 0;
  if (turn.requests.windowWarned || tokens < info.contextWindow * highShare) {
    return { turn, events: [] };
  }
  const percent = Math.round((tokens / info.contextWindow) * 100);
  const message = `The request took ${percent} % of the model's window.`;
  const detail = `${tokens}/${info.contextWindow}`;
  return {
    turn: { ...turn, requests: { ...turn.requests, windowWarned: true } },
    events: [{ type: "warning", code: "token_usage_high", message, detail }],
  };
}

/** Counts a step that ended without an answer but has used tokens. */
export function withUnanswered(
  turn: TurnState,
  used: { text: string; use?: StepUse | undefined; step?: Partial<StepResult> },
  env: TurnEnvironment,
): { turn: TurnState; events: EngineEvent[] } {
  const { model } = env;
  const use = addUse(earlierUse(turn), used.use ?? noUse);
  if (allTokens(use) === 0) return { turn, events: [] };
  const maxTokens = used.step?.maxTokens ?? model.info.maxOutputTokens;
  const asked = used.step?.model ?? model.info.id;
  const numbers = { text: used.text, ...use, maxTokens, model: asked, responseId: null };
  const next = counted(turn, numbers);
  // If another action comes first, no step has begun, so none ends.
  if (beforeModel(turn, env) !== undefined) {
    return { turn: { ...next, steps: turn.steps }, events: [] };
  }
  return { turn: next, events: [stepEnd(next.steps, numbers)] };
}

/** What requests have used that the next step to end counts: its own, before it was put off, and those of requests before it. */
function earlierUse({ requests: { putOff, otherUse } }: TurnState): StepUse {
  return addUse(putOff?.used ?? noUse, otherUse ?? noUse);
}

/** The turn with what a request that is no step has used. */
export function withOtherUse(turn: TurnState, use: StepUse): TurnState {
  if (allTokens(use) === 0) return turn;
  const otherUse = addUse(turn.requests.otherUse ?? noUse, use);
  return { ...turn, requests: { ...turn.requests, otherUse } };
}

/** The usage of a step, including its use before it was put off. Steps without usage count as zero. */
function measured(
  step: StepResult,
  turn: TurnState,
  { model }: Pick<TurnEnvironment, "model">,
): OpenStep {
  const nothing = { system: "", history: [], tools: [] };
  const use = step.use ?? stepUse({ ...step, parts: [], toolCalls: [] }, nothing, model);
  const { putOff, otherUse } = turn.requests;
  const all = putOff === undefined && otherUse === undefined ? use : addUse(earlierUse(turn), use);
  return {
    text: step.text,
    ...all,
    maxTokens: step.maxTokens ?? model.info.maxOutputTokens,
    model: step.model ?? model.info.id,
    responseId: step.responseId ?? null,
  };
}

/** The turn with one more finished step. */
function counted(turn: TurnState, step: OpenStep): TurnState {
  const { inputTokens, outputTokens, costUsd, cacheReadTokens, cacheCreationTokens } = turn.totals;
  const { putOff: _putOff, otherUse: _otherUse, ...requests } = turn.requests;
  return {
    ...withNeeds(turn),
    steps: turn.steps + 1,
    requests,
    totals: {
      inputTokens: inputTokens + step.inputTokens,
      outputTokens: outputTokens + step.outputTokens,
      cacheReadTokens: cacheReadTokens + step.cacheReadTokens,
      cacheCreationTokens: cacheCreationTokens + step.cacheCreationTokens,
      costUsd: costUsd + step.costUsd,
    },
  };
}

/** The event that opens the model step after `steps` finished ones. */
export function stepStart(steps: number, { info }: TurnModel): EventOf<"turn_start"> {
  return {
    type: "turn_start",
    turnNumber: steps + 1,
    model: info.id,
    contextWindowTokens: info.contextWindow,
  };
}

/** The event that voids the deltas of the model step after `steps` finished ones: it is asked again. */
export function stepRestart(
  steps: number,
  { info }: TurnModel,
  reason: string,
): EventOf<"step_restarted"> {
  return { type: "step_restarted", turnNumber: steps + 1, model: info.id, reason };
}

/** The event that closes model step number `steps`, after its tools. */
export function stepEnd(
  steps: number,
  { text: _text, ...numbers }: OpenStep,
  { vendorItems }: Pick<StepResult, "vendorItems"> = {},
): EventOf<"turn_end"> {
  return {
    type: "turn_end",
    turnNumber: steps,
    ...numbers,
    ...(vendorItems === undefined ? {} : { vendorItems }),
  };
}

/** Warnings and complete blocks of a step, as far as they have not been published while it was generated. */
export function blockEvents(step: StepResult): EngineEvent[] {
  const warnings = step.warnings.map(warningEvent);
  if (step.blocksTold === true) return warnings;
  return [...warnings, ...step.parts.flatMap((part) => blockEventOf(part, []) ?? [])];
}

/** The event of a warning of the model stream. */
export function warningEvent({ code, message }: ModelWarning): EventOf<"warning"> {
  return { type: "warning", code, message, detail: "" };
}

function droppedCallsEvents({ toolCalls, stopReason }: StepResult): EngineEvent[] {
  if (toolCalls.length === 0) return [];
  const message = `${toolCalls.length} tool call(s) were not run: the model stopped with ${stopReason}.`;
  return [{ type: "warning", code: "tool_calls_dropped", message, detail: stopReason }];
}

const maxLinks = 10;
const maxTitleChars = 80;

/** What an answer cites, as one line of links for people; empty where it cites nothing that its text does not link to. */
function sourcesLine(
  { parts, text }: { parts: readonly (TextPart | ThinkingPart)[]; text: string },
  language: ReplyLanguage,
): string {
  const links = new Map<string, string>();
  for (const { providerMetadata } of parts) {
    const { citations = "[]" } = providerMetadata ?? {};
    // By the adapter of the vendor.
    for (const { url, title } of JSON.parse(citations) as { url: string; title: string }[]) {
      const address = addressOf(url);
      if (address === undefined || text.includes(url) || links.has(address)) continue;
      links.set(address, `[${titleOf(title, address)}](${address})`);
    }
  }
  const shown = [...links.values()].slice(0, maxLinks);
  return shown.length === 0 ? "" : `${textsOf(language).notices.sources}${shown.join(" · ")}`;
}

/** An address of the web that cannot end a link of Markdown. */
function addressOf(url: string): string | undefined {
  const parsed = URL.parse(url);
  if (parsed === null || !["https:", "http:"].includes(parsed.protocol)) return undefined;
  return parsed.href.replaceAll("(", "%28").replaceAll(")", "%29");
}

function titleOf(title: string, address: string): string {
  return (
    oneLine(title.replaceAll(/[\s[\]()<>`*_\\]+/g, " "), maxTitleChars).trim() ||
    new URL(address).hostname
  );
}

/*
 * How turns end. Every ending leaves an assistant text in history, so that the user message is
 * answered and the next turn begins well.
 *
 *   ending            stored text            reply                  last event
 *   answer            the text               the text               done, reason ""
 *   blank answer      notice                 notice                 done, reason ""
 *   refusal           the text, or notice    text and notice        done, refusal
 *   not of its form   the text               the text               done, output_invalid
 *   length limit      the text, or notice    text and notice        done, max_tokens
 *   ... inside a call text and notice        text and notice        done, max_tokens
 *   calls dropped     text and notice        text and notice        done, reason ""
 *   step limit        fixed text             last text, fixed text  done, max_turns_reached
 *   team: its words   the text               the text               done, reason ""
 *   team: its limit   the text               text and notice        done, team_limit
 *   cancel            live text and notice   notice                 done, cancelled
 *   model failure     notice                 notice                 error, the failure's code
 *   budget spent      notice                 notice                 error, budget_exceeded
 *   agent paused      notice                 notice                 error, permission_denied
 *   given up          notice                 notice                 error, internal_error
 *
 * `shown.text` of the turn that ended is what a person saw before the reply: the last step's text
 * is in it only where the reply does not repeat it.
 */

/** The transition with `records` in front of its own. */
export function after(records: Records, transition: Transition): Transition {
  return {
    ...transition,
    history: [...records.history, ...transition.history],
    events: [...records.events, ...transition.events],
  };
}

/** Fills in defaults. Throws when a limit is not a whole number above 0, naming it and its value. */
export function turnLimits(partial: Partial<TurnLimits> = {}): TurnLimits {
  const limits = { ...defaults, ...partial };
  for (const [name, value] of Object.entries(limits)) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw newEngineError(
      "internal_error",
      `${name} must be a whole number of at least 1, got ${String(value)}.`,
      {
        suggestion: `Correct ${name} in the configuration.`,
      },
    );
  }
  return limits;
}

/** Characters one of `calls` results of a step may have. */
export function resultShare(limits: TurnLimits, calls: number): number {
  return Math.max(
    1,
    Math.min(limits.maxResultChars, Math.floor(limits.maxStepResultChars / Math.max(1, calls))),
  );
}

/** The last words of the model may be a preamble ("let me look..."), so the notice always follows them. */
export function endAtLimit(turn: TurnState, { abilities, known }: TurnEnvironment): Transition {
  const final = turn.round?.step.text ?? "";
  const shown = shownTextOf(final, abilities, known);
  return endDone(withoutText(turn, final), {
    history: [assistantText(exhaustedText)],
    historyNote: exhaustedText,
    events: [],
    reply: shown.trim() === "" ? exhaustedText : `${shown}\n\n${exhaustedText}`,
    reason: "max_turns_reached",
    final,
  });
}

/** The end of a helper's turn before another model step: the message that it works for has none left. */
export function outOfSteps(turn: TurnState): Transition {
  const history = [assistantText(exhaustedText)];
  return endDone(turn, {
    history,
    events: [],
    reply: exhaustedText,
    reason: "max_turns_reached",
    final: "",
  });
}

/** Ends the turn with its `done` event, the last one of the run. */
export function endDone(turn: TurnState, ending: DoneEnding): Transition {
  const { reason, final, output, reply, notice, historyNote, mention } = ending;
  const texts = {
    ...endTextsOf(turn, reply, final),
    ...(notice === undefined ? {} : { notice }),
    ...(historyNote === undefined ? {} : { historyNote }),
  };
  const said = mention === undefined ? {} : { mention };
  const done: EventOf<"done"> = {
    type: "done",
    ...countsOf(turn),
    reason,
    final,
    ...structured(output),
    ...said,
    ...texts,
  };
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, done],
    next: { do: "finish", reply: ending.reply, reason: ending.reason },
  };
}

/** Texts that people read and that no other field of the event has. */
function endTextsOf(turn: TurnState, reply: string, said: string): EndTexts {
  const { notes } = turn.shown;
  return {
    ...(reply === said || reply === "" ? {} : { reply }),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

function structured(
  output: DoneEnding["output"],
): Pick<EventOf<"done">, "output" | "outputName" | "outputFormat"> {
  if (output === undefined) return {};
  const { name, format } = output.form;
  return {
    output: output.value,
    outputName: name,
    ...(format === undefined ? {} : { outputFormat: format }),
  };
}

/** What a process has to know to continue the turn: what its message asks for, which agent answers, and `features`. */
export function needsOf(
  { message, agent, abilities, revision }: TurnState,
  ...features: string[]
): string[] {
  const { output, model, task, previousResponseId } = message;
  const hasOptions = output !== undefined || model !== undefined;
  return [
    ...(hasOptions ? ["run-options"] : []),
    ...(agent === undefined ? [] : ["hand-over"]),
    // A process that lacks an ability leaves turns to others in which it keeps something.
    ...knownFeatures.filter(
      (name) => name in abilities || (name === "helpers" && task !== undefined),
    ),
    ...(revision === undefined ? [] : ["agent-versions"]),
    ...(previousResponseId === undefined ? [] : ["stored-response"]),
    ...features,
  ];
}

/** The turn in a state that needs no more than its message does. */
export function withNeeds({ needs: _needs, ...turn }: TurnState): TurnState {
  const needs = needsOf(turn);
  return needs.length === 0 ? turn : { needs, ...turn };
}

/** Ended calls have been copied to `shown` before. */
function withoutCalls({ round: _round, needs: _needs, ...turn }: TurnState): TurnState {
  const { putOff: _putOff, ...requests } = turn.requests;
  return { ...turn, requests, calls: [] };
}

/** The end of a turn in an `error` event. */
interface ErrorEnding {
  history: Message[];
  events: EngineEvent[];
  reply: string;
  error: Omit<EventOf<"error">, "type">;
  /** What the run is counted as; absent: the code of the error. */
  reason?: string;
}

/** Ends the turn with its `error` event, the last one of the run. */
export function endError(turn: TurnState, ending: ErrorEnding): Transition {
  const texts = endTextsOf(turn, ending.reply, ending.error.message);
  return {
    turn: withoutCalls(turn),
    history: ending.history,
    events: [...ending.events, { type: "error", ...ending.error, ...countsOf(turn), ...texts }],
    next: { do: "finish", reply: ending.reply, reason: ending.reason ?? ending.error.code },
  };
}

/** The fields of an `error` event from our own table. */
export function errorOf(code: ErrorCode, message: string): Omit<EventOf<"error">, "type"> {
  return { code, message, ...errorCodes[code] };
}

/** A notice in the language of the turn. */
export function noticeFor(
  turn: TurnState,
  name: NoticeName,
  texts: ReplyLanguage | undefined,
): string {
  return noticeText(name, languageOfMessage(turn.message, texts));
}

/** An assistant message of text alone. */
export function assistantText(text: string): Extract<Message, { role: "assistant" }> {
  return { role: "assistant", content: [{ type: "text", text }] };
}

/** The messages that an ending stores: none for a command, because models never see commands. */
export function answering({ message }: TurnState, history: Message[]): Message[] {
  return message.command === undefined ? history : [];
}

const defaults: TurnLimits = {
  maxIterations: 25,
  maxCallsPerStep: 64,
  maxQuestionsPerStep: 10,
  toolTimeoutMs: 600_000,
  toolWaitMs: 30_000,
  maxResultChars: 50_000,
  maxStepResultChars: 200_000,
  maxAbsorbed: 10,
  maxDenials: 3,
  maxTransfers: 8,
  maxHelpers: 16,
  maxStepsWithHelpers: 64,
};

/** The usage of the run, for its last event. */
function countsOf({ totals, steps }: TurnState) {
  return {
    totalInputTokens: totals.inputTokens,
    totalOutputTokens: totals.outputTokens,
    totalCacheReadTokens: totals.cacheReadTokens,
    totalCacheCreationTokens: totals.cacheCreationTokens,
    totalCostUsd: totals.costUsd,
    turnCount: steps,
  };
}
