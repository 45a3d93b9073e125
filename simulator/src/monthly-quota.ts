import { PlatformError } from "./platform-error.ts";

/** The calls that a tenant of the free edition may make in a month. */
export interface MonthlyQuota {
  /** Counts a call, or refuses it with 99991403. Auth, event and contact calls are exempt. */
  check(path: string): void;
}

const exempt = /^\/(open-apis\/(auth|authen|event|contact)|callback)\//;
/** Months begin by the platform's clock, UTC+8. */
const zoneMs = 8 * 3_600_000;

export function createMonthlyQuota(now: () => number, limit: number): MonthlyQuota {
  let current = { month: "", calls: 0 };
  return {
    check(path) {
      if (exempt.test(path)) return;
      const month = new Date(now() + zoneMs).toISOString().slice(0, 7);
      if (current.month !== month) current = { month, calls: 0 };
      if (current.calls >= limit) {
        throw new PlatformError(99991403, "This month's API call quota has been exceeded.");
      }
      current.calls += 1;
    },
  };
}
