import { turnIdOf, type InboundMessage, type QueuedMessage, type TurnState } from "@larkline/protocol";
import { slashCommandIn } from "./slash-command.ts";
import type { Transition, TurnEnvironment } from "./turn-environment.ts";
import { userMessageOf } from "./user-message.ts";

/**
 * Whether the message may join the turn: tools act for the person who began it, the answer goes to
 * one place, and what a message refers to must have been fetched before a model sees it.
 */
function joins(waiting: InboundMessage, { message }: TurnState): boolean {
  const { agent, command, references, reply, sender, session } = waiting;
  return (
    command === undefined &&
    references === undefined &&
    agent === message.agent &&
    session === message.session &&
    sender.id === message.sender.id &&
    reply.channel === message.reply.channel
  );
}

/**
 * Messages that arrived meanwhile join the turn before its next model step: call it with the oldest
 * waiting ones whenever `next` is `model`. It takes them in order up to the first that must wait for
 * a turn of its own: a command, another agent's or another person's message, one whose references are
 * not fetched, or one over the limit of a turn. While a call is open it takes none, so that results follow their calls.
 */
export function absorb(turn: TurnState, waiting: readonly QueuedMessage[], { limits }: TurnEnvironment): Transition {
  if (turn.calls.length > 0) return { turn, history: [], events: [], next: { do: "wait" } };
  const before = turn.absorbed ?? [];
  const stop = waiting.findIndex(({ message }) => !joins(message, turn));
  const taken = waiting.slice(
    0,
    Math.min(stop === -1 ? waiting.length : stop, Math.max(0, limits.maxAbsorbed - before.length)),
  );
  if (taken.length === 0) return { turn, history: [], events: [], next: { do: "model" } };
  const absorbed = taken.map(({ seq, message }) => ({ seq, runId: turnIdOf(message.session, seq) }));
  return {
    turn: { ...turn, absorbed: [...before, ...absorbed.map(({ runId }) => runId)] },
    history: taken.map(({ message }) => userMessageOf(message)),
    events: taken.flatMap(({ message }) => slashCommandIn(message) ?? []),
    next: { do: "model" },
    absorbed,
  };
}
