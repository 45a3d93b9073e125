import {
  type EventOf,
  type QueuedMessage,
  type TurnState,
  turnIdOf,
  type InboundMessage,
} from "@larkline/protocol";
import { beforeModel, type TurnEnvironment } from "./ability.ts";
import type { Transition } from "./facts.ts";
import { slashCommandIn, userMessageOf, personMessageOf } from "./messages.ts";

// Messages that come while a turn runs may become part of it.

/**
 * Joins waiting messages to the turn before its next model step: call it with the oldest waiting messages
 * whenever `next` is `model`. It takes them in order up to the first that needs a turn of its own: a command, another agent's or another person's message, one whose references are
 * not fetched, or one over the limit of a turn. While a call is open it takes none, so that results follow their calls.
 */
export function absorb(
  turn: TurnState,
  waiting: readonly QueuedMessage[],
  env: TurnEnvironment,
): Transition {
  if (turn.calls.length > 0) return { turn, history: [], events: [], next: { do: "wait" } };
  const first = beforeModel(turn, env);
  if (first !== undefined) return { turn, history: [], events: [], next: first };
  const before = turn.absorbed ?? [];
  const stop = waiting.findIndex(({ message }) => !joins(message, turn));
  const taken = waiting.slice(
    0,
    Math.min(
      stop === -1 ? waiting.length : stop,
      Math.max(0, env.limits.maxAbsorbed - before.length),
    ),
  );
  if (taken.length === 0) return { turn, history: [], events: [], next: { do: "model" } };
  const absorbed = taken.map(({ seq, message }) => ({
    seq,
    runId: turnIdOf(message.session, seq),
    person: personMessageOf(message),
  }));
  return {
    turn: { ...turn, absorbed: [...before, ...absorbed.map(({ runId }) => runId)] },
    history: taken.map(({ message }) => userMessageOf(message)),
    events: taken.flatMap(({ message }) => slashCommandIn(message) ?? []),
    next: { do: "model" },
    absorbed,
  };
}

/** The end of the run of a message that has become part of another one. */
export function joinedEvent(takenBy: string, agent: string): EventOf<"done"> {
  const reason = "joined";
  return {
    type: "done",
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCacheReadTokens: 0,
    totalCacheCreationTokens: 0,
    totalCostUsd: 0,
    turnCount: 0,
    reason,
    final: "",
    agent,
    takenBy,
  };
}

/**
 * Whether the message may join the turn: tools act for the person who began it, the answer goes to
 * one place, and what a message refers to must have been fetched before a model sees it.
 */
function joins(waiting: InboundMessage, { message }: TurnState): boolean {
  const { agent, command, references, reply, sender, session } = waiting;
  return (
    command === undefined &&
    references === undefined &&
    !hasOptions(waiting) &&
    !hasOptions(message) &&
    waiting.previousResponseId === undefined &&
    agent === message.agent &&
    session === message.session &&
    sender.id === message.sender.id &&
    reply.channel === message.reply.channel
  );
}

/** Its answer has a form of its own, or its requests have options that other messages do not ask for. */
function hasOptions({ output, model }: InboundMessage): boolean {
  return output !== undefined || model !== undefined;
}
