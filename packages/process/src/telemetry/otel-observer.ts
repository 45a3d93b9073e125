import { randomUUID } from "node:crypto";
import { diag, DiagLogLevel, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace, TraceFlags } from "@opentelemetry/api";
import type { Attributes } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, TracerProvider, type IdGenerator } from "@opentelemetry/sdk-trace";
import type { Logger } from "./logger.ts";
import { undecidedOutcomes, type ObservedService } from "./observations.ts";
import type { Observer, Tags } from "./observer.ts";
import { GivenIds, OpenSpans, type OpenSpan } from "./open-spans.ts";
import { redactFields, scrubText } from "./redact.ts";

export interface OtelObserverOptions {
  service: ObservedService;
  logger: Logger;
  /** Address of a collector; `/v1/traces` is added. */
  endpoint: string;
  /** As in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value` with commas between, values percent-encoded. */
  headers?: string | undefined;
}

/** An observer whose spans leave the process in batches, and which has something to end. */
export interface OtelObserver extends Observer {
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

/** Troubles of the exporter, a line now and then: they are nobody else's business. */
function tellTroubles(logger: Logger): void {
  let toldAtMs = Number.NEGATIVE_INFINITY;
  const tell = (message: string): void => {
    if (performance.now() - toldAtMs < troublePauseMs) return;
    toldAtMs = performance.now();
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
function createProvider({ service, endpoint, headers }: OtelObserverOptions, idGenerator: IdGenerator): TracerProvider {
  const own = {
    "service.name": `larkline-${service}`,
    "service.namespace": "larkline",
    "service.instance.id": randomUUID(),
  };
  const resource = defaultResource()
    .merge(resourceFromAttributes(own))
    .merge(detectResources({ detectors: [envDetector] }));
  const url = `${endpoint.replace(/\/$/, "")}/v1/traces`;
  const exporter = new OTLPTraceExporter({ url, headers: headersIn(headers ?? "") });
  const processor = new BatchSpanProcessor({ exporter, maxQueueSize: maxWaiting, scheduledDelayMillis: 1_000 });
  return new TracerProvider({ resource, idGenerator, spanProcessors: [processor] });
}

function decides(name: string, { outcome, continued }: Tags): boolean {
  return name === "message.receive" && continued !== true && !undecidedOutcomes.has(String(outcome ?? "failed"));
}

/**
 * Spans for OpenTelemetry, by OTLP over HTTP. Trace and parent are those of the tag `traceparent`; spans of
 * other processes meet in the same trace, because each knows the message. A span is made when it ends: only
 * then is it known whether a `message.receive` is the root, whose id is the one in `traceparent`.
 */
export function createOtelObserver(options: OtelObserverOptions): OtelObserver {
  tellTroubles(options.logger);
  const ids = new GivenIds();
  const provider = createProvider(options, ids);
  const tracer = provider.getTracer("larkline");
  const spans = new OpenSpans(ids);

  const finish = (open: OpenSpan, error: unknown, tags: Tags): void => {
    const { name, parent, startedAtMs } = open;
    const above = parent && { ...parent, traceFlags: TraceFlags.SAMPLED, isRemote: true };
    const context = above === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, above);
    const kind = kinds[name] ?? SpanKind.INTERNAL;
    const attributes = attributesOf(tags);
    const span = ids.within(open.ids, () =>
      tracer.startSpan(name, { kind, attributes, startTime: startedAtMs }, context),
    );
    for (const happen of open.happened) happen(span);
    if (error !== undefined) {
      span.recordException(describeError(error));
      span.setStatus({ code: SpanStatusCode.ERROR, message: describeError(error).message });
    }
    span.end(startedAtMs + (performance.now() - open.startedMs));
  };

  let closed: Promise<void> | undefined;
  return {
    event: (name, data) => {
      const atMs = Date.now();
      spans.happen(data, (span) => span.addEvent(name, attributesOf(data), atMs));
    },
    error: (error, context) => {
      const atMs = Date.now();
      spans.happen(context, (span) => span.recordException(describeError(error), atMs));
    },
    spanStart: (name, tags) => spans.open(name, tags),
    spanEnd: (spanId, error, more) => {
      const open = spans.take(spanId);
      if (open === undefined) return;
      const tags = { ...open.tags, ...more };
      const root = decides(open.name, tags) ? open.parent : undefined;
      finish(root === undefined ? open : { ...open, ids: root, parent: undefined }, error, tags);
    },
    close: async () => await (closed ??= withinDeadline(provider.shutdown())),
  };
}

async function withinDeadline(ending: Promise<void>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, closeDeadlineMs);
  await Promise.race([ending.catch(() => undefined), promise]);
  clearTimeout(timer);
}
