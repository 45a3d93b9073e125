export {
  createClockLog,
  createLogger,
  createOutageLog,
  logLevels,
  redactFields,
  scrubText,
  silentLogger,
  type LogBindings,
  type LogFields,
  type Logger,
  type LoggerOptions,
  type LogLevel,
  type OutageLog,
} from "./logger.ts";
export type { BatchObservableResult, Counter, Gauge, Histogram } from "@opentelemetry/api";
export { Metrics, type InstrumentOptions } from "./metrics.ts";
export {
  eventCatalogue,
  instrumentCatalogue,
  metricCatalogue,
  prometheusName,
  spanCatalogue,
  type EventName,
  type InstrumentFacts,
  type MetricFacts,
  type MetricName,
  type ObservationFacts,
  type ObservedService,
  type SpanFacts,
  type SpanName,
} from "./observations.ts";
export { adapterOf, type Observer } from "./observers.ts";
export { openInstruments, type Instruments, type InstrumentsOptions } from "./open-telemetry.ts";
export {
  registerOpsRoutes,
  startOpsServer,
  type OpsRoutes,
  type OpsServer,
  type OpsServerOptions,
  type ReadyCheck,
} from "./ops-server.ts";
export { runUntilSignal, type RunUntilSignalOptions } from "./run-until-signal.ts";
export {
  silentTelemetry,
  telemetryFor,
  watchPlatform,
  type PlatformWatch,
  type Span,
  type Tags,
  type Telemetry,
  type TelemetryAdapter,
} from "./telemetry.ts";
