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
