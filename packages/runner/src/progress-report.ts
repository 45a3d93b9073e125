import type { EventOf, ToolJob } from "@larkline/protocol";
import type { SessionStore } from "@larkline/session";

export interface ProgressReportOptions {
  store: Pick<SessionStore, "report">;
  job: ToolJob;
  onError: (error: unknown) => void;
  /** Least time between two published reports, ms. */
  intervalMs?: number;
}

/** Publishes how far a call is. */
export interface ProgressReport {
  /** `fraction` is brought into 0 to 1. Of reports that come faster than the interval the newest is published. */
  report: (fraction: number, detail?: string) => void;
  /** Publishes nothing more; waits for a report that is on its way. */
  close(): Promise<void>;
}

const maxDetailCharacters = 500;

function withinOne(fraction: number): number {
  return Number.isNaN(fraction) ? 0 : Math.min(1, Math.max(0, fraction));
}

export function createProgressReport(options: ProgressReportOptions): ProgressReport {
  const { store, job, onError, intervalMs = 250 } = options;
  let newest: EventOf<"tool_progress"> | undefined;
  let publishing: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const publish = (): void => {
    timer = undefined;
    const event = newest;
    if (event === undefined || closed) return;
    newest = undefined;
    timer = setTimeout(publish, intervalMs);
    publishing = store.report(job.session, job.callId, { runId: job.turnId, event }).then(() => undefined, onError);
  };

  return {
    report: (fraction, detail = "") => {
      newest = {
        type: "tool_progress",
        id: job.callId,
        toolName: job.name,
        progress: withinOne(fraction),
        detail: detail.slice(0, maxDetailCharacters),
      };
      if (timer === undefined) publish();
    },
    close: async () => {
      closed = true;
      clearTimeout(timer);
      await publishing;
    },
  };
}
