import { FeishuError } from "./error.ts";
import type { RateGate } from "./rate-gate.ts";

/** Calls of the month so far, and how many the plan includes; null when nobody counts. */
export interface MonthlyQuota {
  calls: number;
  limit: number | null;
}

/** Whoever decides by it may ask before every frame. */
const freshMs = 5_000;

/** Asks for the count at most every few seconds. Rejects with a FeishuError when it cannot be read. */
export function createQuota(gate: RateGate, limit: number | null): () => Promise<MonthlyQuota> {
  let memo: { quota: Promise<MonthlyQuota>; untilMs: number } | undefined;

  async function read(): Promise<MonthlyQuota> {
    try {
      return { calls: await gate.monthlyCalls(), limit };
    } catch {
      const reason = "the count of calls could not be read";
      throw new FeishuError({ api: "quota", kind: "unavailable", code: 0, httpStatus: 0, reason });
    }
  }

  return async () => {
    if (memo !== undefined && memo.untilMs > performance.now()) return await memo.quota;
    const entry = { quota: read(), untilMs: performance.now() + freshMs };
    memo = entry;
    entry.quota.catch(() => {
      if (memo === entry) memo = undefined;
    });
    return await entry.quota;
  };
}
