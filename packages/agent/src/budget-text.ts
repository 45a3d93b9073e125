import {
  localMinute,
  percentText,
  tokenCount,
  usdText,
  type BudgetAccount,
  type BudgetKind,
  type BudgetPeriod,
  type BudgetUse,
} from "./budgets/index.ts";
import type { ReplyLanguage } from "@larkline/protocol";

/** What texts about budgets say beside the numbers. */
export interface BudgetWords {
  /** Whose clock the times are told by. */
  timeZone: string;
  /** Whom to ask for more; absent: the administrator. */
  contact?: string | undefined;
}

/** Whose budget it is. */
const owners: Readonly<Record<BudgetKind, Record<ReplyLanguage, string>>> = {
  person: { zh: "你", en: "Your budget" },
  chat: { zh: "这个会话", en: "The budget of this chat" },
  agent: { zh: "这个智能体", en: "The budget of this agent" },
  tenant: { zh: "你的企业", en: "The budget of your company" },
  deployment: { zh: "整个服务", en: "The budget of this whole service" },
};

const periods: Readonly<Record<BudgetPeriod, Record<ReplyLanguage, string>>> = {
  day: { zh: "今天", en: "for today" },
  month: { zh: "本月", en: "for this month" },
};

/** Figures are for those whose own they are: what a company spends is not told in its chats. */
export function isOwn({ per }: BudgetAccount): boolean {
  return per === "person" || per === "chat";
}

function tokensText(tokens: number, language: ReplyLanguage): string {
  return `${tokenCount(tokens)} ${language === "zh" ? "token" : "tokens"}`;
}

/** The limit that is spent. */
function spentLimit({ account, spent }: BudgetUse, language: ReplyLanguage): string {
  const { tokens, usd = 0 } = account;
  return tokens !== undefined && spent.tokens >= tokens ? tokensText(tokens, language) : usdText(usd);
}

/** What the person reads whose message is not answered because a budget is spent. */
export function overBudgetText(use: BudgetUse, language: ReplyLanguage, { timeZone, contact }: BudgetWords): string {
  const { per, period, endsAtMs } = use.account;
  const [owner, span] = [owners[per][language], periods[period][language]];
  const renewal = localMinute(timeZone, endsAtMs);
  if (language === "zh") {
    const limit = isOwn(use.account) ? `（${spentLimit(use, "zh")}）` : "";
    return `${owner}${span}的额度已用完${limit}，${renewal}（${timeZone}）恢复。需要更多额度请联系${contact ?? "管理员"}。`;
  }
  const limit = isOwn(use.account) ? ` (${spentLimit(use, "en")})` : "";
  const who = contact ?? "your administrator";
  return `${owner} ${span} is used up${limit}. It renews on ${renewal} (${timeZone}). Ask ${who} if you need more.`;
}

/** What the person reads beside an answer when a budget is nearly spent. */
export function nearBudgetText(use: BudgetUse, language: ReplyLanguage): string {
  const { per, period } = use.account;
  const [owner, span] = [owners[per][language], periods[period][language]];
  const percent = percentText(use);
  return language === "zh" ? `${owner}${span}的额度已用 ${percent}` : `${owner} ${span} is ${percent} used`;
}

function ofLimit(spent: string, limit: string | undefined, language: ReplyLanguage): string {
  if (limit === undefined) return spent;
  return language === "zh" ? `${spent} / ${limit}` : `${spent} of ${limit}`;
}

function figures({ account, spent }: BudgetUse, language: ReplyLanguage): string {
  const { tokens, usd } = account;
  const ofTokens = ofLimit(
    tokensText(spent.tokens, language),
    tokens === undefined ? undefined : tokenCount(tokens),
    language,
  );
  const ofUsd = ofLimit(usdText(spent.usd), usd === undefined ? undefined : usdText(usd), language);
  const separator = language === "zh" ? "，" : ", ";
  return [ofTokens, ...(spent.usd > 0 || usd !== undefined ? [ofUsd] : [])].join(separator);
}

function usageLine(use: BudgetUse, language: ReplyLanguage, timeZone: string): string {
  const { account } = use;
  const { per, period, tokens, usd, endsAtMs } = account;
  const isLimited = tokens !== undefined || usd !== undefined;
  const unlimited = language === "zh" ? "不限" : "no limit";
  const share = isLimited ? percentText(use) : unlimited;
  const renewal = localMinute(timeZone, endsAtMs);
  const [owner, span] = [owners[per][language], periods[period][language]];
  if (language === "zh") {
    const own = isOwn(account) ? `${figures(use, "zh")}（${share}）` : share;
    return `- ${owner}${span}：${own}，${renewal} 重新计算`;
  }
  const own = isOwn(account) ? `${figures(use, "en")} (${share})` : share;
  return `- ${owner} ${span}: ${own}, renews on ${renewal}`;
}

/** What `/usage` answers: how far the budgets are spent that count for this person here. */
export function usageText(
  uses: readonly BudgetUse[],
  language: ReplyLanguage,
  { timeZone, contact }: BudgetWords,
): string {
  if (uses.length === 0) return language === "zh" ? "这里没有设置额度。" : "There is no budget here.";
  const lines = uses.map((use) => usageLine(use, language, timeZone));
  const clock = language === "zh" ? `时间按 ${timeZone} 计算。` : `Times are those of ${timeZone}.`;
  const ask = language === "zh" ? `需要更多额度请联系${contact}。` : `Ask ${contact} if you need more.`;
  return [...lines, "", contact === undefined ? clock : `${clock}${language === "zh" ? "" : " "}${ask}`].join("\n");
}
