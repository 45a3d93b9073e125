import { isTerminal, type EventRecord, type SessionKey } from "@larkline/protocol";
import type { EventLog, SessionStore } from "@larkline/store";
import type { RunPosition } from "./run-frames.ts";

const pageSize = 500;

export interface RunFinderDeps {
  store: Pick<SessionStore, "summary">;
  log: Pick<EventLog, "read">;
}

/** What a client knows when it comes back. */
export interface RunQuery {
  session: SessionKey;
  runId: string | undefined;
  /** The last event it has seen. */
  afterSeq: number | undefined;
}

/**
 * A run to follow, or why there is none: the session does nothing now, nothing is known of it, or the client
 * claims to have seen events that the session does not have.
 */
export type FoundRun = RunPosition | "idle" | "unknown" | "ahead";

async function* retained(
  log: RunFinderDeps["log"],
  session: SessionKey,
  afterSeq: number,
): AsyncGenerator<EventRecord> {
  let from = afterSeq;
  for (;;) {
    const page = await log.read(session, from, pageSize);
    yield* page;
    const last = page.at(-1);
    if (last === undefined) return;
    from = last.seq;
  }
}

async function hasEventsOf(log: RunFinderDeps["log"], position: RunPosition): Promise<boolean> {
  for await (const record of retained(log, position.session, position.afterSeq)) {
    if (position.runId === undefined || record.runId === position.runId) return true;
  }
  return false;
}

/** The run that the client was reading: that of its last event, unless it had ended. */
async function interruptedRun(log: RunFinderDeps["log"], session: SessionKey, afterSeq: number): Promise<RunPosition> {
  const [seen] = afterSeq > 0 ? await log.read(session, afterSeq - 1, 1) : [];
  const open = seen !== undefined && seen.seq === afterSeq && !isTerminal(seen.event);
  return { session, runId: open ? seen.runId : undefined, afterSeq };
}

/** The run under way, else (when the session is idle) the last one, from its first event. */
async function latestRun(log: RunFinderDeps["log"], session: SessionKey, moving: boolean): Promise<FoundRun> {
  const runs = new Map<string, { afterSeq: number; ended: boolean }>();
  let newest = 0;
  for await (const { runId, seq, event } of retained(log, session, 0)) {
    const afterSeq = runs.get(runId)?.afterSeq ?? seq - 1;
    runs.set(runId, { afterSeq, ended: isTerminal(event) });
    newest = seq;
  }
  const known = [...runs].map(([runId, run]) => ({ session, runId, ...run }));
  const found = known.findLast((run) => !run.ended) ?? (moving ? undefined : known.at(-1));
  if (found !== undefined) return { session, runId: found.runId, afterSeq: found.afterSeq };
  return moving ? { session, runId: undefined, afterSeq: newest } : "unknown";
}

/** Finds the run that a returning client wants. Never waits for a run that nothing will start. */
export async function findRun({ store, log }: RunFinderDeps, query: RunQuery): Promise<FoundRun> {
  const { session, runId, afterSeq } = query;
  // Read before the log: a run that ends in between has its last events in the log already.
  const summary = await store.summary(session);
  const moving = summary.state !== "idle" || summary.waiting > 0;
  if (afterSeq !== undefined && afterSeq > summary.eventSeq) return "ahead";
  if (runId === undefined && afterSeq === undefined) return await latestRun(log, session, moving);
  const position =
    runId === undefined
      ? await interruptedRun(log, session, afterSeq ?? 0)
      : { session, runId, afterSeq: afterSeq ?? 0 };
  return moving || (await hasEventsOf(log, position)) ? position : "idle";
}
