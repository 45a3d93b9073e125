import type { Logger } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";

/** Work that nobody waits for: courtesies that must not delay an acknowledgement. */
export interface Background {
  /** Starts it; a failure is logged and nothing else. */
  run(what: string, work: () => Promise<void>): void;
  /** Lets what runs finish, for a while. */
  close(): Promise<void>;
}

export function createBackground(options: { logger: Logger; drainMs: number }): Background {
  const { logger, drainMs } = options;
  const running = new Set<Promise<void>>();
  return {
    run(what, work) {
      const task = work()
        .catch((error: unknown) => logger.warn({ error, what }, "work in the background failed"))
        .finally(() => running.delete(task));
      running.add(task);
    },
    async close() {
      await withDeadline(Promise.all(running), drainMs).catch((error: unknown) =>
        logger.warn({ error, unfinished: running.size }, "work in the background is left undone"),
      );
    },
  };
}
