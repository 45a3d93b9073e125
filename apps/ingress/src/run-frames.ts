import {
  isTerminal,
  streamFramesOfRecord,
  type EventRecord,
  type SessionKey,
  type StreamFrame,
} from "@larkline/protocol";
import type { EventLog } from "@larkline/store";

/** A run to follow. Without `runId`: the run of the next event. */
export interface RunPosition {
  session: SessionKey;
  runId: string | undefined;
  /** Only events after this one. */
  afterSeq: number;
}

/** Ends a stream whose run is over and forgotten. */
export const lostRunFrame: StreamFrame = { type: "error", message: "ERROR: the events of this run are no longer kept" };

function ordinalOf(runId: string): number {
  return Number(runId.slice(runId.lastIndexOf("-") + 1));
}

/**
 * Whether a later run is under way, so that `runId` must have ended. The end of a waiting run alone
 * proves nothing: it may have been cancelled before its turn.
 */
function provesEnd(record: EventRecord, runId: string): boolean {
  return ordinalOf(record.runId) > ordinalOf(runId) && !isTerminal(record.event);
}

/**
 * The frames of one run as they come, up to its terminal frame; an error frame when the end of the
 * run is no longer in the log. An outcome that is told again, by the successor of a worker that died
 * before it could save, comes once. A message that has joined another run ends with that one. Ends early when `signal` aborts; fails when the log does.
 */
export async function* framesOfRun(
  log: Pick<EventLog, "follow">,
  position: RunPosition,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame> {
  let { runId } = position;
  const outcomes = new Set<string>();
  for await (const record of log.follow(position.session, position.afterSeq, signal)) {
    if (record === undefined) continue;
    runId ??= record.runId;
    if (record.runId === runId) {
      if (record.event.type === "tool_result") {
        if (outcomes.has(record.event.id)) continue;
        outcomes.add(record.event.id);
      }
      if (record.event.type === "done" && record.event.takenBy !== undefined) {
        runId = record.event.takenBy;
        continue;
      }
      yield* streamFramesOfRecord(record);
      if (isTerminal(record.event)) return;
    } else if (provesEnd(record, runId)) {
      yield lostRunFrame;
      return;
    }
  }
}
