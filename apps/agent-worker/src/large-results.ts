import { resultShare, type TurnLimits } from "@larkline/agent";
import { outcomeText, type ControlEntry, type ToolOutcome, type TurnState } from "@larkline/protocol";
import { keepResult, shortenedResult, type ResultDesk } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import { within } from "./within.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

/**
 * Keeps the texts among these entries that are longer than what the model gets of them, and puts
 * their beginning, their end and a handle in their place. Never rejects: what cannot be kept stays as
 * it is, and is cut when it is decided upon.
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

export function createLargeResults({ desk, limits, metrics, logger }: LargeResultsDeps): KeepLargeResults {
  const kept = async (turn: TurnState, outcome: ToolOutcome): Promise<ToolOutcome> => {
    const share = resultShare(limits, turn.calls.length);
    const text = outcomeText(outcome);
    if (!outcome.ok || outcome.stored !== undefined || text.length <= share) return outcome;
    const { session } = turn.message;
    try {
      const stored = await within(keepMs, keepResult(desk, session, text));
      metrics.largeResult("kept");
      return { ok: true, result: shortenedResult(text, stored, share), stored };
    } catch (error) {
      metrics.largeResult("cut");
      logger.warn({ error, session, turnId: turn.turnId }, "a large result was not kept; only its beginning is shown");
      return outcome;
    }
  };
  return async (turn, control) =>
    await Promise.all(
      control.map(async (entry) =>
        entry.type === "outcome" ? { ...entry, outcome: await kept(turn, entry.outcome) } : entry,
      ),
    );
}
