import type { EventName, MetricName, SpanName } from "./observations.ts";

/** Facts of an observation. Ids and numbers, never content; secrets are redacted by those who write them down. */
export type Tags = Readonly<Record<string, string | number | boolean>>;

/**
 * Watches how the system runs. Told as things happen, never asked; what it does with it is its own
 * business, must not take time, and cannot disturb the run: whatever it throws is dropped.
 * Metrics and spans are optional: an observer that has no such method is not told.
 *
 * The tag `traceparent` says which message an observation belongs to.
 */
export interface Observer {
  /** Something happened, such as `message.refused`. */
  event(name: string, data: Tags): void;
  /** Something went wrong that somebody should know of. */
  error(error: unknown, context: Tags): void;
  /** One sample, such as `model.step_seconds`, 1.2, `{ model: "anthropic/claude-sonnet-5-5" }`. */
  metric?(name: string, value: number, tags: Tags): void;
  /** Something that takes time begins; returns an id for its end. */
  spanStart?(name: string, tags: Tags): string;
  /** It is over; with what is known of it only now. An `error` says that it failed. */
  spanEnd?(spanId: string, error?: unknown, tags?: Tags): void;
}

/** Something that takes time and is under way. */
export interface Span {
  /** Ends it; the second end does nothing. */
  end(error?: unknown, tags?: Tags): void;
}

/** What the parts of the system speak to: all observers as one. Nothing of it throws. */
export interface Observation {
  event(name: EventName, data: Tags): void;
  error(error: unknown, context: Tags): void;
  metric(name: MetricName, value: number, tags: Tags): void;
  span(name: SpanName, tags: Tags): Span;
}

function ignore(): void {}

/** Runs it; an observer that throws disturbs nobody, nor one that promises something and does not keep it. */
function quietly<T>(observe: () => T): T | undefined {
  try {
    const result = observe();
    if (result instanceof Promise) result.catch(ignore);
    return result;
  } catch {
    return undefined;
  }
}

function startSpan(observer: Observer, name: string, tags: Tags): (error: unknown, tags: Tags | undefined) => void {
  const spanId = quietly(() => observer.spanStart?.(name, tags));
  return (error, more) => {
    if (typeof spanId === "string") quietly(() => observer.spanEnd?.(spanId, error, more));
  };
}

/** Tells each observer what it is able to hear. */
export function observeWith(observers: readonly Observer[]): Observation {
  const tell = (observe: (observer: Observer) => unknown): void => {
    for (const observer of observers) quietly(() => observe(observer));
  };
  return {
    event: (name, data) => tell((observer) => observer.event(name, data)),
    error: (error, context) => tell((observer) => observer.error(error, context)),
    metric: (name, value, tags) => tell((observer) => observer.metric?.(name, value, tags)),
    span: (name, tags) => {
      let ends: ReturnType<typeof startSpan>[] | undefined = observers.map((one) => startSpan(one, name, tags));
      return {
        end: (error, more) => {
          for (const end of ends ?? []) end(error, more);
          ends = undefined;
        },
      };
    },
  };
}

/** Nobody watches. */
export const unobserved: Observation = observeWith([]);
