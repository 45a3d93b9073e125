import type { ToolJob } from "@larkline/protocol";

/** Abort reason of calls whose turn was cancelled; its message is the outcome's error text. */
const cancelled = new Error("cancelled");
/** Abort reason of calls that a stopping runner gives up. */
const stopping = new Error("the runner was stopped during the call");

/** A call that this process works on. */
export interface RunningCall {
  signal: AbortSignal;
  /** Whether the runner itself gave the call up. */
  stopped(): boolean;
  release(): void;
}

/** The calls that this process works on, so that others can stop them. */
export interface RunningCalls {
  start(job: ToolJob): RunningCall;
  count(): number;
  /** Stops the calls of a turn; without `turnId` all of the session. */
  cancel(session: string, turnId?: string): void;
  /** Gives up all calls, and every one that starts from now on. */
  stop(): void;
}

export function createRunningCalls(): RunningCalls {
  const calls = new Map<AbortController, ToolJob>();
  let stopped = false;
  return {
    start: (job) => {
      const controller = new AbortController();
      calls.set(controller, job);
      if (stopped) controller.abort(stopping);
      return {
        signal: controller.signal,
        stopped: () => controller.signal.reason === stopping,
        release: () => void calls.delete(controller),
      };
    },
    count: () => calls.size,
    cancel: (session, turnId) => {
      for (const [controller, job] of calls) {
        if (job.session === session && (turnId === undefined || job.turnId === turnId)) controller.abort(cancelled);
      }
    },
    stop: () => {
      stopped = true;
      for (const controller of calls.keys()) controller.abort(stopping);
    },
  };
}
