import type { Logger } from "./logger.ts";

/** What is logged of something that others reconnect to by themselves. */
export interface OutageLog {
  /** Another try has failed. */
  failed(error: unknown): void;
  back(): void;
}

/** One line when an outage begins and one when it is over, however many tries fail in between, and whoever makes them. */
export function createOutageLog(logger: Pick<Logger, "warn" | "info">, name: string): OutageLog {
  let isBroken = false;
  return {
    failed: (error) => {
      if (!isBroken) logger.warn({ error }, `${name} cannot be reached, trying again`);
      isBroken = true;
    },
    back: () => {
      if (isBroken) logger.info({}, `${name} is reached again`);
      isBroken = false;
    },
  };
}

/** What the log says when clocks begin to differ, and when they agree again. */
export function createClockLog(logger: Pick<Logger, "warn" | "info">): (problem: string | undefined) => void {
  return (problem) =>
    problem === undefined ? logger.info({}, "clocks agree again") : logger.warn({ problem }, "clocks differ");
}
