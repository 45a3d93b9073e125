import { largeResults, type TurnLimits } from "@larkline/agent";
import type { ControlEntry, StoredResult, TurnState } from "@larkline/protocol";
import { keepResult, type ResultDesk } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { within } from "./within.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

/**
 * Keeps the results among these entries that are longer than what the model gets of them, and notes
 * their handles. Never rejects: what cannot be kept stays as it is, and is cut when it is decided upon.
 */
export type KeepLargeResults = (turn: TurnState, control: readonly ControlEntry[]) => Promise<ControlEntry[]>;

export interface LargeResultsDeps {
  desk: ResultDesk;
  limits: TurnLimits;
  metrics: Pick<WorkerMetrics, "largeResult">;
  logger: Logger;
}

/** A turn waits for this; a store that hangs must not hold it up for long. */
const keepMs = 10_000;

/** The entry with word of where the whole of its result is. */
function withStored(entry: ControlEntry, stored: ReadonlyMap<string, StoredResult | undefined>): ControlEntry {
  if (entry.type !== "outcome" || !entry.outcome.ok) return entry;
  const place = stored.get(entry.callId);
  return place === undefined ? entry : { ...entry, outcome: { ...entry.outcome, stored: place } };
}

export function createLargeResults({ desk, limits, metrics, logger }: LargeResultsDeps): KeepLargeResults {
  const keep = async ({ turnId, message }: TurnState, text: string): Promise<StoredResult | undefined> => {
    const { session } = message;
    try {
      const stored = await within(keepMs, keepResult(desk, session, text));
      metrics.largeResult("kept");
      return stored;
    } catch (error) {
      metrics.largeResult("cut");
      logger.warn({ error, session, turnId }, "a large result was not kept; only its beginning is shown");
      return undefined;
    }
  };
  return async (turn, control) => {
    const large = largeResults(turn, control, limits);
    const places = await Promise.all(large.map(async ({ callId, text }) => [callId, await keep(turn, text)] as const));
    const stored = new Map(places);
    return control.map((entry) => withStored(entry, stored));
  };
}
