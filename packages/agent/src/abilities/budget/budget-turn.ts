import type { ReplyLanguage } from "@larkline/protocol";
import type { EventOf } from "@larkline/protocol/event";
import type { TurnState } from "@larkline/protocol/turn";
import { textsOf } from "../../texts/index.ts";
import type { Transition } from "../../turn/facts.ts";
import { languageOfMessage } from "../../turn/messages.ts";
import { answering, endError, errorOf, assistantText } from "../../turn/step.ts";
import {
  percentText,
  type BudgetUse,
  localMinute,
  tokenCount,
  usdText,
  type BudgetAccount,
} from "./budgets.ts";

/** What decisions about budgets depend on. */
export interface BudgetFacts extends BudgetWords {
  /** Language of notices; without it that of the person's message. */
  texts?: ReplyLanguage;
}

/** What texts about budgets say beside the numbers. */
export interface BudgetWords {
  /** IANA time zone of the times in the texts. */
  timeZone: string;
  /** Whom to ask for more; absent: the administrator. */
  contact?: string | undefined;
}

/** The key in the checkpoint. */
const name = "budget";

/** What a turn keeps of the warning that a budget is nearly spent: the note beside the answer, if there is one. */
interface BudgetWarning {
  readonly note?: string;
}

/** The warning that a turn has given; undefined: none. */
export function warningIn({ abilities }: Pick<TurnState, "abilities">): BudgetWarning | undefined {
  return abilities[name] as BudgetWarning | undefined; // written here alone
}

/**
 * No model may be called, because a budget is spent: the turn ends and says so, before its first step or
 * between two of them. All its calls have been answered before. Its effects and its text stay.
 */
export function endOverBudget(
  turn: TurnState,
  exceeded: BudgetUse,
  facts: BudgetFacts,
): Transition {
  const reply = overBudgetText(exceeded, languageOfMessage(turn.message, facts.texts), facts);
  const who = facts.contact ?? "an administrator";
  const error = {
    ...errorOf("budget_exceeded", overBudgetText(exceeded, "en", facts)),
    suggestion: `Wait until the budget renews, or ask ${who} to raise it.`,
  };
  const { shown } = turn;
  const notes = shown.notes.filter((note) => note !== warningIn(turn)?.note); // all of it is more than most of it
  return endError(
    { ...turn, shown: { ...shown, notes } },
    {
      history: answering(turn, [assistantText(reply)]),
      events: [],
      reply,
      error,
    },
  );
}

/**
 * A budget is nearly spent: adds one warning event per turn. `noted` is the budget that a note beside the answer
 * names.
 */
export function warnNearBudget(
  turn: TurnState,
  { nearest, noted }: { nearest: BudgetUse; noted: BudgetUse | undefined },
  facts: BudgetFacts,
): Transition {
  const { per, period } = nearest.account;
  const warning: EventOf<"warning"> = {
    type: "warning",
    code: "budget_near_limit",
    message: `${percentText(nearest)} of the budget per ${per} and ${period} is used.`,
    detail: `${per}/${period}`,
  };
  const note =
    noted === undefined
      ? undefined
      : nearBudgetText(noted, languageOfMessage(turn.message, facts.texts));
  const { shown } = turn;
  const warned: BudgetWarning = note === undefined ? {} : { note };
  return {
    turn: {
      ...turn,
      abilities: { ...turn.abilities, [name]: warned },
      ...(note === undefined ? {} : { shown: { ...shown, notes: [...shown.notes, note] } }),
    },
    history: [],
    events: [warning],
    next: { do: "model" },
  };
}

/** What the person reads whose message is not answered because a budget is spent. */
function overBudgetText(
  use: BudgetUse,
  language: ReplyLanguage,
  { timeZone, contact }: BudgetWords,
): string {
  const { owners, periods, inBrackets, administrator, spent } = textsOf(language).budgets;
  const { per, period, endsAtMs } = use.account;
  return spent({
    owner: owners[per],
    span: periods[period],
    limit: isOwn(use.account) ? inBrackets(spentLimit(use, language)) : "",
    renewal: localMinute(timeZone, endsAtMs),
    timeZone,
    contact: contact ?? administrator,
  });
}

/** The limit that is spent. */
function spentLimit({ account, spent }: BudgetUse, language: ReplyLanguage): string {
  const { tokens, usd = 0 } = account;
  const isTokens = tokens !== undefined && spent.tokens >= tokens;
  return isTokens ? textsOf(language).budgets.tokens(tokenCount(tokens)) : usdText(usd);
}

/** What the person reads beside an answer when a budget is nearly spent. */
function nearBudgetText(use: BudgetUse, language: ReplyLanguage): string {
  const { owners, periods, near } = textsOf(language).budgets;
  const { per, period } = use.account;
  return near(owners[per], periods[period], percentText(use));
}

/** What `/usage` answers: how far the budgets are spent that count for this person here. */
export function usageText(
  uses: readonly BudgetUse[],
  language: ReplyLanguage,
  { timeZone, contact }: BudgetWords,
): string {
  const { none, footer } = textsOf(language).budgets;
  if (uses.length === 0) return none;
  const lines = uses.map((use) => usageLine(use, language, timeZone));
  return [...lines, "", footer(timeZone, contact)].join("\n");
}

function usageLine(use: BudgetUse, language: ReplyLanguage, timeZone: string): string {
  const { owners, periods, inBrackets, unlimited, usage } = textsOf(language).budgets;
  const { per, period, tokens, usd, endsAtMs } = use.account;
  const share = tokens === undefined && usd === undefined ? unlimited : percentText(use);
  return usage({
    owner: owners[per],
    span: periods[period],
    used: isOwn(use.account) ? `${figures(use, language)}${inBrackets(share)}` : share,
    renewal: localMinute(timeZone, endsAtMs),
  });
}

function figures({ account, spent }: BudgetUse, language: ReplyLanguage): string {
  const { tokens, usd } = account;
  const { tokens: tokensText, ofLimit, between } = textsOf(language).budgets;
  const usedTokens = tokensText(tokenCount(spent.tokens));
  const usedUsd = usdText(spent.usd);
  const ofTokens = tokens === undefined ? usedTokens : ofLimit(usedTokens, tokenCount(tokens));
  const ofUsd = usd === undefined ? usedUsd : ofLimit(usedUsd, usdText(usd));
  return [ofTokens, ...(spent.usd > 0 || usd !== undefined ? [ofUsd] : [])].join(between);
}

/** Whether figures are shown: only for budgets of the person or the chat, not for those of the company. */
export function isOwn({ per }: BudgetAccount): boolean {
  return per === "person" || per === "chat";
}
