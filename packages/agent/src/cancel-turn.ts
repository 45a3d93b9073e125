import { cancelReasons, type CancelReason, type TurnState } from "@larkline/protocol";
import { cancelReport } from "./cancel-report.ts";
import { withText, withThinking } from "./shown-so-far.ts";
import { withUnanswered } from "./step-report.ts";
import { joinedTexts } from "./text-cut.ts";
import { closeRound } from "./tool-round.ts";
import { answering, endDone, spoken } from "./turn-ending.ts";
import type { Transition, TurnEnvironment } from "./turn-environment.ts";
import { languageOfMessage } from "./notice.ts";

/** What the model reads as the result of a call that was broken off. */
const reasonsForModel: Readonly<Record<CancelReason, string>> = {
  stopped: "the user stopped this turn",
  recalled: "the user took the message back",
  superseded: "the user wrote a newer message",
  cancelled: "this turn was cancelled",
};

function knownReason(reason: string): CancelReason {
  return cancelReasons.find((known) => known === reason) ?? "stopped";
}

/**
 * Ends the turn because it was cancelled. What the broken-off step had said stays, for the person
 * and in history; the reply says what was stopped and what had been done by then.
 */
export function cancelTurn(turn: TurnState, wanted: string, env: TurnEnvironment): Transition {
  const reason = knownReason(wanted);
  const cancelled = `cancelled: ${reasonsForModel[reason]}.`;
  const words = {
    maybeRun: `${cancelled} If the call had started, it may have taken effect.`,
    notRun: `${cancelled} The call was not run.`,
  };
  const closed = closeRound(turn, words, env);
  const reply = cancelReport(turn, reason, languageOfMessage(turn.message, env.texts));
  const live = turn.calls.length === 0 ? env.live : undefined;
  const said = live?.text ?? "";
  const used =
    turn.calls.length > 0
      ? { turn: closed.turn, events: [] }
      : withUnanswered(closed.turn, { text: said, use: live?.broken?.use, step: live?.broken ?? {} }, env);
  const parts = live === undefined ? [] : [{ type: "thinking" as const, text: live.thinking }];
  return endDone(withText(withThinking(used.turn, { parts }), said), {
    history: answering(turn, [...closed.history, spoken(joinedTexts(said, reply))]),
    events: [...closed.events, ...used.events],
    reply,
    reason: "cancelled",
    final: live === undefined ? (turn.openStep?.text ?? "") : said,
  });
}
