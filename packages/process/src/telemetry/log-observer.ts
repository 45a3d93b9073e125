import type { Logger } from "./logger.ts";
import type { Observer, Tags } from "./observer.ts";

interface OpenSpan {
  name: string;
  tags: Tags;
  startedMs: number;
}

/** Spans under way at most: one that never ends must not be remembered for ever. */
const maxOpen = 10_000;

/**
 * Writes all that is observed at the level `debug`. What operators have to know is a line of its own, written
 * where it happens; errors stand here a second time, with the message that they belong to.
 */
export function createLogObserver(logger: Logger): Observer {
  const open = new Map<string, OpenSpan>();
  let spans = 0;
  return {
    event: (name, data) => logger.debug({ ...data, event: name }, "event"),
    error: (error, context) => logger.debug({ ...context, error }, "error"),
    spanStart: (name, tags) => {
      const [oldest] = open.size < maxOpen ? [] : open.keys();
      if (oldest !== undefined) open.delete(oldest);
      spans += 1;
      open.set(String(spans), { name, tags, startedMs: performance.now() });
      return String(spans);
    },
    spanEnd: (spanId, error, more) => {
      const span = open.get(spanId);
      if (span === undefined) return;
      open.delete(spanId);
      const ms = Math.round(performance.now() - span.startedMs);
      const failed = error === undefined ? {} : { error };
      logger.debug({ ...span.tags, ...more, ...failed, span: span.name, ms }, "span");
    },
  };
}
