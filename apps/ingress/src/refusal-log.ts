import type { Clock } from "@larkline/protocol/clock";
import type { Logger } from "@larkline/process/telemetry";

/** A request that was refused before it was read. */
export interface RefusedRequest {
  status: number;
  reason: string;
  address: string;
}

/** Strangers may send any number of requests: of those that are refused, one is logged in this time, ms. */
const refusedEveryMs = 10_000;

/** Logs refused requests under `line`, with the number of those that were left out since the last one. */
export function refusalLog(
  clock: Clock,
  log: Logger,
  line: string,
): (refused: RefusedRequest) => void {
  let nextMs = Number.NEGATIVE_INFINITY;
  let others = 0;
  return (refused) => {
    const nowMs = clock.monotonic();
    if (nowMs < nextMs) {
      others += 1;
      return;
    }
    log.warn({ ...refused, othersBefore: others }, line);
    nextMs = nowMs + refusedEveryMs;
    others = 0;
  };
}
