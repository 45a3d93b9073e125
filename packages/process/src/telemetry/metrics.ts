import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";

/** Values for the label names that a metric was created with. */
export type Labels<Name extends string> = Readonly<Record<Name, string | number>>;

/** What a metric is called (`larkline_turns_total`), what it counts, and by which labels. */
export interface MetricOptions<Name extends string> {
  name: string;
  help: string;
  labels?: readonly Name[];
}

export interface CounterMetric<Name extends string> {
  /** Adds `amount`, default 1. */
  add(labels: Labels<Name>, amount?: number): void;
}

export interface GaugeMetric<Name extends string> {
  set(labels: Labels<Name>, value: number): void;
  add(labels: Labels<Name>, amount: number): void;
  /** Forgets all values: nothing is shown until the next one is set. */
  clear(): void;
}

export interface HistogramMetric<Name extends string> {
  /** Durations in seconds, sizes in bytes. */
  observe(labels: Labels<Name>, value: number): void;
}

/** The metrics of one process, in a registry of its own. A name can be created once. */
export interface Metrics {
  counter<Name extends string = never>(options: MetricOptions<Name>): CounterMetric<Name>;
  /** `read` is called at each scrape and its value shown, for facts that others hold (no labels). */
  gauge<Name extends string = never>(
    options: MetricOptions<Name> & { read?: () => number | Promise<number> },
  ): GaugeMetric<Name>;
  /** Default buckets suit durations from 1 ms to 5 minutes, in seconds. */
  histogram<Name extends string = never>(
    options: MetricOptions<Name> & { buckets?: readonly number[] },
  ): HistogramMetric<Name>;
  /** `refresh` is awaited at each scrape, before anything is shown; it must not reject, nor take long. */
  onScrape(refresh: () => Promise<void>): void;
  /** All metrics in the Prometheus text format. */
  text(): Promise<string>;
  /** Media type of {@link text}. */
  readonly contentType: string;
}

const durationBuckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;

function describe<Name extends string>(registry: Registry, options: MetricOptions<Name>) {
  return {
    name: options.name,
    help: options.help,
    labelNames: [...(options.labels ?? [])],
    registers: [registry],
  };
}

type GaugeOptions<Name extends string> = MetricOptions<Name> & { read?: () => number | Promise<number> };

function createGauge<Name extends string>(registry: Registry, options: GaugeOptions<Name>): GaugeMetric<Name> {
  const { read } = options;
  const gauge = new Gauge({
    ...describe(registry, options),
    ...(read === undefined
      ? {}
      : {
          async collect() {
            gauge.set(await read());
          },
        }),
  });
  return {
    set: (labels, value) => gauge.set(labels, value),
    add: (labels, amount) => gauge.inc(labels, amount),
    clear: () => {
      gauge.reset();
      // A gauge without labels is reset to 0.
      if ((options.labels ?? []).length === 0) gauge.remove({});
    },
  };
}

/** Creates the metrics of a process; those of Node itself (CPU, memory, event loop) are included. */
export function createMetrics({ service }: { service: string }): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry });
  const refreshes: (() => Promise<void>)[] = [];
  return {
    counter(options) {
      const counter = new Counter(describe(registry, options));
      return { add: (labels, amount = 1) => counter.inc(labels, amount) };
    },
    gauge: (options) => createGauge(registry, options),
    histogram(options) {
      const buckets = [...(options.buckets ?? durationBuckets)];
      const histogram = new Histogram({ ...describe(registry, options), buckets });
      return { observe: (labels, value) => histogram.observe(labels, value) };
    },
    onScrape: (refresh) => void refreshes.push(refresh),
    text: async () => {
      await Promise.all(refreshes.map(async (refresh) => await refresh()));
      return await registry.metrics();
    },
    contentType: registry.contentType,
  };
}
