import {
  type QueuedMessage,
  type TurnState,
  turnIdOf,
  type InboundMessage,
  type Message,
  type ReplyLanguage,
  agentOfTurn,
} from "@larkline/protocol";
import { type Ability, type AbilityFacts, type TurnEnvironment } from "./ability.ts";
import { noticeText } from "../texts/index.ts";
import type { Transition, TurnModel } from "./facts.ts";
import { type UserMessage, slashCommandIn, userMessageOf, languageOfMessage } from "./messages.ts";
import { stepStart } from "./step.ts";
import { pauseNote } from "./held-step.ts";
import { endError, errorOf, after, withNeeds } from "./transition.ts";

// A waiting message begins its turn.

/** Begins the turn of a waiting message: stores it and asks for the first model step. */
export function startTurn({
  head,
  nowMs,
  model,
  agent,
  known = {},
  texts,
  overheard,
  othersWait = false,
  history = [],
  abilities = [],
}: {
  head: QueuedMessage;
  abilities?: readonly Ability[];
  nowMs: number;
  model: TurnModel;
  /** Who answers, where that is not the agent that the message is for. */
  agent?: string | undefined;
  known?: AbilityFacts | undefined;
  texts?: ReplyLanguage | undefined;
  /** What was said in the group since the message before; undefined where the agent does not read along. */
  overheard?: readonly UserMessage[] | undefined;
} & Pick<TurnEnvironment, "othersWait" | "history">): Transition {
  const command = head.message.task === undefined ? slashCommandIn(head.message) : undefined;
  const turn = newTurn(head, nowMs, agent);
  const asked = userMessageOf(head.message);
  const said = [
    ...givenHistory(head.message, history),
    ...(othersWait ? pauseNote(history) : []),
    ...(overheard ?? []),
    overheard === undefined ? asked : { ...asked, atMs: head.message.createdAtMs },
  ];
  const events = [
    ...abilities.flatMap((ability) => ability.onStart?.(head.message, agentOfTurn(turn)) ?? []),
    ...(command === undefined ? [] : [command]),
  ];
  for (const ability of abilities) {
    const first = ability.firstMove?.(turn, { known, texts });
    if (first !== undefined) return after({ history: said, events }, first);
  }
  return { turn, history: said, events: [stepStart(0, model), ...events], next: { do: "model" } };
}

/** What a message brings for a conversation that has just begun: where others have spoken since, it comes too late. */
function givenHistory(
  { history: given = [] }: InboundMessage,
  history: readonly Message[],
): readonly Message[] {
  return history.length === 0 ? given : [];
}

/** The checkpoint of a turn that has done nothing yet. */
export function newTurn(head: QueuedMessage, nowMs: number, agent?: string): TurnState {
  const { history: _given, needs: _needs, ...message } = head.message; // in the history with the first write
  return withNeeds({
    v: 1,
    turnId: turnIdOf(head.message.session, head.seq),
    message,
    steps: 0,
    calls: [],
    callIds: [],
    totals: { inputTokens: 0, outputTokens: 0, costUsd: 0 },
    startedAtMs: nowMs,
    ...(agent === undefined ? {} : { agent }),
  });
}

/** The turn of agents that operators had changed when it began. */
export function atRevision(turn: TurnState, revision: number): TurnState {
  return withNeeds({ ...turn, revision });
}

/** The turn of a message that no agent answers: nothing of it enters the history. `notice`: what the person reads. */
export function refuseTurn(head: QueuedMessage, nowMs: number, notice: string): Transition {
  const suggestion = "Ask the operator who may use this agent.";
  const error = {
    ...errorOf("permission_denied", "This agent does not answer this person here."),
    suggestion,
  };
  return endError(newTurn(head, nowMs), { history: [], events: [], reply: notice, error });
}

/** Stored state that a conversation can lose and still continue: its settings, and the summary of compacted messages. */
export type LostState = "settings" | "summary";

/**
 * Adds the notes that the person sees beside the answer: files of the message that could not be read, and stored state
 * of the conversation that was lost. Each note appears once.
 */
export function withNotes(
  turn: TurnState,
  lost: readonly LostState[],
  texts?: ReplyLanguage,
  more: readonly string[] = [],
): TurnState {
  const language = languageOfMessage(turn.message, texts);
  const files = unreadFiles(turn.message);
  const notes = [
    ...(turn.notes ?? []),
    ...(files.length === 0
      ? []
      : [noticeText("filesUnread", language, { files: files.join(", ") })]),
    ...lost.map((what) =>
      noticeText(what === "settings" ? "settingsLost" : "summaryLost", language),
    ),
    ...more,
  ];
  return notes.length === 0 ? turn : { ...turn, notes: [...new Set(notes)] };
}

function unreadFiles({ parts }: InboundMessage): string[] {
  return parts.flatMap((part) =>
    part.type === "file" && part.state !== "ready" ? [part.name] : [],
  );
}
