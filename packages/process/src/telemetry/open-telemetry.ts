import type { ParseResult } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import { TraceLog } from "@larkline/store/operations";
import {
  createLogger,
  debugAdapter,
  type Logger,
  type LoggerOptions,
  type LogLevel,
} from "./logger.ts";
import { metricAdapter, Metrics } from "./metrics.ts";
import type { ObservedService } from "./observations.ts";
import { adapterOf, loadObservers } from "./observers.ts";
import { telemetryFor, type Telemetry, type TelemetryAdapter, TraceAdapter } from "./telemetry.ts";

/** What the log, the metrics and the telemetry of an app are opened with. */
export interface InstrumentsOptions
  extends Pick<TelemetryOptions, "service">, Pick<LoggerOptions, "destination"> {
  config: Pick<TelemetryOptions, "otlpEndpoint" | "otlpHeaders"> & {
    readonly logLevel: LogLevel;
    readonly redisUrl: string;
    readonly namespace: string;
  };
  settings: {
    readonly retention: { readonly traceDays: number };
    /** URLs of modules with the deployment's own observers. */
    readonly observers: readonly string[];
  };
  clock: Clock;
  random: Random;
}

/** What an app writes about itself. */
export interface Instruments extends ProcessTelemetry {
  readonly log: Logger;
  readonly metrics: Metrics;
}

/** Opens all that an app writes about itself. An error is a text of one line for each observer that cannot be used. */
export async function openInstruments({
  service,
  config,
  settings,
  destination,
  clock,
  random,
}: InstrumentsOptions): Promise<ParseResult<Instruments>> {
  const log = createLogger({ service, level: config.logLevel, destination, clock });
  const metrics = new Metrics({ service });
  const traceLog = TraceLog.connect({
    ...config,
    clock,
    random,
    ttlMs: settings.retention.traceDays * 86_400_000,
  });
  const opened = await openTelemetry({
    ...config,
    service,
    logger: log,
    metrics,
    traceLog,
    modules: settings.observers,
    clock,
    random,
  });
  return opened.ok ? { ok: true, value: { log, metrics, ...opened.value } } : opened;
}

export interface TelemetryOptions {
  service: ObservedService;
  logger: Logger;
  metrics: Metrics;
  /** Where spans are sent to (`OTEL_EXPORTER_OTLP_ENDPOINT`); absent: the SDK of OpenTelemetry is not loaded. */
  otlpEndpoint?: string | undefined;
  /** What is sent with them (`OTEL_EXPORTER_OTLP_HEADERS`). */
  otlpHeaders?: string | undefined;
  /** Where traces of messages are kept, on a connection of its own; closed with the telemetry, or when that is not opened. */
  traceLog: Pick<TraceLog, "append" | "close">;
  /** URLs of modules with the deployment's own observers. */
  modules: readonly string[];
  /** Those of the machine if absent. */
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** What a process is instrumented with, and all that becomes of it. */
export interface ProcessTelemetry {
  readonly telemetry: Telemetry;
  /** Sends what is still to be sent, for two seconds at most. Idempotent; to be called when nothing runs any more. */
  close(): Promise<void>;
}

/** Opens the telemetry of a process. An error is a text of one line for each module that cannot be used. */
export async function openTelemetry(
  options: TelemetryOptions,
): Promise<ParseResult<ProcessTelemetry>> {
  const { service, logger, metrics, otlpEndpoint, otlpHeaders, traceLog, modules, clock, random } =
    options;
  const own = await loadObservers(modules);
  if (!own.ok) {
    await traceLog.close();
    return own;
  }
  const traces = openTraces(options);
  const adapters: TelemetryAdapter[] = [
    metricAdapter(metrics, service),
    traces,
    ...own.value.map(adapterOf),
  ];
  if (logger.writesDebug) adapters.push(debugAdapter(logger));
  const closeTraces = async (): Promise<void> => {
    await traces.close();
    await traceLog.close();
  };
  if (otlpEndpoint === undefined) {
    return { ok: true, value: { telemetry: telemetryFor(adapters, options), close: closeTraces } };
  }
  // Several megabytes of code that most deployments do not need.
  const { otlpAdapter } = await import("./otlp.ts");
  const otlp = otlpAdapter({
    service,
    logger,
    endpoint: otlpEndpoint,
    headers: otlpHeaders,
    clock,
    random,
  });
  const close = async (): Promise<void> => void (await Promise.all([otlp.close(), closeTraces()]));
  return { ok: true, value: { telemetry: telemetryFor([...adapters, otlp], options), close } };
}

function openTraces({ service, logger, metrics, traceLog, clock }: TelemetryOptions): TraceAdapter {
  const dropped = metrics.createCounter("larkline_trace_entries_dropped_total");
  return new TraceAdapter({
    log: traceLog,
    clock,
    service,
    onError: (error) => logger.warn({ error }, "traces of messages are not written"),
    onDropped: (count) => dropped.add(count),
  });
}
