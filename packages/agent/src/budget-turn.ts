import { percentText, type BudgetUse } from "./budgets/index.ts";
import type { EventOf, ReplyLanguage, TurnState } from "@larkline/protocol";
import { nearBudgetText, overBudgetText, type BudgetWords } from "./budget-text.ts";
import { languageOfMessage } from "./notice.ts";
import { answering, endError, errorOf, spoken } from "./turn-ending.ts";
import type { Transition } from "./turn-environment.ts";

/** What decisions about budgets depend on. */
export interface BudgetFacts extends BudgetWords {
  /** Language of notices; without it that of the person's message. */
  texts?: ReplyLanguage;
}

/**
 * No model may be called, because a budget is spent: the turn ends and says so, before its first step or
 * between two of them. All calls are answered by then. What was done stays, and so does what was said.
 */
export function endOverBudget(turn: TurnState, exceeded: BudgetUse, facts: BudgetFacts): Transition {
  const reply = overBudgetText(exceeded, languageOfMessage(turn.message, facts.texts), facts);
  const who = facts.contact ?? "an administrator";
  const error = {
    ...errorOf("budget_exceeded", overBudgetText(exceeded, "en", facts)),
    suggestion: `Wait until the budget renews, or ask ${who} to raise it.`,
  };
  const { budgetNote: _budgetNote, ...rest } = turn; // all of it is more than most of it
  return endError(rest, { history: answering(turn, [spoken(reply)]), events: [], reply, error });
}

/**
 * A budget is nearly spent: the events of the turn say so once. `told` is a budget that the person is
 * to hear of beside the answer.
 */
export function warnNearBudget(
  turn: TurnState,
  { nearest, told }: { nearest: BudgetUse; told: BudgetUse | undefined },
  facts: BudgetFacts,
): Transition {
  const { per, period } = nearest.account;
  const warning: EventOf<"warning"> = {
    type: "warning",
    code: "budget_near_limit",
    message: `${percentText(nearest)} of the budget per ${per} and ${period} is used.`,
    detail: `${per}/${period}`,
  };
  const note = told === undefined ? undefined : nearBudgetText(told, languageOfMessage(turn.message, facts.texts));
  return {
    turn: { ...turn, budgetWarned: true, ...(note === undefined ? {} : { budgetNote: note }) },
    history: [],
    events: [warning],
    next: { do: "model" },
  };
}
