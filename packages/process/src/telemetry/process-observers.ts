import type { ParseResult } from "@larkline/protocol";
import type { TraceLog } from "@larkline/store";
import { createLogObserver } from "./log-observer.ts";
import type { Logger } from "./logger.ts";
import { createMetricObserver } from "./metric-observer.ts";
import type { Metrics } from "./metrics.ts";
import { loadObservers } from "./observer-modules.ts";
import type { ObservedService } from "./observations.ts";
import { observeWith, type Observation } from "./observer.ts";
import { createTraceLogObserver, type TraceLogObserver } from "./trace-log-observer.ts";

export interface ProcessObserversOptions {
  service: ObservedService;
  logger: Logger;
  metrics: Metrics;
  /** Where spans are sent to (`OTEL_EXPORTER_OTLP_ENDPOINT`); absent: nothing of OpenTelemetry is loaded. */
  otlpEndpoint?: string | undefined;
  /** What is sent with them (`OTEL_EXPORTER_OTLP_HEADERS`). */
  otlpHeaders?: string | undefined;
  /** Where traces of messages are kept, on a connection of its own; closed with the observers. */
  traceLog: { log: Pick<TraceLog, "append">; close(): Promise<void> };
  /** URLs of modules with the deployment's own observers. */
  modules: readonly string[];
}

/** All observers of a process. */
export interface ProcessObservers {
  /** Tells all of them. */
  readonly observation: Observation;
  /** Sends what is still to be sent, for two seconds at most. Idempotent; to be called when nothing runs any more. */
  close(): Promise<void>;
}

function openTraces({ service, logger, metrics, traceLog }: ProcessObserversOptions): TraceLogObserver {
  const dropped = metrics.counter({
    name: "larkline_trace_entries_dropped_total",
    help: "Entries of traces that are lost, because Redis did not take them or not fast enough.",
  });
  return createTraceLogObserver({
    log: traceLog.log,
    service,
    onError: (error) => logger.warn({ error }, "traces of messages are not written"),
    onDropped: (count) => dropped.add({}, count),
  });
}

/** Opens the observers of a process. An error is a text of one line for each module that cannot be used. */
export async function openObservers(options: ProcessObserversOptions): Promise<ParseResult<ProcessObservers>> {
  const { service, logger, metrics, otlpEndpoint, otlpHeaders, traceLog, modules } = options;
  const own = await loadObservers(modules);
  if (!own.ok) return own;
  const traces = openTraces(options);
  const observers = [createLogObserver(logger), createMetricObserver(metrics, service), traces, ...own.value];
  const closeTraces = async (): Promise<void> => {
    await traces.close();
    await traceLog.close();
  };
  if (otlpEndpoint === undefined) {
    return { ok: true, value: { observation: observeWith(observers), close: closeTraces } };
  }
  // Several megabytes of code that most deployments do not need.
  const { createOtelObserver } = await import("./otel-observer.ts");
  const otel = createOtelObserver({ service, logger, endpoint: otlpEndpoint, headers: otlpHeaders });
  const close = async (): Promise<void> => void (await Promise.all([otel.close(), closeTraces()]));
  return { ok: true, value: { observation: observeWith([...observers, otel]), close } };
}
