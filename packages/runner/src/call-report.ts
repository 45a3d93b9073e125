import { attemptIdOf, type EngineEvent, type ToolJob } from "@larkline/protocol";
import type { SessionStore } from "@larkline/session";

export interface CallReportOptions {
  store: Pick<SessionStore, "report">;
  job: ToolJob;
  onError: (error: unknown) => void;
  /** Least time between two published reports of a kind, ms. */
  intervalMs?: number;
}

/** Publishes what a call tells while it runs. */
export interface CallReport {
  /** `fraction` is brought into 0 to 1. Of reports that come faster than the interval the newest is published. */
  progress: (fraction: number, detail?: string) => void;
  /** Lines that come faster than the interval are published together; of very many only the first. */
  log: (line: string) => void;
  /** Publishes the lines that wait and nothing more; waits for what is on its way. */
  close(): Promise<void>;
}

const maxDetailCharacters = 500;
const maxEventCharacters = 8_000;
const maxCallCharacters = 64_000;

function withinOne(fraction: number): number {
  return Number.isNaN(fraction) ? 0 : Math.min(1, Math.max(0, fraction));
}

/** Publishes what `next` gives: at once, and then when the one before is published and an interval has passed. */
function createPace(options: {
  next: () => EngineEvent | undefined;
  publish: (event: EngineEvent) => Promise<void>;
  intervalMs: number;
}) {
  const { next, publish, intervalMs } = options;
  let publishing: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const fire = (): void => {
    timer = undefined;
    const event = next();
    if (event === undefined) return;
    publishing = paced(event);
  };
  const paced = async (event: EngineEvent): Promise<void> => {
    await publish(event);
    publishing = undefined;
    if (!stopped) timer = setTimeout(fire, intervalMs);
  };
  return {
    wake: () => {
      if (timer === undefined && publishing === undefined && !stopped) fire();
    },
    /** Waits for what is on its way. */
    stop: async () => {
      stopped = true;
      clearTimeout(timer);
      await publishing;
    },
  };
}

/** Keeps the lines of a call until they are published, in order. */
function createLines(job: ToolJob) {
  let waiting = "";
  let left = maxCallCharacters;
  return {
    add: (line: string) => {
      if (left <= 0) return;
      left -= line.length + 1;
      waiting += left > 0 ? `${line}\n` : `${line.slice(0, left)}[further lines are left out]\n`;
    },
    next: (): EngineEvent | undefined => {
      if (waiting === "") return undefined;
      const data = waiting.slice(0, maxEventCharacters).toWellFormed();
      waiting = waiting.slice(maxEventCharacters);
      const meta = JSON.stringify({ toolName: job.name });
      return { type: "inbox_message", messageType: "log", toolUseId: job.callId, data, meta };
    },
  };
}

export function createCallReport({ store, job, onError, intervalMs = 250 }: CallReportOptions): CallReport {
  const attempt = attemptIdOf(job);
  let newest: EngineEvent | undefined;
  let closed = false;
  const publish = async (event: EngineEvent): Promise<void> => {
    await store.report(job.session, attempt, { runId: job.turnId, event }).catch(onError);
  };
  const lines = createLines(job);
  const logs = createPace({ next: lines.next, publish, intervalMs });
  const takeNewest = (): EngineEvent | undefined => {
    const event = newest;
    newest = undefined;
    return event;
  };
  const progress = createPace({ next: takeNewest, publish, intervalMs });

  return {
    progress: (fraction, detail = "") => {
      if (closed) return;
      newest = {
        type: "tool_progress",
        id: job.callId,
        toolName: job.name,
        progress: withinOne(fraction),
        detail: detail.slice(0, maxDetailCharacters),
      };
      progress.wake();
    },
    log: (line) => {
      if (closed) return;
      lines.add(line);
      logs.wake();
    },
    close: async () => {
      closed = true;
      await Promise.all([progress.stop(), logs.stop()]);
      for (let event = lines.next(); event !== undefined; event = lines.next()) await publish(event);
    },
  };
}
