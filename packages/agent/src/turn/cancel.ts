import {
  type ControlEntry,
  type TurnState,
  type ReplyLanguage,
  cancelReasons,
  type CancelReason,
  type CallState,
  type ShownTool,
} from "@larkline/protocol";
import { shownTextOf, stoppedFirst, type TurnEnvironment } from "./ability.ts";
import { noticeText, inlineCode, textsOf } from "../texts/index.ts";
import type { Transition } from "./facts.ts";
import { languageOfMessage, joinedTexts } from "./messages.ts";
import { withUnanswered } from "./step.ts";
import { closeRound, isOpen } from "./tool-round.ts";
import { answering, assistantText, endDone } from "./transition.ts";
import { withText, withThinking, shownOf } from "./view.ts";

// A turn is cancelled: calls that stop first, then its end, with a report of what was done.

/** A cancel of a message that has joined the turn ends the turn: the joined text cannot be removed from it. */
export function isCancelOf(entry: ControlEntry, { turnId, absorbed = [] }: TurnState): boolean {
  if (entry.type !== "cancel") return false;
  return entry.turnId === undefined || entry.turnId === turnId || absorbed.includes(entry.turnId);
}

/** Ends a cancelled turn, once the calls that stop first have ended: so nothing of it runs any more when it says so. */
export function stopTurn(turn: TurnState, reason: string, env: TurnEnvironment): Transition {
  const calls = stoppedFirst(turn, env.abilities);
  if (calls.length === 0) return cancelTurn(turn, reason, env);
  return {
    turn: { ...turn, stopping: reason },
    history: [],
    events: [],
    next: { do: "stop", calls },
  };
}

/** What the model reads as the result of a call that was broken off. */
const reasonsForModel: Readonly<Record<CancelReason, string>> = {
  stopped: "the user stopped this turn",
  recalled: "the user took the message back",
  superseded: "the user wrote a newer message",
  cancelled: "this turn was cancelled",
};

/**
 * Ends the turn because it was cancelled. The text of the aborted step stays, in the reply and in history. The reply
 * lists the calls that were stopped and those that had finished.
 */
function cancelTurn(turn: TurnState, wanted: string, env: TurnEnvironment): Transition {
  const reason = knownReason(wanted);
  const cancelled = `cancelled: ${reasonsForModel[reason]}.`;
  const words = {
    maybeRun: `${cancelled} If the call had started, it may have taken effect.`,
    notRun: `${cancelled} The call was not run.`,
  };
  const { stopping: _stopping, ...rest } = turn;
  const closed = closeRound(rest, words, env);
  const reply = cancelReport(turn, reason, languageOfMessage(turn.message, env.texts));
  const live = turn.calls.length === 0 ? env.live : undefined;
  const said = live?.text ?? "";
  const used =
    turn.calls.length > 0
      ? { turn: closed.turn, events: [] }
      : withUnanswered(
          closed.turn,
          { text: said, use: live?.broken?.use, step: live?.broken ?? {} },
          env,
        );
  const parts = live === undefined ? [] : [{ type: "thinking" as const, text: live.thinking }];
  const shown = shownTextOf(said, env.abilities, env.known);
  return endDone(withText(withThinking(used.turn, { parts }), shown), {
    history: answering(turn, [...closed.history, assistantText(joinedTexts(said, reply))]),
    events: [...closed.events, ...used.events],
    reply,
    reason: "cancelled",
    final: live === undefined ? (turn.openStep?.text ?? "") : said,
  });
}

function knownReason(reason: string): CancelReason {
  return cancelReasons.find((known) => known === reason) ?? "stopped";
}

/**
 * The report of a cancelled turn: why it ended, which calls had finished, and which were aborted, split by whether
 * they may have taken effect. `turn` still has its open calls.
 */
function cancelReport(turn: TurnState, reason: CancelReason, language: ReplyLanguage): string {
  const { cancelled, comma } = textsOf(language);
  const { done, failed, maybe, harmless, helpers, notRun, earlier } = cancelled;
  const { tools, earlierTools } = shownOf(turn);
  const open = turn.calls.filter(isOpen);
  const handedOut = open.filter(({ state }) => state !== "waiting_approval");
  const lists: [string, string[]][] = [
    [
      done,
      [
        ...(earlierTools > 0 ? [earlier(earlierTools)] : []),
        ...namesOf(tools.filter(({ state }) => state === "done")),
      ],
    ],
    [failed, namesOf(tools.filter(({ state }) => state === "failed"))],
    [maybe, namesOf(handedOut.filter(({ effect }) => effect !== "pure"))],
    [helpers, namesOf(tools.filter(({ state }) => state === "stopped"))],
    [harmless, namesOf(handedOut.filter(({ effect }) => effect === "pure"))],
    [notRun, namesOf(open.filter(({ state }) => state === "waiting_approval"))],
  ];
  const lines = lists
    .filter(([, names]) => names.length > 0)
    .map(([label, names]) => `- ${label}${names.join(comma)}`);
  return [noticeText(reason, language), ...lines].join("\n");
}

function namesOf(items: readonly (CallState | ShownTool)[]): string[] {
  return withCounts(items.map(({ name }) => name));
}

const maxNameChars = 64;

/** Names with how often each occurs, in order of appearance. */
function withCounts(names: readonly string[]): string[] {
  const counts = Map.groupBy(names, (name) => name);
  return [...counts].map(
    ([name, all]) => `${inlineCode(name, maxNameChars)}${all.length > 1 ? ` ×${all.length}` : ""}`,
  );
}
