import { systemClock } from "@larkline/protocol/clock";
import { flushCompileCache } from "node:module";
import { constants, getPriority, setPriority } from "node:os";
import type { Logger } from "./logger.ts";

export interface RunUntilSignalOptions {
  /** Finishes or hands over running work and closes every connection. */
  close: () => Promise<void>;
  /** How long `close` may take, default 8000. */
  deadlineMs?: number;
  /**
   * Lets others have the processor first where they need it. For whatever does not acknowledge messages: one that is
   * not acknowledged within 3 s comes again, so on a machine that has too much to do answers wait, not receipts.
   */
  givesWay?: boolean;
  logger: Logger;
}

/** On Linux a third of the processor beside a process that does not give way. */
const givenAway = 5;
const lowestPriority = constants.priority.PRIORITY_LOW;

/** Never throws: where a container forbids it, the process runs as any other. */
function lowerPriority(logger: Logger): void {
  try {
    setPriority(Math.min(lowestPriority, getPriority() + givenAway));
  } catch (error) {
    logger.info({ error }, "the priority of this process cannot be lowered");
  }
}

function leave(code: 0 | 1): never {
  process.exit(code);
}

async function closeAndLeave({ close, logger }: RunUntilSignalOptions): Promise<never> {
  try {
    await close();
  } catch (error) {
    logger.error({ error }, "closing failed");
    return leave(1);
  }
  logger.info({}, "closed");
  return leave(0);
}

/**
 * Ties the life of a process to its signals; to be called once, when everything runs. The first
 * SIGTERM or SIGINT closes and exits with 0; a second one, a failing close or the deadline exits
 * with 1 at once. An uncaught error is logged and exits with 1: the state lives in Redis,
 * so a fresh process is the safe one. A parent that started the process with an IPC channel gets
 * the message `"running"` now, and its end counts as a signal.
 */
export function runUntilSignal(options: RunUntilSignalOptions): void {
  const { deadlineMs = 8_000, givesWay = false, logger } = options;
  let stopping = false;

  const stop = (reason: string) => {
    if (stopping) {
      logger.warn({ reason }, "stopped again while closing, leaving at once");
      leave(1);
    }
    stopping = true;
    logger.info({ reason }, "closing");
    systemClock.after(deadlineMs, () => {
      logger.error({ deadlineMs }, "closing took too long, leaving");
      leave(1);
    });
    void closeAndLeave(options);
  };

  // Threads that run already, such as the one that renews locks, keep their priority.
  if (givesWay) lowerPriority(logger);
  flushCompileCache(); // with NODE_COMPILE_CACHE, the next process starts as quickly after a kill as after a stop
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
  if (process.connected) {
    process.on("disconnect", () => stopping || stop("parent is gone"));
    process.send?.("running");
  }
  for (const event of ["uncaughtException", "unhandledRejection"] as const) {
    process.on(event, (error: unknown) => {
      logger.error({ error }, event);
      leave(1);
    });
  }
}
