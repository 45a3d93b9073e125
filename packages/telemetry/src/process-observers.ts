import type { ParseResult } from "@larkline/protocol";
import { createLogObserver } from "./log-observer.ts";
import type { Logger } from "./logger.ts";
import { createMetricObserver } from "./metric-observer.ts";
import type { Metrics } from "./metrics.ts";
import { loadObservers } from "./observer-modules.ts";
import type { ObservedService } from "./observations.ts";
import type { Observer } from "./observer.ts";

export interface ProcessObserversOptions {
  service: ObservedService;
  logger: Logger;
  metrics: Metrics;
  /** Where spans are sent to (`OTEL_EXPORTER_OTLP_ENDPOINT`); absent: nothing of OpenTelemetry is loaded. */
  otlpEndpoint: string | undefined;
  /** URLs of modules with the deployment's own observers. */
  modules: readonly string[];
}

/** All observers of a process. */
export interface ProcessObservers {
  readonly observers: readonly Observer[];
  /** Sends what is still to be sent, for a second at most. Idempotent; to be called when nothing runs any more. */
  close(): Promise<void>;
}

/** Opens the observers of a process. An error is a text of one line for each module that cannot be used. */
export async function openObservers(options: ProcessObserversOptions): Promise<ParseResult<ProcessObservers>> {
  const { service, logger, metrics, otlpEndpoint, modules } = options;
  const own = await loadObservers(modules);
  if (!own.ok) return own;
  const observers = [createLogObserver(logger), createMetricObserver(metrics, service), ...own.value];
  if (otlpEndpoint === undefined) return { ok: true, value: { observers, close: async () => {} } };
  // Several megabytes of code that most deployments do not need.
  const { createOtelObserver } = await import("./otel-observer.ts");
  const otel = createOtelObserver(service, logger);
  return { ok: true, value: { observers: [...observers, otel], close: otel.close } };
}
