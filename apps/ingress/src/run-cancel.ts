import type { EventLog, SessionStore } from "@larkline/store";
import { apiApp } from "./api-request.ts";
import type { Inbox } from "./inbox.ts";

export interface RunCancelDeps {
  store: Pick<SessionStore, "summary" | "waiting">;
  log: Pick<EventLog, "read">;
  inbox: Pick<Inbox, "cancel">;
}

/** What a cancel came to: the run was told to stop, had ended before, or nothing is known of it. */
export type CancelledRun = "cancelling" | "ended" | "unknown";

const runPattern = new RegExp(`^(${apiApp}\\.[A-Za-z0-9_-]{1,64})-(\\d{1,15})$`);
const pageSize = 500;

/** Stops a run of the API, waiting or under way; of a message that has joined another run, that one. */
export async function cancelRun({ store, log, inbox }: RunCancelDeps, runId: string): Promise<CancelledRun> {
  const [, session, ordinal] = runPattern.exec(runId) ?? [];
  if (session === undefined) return "unknown";
  const seq = Number(ordinal);
  const { head, turn, waiting } = await store.summary(session);
  const isOpen =
    head?.seq === seq ||
    turn?.absorbed?.includes(runId) === true ||
    (waiting > 0 && (await store.waiting(session, waiting)).some((message) => message.seq === seq));
  if (isOpen) {
    await inbox.cancel(session, runId, "stopped");
    return "cancelling";
  }
  // Read after the summary: a run that ended in between has its events in the log.
  for (let from = 0; ;) {
    const page = await log.read(session, from, pageSize);
    if (page.some((record) => record.runId === runId)) return "ended";
    const last = page.at(-1);
    if (last === undefined) return "unknown";
    from = last.seq;
  }
}
