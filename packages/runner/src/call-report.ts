import type { CallReported } from "./call-handoff.ts";

export interface CallReportOptions {
  /** Hands it in; rejects when that fails. */
  publish(reported: CallReported): Promise<void>;
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
  next: () => CallReported | undefined;
  publish: (reported: CallReported) => Promise<void>;
  intervalMs: number;
}) {
  const { next, publish, intervalMs } = options;
  let publishing: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const fire = (): void => {
    timer = undefined;
    const reported = next();
    if (reported === undefined) return;
    publishing = paced(reported);
  };
  const paced = async (reported: CallReported): Promise<void> => {
    await publish(reported);
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
function createLines() {
  let waiting = "";
  let left = maxCallCharacters;
  return {
    add: (line: string) => {
      if (left <= 0) return;
      left -= line.length + 1;
      waiting += left > 0 ? `${line}\n` : `${line.slice(0, left)}[further lines are left out]\n`;
    },
    next: (): CallReported | undefined => {
      if (waiting === "") return undefined;
      const text = waiting.slice(0, maxEventCharacters).toWellFormed();
      waiting = waiting.slice(maxEventCharacters);
      return { kind: "log", text };
    },
  };
}

export function createCallReport({ publish: handIn, onError, intervalMs = 250 }: CallReportOptions): CallReport {
  let newest: CallReported | undefined;
  let closed = false;
  const publish = async (reported: CallReported): Promise<void> => {
    await handIn(reported).catch(onError);
  };
  const lines = createLines();
  const logs = createPace({ next: lines.next, publish, intervalMs });
  const takeNewest = (): CallReported | undefined => {
    const reported = newest;
    newest = undefined;
    return reported;
  };
  const progress = createPace({ next: takeNewest, publish, intervalMs });

  return {
    progress: (fraction, detail = "") => {
      if (closed) return;
      newest = {
        kind: "progress",
        fraction: withinOne(fraction),
        detail: detail.slice(0, maxDetailCharacters).toWellFormed(),
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
      for (let rest = lines.next(); rest !== undefined; rest = lines.next()) await publish(rest);
    },
  };
}
