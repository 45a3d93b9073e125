import {
  type Message,
  type TurnState,
  argumentsHashOf,
  textOf,
  type HeldStep,
} from "@larkline/protocol";
import { textHead } from "../texts/index.ts";
import { isSummary } from "./context.ts";
import { isCorrection, userMessageOf, writerOf } from "./messages.ts";
import { turnNumberOf } from "./tool-call.ts";

/*
 * A step that asks for calls is not written into the history at once. Its turn may have to wait for people, for
 * a day, and meanwhile the turns of other people in the group write there: a message between a call and its
 * results is refused by every vendor. So the checkpoint holds the step, and it enters the history together with
 * the results. Two notes keep what models read in between and afterwards in order:
 *
 *   user      Ann: deploy it
 *   assistant (pause note)                     written by the first turn of another person
 *   user      Bob: what is 2 + 2?
 *   assistant 4
 *   user      (resume note, with Ann's words)  written with the held step, where something came in between
 *   assistant tool_use deploy                  the held step
 *   tool      deployed
 */

/** What the model said in a step whose calls are open now; `history` is the conversation before it. */
export function heldStep(message: Message, history: readonly Message[] = []): HeldStep {
  const last = history.at(-1);
  return last === undefined ? { message } : { message, after: fingerprintOf(last) };
}

function fingerprintOf(message: Message): string {
  return argumentsHashOf(JSON.stringify(message));
}

const maxQuoteChars = 4_000;

const resumeTitle =
  "[People have answered what an earlier message waited for, so the work on that message continues.";

/**
 * What enters the history before the results of a round: the held step, and before it a note where other
 * messages have come in between. Nothing for checkpoints of earlier versions, whose step is stored already. In a group
 * the note is by the writer of what it quotes: who has their words deleted is rid of it, and of what answers it.
 */
export function releasedStep(
  { held, message }: TurnState,
  history: readonly Message[] | undefined,
): Message[] {
  if (held === undefined) return [];
  const last = history?.at(-1);
  const isNext =
    history === undefined || (last === undefined ? undefined : fingerprintOf(last)) === held.after;
  if (isNext) return [held.message];
  const said = userMessageOf(message);
  const note = `${resumeTitle} It was:]\n${textHead(textOf(said), maxQuoteChars)}`;
  return [
    { role: "user", content: [{ type: "text", text: note }], ...writerOf(said) },
    held.message,
  ];
}

const pauseText =
  "(I have asked people about something that I need for the message above, and wait for their answer. " +
  "I answer that message when they have decided; nothing is to be done about it until then.)";

/** The note that another person's turn writes before its message while the message before it is unanswered. */
export function pauseNote(history: readonly Message[]): Message[] {
  const last = history.at(-1);
  if (last === undefined || last.role === "assistant") return [];
  return [{ role: "assistant", content: [{ type: "text", text: pauseText }] }];
}

/** Whether a user message is the system's note about a turn that continues. */
function isResumeNote({ role, content }: Message): boolean {
  const [first] = content;
  return role === "user" && first?.type === "text" && first.text.startsWith(resumeTitle);
}

/**
 * Whether a history holds every message up to the turn. After a cut of the context it does not, and
 * an id that looks new may be that of a call of an earlier turn, whose late outcome it would catch.
 */
export function isWhole(
  history: readonly Message[],
  { turnId, absorbed = [] }: TurnState,
): boolean {
  const asked = history.filter((message) => message.role === "user" && !isSystemMessage(message));
  return asked.length - absorbed.length >= Number(turnNumberOf(turnId));
}

function isSystemMessage(message: Message): boolean {
  return isSummary(message) || isResumeNote(message) || isCorrection(message);
}
