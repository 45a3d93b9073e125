import type {
  LeftOut,
  Message,
  ModelFailure,
  PieceKind,
  ReplyLanguage,
  TextPart,
} from "@larkline/protocol";
import { noticeText, textsOf } from "../texts/index.ts";
import type { StepResult } from "./facts.ts";

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

/** What a vendor's words for a refusal point at, in the order in which it is looked for. */
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
export interface Asking {
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
export function isRefused(result: StepResult): result is StepResult & { failure: ModelFailure } {
  const { failure, brokenOff } = result;
  return (
    failure?.blames !== undefined &&
    failure.retryInMs === undefined &&
    !failure.partial &&
    brokenOff !== true
  );
}

function askingOf(history: readonly Message[], leftOut: LeftOut[] = []): Asking {
  const messages = withoutRefused(history, leftOut);
  return {
    messages,
    plain: isPlain(history, leftOut),
    ...(leftOut.length === 0 ? {} : { leftOut }),
  };
}

/** What to leave out of the request, in the order of the attempts. */
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

/** Where the part begins that no vendor has answered yet: the last answer itself was in no request. */
function acceptedUntil(history: readonly Message[]): number {
  return Math.max(
    0,
    history.findLastIndex(({ role }) => role === "assistant"),
  );
}

/** Where the latest turn begins: with a message of a person that follows an answer. */
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
export function withoutRefused(
  history: readonly Message[],
  more: readonly LeftOut[] = [],
): readonly Message[] {
  const marks = marksOf(history, more);
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

/** Whether the conversation is asked by the plainest request. */
function isPlain(history: readonly Message[], more: readonly LeftOut[]): boolean {
  return marksOf(history, more).some(({ mark }) => mark.kinds.includes("plain"));
}

/** What is left out of the messages before `end`. */
interface Mark {
  mark: LeftOut;
  end: number;
}

function marksOf(history: readonly Message[], more: readonly LeftOut[]): Mark[] {
  const marked = history.flatMap((message, end) =>
    message.role === "assistant" ? (message.leftOut ?? []).map((mark) => ({ mark, end })) : [],
  );
  return [...marked, ...more.map((mark) => ({ mark, end: history.length }))];
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

/** Kinds of the pieces that were left out, each once. */
export function kindsOf(leftOut: readonly LeftOut[]): PieceKind[] {
  return [...new Set(leftOut.flatMap(({ kinds }) => kinds))];
}

/** What people read about pieces that were left out. */
export function leftOutNote(leftOut: readonly LeftOut[], language: ReplyLanguage): string {
  const { pieces, comma } = textsOf(language);
  const names = kindsOf(leftOut).map((kind) => pieces[kind]);
  return noticeText("leftOut", language, { pieces: names.join(comma) });
}
