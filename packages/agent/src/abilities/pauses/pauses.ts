import type { ReplyLanguage } from "@larkline/protocol";
import type { TurnState } from "@larkline/protocol/turn";
import { noticeText } from "../../texts/index.ts";
import type { Transition } from "../../turn/facts.ts";
import { languageOfMessage } from "../../turn/messages.ts";
import { answering, assistantText, endError, errorOf } from "../../turn/step.ts";

/**
 * An operator has paused the agent that answers: no model is asked, before the first step or between two. All calls
 * have been answered before. Effects and text of the turn stay.
 */
export function endPaused(turn: TurnState, agent: string, texts?: ReplyLanguage): Transition {
  const reply = noticeText("agentPaused", languageOfMessage(turn.message, texts), { agent });
  const suggestion = "Try again when an operator has let the agent work again.";
  const error = {
    ...errorOf("permission_denied", `An operator has paused the agent ${agent}.`),
    retryable: true,
  };
  const history = answering(turn, [assistantText(reply)]);
  return endError(turn, {
    history,
    events: [],
    reply,
    error: { ...error, suggestion },
    reason: "agent_paused",
  });
}
