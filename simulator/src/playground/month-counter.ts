import type { ApiCall } from "./view.ts";

/** Counts calls as the tenant's quota does. */
export interface MonthCounter {
  readonly calls: number;
  count(call: ApiCall): void;
}

/** Calls that cost nothing: auth, event and contact (notice on API call volume). */
const exempt = /^\/(open-apis\/(auth|authen|event|contact)|callback|oauth)\//;
/** Months begin by the platform's clock, UTC+8. */
const zoneMs = 8 * 3_600_000;

export function createMonthCounter(): MonthCounter {
  let month = "";
  let calls = 0;
  return {
    get calls() {
      return calls;
    },
    count({ path, at }) {
      if (exempt.test(path)) return;
      const current = new Date(at + zoneMs).toISOString().slice(0, 7);
      if (current !== month) [month, calls] = [current, 0];
      calls += 1;
    },
  };
}
