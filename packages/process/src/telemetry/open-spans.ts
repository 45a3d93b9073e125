import type { Span } from "@opentelemetry/api";
import { RandomIdGenerator, type IdGenerator } from "@opentelemetry/sdk-trace";
import { spanCatalogue, type SpanFacts } from "./observations.ts";
import type { Tags } from "./observer.ts";

/** What a span is named by. */
export interface SpanIds {
  traceId: string;
  spanId: string;
}

/** A span that has begun. */
export interface OpenSpan {
  readonly name: string;
  readonly tags: Tags;
  readonly ids: SpanIds;
  /** Absent: the span begins a trace of its own. */
  readonly parent: SpanIds | undefined;
  /** By the clock, and by what measures how long it takes. */
  readonly startedAtMs: number;
  readonly startedMs: number;
  /** What happened while it was open. */
  readonly happened: ((span: Span) => void)[];
}

const maxHappened = 100;
/** Spans under way at most: one that never ends must not be remembered for ever. */
const maxOpen = 10_000;

const places: Readonly<Record<string, SpanFacts>> = spanCatalogue;

function idsOf(traceparent: unknown): SpanIds | undefined {
  const [, traceId, spanId] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-0[01]$/.exec(String(traceparent)) ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

/** Gives spans the ids that were chosen for them before they are made. */
export class GivenIds implements IdGenerator {
  readonly #random = new RandomIdGenerator();
  #given: SpanIds | undefined;

  /** The one span that `make` makes has these ids; its trace that of its parent, if it has one. */
  within<T>(given: SpanIds, make: () => T): T {
    this.#given = given;
    try {
      return make();
    } finally {
      this.#given = undefined;
    }
  }

  generateTraceId(): string {
    return this.#given?.traceId ?? this.#random.generateTraceId();
  }

  generateSpanId(): string {
    return this.#given?.spanId ?? this.#random.generateSpanId();
  }
}

/** The spans of a process that have begun, by their ids and by the message that they belong to. */
export class OpenSpans {
  readonly #ids: IdGenerator;
  readonly #byId = new Map<string, OpenSpan>();
  readonly #byMessage = new Map<string, readonly OpenSpan[]>();

  constructor(ids: IdGenerator) {
    this.#ids = ids;
  }

  /** Returns the id of the span. */
  open(name: string, tags: Tags): string {
    const root = idsOf(tags["traceparent"]);
    const siblings = this.#of(tags);
    const within = places[name]?.within ?? [];
    const parent = siblings.findLast((span) => within.includes(span.name))?.ids ?? root;
    const ids = { traceId: root?.traceId ?? this.#ids.generateTraceId(), spanId: this.#ids.generateSpanId() };
    const span = { name, tags, ids, parent, startedAtMs: Date.now(), startedMs: performance.now(), happened: [] };
    const [oldest] = this.#byId.size < maxOpen ? [] : this.#byId.keys();
    if (oldest !== undefined) this.take(oldest);
    this.#byId.set(ids.spanId, span);
    if (root !== undefined) this.#byMessage.set(String(tags["traceparent"]), [...siblings, span]);
    return ids.spanId;
  }

  /** Ends it here; undefined when there is none of that id. */
  take(spanId: string): OpenSpan | undefined {
    const span = this.#byId.get(spanId);
    if (span === undefined) return undefined;
    this.#byId.delete(spanId);
    const left = this.#of(span.tags).filter((other) => other !== span);
    const message = String(span.tags["traceparent"]);
    if (left.length === 0) this.#byMessage.delete(message);
    else this.#byMessage.set(message, left);
    return span;
  }

  /** Notes it on the newest open span of the message; there may be none in this process. */
  happen(tags: Tags, note: (span: Span) => void): void {
    const happened = this.#of(tags).at(-1)?.happened;
    if (happened !== undefined && happened.length < maxHappened) happened.push(note);
  }

  #of(tags: Tags): readonly OpenSpan[] {
    return this.#byMessage.get(String(tags["traceparent"])) ?? [];
  }
}
