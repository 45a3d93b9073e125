export {
  createLogger,
  logLevels,
  silentLogger,
  type LogBindings,
  type LogFields,
  type Logger,
  type LoggerOptions,
  type LogLevel,
} from "./logger.ts";
export {
  createMetrics,
  type CounterMetric,
  type GaugeMetric,
  type HistogramMetric,
  type Labels,
  type MetricOptions,
  type Metrics,
} from "./metrics.ts";
export {
  eventCatalogue,
  metricCatalogue,
  prometheusName,
  spanCatalogue,
  type EventName,
  type MetricFacts,
  type MetricName,
  type ObservationFacts,
  type ObservedService,
  type SpanFacts,
  type SpanName,
} from "./observations.ts";
export { observeWith, unobserved, type Observation, type Observer, type Span, type Tags } from "./observer.ts";
export { openObservers, type ProcessObservers, type ProcessObserversOptions } from "./process-observers.ts";
export { registerOpsRoutes, type OpsRoutes, type ReadyCheck } from "./ops-routes.ts";
export { startOpsServer, type OpsServer, type OpsServerOptions } from "./ops-server.ts";
export { createClockLog, createOutageLog, type OutageLog } from "./outage-log.ts";
export { redactFields, scrubText } from "./redact.ts";
export { runUntilSignal, type RunUntilSignalOptions } from "./run-until-signal.ts";
export { watchPlatform, type PlatformWatch } from "./platform-watch.ts";
