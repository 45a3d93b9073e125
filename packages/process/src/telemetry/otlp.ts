import {
  diag,
  DiagLogLevel,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Span,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  RandomIdGenerator,
  TracerProvider,
  type IdGenerator,
} from "@opentelemetry/sdk-trace";
import {
  systemClock,
  systemRandom,
  withDeadline,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import { redactFields, scrubText, type Logger } from "./logger.ts";
import {
  spanCatalogue,
  undecidedOutcomes,
  type ObservedService,
  type SpanFacts,
} from "./observations.ts";
import type { RecordedSpan, Tags, TelemetryAdapter } from "./telemetry.ts";

export interface OtlpOptions {
  service: ObservedService;
  logger: Logger;
  /** Address of a collector; `/v1/traces` is added. */
  endpoint: string;
  /** As in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value` with commas between, values percent-encoded. */
  headers?: string | undefined;
  /** Those of the machine if absent. */
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** Sends spans in batches, and so has something to end. */
export interface OtlpAdapter extends TelemetryAdapter {
  /** Sends what is left, for a second at most. Idempotent. */
  close(): Promise<void>;
}

/** Spans that wait to be sent, about 1 kB each; more are dropped. */
const maxWaiting = 4_096;
const closeDeadlineMs = 1_000;
/** Pause between two log lines that say that nothing can be sent. */
const troublePauseMs = 60_000;

const kinds: Readonly<Record<string, SpanKind>> = {
  "message.receive": SpanKind.SERVER,
  "turn.run": SpanKind.CONSUMER,
  "model.step": SpanKind.CLIENT,
  "tool.run": SpanKind.CONSUMER,
  "card.write": SpanKind.CLIENT,
};

/**
 * Sends spans by OTLP over HTTP. Trace and parent are those of the tag `traceparent`; spans of other processes meet in
 * the same trace, because each knows the message. The SDK's span is made when ours ends: only then is it known whether a
 * `message.receive` is the root, whose id is the one in `traceparent`.
 */
export function otlpAdapter(options: OtlpOptions): OtlpAdapter {
  const { logger, clock = systemClock } = options;
  tellTroubles(logger, clock);
  const ids = new GivenIds();
  const provider = createProvider(options, ids);
  const tracer = provider.getTracer("larkline");
  const open = new OpenSpans();

  const finish = ({ span, parent, happened }: OpenSpan): void => {
    const tags = { ...span.tags, ...span.endTags };
    const isRoot = decides(span.name, tags) && parent !== undefined;
    const above =
      isRoot || parent === undefined
        ? undefined
        : { ...parent, traceFlags: TraceFlags.SAMPLED, isRemote: true };
    const context = above === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, above);
    const settings = {
      kind: kinds[span.name] ?? SpanKind.INTERNAL,
      attributes: attributesOf(tags),
      startTime: span.startedAtMs,
    };
    const sent = ids.within(isRoot ? parent : span.spanContext(), () =>
      tracer.startSpan(span.name, settings, context),
    );
    for (const note of happened) note(sent);
    if (span.error !== undefined) {
      sent.recordException(describeError(span.error));
      sent.setStatus({ code: SpanStatusCode.ERROR, message: describeError(span.error).message });
    }
    sent.end(span.startedAtMs + span.elapsedMs());
  };

  let closed: Promise<void> | undefined;
  return {
    event: (name, tags) => {
      const atMs = clock.now();
      open.happen(tags, (span) => span.addEvent(name, attributesOf(tags), atMs));
    },
    error: (error, tags) => {
      const atMs = clock.now();
      open.happen(tags, (span) => span.recordException(describeError(error), atMs));
    },
    spanStarted: (span) => {
      const begun = open.add(span);
      return () => {
        open.remove(begun);
        finish(begun);
      };
    },
    close: async () => await (closed ??= withinDeadline(provider.shutdown(), clock)),
  };
}

function decides(name: string, { outcome, continued }: Tags): boolean {
  return (
    name === "message.receive" &&
    continued !== true &&
    !undecidedOutcomes.has(String(outcome ?? "failed"))
  );
}

function isAttribute(value: unknown): value is string | number | boolean {
  return ["string", "number", "boolean"].includes(typeof value);
}

function attributesOf({ traceparent: _traceparent, ...tags }: Tags): Attributes {
  const entries = Object.entries(redactFields(tags)).flatMap(([name, value]) =>
    isAttribute(value) ? [[`larkline.${name}`, value] as const] : [],
  );
  return Object.fromEntries(entries);
}

function describeError(error: unknown): { name: string; message: string } {
  return error instanceof Error
    ? { name: error.name, message: scrubText(error.message) }
    : { name: "Error", message: scrubText(String(error)) };
}

function ignore(): void {}

/** Logs the exporter's troubles, a line now and then; other parts do not see them. */
function tellTroubles(logger: Logger, clock: Clock): void {
  let toldAtMs = Number.NEGATIVE_INFINITY;
  const tell = (message: string): void => {
    if (clock.monotonic() - toldAtMs < troublePauseMs) return;
    toldAtMs = clock.monotonic();
    logger.warn({ reason: scrubText(message) }, "spans cannot be sent");
  };
  const logTo = { error: tell, warn: tell, info: ignore, debug: ignore, verbose: ignore };
  diag.setLogger(logTo, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value; // it has a percent sign of its own
  }
}

function headersIn(text: string): Record<string, string> {
  const pairs = text.split(",").map((pair) => {
    const [name = "", ...value] = pair.split("=");
    return [name.trim(), decoded(value.join("=").trim())] as const;
  });
  return Object.fromEntries(pairs.filter(([name]) => name !== ""));
}

/** Other settings of the exporter, and attributes of the resource, are read by the SDK from the standard variables. */
function createProvider(
  { service, endpoint, headers, random = systemRandom }: OtlpOptions,
  idGenerator: IdGenerator,
): TracerProvider {
  const own = {
    "service.name": `larkline-${service}`,
    "service.namespace": "larkline",
    "service.instance.id": random.uuid(),
  };
  const resource = defaultResource()
    .merge(resourceFromAttributes(own))
    .merge(detectResources({ detectors: [envDetector] }));
  const url = `${endpoint.replace(/\/$/, "")}/v1/traces`;
  const exporter = new OTLPTraceExporter({ url, headers: headersIn(headers ?? "") });
  const processor = new BatchSpanProcessor({
    exporter,
    maxQueueSize: maxWaiting,
    scheduledDelayMillis: 1_000,
  });
  return new TracerProvider({ resource, idGenerator, spanProcessors: [processor] });
}

/** What a span is named by. */
interface SpanIds {
  traceId: string;
  spanId: string;
}

/** Gives spans the ids that were chosen for them before they are made. */
class GivenIds implements IdGenerator {
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

/** A span that has begun. */
interface OpenSpan {
  readonly span: RecordedSpan;
  /** Absent: the span begins a trace of its own. */
  readonly parent: SpanIds | undefined;
  /** What happened while it was open. */
  readonly happened: ((span: Span) => void)[];
}

const maxHappened = 100;
/** Messages with spans under way at most: those of spans that never end are forgotten, oldest first. */
const maxMessages = 10_000;

const places: Readonly<Record<string, SpanFacts>> = spanCatalogue;

/** The spans of a process that have begun, by the message that they belong to. */
class OpenSpans {
  readonly #byMessage = new Map<string, readonly OpenSpan[]>();

  add(span: RecordedSpan): OpenSpan {
    const siblings = this.#of(span.tags);
    const within = places[span.name]?.within ?? [];
    const above = siblings
      .findLast((other) => within.includes(other.span.name))
      ?.span.spanContext();
    const root = idsOf(span.tags["traceparent"]);
    const open: OpenSpan = { span, parent: above ?? root, happened: [] };
    if (root === undefined) return open;
    const [oldest] = this.#byMessage.size < maxMessages ? [] : this.#byMessage.keys();
    if (oldest !== undefined) this.#byMessage.delete(oldest);
    this.#byMessage.set(String(span.tags["traceparent"]), [...siblings, open]);
    return open;
  }

  remove(open: OpenSpan): void {
    const message = String(open.span.tags["traceparent"]);
    const left = this.#of(open.span.tags).filter((other) => other !== open);
    if (left.length === 0) this.#byMessage.delete(message);
    else this.#byMessage.set(message, left);
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

function idsOf(traceparent: unknown): SpanIds | undefined {
  const [, traceId, spanId] =
    /^00-([0-9a-f]{32})-([0-9a-f]{16})-0[01]$/.exec(String(traceparent)) ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

async function withinDeadline(ending: Promise<void>, clock: Clock): Promise<void> {
  await withDeadline(clock, ending, closeDeadlineMs).catch(() => undefined); // the rest is lost
}
