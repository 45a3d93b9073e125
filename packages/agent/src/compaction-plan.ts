import type { Message } from "@larkline/protocol";
import { isSummary } from "./compaction-summary.ts";
import { messageTokens } from "./token-estimate.ts";

/** Which part of a history is compacted. */
export interface CompactionPlan {
  /** What a summary stands for from now on; an earlier summary comes first. */
  older: Message[];
  /** How many of the latest messages stay as they are. */
  keep: number;
  /** Estimate for the whole history. */
  tokensBefore: number;
  /** Estimate for what stays. */
  tokensKept: number;
}

/** What decides whether and where a history is cut. */
export interface CompactionNeed {
  contextWindow: number;
  maxOutputTokens: number;
  /** `requestTokens` of the last model step on this history; forget it when the context changes. */
  usedTokens?: number | undefined;
  /** Because a person asked for it: even when there is room. */
  force: boolean;
}

/** Part of what fits at which a history is compacted, and part that recent messages may keep. */
const fullAt = 0.8;
const keptPart = 0.2;

/** Room for input: at least half of the window, whatever the model may write. */
function roomFor({ contextWindow, maxOutputTokens }: CompactionNeed): number {
  return contextWindow - Math.min(maxOutputTokens, contextWindow / 2);
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total + size, 0);
}

/** The known size of the last request, and what came after it: the model's answer and everything since. */
function tokensNow(history: readonly Message[], sizes: readonly number[], usedTokens: number | undefined): number {
  if (usedTokens === undefined || usedTokens === 0) return sum(sizes);
  const answer = history.findLastIndex(({ role }) => role === "assistant");
  return usedTokens + (answer === -1 ? 0 : sum(sizes.slice(answer)));
}

/** Where the latest turn begins: turns end with words of the assistant, and joined messages follow a user or a result. */
function latestTurnStart(history: readonly Message[]): number {
  const start = history.findLastIndex(
    ({ role }, index) => role === "user" && (index === 0 || history[index - 1]?.role === "assistant"),
  );
  return Math.max(0, start);
}

/**
 * What to compact; undefined when there is room or nothing older than the latest turn. Calls and
 * their results stay on one side of the cut. `keep` counts stored messages: save the cut before
 * anything is added to the history.
 */
export function compactionPlan(history: readonly Message[], need: CompactionNeed): CompactionPlan | undefined {
  const sizes = history.map(messageTokens);
  const estimated = sum(sizes);
  const tokensBefore = tokensNow(history, sizes, need.usedTokens);
  const room = roomFor(need);
  if (!need.force && tokensBefore <= room * fullAt) return undefined;
  const scale = Math.max(1, tokensBefore / Math.max(1, estimated));
  const budget = (keptPart * (need.force ? Math.min(room, tokensBefore) : room)) / scale;
  const start = keptFrom(history, sizes, budget);
  const older = history.slice(0, start);
  if (older.every(isSummary)) return undefined;
  const kept = Math.max(sum(sizes.slice(start)), tokensBefore - sum(sizes.slice(0, start)));
  return { older, keep: history.length - start, tokensBefore, tokensKept: Math.min(tokensBefore, kept) };
}

/** The first message that stays: the latest turn, and before it as much as the budget allows. */
function keptFrom(history: readonly Message[], sizes: readonly number[], budget: number): number {
  let start = latestTurnStart(history);
  let kept = sum(sizes.slice(start));
  for (let index = start - 1; index >= 0; index--) {
    kept += sizes[index] ?? 0;
    if (kept > budget) break;
    if (history[index]?.role !== "tool") start = index;
  }
  return start;
}
